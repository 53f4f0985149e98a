"""ik_llama.cpp's types: what its own decoders gave, files, and the forms that backends hold.

`golden/ik_blocks.json` has a row of random bytes for each type, with usual numbers d, and the float32 values
that `dequantize_row_*` of `libggml.so` in the package ik-llama-cpp-python 0.1.5 made of it, called by ctypes.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.weight import CpuWeight
from engine.backends.cpu.weight_spec import WeightSpec
from engine.backends.cuda.proof.dequantised import dequantised, tiles_of
from engine.backends.cuda.weight import CudaWeight
from engine.backends.gguf_blocks.ik_quants import IK_BLOCKS
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.proof.random_tensors import BLOCKS
from engine.weights.facts import quantisation_name
from engine.weights.gguf.table import GGUF_TYPE_NAMES, IK_FORMATS
from engine.weights.tensor import find_format
from tests.engine.backends.cpu.test_weight_types import unpacked
from tests.engine.backends.kernel_oracles import sixteen_bits
from tests.engine.weights.gguf.test_file import build, entry, key, opened, text
from tests.simt.fake import FakeDevice

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "golden" / "ik_blocks.json").read_text("utf-8")
)
NAMES = [block.name for block in IK_BLOCKS]
FORMS = ("Q6_0", "IQ2_K", "IQ2_KS", "IQ2_KL", "IQ3_K", "IQ3_KS", "IQ4_K", "IQ4_KS", "IQ5_K", "IQ3_KT")
"""One type of each packed form."""
BITS = {
    "Q6_0": 6.5, "IQ2_K": 3.6, "IQ2_KS": 3.4, "IQ2_KL": 3.4, "IQ3_K": 4.6, "IQ3_KS": 4.4, "IQ4_K": 4.6,
    "IQ4_KS": 4.5, "IQ4_KSS": 4.5,
}  # fmt: skip
"""The most bits a weight that a backend holds; GPUs hold codes of 3 bits in 4."""


def golden(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A row's bytes and its values."""
    raw, values = (base64.b64decode(GOLDEN[name][part]) for part in ("row", "values"))
    return np.frombuffer(raw, np.uint8), np.frombuffer(values, np.float32)


def matrix(name: str, rows: int, columns: int, seed: int = 3) -> np.ndarray:
    """The bytes of rows (rows, bytes) of a type, of usual size."""
    form = find_format(name)
    assert form is not None
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (rows, form.nbytes((columns,))), dtype=np.uint8)
    if form.row_bytes:
        number = rng.uniform(0.5, 2, (rows, 1)) * 2e-4
        raw[:, : form.row_bytes] = number.astype(f"f{form.row_bytes}").view(np.uint8)
    else:
        heads = raw.reshape(-1, form.block_bytes)
        heads[:, :2] = (rng.uniform(0.5, 2, (len(heads), 1)) * 2e-3).astype(np.float16).view(np.uint8)
    return raw


def test_every_type_has_a_golden_row() -> None:
    assert {name: GOLDEN[name]["number"] for name in GOLDEN} == {b.name: b.number for b in IK_BLOCKS}
    assert GGUF_TYPE_NAMES.items() >= {block.number: block.name for block in IK_BLOCKS}.items()
    assert set(NAMES) <= set(BLOCKS)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_decoded_as_ik_llama_cpp_decodes_them(name: str) -> None:
    """Bit for bit but for the signs of zeros; IQ6_K with the whole levels that products take there."""
    raw, values = golden(name)
    form = find_format(name)
    assert form is not None
    assert form.nbytes(values.shape) == raw.size
    found = form.dequantise(raw, values.shape)
    if name != "IQ6_K":
        np.testing.assert_array_equal(found, values)
        return
    blocks = raw.reshape(-1, 212)
    steps = blocks[:, :2].view(np.float16).astype(np.float32) * blocks[:, 4:20].view(np.int8)
    steps = np.repeat(steps.reshape(-1), 16)
    used = steps != 0
    np.testing.assert_array_equal(found[used], (np.rint(values[used] / steps[used]) * steps[used]))
    np.testing.assert_array_equal(found[~used], 0)


@pytest.mark.parametrize("name", NAMES)
def test_matrices_stacks_and_vectors_of_files(tmp_path: Path, name: str) -> None:
    raw = matrix(name, 20, 512)
    form = find_format(name)
    assert form is not None
    meant = np.stack([form.dequantise(row, (512,)) for row in raw])
    shapes: dict[str, tuple[int, ...]] = {"a": (20, 512), "b": (5, 4, 512)}
    each = -(-raw.size // 32) * 32
    number = GOLDEN[name]["number"]
    entries = [entry(key, shape[::-1], number, i * each) for i, (key, shape) in enumerate(shapes.items())]
    entries.append(entry("c", (512,), number, 2 * each))
    data = (raw.tobytes() + bytes(each - raw.size)) * 2 + raw[9].tobytes()
    found = opened(build([], entries, data), tmp_path).tensors
    for which, shape in shapes.items():
        assert (found[which].type, found[which].shape, found[which].nbytes) == (name, shape, raw.size)
        np.testing.assert_array_equal(found[which].dequantise(), meant.reshape(shape))
    np.testing.assert_array_equal(found["a"].take([7, 0, 7]).rows(1, 3).dequantise(), meant[[0, 7]])
    np.testing.assert_array_equal(found["b"].part(3).dequantise(), meant.reshape(5, 4, 512)[3])
    np.testing.assert_array_equal(found["c"].dequantise(), meant[9])


@pytest.mark.parametrize("name", NAMES)
def test_both_backends_hold_a_file_s_values_to_the_last_bit(tmp_path: Path, name: str) -> None:
    raw = matrix(name, 37, 512)
    entries = [entry("a", (512, 37), GOLDEN[name]["number"])]
    tensor = opened(build([], entries, raw.tobytes()), tmp_path).tensors["a"]
    values, held = tensor.dequantise(), CpuWeight(tensor)
    np.testing.assert_array_equal(unpacked(held), values)
    most = 48 * 512 * BITS.get(name, 8.75) / 8
    assert held.nbytes == WeightSpec(tensor).nbytes <= most
    on_device = CudaWeight(FakeDevice(), tensor)
    np.testing.assert_array_equal(dequantised(on_device, tiles_of(on_device)).numpy()[:37], values)
    assert on_device.nbytes <= max(most, 48 * 512 * 4.7 / 8)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", FORMS)
def test_products_and_embeddings_on_the_cpu(name: str) -> None:
    """Steps of one to nine and of many rows, within float32's rounding of each output's own terms."""
    rng = np.random.default_rng(4)
    tensor = BLOCKS[name](rng, 35, 512)
    table = BLOCKS[name](rng, 40, 512)
    x, values = table.dequantise(), tensor.dequantise().astype(np.float64)
    backend = CpuBackend(2)
    weight, embedding = backend.load_weight(tensor), backend.load_weight(table)
    program = backend.record(
        lambda ops: ops.linear(ops.last_rows(ops.embed(embedding)), weight),
        backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16"),
        40,
    )
    bound = np.abs(x).sum(1)[:, None] * np.abs(values).max(1)
    try:
        for rows in (1, 3, 9, 40):
            ids = np.arange(rows, dtype=np.int32)
            found = program.run(Step(ids, ids, np.zeros(1, np.int32), rows))
            error = np.abs(found - sixteen_bits(x[:rows]) @ values.T) / bound[:rows]
            assert error.max() < 1e-6 if rows <= 9 else error.max() < 2**-14, rows
    finally:
        program.close()


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    for name in ("IQ4_K", "IQ2_KS"):
        raw = matrix(name, 4, 256)
        entries = [entry("a.weight", (256, 4), GOLDEN[name]["number"])]
        keys = [key("general.architecture", 8, text("llama"))]
        assert quantisation_name(opened(build(keys, entries, raw.tobytes()), tmp_path)) == name


def test_damaged_and_unknown_types_are_refused_by_name(tmp_path: Path) -> None:
    raw = matrix("IQ4_KS", 4, 256)
    with pytest.raises(BadCheckpoint, match="tensor a needs 560 bytes at offset 0, but there are 559 bytes"):
        opened(build([], [entry("a", (256, 4), 144)], raw.tobytes()[:-1]), tmp_path)
    with pytest.raises(BadCheckpoint, match=r"tensor a of type IQ4_KS has the shape .*multiple of 256"):
        opened(build([], [entry("a", (128, 4), 144)], raw.tobytes()), tmp_path)
    with pytest.raises(UnsupportedModel, match=r"tensor a has the type number 142, .*IQ4_KSS"):
        opened(build([], [entry("a", (256, 4), 142)], raw.tobytes()), tmp_path)


def test_formats_and_blocks_stand_side_by_side() -> None:
    for block, form in zip(IK_BLOCKS, IK_FORMATS, strict=True):
        assert (form.name, form.block_size) == (block.name, block.values)
        assert form.row_bytes + form.block_bytes == block.nbytes
