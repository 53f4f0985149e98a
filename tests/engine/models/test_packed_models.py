"""Tiny models with packed weights, and plain ones quantised while loading, against the logits of the decoded
weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.models import Model, preparation, read_model
from engine.models.load import survey
from engine.settings import LoadSettings
from engine.weights import open_checkpoint
from engine.weights.transform.quantize import quantise
from tests.engine.models.oracle import SixteenBits, assert_near_exact, finish, load, logits
from tests.tiny import TINY, Floats, Tiny, tiny_config, write_folder
from tests.tiny_packed import SIZES, Packer, awq, compressed, exl2, gptq, write_packed

IDS = np.random.default_rng(0).integers(0, 300, 40).tolist()
CUTS = [1, 2, 10, 11]


def plain_folder(folder: Path, weights: dict[str, Floats], tiny: Tiny) -> Path:
    """The same model, float32."""
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(tiny_config(tiny)))
    return folder


@pytest.mark.parametrize(
    ("packing", "tiny"),
    [
        pytest.param(gptq(4, 32, by_activation=True), SIZES, id="gptq by activation", marks=pytest.mark.slow),
        pytest.param(exl2(((6, 1), (4, 0))), SIZES.but(vocab_size=307), id="exl2"),
        pytest.param(awq(), SIZES, id="awq", marks=pytest.mark.slow),
        pytest.param(
            gptq(3, 128, kind=np.float32),
            SIZES.but(attention_bias=True),
            id="gptq 3 bits, biases",
            marks=pytest.mark.slow,
        ),
        pytest.param(compressed(8, -1, symmetric=False), SIZES, id="compressed", marks=pytest.mark.slow),
    ],
)
def test_packed_models(tmp_path: Path, packing: tuple[Packer, dict[str, Any]], tiny: Tiny) -> None:
    """On both backends; the memory estimate is exact."""
    file = "output.safetensors" if packing[1]["quant_method"] == "exl2" else "model.safetensors"
    meant = write_packed(tmp_path / "packed", packing, tiny, head=True, file=file)
    expected = logits(load(plain_folder(tmp_path / "plain", meant, tiny)), IDS)
    np.testing.assert_array_equal(logits(load(tmp_path / "packed"), IDS), expected)
    model, rounded = load(tmp_path / "packed", CpuBackend(2)), load(tmp_path / "packed", SixteenBits())
    assert_near_exact(logits(model, IDS, CUTS), expected, logits(rounded, IDS, CUTS))
    assert survey(open_checkpoint(tmp_path / "packed"), CpuBackend(2)).bytes == model.resident_bytes
    model.close()


def quantised(folder: Path, settings: LoadSettings, backend: Any) -> Model:
    checkpoint = open_checkpoint(folder)
    return finish(read_model(checkpoint, backend, prepare=preparation(checkpoint, settings)))


@pytest.mark.parametrize(
    ("body", "head", "tied"),
    [
        ("q8", "same", False),
        pytest.param("none", "q8", True, marks=pytest.mark.slow),
        pytest.param("q4", "q8", False, marks=pytest.mark.slow),
        pytest.param("q6", "none", False, marks=pytest.mark.slow),
        pytest.param("q4", "same", True, marks=pytest.mark.slow),
    ],
)
def test_quantised_while_loading(tmp_path: Path, body: str, head: str, tied: bool) -> None:
    """The logits are those of the quantised weights, and the memory estimate is exact."""
    tiny = TINY.but(tied=tied)
    folder = write_folder(tmp_path / "m", tiny)
    numbers = {}
    head_kind = body if head == "same" else head
    for name, tensor in open_checkpoint(folder).tensors.items():
        is_head = name == ("model.embed_tokens.weight" if tied else "lm_head.weight")
        kind = "none" if len(tensor.shape) < 2 else head_kind if is_head else body
        numbers[name] = (tensor if kind == "none" else quantise(tensor, kind)).dequantise()
    expected = logits(load(plain_folder(tmp_path / "expected", numbers, tiny)), IDS)
    settings = LoadSettings(quantise=body, quantise_head=head)
    np.testing.assert_array_equal(logits(quantised(folder, settings, ReferenceBackend()), IDS), expected)
    backend = CpuBackend(2)
    model = quantised(folder, settings, backend)
    rounded = quantised(folder, settings, SixteenBits())
    assert_near_exact(logits(model, IDS, CUTS), expected, logits(rounded, IDS, CUTS))
    checkpoint = open_checkpoint(folder)
    assert survey(checkpoint, backend, preparation(checkpoint, settings)).bytes == model.resident_bytes
    assert model.resident_bytes < survey(checkpoint, backend).bytes
    model.close()


def test_nothing_to_quantise(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path / "m"))
    assert preparation(checkpoint, LoadSettings()) is None
    prepare = preparation(checkpoint, LoadSettings(quantise="q4"))
    assert prepare is not None
    router = checkpoint.tensors["lm_head.weight"].rows(0, 8)
    router.name = "model.layers.0.mlp.gate.weight"
    assert prepare(router) is router


def test_the_head_alone_of_a_packed_model(tmp_path: Path) -> None:
    write_packed(tmp_path, gptq(4, 32))
    checkpoint = open_checkpoint(tmp_path)
    prepare = preparation(checkpoint, LoadSettings(quantise_head="q6"))
    assert prepare is not None
    types = {
        name: prepare(tensor).type for name, tensor in checkpoint.tensors.items() if len(tensor.shape) == 2
    }
    assert types.pop("lm_head.weight") == "GROUPED6_32"
    assert types.pop("model.embed_tokens.weight") == "F16"
    assert set(types.values()) == {"GROUPED4_32"}
