"""NVFP4 matrices of GGUF files, with the numbers beside them, against the `gguf` package and llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.weight import CpuWeight
from engine.backends.gguf_blocks.quants import NVFP4_PAIRS
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint
from engine.weights import open_checkpoint
from engine.weights.facts import quantisation_name
from engine.weights.gguf.file import GgufFile
from tests.engine.backends.cpu.test_weight_types import unpacked
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import by_llama_cpp
from tests.tiny import WIDE, write_gguf

SCALES = {"ffn_down": 0.25, "attn_q": 1.5, "ffn_gate": 0.7, "output": 1.5, "attn_v": -1.25}
RNG = np.random.default_rng(3)


def codes(*shape: int) -> np.ndarray:
    """Random blocks, also with scales of every byte."""
    return RNG.integers(0, 256, (*shape[:-1], shape[-1] // 64 * 36), dtype=np.uint8)


def opened(folder: Path, tensors: dict[str, np.ndarray]) -> GgufFile:
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama")
    for name, values in tensors.items():
        kind = gguf.GGMLQuantizationType.NVFP4 if values.dtype == np.uint8 else None
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufFile(folder / "m.gguf")


def meant(raw: np.ndarray) -> np.ndarray:
    """The values without a scale, by the `gguf` package."""
    values = gguf.quants.NVFP4.dequantize_blocks(raw.reshape(-1, 36))
    return values.astype(np.float32).reshape(*raw.shape[:-1], -1)


@pytest.mark.parametrize("end", [".scale", ".weight.scale"])
def test_a_matrix_is_multiplied_by_the_number_beside_it(tmp_path: Path, end: str) -> None:
    raw, number = codes(48, 256), np.array([0.3], np.float32)
    unused = np.array([7.0], np.float32)
    found = opened(tmp_path, {"a.weight": raw, f"a{end}": number, "a.input_scale": unused}).tensors
    assert list(found) == ["a.weight"]
    matrix = found["a.weight"]
    assert (matrix.type, matrix.shape) == (NVFP4_PAIRS.name, (48, 256))
    np.testing.assert_array_equal(matrix.dequantise(), meant(raw) * number)
    np.testing.assert_array_equal(matrix.take([9, 0]).dequantise(), meant(raw)[[9, 0]] * number)
    held = CpuWeight(matrix.take(np.arange(48)[::-1]))
    np.testing.assert_allclose(unpacked(held)[::-1], meant(raw) * number, rtol=3e-7)
    assert held.nbytes == 48 * 256 * 5 // 8


def test_each_expert_of_a_stack_has_its_own(tmp_path: Path) -> None:
    raw, numbers = codes(3, 32, 128), np.array([0.5, -2.0, 3.0], np.float32)
    found = opened(tmp_path, {"a.ffn_down_exps.weight": raw, "a.ffn_down_exps.scale": numbers}).tensors
    stack = found["a.ffn_down_exps.weight"]
    assert (list(found), stack.shape) == (["a.ffn_down_exps.weight"], (3, 32, 128))
    np.testing.assert_array_equal(stack.dequantise(), meant(raw) * numbers[:, None, None])
    np.testing.assert_array_equal(stack.part(2).dequantise(), meant(raw[2]) * 3)
    one = opened(tmp_path, {"a.weight": raw, "a.scale": numbers[:1]}).tensors["a.weight"]
    np.testing.assert_array_equal(one.dequantise(), meant(raw) / 2)


def test_scales_that_the_architecture_multiplies_by_stay(tmp_path: Path) -> None:
    """Gemma 4's router and its experts have some of the same names."""
    raw, scale = codes(2, 32, 64), np.array([2.0, 4.0], np.float32)
    names = ("b.ffn_down_exps.weight", "b.ffn_down_exps.scale", "b.ffn_gate_inp.scale")
    found = opened(tmp_path, dict(zip(names, (raw, scale, np.ones(64, np.float32)), strict=True))).tensors
    assert set(found) == set(names)
    np.testing.assert_array_equal(found[names[0]].dequantise(), meant(raw))


@pytest.mark.parametrize("scale", [np.ones(2, np.float32), np.ones((1, 1), np.float32)])
def test_numbers_that_do_not_belong_to_the_matrix(tmp_path: Path, scale: np.ndarray) -> None:
    with pytest.raises(BadCheckpoint, match=r"a\.scale has the shape .* one number for a\.weight"):
        opened(tmp_path, {"a.weight": codes(3, 64), "a.scale": scale})


def test_vectors_and_other_types_are_unchanged(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {"a.weight": codes(1, 128)[0], "b.weight": np.ones((2, 64), np.float32)}
    found = opened(tmp_path, tensors | {"b.scale": np.full(1, 2, np.float32)}).tensors
    assert found["a.weight"].type == "NVFP4"
    np.testing.assert_array_equal(found["b.weight"].dequantise(), 1)
    assert "b.scale" in found


@pytest.mark.slow
@pytest.mark.parametrize("backend", [ReferenceBackend, CpuBackend])
def test_a_model_is_llama_cpps(tmp_path: Path, backend: Any) -> None:
    path = write_gguf(tmp_path / "m.gguf", WIDE, "NVFP4", {"token_embd": "F32"}, SCALES)
    plain = write_gguf(tmp_path / "plain.gguf", WIDE, "NVFP4", {"token_embd": "F32"})
    tokens = list(range(5, 45))
    assert quantisation_name(open_checkpoint(path)) == "NVFP4"
    found, without = (logits(load(each, backend()), tokens) for each in (path, plain))
    expected = by_llama_cpp(path, tokens)
    size = np.sqrt(np.mean(expected**2))
    assert np.sqrt(np.mean((without - expected) ** 2)) > size / 2
    # llama.cpp rounds activations to 8 bits
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.03 * size
