"""Parts, rows and chosen rows of a tensor are those of the whole, and a file that changes is refused in
one sentence.
"""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BadCheckpoint, ModelNotFound
from engine.weights import open_checkpoint
from engine.weights.file import ModelFile
from engine.weights.tensor import FileTensor
from tests.tiny import TINY, write_gguf
from tests.tiny_quants import quantise

STACK = np.random.default_rng(3).standard_normal((3, 7, 64)).astype(np.float32)


def in_file(folder: Path, type_name: str) -> tuple[FileTensor, FileTensor]:
    """The stack in a file behind 13 other bytes, and in memory."""
    raw = np.ascontiguousarray(quantise(STACK.reshape(-1, 64), type_name)).reshape(-1).view(np.uint8)
    path = folder / "stack.bin"
    path.write_bytes(bytes(13) + raw.tobytes() + bytes(5))
    return FileTensor("w", type_name, STACK.shape, ModelFile(path), 13), FileTensor(
        "w", type_name, STACK.shape, raw
    )


@pytest.mark.parametrize("type_name", ["F32", "Q4_1", "BF16"])
def test_pieces_are_those_of_the_whole(tmp_path: Path, type_name: str) -> None:
    for tensor in in_file(tmp_path, type_name):
        whole = tensor.dequantise()
        assert tensor.data.size == tensor.nbytes
        assert not tensor.data.flags.writeable
        for view, expected in [
            (tensor.part(2), whole[2]),
            (tensor.rows(1, 3), whole[1:3]),
            (tensor.take([2, 0]), whole[[2, 0]]),
            (tensor.take([2, 0]).part(0), whole[2]),
            (tensor.part(1).rows(2, 6), whole[1, 2:6]),
            (tensor.part(1).take([6, 0, 1, 2, 2]), whole[1][[6, 0, 1, 2, 2]]),
            (tensor.part(1).take([6, 0, 1, 2, 2]).rows(1, 4), whole[1, :3]),
            (tensor.part(1).take([6, 0, 1, 2, 2]).take([4, 0]), whole[1][[2, 6]]),
            (tensor.part(1).rows(2, 7).take([4, 0]), whole[1][[6, 2]]),
            (tensor.part(0).rows(3, 3), whole[0, 3:3]),
            (tensor.part(0).take([]), whole[0, :0]),
        ]:
            assert view.shape == expected.shape
            assert view.nbytes == view.data.size
            np.testing.assert_array_equal(view.dequantise(), expected)
            again = FileTensor("again", type_name, view.shape, view.data).dequantise()
            np.testing.assert_array_equal(again, expected)


def test_columns_of_plain_numbers(tmp_path: Path) -> None:
    for tensor in in_file(tmp_path, "F32"):
        matrix = tensor.part(1)
        for start, stop in ((0, 64), (0, 3), (3, 7), (60, 64), (5, 5)):
            np.testing.assert_array_equal(matrix.columns(start, stop), matrix.numbers()[:, start:stop])
        for start, stop in ((5, 3), (0, 65), (-1, 3)):
            with pytest.raises(BadCheckpoint, match=f"has no columns {start} to {stop} of plain numbers"):
                matrix.columns(start, stop)
    with pytest.raises(BadCheckpoint, match=r"w of Q4_1 \(7, 64\) has no columns 0 to 32"):
        in_file(tmp_path, "Q4_1")[0].part(1).columns(0, 32)


@settings(max_examples=60)
@given(st.data())
def test_any_chain_of_pieces(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    tensor = in_file(tmp_path_factory.mktemp("t"), "Q4_1")[0].part(1)
    expected = tensor.dequantise()
    for _ in range(data.draw(st.integers(1, 4))):
        n = len(expected)
        if n and data.draw(st.booleans()):
            order = data.draw(st.lists(st.integers(0, n - 1), max_size=9))
            tensor, expected = tensor.take(order), expected[np.array(order, int)]
        else:
            start = data.draw(st.integers(0, n))
            stop = data.draw(st.integers(start, n))
            tensor, expected = tensor.rows(start, stop), expected[start:stop]
    np.testing.assert_array_equal(tensor.dequantise(), expected)


def test_pieces_that_are_not_there(tmp_path: Path) -> None:
    tensor = in_file(tmp_path, "F32")[0]
    for piece in (
        lambda: tensor.part(3),
        lambda: tensor.rows(2, 4),
        lambda: tensor.rows(2, 1),
        lambda: tensor.take([-1]),
    ):
        with pytest.raises(BadCheckpoint, match="of the tensor w were expected"):
            piece()


@pytest.mark.parametrize(
    ("type_name", "dtype"),
    [
        ("F64", "<f8"), ("F32", "<f4"), ("F16", "<f2"), ("I8", "i1"), ("I16", "<i2"), ("I32", "<i4"),
        ("I64", "<i8"), ("U8", "u1"), ("U16", "<u2"), ("U32", "<u4"), ("U64", "<u8"), ("BOOL", "u1"),
    ],
)  # fmt: skip
def test_numbers_of_every_type(type_name: str, dtype: str) -> None:
    raw = np.array([1, 0, 101], dtype)
    tensor = FileTensor("q", type_name, (3,), raw.view(np.uint8))
    assert (tensor.numbers().dtype, tensor.nbytes) == (raw.dtype, raw.nbytes)
    assert tensor.numbers().tolist() == tensor.dequantise().tolist() == [1, 0, 101]


def test_numbers_keep_their_type() -> None:
    raw = np.array([[1, -2], [3, 1 << 30]], np.int32)
    found = FileTensor("q", "I32", (2, 2), raw.reshape(-1).view(np.uint8)).numbers()
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, raw)
    with pytest.raises(BadCheckpoint, match="q has the type Q4_1; plain numbers were expected"):
        FileTensor("q", "Q4_1", (1, 32), np.zeros(20, np.uint8)).numbers()


def test_another_type_of_the_same_bytes() -> None:
    raw = np.arange(8, dtype=np.uint8)
    assert FileTensor("a", "U8", (8,), raw).retyped("b", "I32", (2, 1)).numbers().tolist() == [
        [0x03020100],
        [0x07060504],
    ]
    with pytest.raises(BadCheckpoint, match="cannot be I32 of shape"):
        FileTensor("a", "U8", (8,), raw).retyped("b", "I32", (3,))


def _truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def _overwritten(path: Path) -> None:
    facts = path.stat()
    with path.open("r+b") as file:
        file.seek(facts.st_size - 4)
        file.write(b"\0\0\0\0")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1_000_000))


def _replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [_truncated, _longer, _overwritten, _replaced])
def test_a_file_that_changes_is_refused(tmp_path: Path, change: object) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY)
    tensors = open_checkpoint(path).tensors
    name, tensor = list(tensors.items())[-1]
    tensor.dequantise()
    assert callable(change)
    change(path)
    for read in (
        tensor.dequantise,
        lambda: tensor.data,
        lambda: tensor.rows(1, 2).data,
        lambda: tensor.take([1, 0]).data,
    ):
        with pytest.raises(BadCheckpoint, match=rf"m\.gguf was changed while tensor {name} was read"):
            read()


def test_a_file_that_goes_away_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY)
    tensor = next(iter(open_checkpoint(path).tensors.values()))
    path.unlink()
    with pytest.raises(ModelNotFound, match=r"m\.gguf cannot be read"):
        tensor.dequantise()


def test_decoding_a_large_tensor_needs_little_more_than_its_values(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(20 << 20)  # Q4_1: 32 Mi values
    tensor = FileTensor("w", "Q4_1", (1 << 15, 1 << 10), ModelFile(path))
    tracemalloc.start()
    try:
        tensor.dequantise()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        tensor.rows(100, 200).dequantise()
        few = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < (128 << 20) + (40 << 20)
    assert few < 8 << 20
