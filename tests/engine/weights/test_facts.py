"""How weights are quantised and licensed, as people name it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.weights import FileTensor, open_checkpoint
from engine.weights.facts import licence, quantisation_name
from tests.tiny import TINY, write_folder, write_gguf


class Opened:
    """A `Checkpoint` whose config says how its weights are quantised; they are not looked at."""

    format = "safetensors"
    tensors: dict[str, FileTensor] = {}

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.metadata = path, {"config": {"quantization_config": settings}}

    def close(self) -> None:
        """Nothing is open."""


WIDE = TINY.but(layers=1)


@pytest.mark.parametrize(
    ("type_name", "file_type", "expected"),
    [("Q4_1", 15, "Q4_K_M"), ("Q4_1", None, "Q4_1"), ("Q4_1", 1, "Q4_1"), ("Q8_0", 7, "Q8_0"),
    ("BF16", 32, "BF16"), ("F16", 15, "F16"),
     ("Q4_1", 1024, "Q4_1"), ("F32", 0, "F32")],
)  # fmt: skip
def test_gguf_files(tmp_path: Path, type_name: str, file_type: int | None, expected: str) -> None:
    keys = {} if file_type is None else {"general__file_type": file_type}
    assert (
        quantisation_name(open_checkpoint(write_gguf(tmp_path / "m.gguf", WIDE, type_name, **keys)))
        == expected
    )


GROUP = {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 128}}}
FLOAT_GROUP = {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "GPTQ 4-bit g128"),
        ({"quant_method": "gptq", "bits": 3, "group_size": -1}, "GPTQ 3-bit"),
        ({"quant_method": "awq", "w_bit": 4, "group_size": 64}, "AWQ 4-bit g64"),
        ({"quant_method": "exl2", "bits": 4.25}, "EXL2 4.25 bpw"),
        ({"quant_method": "exl3", "bits": 3.0}, "EXL3 3 bpw"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "FP8"),
        ({"quant_method": "fbgemm_fp8"}, "FP8"),
        ({"quant_method": "mxfp8"}, "MXFP8"),
        ({"quant_method": "mlx", "bits": 4, "group_size": 64}, "MLX 4-bit g64"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "NVFP4"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "AutoRound 4-bit g128"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            "bitsandbytes nf4",
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes int8"),
        ({"quant_method": "mxfp4"}, "MXFP4"),
        ({"quant_method": "compressed-tensors", "config_groups": GROUP}, "compressed-tensors 4-bit g128"),
        ({"quant_method": "compressed-tensors", "config_groups": FLOAT_GROUP}, "FP8"),
        ({"quant_method": "compressed-tensors", "config_groups": 7}, "compressed-tensors"),
        ({"quant_method": ["odd"]}, ""),
    ],
)
def test_settings_of_folders(tmp_path: Path, settings: dict[str, Any], expected: str) -> None:
    assert quantisation_name(Opened(tmp_path, settings)) == expected


def test_plain_folders(tmp_path: Path) -> None:
    assert quantisation_name(open_checkpoint(write_folder(tmp_path / "m", WIDE, "BF16"))) == "BF16"
    (tmp_path / "config.json").write_text("{}")
    save_file(
        {"a.weight": torch.zeros(8, 8).to(torch.float8_e4m3fn), "b.weight": torch.zeros(2, 2)},
        tmp_path / "model.safetensors",
    )
    assert quantisation_name(open_checkpoint(tmp_path)) == "FP8"


def test_licence_of_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    assert licence(open_checkpoint(write_gguf(path, WIDE))) == ""
    assert licence(open_checkpoint(write_gguf(path, WIDE, general__license="apache-2.0"))) == "apache-2.0"
    named = {"general__license": "other", "general__license.name": "llama  community\n3"}
    assert licence(open_checkpoint(write_gguf(path, WIDE, **named))) == "llama community 3"
    assert licence(open_checkpoint(write_gguf(path, WIDE, general__license=5))) == ""
    assert len(licence(open_checkpoint(write_gguf(path, WIDE, general__license="x" * 5000)))) == 100


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlanguage: en\nlicense: apache-2.0\n---\nlicense: mit\n", "apache-2.0"),
        ('---\r\nlicense: "mit"\r\n---\r\n', "mit"),
        ("---\nlicense:\n- cc-by-4.0\n- mit\n---\n", "cc-by-4.0"),
        ("---\nlicense: other\nlicense_name: gemma\n---\n", "gemma"),
        ("---\nlicense: other\n---\n", "other"),
        ("# A model\nlicense: mit\n", ""),
        ("\xff\xfe", ""),
    ],
)
def test_licence_of_folders(tmp_path: Path, card: str, expected: str) -> None:
    folder = write_folder(tmp_path / "m", WIDE)
    assert licence(open_checkpoint(folder)) == ""
    (folder / "README.md").write_bytes(card.encode("latin-1"))
    assert licence(open_checkpoint(folder)) == expected
    (folder / "README.md").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"license": "bsd"}))
    assert licence(open_checkpoint(folder)) == "bsd"
