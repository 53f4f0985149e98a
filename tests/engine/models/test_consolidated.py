"""Models as Mistral AI publishes them: the logits of transformers on the same weights; what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file as save_torch

from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.hub.local.scan import model_paths
from engine.models.load import read_config
from engine.vision.describe import other_senses
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ROPE, SMALL, Case, case_folders, expected_logits, ids
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.consolidated_files import params_of, published, write_consolidated, write_tensors
from tests.engine.models.oracle import load, logits

YARN = {
    "rope_type": "yarn", "rope_theta": 700.0, "factor": 4.0, "original_max_position_embeddings": 16,
    "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip
MISTRAL = Case(
    "Mistral", "", "mistral", {**SMALL, "sliding_window": None, "head_dim": 24, ROPE: YARN}, variant="yarn"
)
CASES = (
    MISTRAL,
    BY_NAME["Mistral"],
    replace(MISTRAL, variant="tied", settings={**MISTRAL.settings, "tie_word_embeddings": True}),
    Case(
        "Ministral", "", "ministral",
        {
            **SMALL, "head_dim": 24, "num_hidden_layers": 4, "sliding_window": 9,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
        },
    ),
    BY_NAME["Ministral 3"],
    BY_NAME["Mixtral"],
    BY_NAME["Mistral 4"],
)  # fmt: skip


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    return case_folders(tmp_path_factory)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_logits(case: Case, folder_of: Callable[[Case], Path], tmp_path: Path) -> None:
    write_consolidated(folder_of(case), tmp_path / "own", shards=2 if case is MISTRAL else 1)
    expected = expected_logits(case)
    found = logits(load(tmp_path / "own"), ids(case.length))
    assert np.abs(found - expected).max() <= case.tolerance * np.abs(expected).max()
    own, twin = (read_config(open_checkpoint(path)) for path in (tmp_path / "own", folder_of(case)))
    assert own == twin


@pytest.mark.parametrize("activations", [True, False])
def test_fp8(folder_of: Callable[[Case], Path], tmp_path: Path, activations: bool) -> None:
    """The weights are the numbers times their scale; the scales of activations and caches are not used."""
    source, folder = folder_of(MISTRAL), tmp_path / "own"
    params = write_consolidated(source, folder)
    tensors = load_torch(folder / "consolidated.safetensors")
    plain, packed = dict(tensors), dict[str, torch.Tensor]()
    for name, values in tensors.items():
        if not name.startswith("layers") or "norm" in name:
            packed[name] = values
            continue
        scale = values.abs().max() / 448.0
        packed[name] = (values / scale).to(torch.float8_e4m3fn)
        packed[name.replace("weight", "qscale_weight")] = scale
        plain[name] = packed[name].float() * scale
        if activations:
            packed[name.replace("weight", "qscale_act")] = torch.tensor(0.5)
            at = name.partition("attention")[0]
            packed[f"{at}attention.kv_fake_quantizer.qscale_act"] = torch.tensor(2.0)
    expected = _logits(folder, plain)
    params["quantization"] = {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR" if activations else None}
    (folder / "params.json").write_text(json.dumps(params))
    np.testing.assert_array_equal(_logits(folder, packed), expected)


def _logits(folder: Path, tensors: dict[str, torch.Tensor]) -> Any:
    save_torch(tensors, folder / "consolidated.safetensors")
    return logits(load(folder), ids(40))


def test_the_folder_is_found_and_a_file_of_it_opens_it(
    folder_of: Callable[[Case], Path], tmp_path: Path
) -> None:
    write_consolidated(folder_of(MISTRAL), tmp_path / "own")
    write_consolidated(folder_of(MISTRAL), tmp_path / "parts", shards=2)
    assert list(model_paths(tmp_path, Event())) == [tmp_path / "own", tmp_path / "parts"]
    assert open_checkpoint(tmp_path / "own" / "consolidated.safetensors").path == tmp_path / "own"


def test_config_json_counts_first(folder_of: Callable[[Case], Path], tmp_path: Path) -> None:
    """Beside it, neither params.json nor the consolidated weights are read."""
    shutil.copytree(folder_of(MISTRAL), tmp_path / "m")
    (tmp_path / "m" / "params.json").write_text("no JSON")
    (tmp_path / "m" / "consolidated.safetensors").write_bytes(b"no weights")
    found = open_checkpoint(tmp_path / "m")
    assert found.files == (tmp_path / "m" / "model.safetensors",)
    assert "model.embed_tokens.weight" in found.tensors


def test_the_part_for_pictures_is_left_out(folder_of: Callable[[Case], Path], tmp_path: Path) -> None:
    source, folder = folder_of(BY_NAME["Ministral 3"]), tmp_path / "own"
    params = params_of(json.loads((source / "config.json").read_text()))
    tensors = published(load_file(source / "model.safetensors"), params)
    folder.mkdir()
    (folder / "params.json").write_text(json.dumps(params | {"vision_encoder": {"hidden_size": 8}}))
    eye = np.ones((8, 8), np.float32)
    more = {"vision_encoder.transformer.layers.0.attention.wq.weight": eye, "patch_merger.weight": eye}
    write_tensors(folder, {**tensors, **more})
    expected = expected_logits(BY_NAME["Ministral 3"])
    assert np.abs(logits(load(folder), ids(60)) - expected).max() <= 1e-4 * np.abs(expected).max()
    said = "The model also takes pictures, but only its text model runs here."
    assert other_senses(open_checkpoint(folder), reads=False) == (said,)


BAD: tuple[tuple[dict[str, Any], type[EngineError], str], ...] = (
    ({"dim": None}, BadCheckpoint, r"params\.json does not give dim, so it is incomplete"),
    ({"n_layers": "many"}, BadCheckpoint, r"n_layers is 'many', but a value such as 32 was expected"),
    ({"n_heads": 0}, BadCheckpoint, "n_heads is 0, but a value such as 32"),
    ({"n_kv_heads": True}, BadCheckpoint, "n_kv_heads is True, but a value such as 32"),
    ({"norm_eps": "small"}, BadCheckpoint, "norm_eps is 'small', but a value such as 0.5"),
    ({"moe": 8}, BadCheckpoint, "moe is 8, but a value such as {}"),
    ({"moe": {"num_experts": 4}}, BadCheckpoint, "does not give num_experts_per_tok"),
    ({"yarn": {"beta": 1}}, BadCheckpoint, "does not give factor"),
    (
        {"sliding_window": [4, 5, 6]},
        BadCheckpoint,
        r"sliding_window is \[4, 5, 6\], which is neither one window",
    ),
    ({"sliding_window": [None, 4]}, BadCheckpoint, "neither one window for 3 layers"),
    ({"sliding_window": []}, BadCheckpoint, "neither one window for 3 layers"),
    ({"model_type": "mamba"}, UnsupportedModel, "a model in its author's own format"),
    ({"quantization": {"qformat_weight": "int3"}}, UnsupportedModel, "quantised by 'int3'"),
    ({"n_layers": 4}, BadCheckpoint, "layers.3"),
    ({"dim": 32}, BadCheckpoint, "embed_tokens"),
    ({"n_heads": 8}, BadCheckpoint, r"q_proj.*\(96, 64\)"),
    ({"head_dim": 25}, BadCheckpoint, "head"),
)


@pytest.mark.parametrize(("change", "error", "said"), BAD, ids=[str(change) for change, _, _ in BAD])
def test_bad_params(
    change: dict[str, Any],
    error: type[EngineError],
    said: str,
    folder_of: Callable[[Case], Path],
    tmp_path: Path,
) -> None:
    params = write_consolidated(folder_of(MISTRAL), tmp_path / "own") | change
    (tmp_path / "own" / "params.json").write_text(json.dumps(params))
    with pytest.raises(error, match=said):
        load(tmp_path / "own")


@pytest.mark.parametrize(("text", "said"), [("{", "not valid JSON"), ("[]", "an object was expected")])
def test_params_that_are_no_object(
    text: str, said: str, folder_of: Callable[[Case], Path], tmp_path: Path
) -> None:
    write_consolidated(folder_of(MISTRAL), tmp_path / "own")
    (tmp_path / "own" / "params.json").write_text(text)
    with pytest.raises(BadCheckpoint, match=rf"params\.json.*{said}"):
        open_checkpoint(tmp_path / "own")


def test_missing_parts_are_named(folder_of: Callable[[Case], Path], tmp_path: Path) -> None:
    folder = tmp_path / "own"
    write_consolidated(folder_of(MISTRAL), folder, shards=2)
    (folder / "consolidated-00002-of-00002.safetensors").unlink()
    with pytest.raises(BadCheckpoint, match=r"consolidated-00002-of-00002\.safetensors, which is not in"):
        open_checkpoint(folder)
