"""Every weight format in whole models on the CUDA backend: logits against the reference, in short steps
and in long ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.backends.cuda.layouts.table import weight_layout_for
from engine.backends.reference.backend import ReferenceBackend
from engine.models import preparation
from engine.models.lora.apply import apply_adapters
from engine.settings import LoadSettings
from engine.tensors import RawTensor
from engine.weights import FORMATS, open_checkpoint
from engine.weights.lora_adapter import open_adapter
from engine.weights.transform.quantize import quantise
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.lora.test_lora import changed, write_adapter
from tests.engine.models.lora.test_lora_changes import BIASED, write
from tests.engine.models.lora.test_lora_changes import write_adapter as write_changes
from tests.engine.models.lora.test_lora_vocabulary import changed as more_tokens
from tests.engine.models.oracle import finish, load, logits, read_model
from tests.engine.models.test_packed_models import plain_folder
from tests.engine.weights.packed.test_packed_folders import PACKINGS
from tests.simt.fake import FakeDevice
from tests.simt.whole import CUTS, LENGTH, assert_near, check, on_gpu
from tests.tiny import TINY, WIDE, tiny_config, tiny_weights, write_folder, write_gguf
from tests.tiny_packed import SIZES, Packer, write_packed

IDS = np.random.default_rng(0).integers(3, 300, 40).tolist()
IN_EVERY_RUN = ("BF16", "Q8_0", "Q4_K")


def activations_of(type_name: str) -> str:
    return weight_layout_for(type_name).activations


def some(names: Any, quick: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in quick else [pytest.mark.slow]) for name in names]


@pytest.mark.parametrize("type_name", some([entry.name for entry in FORMATS], IN_EVERY_RUN))
def test_gguf_types(tmp_path: Path, type_name: str) -> None:
    check(write_gguf(tmp_path / "m.gguf", WIDE.but(layers=1), type_name), IDS, activations_of(type_name))


@pytest.mark.slow
def test_mixed_types_untied(tmp_path: Path) -> None:
    check(
        write_gguf(
            tmp_path / "m.gguf", TINY, "Q4_1", {"token_embd": "Q8_0", "output": "BF16", "attn_v": "F16"}
        ),
        IDS,
        "mixed",
    )


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_before_ampere(tmp_path: Path, dtype: str) -> None:
    """bf16 becomes fp16 there, which nothing multiplies as bf16."""
    folder = write_folder(tmp_path / "m", TINY.but(layers=1), dtype)
    check(folder, IDS, "fp16", device=FakeDevice(capability=75))


@pytest.mark.parametrize("name", some(PACKINGS, ("gptq 4 bits by activation", "exl2")))
def test_packed_folders(tmp_path: Path, name: str) -> None:
    packing: tuple[Packer, dict[str, Any]] = PACKINGS[name]
    tiny = SIZES.but(layers=1)
    file = "output.safetensors" if packing[1]["quant_method"] == "exl2" else "model.safetensors"
    meant = write_packed(tmp_path / "packed", packing, tiny, head=True, file=file)
    exact = logits(load(plain_folder(tmp_path / "plain", meant, tiny)), IDS[:LENGTH])
    check(tmp_path / "packed", IDS, "fp16", exact)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [128, 1])
def test_fp8_folders(tmp_path: Path, rows: int) -> None:
    """Scales for blocks, and for rows."""
    folder = write_folder(tmp_path / "m", TINY.but(layers=1))
    tensors = load_file(folder / "model.safetensors")
    for name, values in list(tensors.items()):
        if "_proj.weight" in name:
            n, k = values.shape
            scales = (
                (values.abs().amax() / 448 * torch.linspace(0.5, 1.0, -(-n // rows))[:, None])
                .expand(-1, -(-k // 128))
                .contiguous()
            )
            wide = scales.repeat_interleave(rows, 0)[:n].repeat_interleave(128, 1)[:, :k]
            tensors[name], tensors[f"{name}_scale_inv"] = (
                (values / wide).clamp(-448, 448).to(torch.float8_e4m3fn),
                scales,
            )
    save_file(tensors, folder / "model.safetensors")
    settings = {"quant_method": "fp8", "weight_block_size": [rows, 128]}
    (folder / "config.json").write_text(
        json.dumps(tiny_config(TINY.but(layers=1)) | {"quantization_config": settings})
    )
    check(folder, IDS, "fp16")


@pytest.mark.parametrize(
    ("body", "head"),
    [
        ("q4", "q8"),
        pytest.param("q8", "same", marks=pytest.mark.slow),
        pytest.param("q6", "none", marks=pytest.mark.slow),
    ],
)
def test_quantised_while_loading(tmp_path: Path, body: str, head: str) -> None:
    folder = write_folder(tmp_path / "m", TINY)
    prepare = preparation(open_checkpoint(folder), LoadSettings(quantise=body, quantise_head=head))
    exact = logits(
        finish(read_model(open_checkpoint(folder), ReferenceBackend(), prepare=prepare)), IDS[:LENGTH]
    )
    check(folder, IDS, "fp16", exact, prepare=prepare)


def mixed(tensor: RawTensor) -> RawTensor:
    """Matrices of neighbouring experts in other types."""
    number = tensor.name.partition(".experts.")[2].partition(".")[0]
    if not number.isdigit():
        return tensor
    return (tensor, quantise(tensor, "q8"), quantise(tensor, "q4"))[int(number) % 3]


@pytest.mark.slow
def test_experts_of_several_layouts(tmp_path: Path) -> None:
    folder, seen = write_checkpoint(BY_NAME["Mixtral"], tmp_path / "m"), set()

    def prepare(tensor: RawTensor) -> RawTensor:
        made = mixed(tensor)
        seen.add(made.type)
        return made

    exact = logits(
        finish(read_model(open_checkpoint(folder), ReferenceBackend(), prepare=prepare)), IDS[:LENGTH]
    )
    assert len(seen) > 2
    check(folder, IDS, "fp16", exact, prepare=prepare)


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_adapters(tmp_path: Path, devices: int) -> None:
    """Put on and taken off; the oracle has their products added to its matrices."""
    path = write_gguf(tmp_path / "m.gguf", TINY, "F32")
    merged = write_folder(tmp_path / "merged", TINY)
    weights = {name: torch.from_numpy(values) for name, values in changed((5, 2.0), (6, -2.0)).items()}
    save_file(weights, merged / "model.safetensors")
    gpus = [FakeDevice(index=index) for index in range(devices)]
    model = on_gpu(path, gpus)
    plain, before = logits(model, IDS[:LENGTH], CUTS), [gpu.taken for gpu in gpus]
    first, second = (
        open_adapter(write_adapter(tmp_path / "a")),
        open_adapter(write_adapter(tmp_path / "b", 6, use_rslora=True)),
    )
    apply_adapters(model, [(first, 1.0), (second, -0.5)])
    assert_near(logits(model, IDS[:LENGTH], CUTS), logits(load(merged), IDS[:LENGTH]), "fp32")
    apply_adapters(model, [])
    np.testing.assert_array_equal(logits(model, IDS[:LENGTH], CUTS), plain)
    assert [gpu.taken for gpu in gpus] == before
    model.close()


def test_changed_modules(tmp_path: Path) -> None:
    """DoRA, biases and modules trained whole; merged weights prove the oracle."""
    path = write_folder(tmp_path / "m", BIASED)
    adapter = open_adapter(write_changes(tmp_path / "a", dict(tiny_weights(BIASED)))[0])
    exact, model = load(path), on_gpu(path, [FakeDevice(index=0)])
    for each in (exact, model):
        apply_adapters(each, [(adapter, 0.75)])
    assert_near(logits(model, IDS[:LENGTH], CUTS), logits(exact, IDS[:LENGTH]), "fp32")
    model.close()


def test_another_vocabulary(tmp_path: Path) -> None:
    """An adapter with more tokens than the model: a new table and a new head, and a pass of that width."""
    path = write_folder(tmp_path / "m", TINY)
    write(tmp_path / "a", more_tokens(TINY, 311)[0], {"lora_alpha": 2})
    exact, model = load(path), on_gpu(path, [FakeDevice(index=0)])
    for each in (exact, model):
        apply_adapters(each, [(open_adapter(tmp_path / "a"), 1.0)])
    ids = [*IDS[: LENGTH - 2], 310, 308]
    assert_near(logits(model, ids, CUTS), logits(exact, ids), "fp32")
    model.close()
