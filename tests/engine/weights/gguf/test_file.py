"""The GGUF reader on good, split and hostile files.

Hostile means: an `EngineError` at once, whatever the bytes.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.errors import BadCheckpoint, EngineError, ModelNotFound, UnsupportedModel
from engine.vision.describe import describe
from engine.weights import open_checkpoint
from engine.weights.gguf.file import GgufFile
from tests.tiny import TINY, tiny_tokenizer, write_gguf

U32, U64 = struct.Struct("<I").pack, struct.Struct("<Q").pack


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return U64(len(raw)) + raw


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + U32(kind) + value


def entry(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + U32(len(dims)) + b"".join(U64(n) for n in dims) + U32(kind) + U64(offset)


def build(
    keys: list[bytes],
    entries: list[bytes],
    data: bytes = b"",
    version: int = 3,
    keys_claimed: int | None = None,
) -> bytes:
    """A file from its pieces, whatever they are."""
    claimed = len(keys) if keys_claimed is None else keys_claimed
    head = b"GGUF" + U32(version) + U64(len(entries)) + U64(claimed) + b"".join(keys) + b"".join(entries)
    return head + bytes(-len(head) % 32) + data


def opened(raw: bytes, folder: Path) -> GgufFile:
    path = folder / "m.gguf"
    path.write_bytes(raw)
    return GgufFile(path)


def test_everything_the_gguf_package_writes_is_read(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        TINY,
        "Q4_1",
        {"token_embd": "Q8_0", "ffn_up": "F16"},
        general__quality=1.5,
        some__flag=True,
    )
    checkpoint = open_checkpoint(path)
    reader = gguf.GGUFReader(path)
    assert checkpoint.format == "gguf"
    assert checkpoint.path == path
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            assert checkpoint.metadata[name] == field.contents(), name
    assert len(checkpoint.metadata) == len(reader.fields) - 3
    assert isinstance(checkpoint.metadata["tokenizer.ggml.tokens"], list)
    assert checkpoint.metadata["tokenizer.ggml.tokens"] is checkpoint.metadata["tokenizer.ggml.tokens"]
    assert set(checkpoint.tensors) == {tensor.name for tensor in reader.tensors}
    for tensor in reader.tensors:
        ours = checkpoint.tensors[tensor.name]
        assert ours.type == tensor.tensor_type.name
        assert ours.shape == tuple(int(n) for n in tensor.shape[::-1])
        assert ours.nbytes == tensor.n_bytes
        np.testing.assert_array_equal(ours.data, np.ascontiguousarray(tensor.data).reshape(-1).view(np.uint8))
        assert not ours.data.flags.writeable
    checkpoint.close()


def test_arrays_of_every_kind(tmp_path: Path) -> None:
    kinds: dict[int, tuple[str, list[Any]]] = {
        0: ("<B", [0, 255]), 1: ("<b", [-128, 127]), 2: ("<H", [65535]), 3: ("<h", [-5]),
        4: ("<I", [1 << 31]), 5: ("<i", [-7]), 6: ("<f", [0.5, -2.0]), 7: ("<?", [True, False]),
        10: ("<Q", [1 << 63]), 11: ("<q", [-(1 << 62)]), 12: ("<d", [0.1]),
    }  # fmt: skip
    keys = [
        key(f"a{k}", 9, U32(k) + U64(len(v)) + b"".join(struct.pack(f, each) for each in v))
        for k, (f, v) in kinds.items()
    ]
    nested = U32(9) + U64(2) + U32(8) + U64(1) + text("é") + U32(4) + U64(2) + U32(1) + U32(2)
    found = opened(
        build([*keys, key("nested", 9, nested), key("empty", 9, U32(8) + U64(0))], []), tmp_path
    ).metadata
    assert {name: found[name] for name in found} == {f"a{k}": v for k, (_, v) in kinds.items()} | {
        "nested": [["é"], [1, 2]],
        "empty": [],
    }


@pytest.mark.parametrize(("kind", "shortest", "value"), [(8, text(""), ""), (9, U32(4) + U64(0), [])])
def test_arrays_of_the_shortest_entries(tmp_path: Path, kind: int, shortest: bytes, value: Any) -> None:
    """With nothing after them; one entry more cannot be in the file."""
    array = U32(kind) + U64(500) + shortest * 500
    assert opened(build([key("k", 9, array)], []), tmp_path).metadata["k"] == [value] * 500
    array = U32(kind) + U64(503) + shortest * 500
    with pytest.raises(BadCheckpoint, match="claims an array of 503 entries, more than can be in the file"):
        opened(build([key("k", 9, array)], []), tmp_path)


ONE = [entry("t", (4, 2))]
NUMBERS = np.arange(8, dtype=np.float32).tobytes()


def test_version_2_and_alignment(tmp_path: Path) -> None:
    assert opened(build([], ONE, NUMBERS, version=2), tmp_path).tensors["t"].dequantise().tolist() == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    head = build([key("general.alignment", 4, U32(256))], ONE)
    raw = head + bytes(-len(head) % 256) + NUMBERS
    assert opened(raw, tmp_path).tensors["t"].dequantise()[1].tolist() == [4, 5, 6, 7]


Q4_1_ROW = entry("t", (48, 2), kind=3)
HOSTILE: dict[str, tuple[bytes, type[EngineError], str]] = {
    "empty": (b"", BadCheckpoint, "is empty"),
    "other file": (b"PK\x03\x04" + bytes(100), BadCheckpoint, "not a GGUF file"),
    "only magic": (b"GGUF", BadCheckpoint, "truncated"),
    "version 1": (build([], [], version=1), UnsupportedModel, "version 1"),
    "version 4": (build([], [], version=4), UnsupportedModel, "version 4"),
    "big endian": (b"GGUF" + struct.pack(">I", 3) + bytes(64), UnsupportedModel, "big-endian"),
    "2^60 keys": (build([], [], keys_claimed=1 << 60), BadCheckpoint, "metadata entries"),
    "2^60 tensors": (b"GGUF" + U32(3) + U64(1 << 60) + U64(0) + bytes(100), BadCheckpoint,
    "claims 1152921504606846976 tensors"),
    "2^60 strings": (build([key("k", 9, U32(8) + U64(1 << 60))], []), BadCheckpoint, "claims an array"),
    "2^60 numbers": (build([key("k", 9, U32(4) + U64(1 << 60))], []), BadCheckpoint,
    "needs 4611686018427387904 bytes"),
    "2^63 long string": (build([key("k", 8, U64(1 << 63))], []), BadCheckpoint, "'k'"),
    "long string in array": (build([key("k", 9, U32(8) + U64(1) + U64(1 << 63))], []), BadCheckpoint,
    "past the end"),
    "key of 70000 bytes": (build([key("k" * 70000, 4, U32(1))], []), BadCheckpoint, "70000 bytes"),
    "deep arrays": (build([key("k", 9, (U32(9) + U64(1)) * 50 + U32(4) + U64(0))], []), BadCheckpoint,
    "deep"),
    "unknown value type": (build([key("k", 13, bytes(8))], []), BadCheckpoint, "value type 13"),
    "unknown array type": (build([key("k", 9, U32(99) + U64(0))], []), BadCheckpoint, "value type 99"),
    "long key of no type": (build([key("k" * 60000, 99, b"")], []), BadCheckpoint, "kkk"),
    "key twice": (build([key("k", 4, U32(1))] * 2, []), BadCheckpoint, "twice"),
    "key not UTF-8": (build([key("k", 4, U32(1)).replace(b"k", b"\xff")], []), BadCheckpoint, "UTF-8"),
    "alignment 0": (build([key("general.alignment", 4, U32(0))], []), BadCheckpoint, "alignment is 0"),
    "alignment 48": (build([key("general.alignment", 4, U32(48))], []), BadCheckpoint, "alignment is 48"),
    "alignment text": (build([key("general.alignment", 8, text("32"))], []), BadCheckpoint,
    "alignment is '32'"),
    "tensor twice": (build([], [entry("t", (4,)), entry("t", (4,), offset=32)], bytes(64)), BadCheckpoint,
    "tensor t occurs twice"),
    "overlap": (build([], [entry("a", (16,)), entry("b", (4,), offset=32)], bytes(64)), BadCheckpoint,
    "tensor b begins at byte 32"),
    "odd offset": (build([], [entry("t", (4,), offset=16)], bytes(64)), BadCheckpoint,
    "tensor t lies at offset 16"),
    "past the end": (build([], [entry("t", (17,))], bytes(64)), BadCheckpoint,
    "tensor t needs 68 bytes.*64 bytes of data"),
    "offset 2^63": (build([], [entry("t", (4,), offset=1 << 63)], bytes(64)), BadCheckpoint,
    "tensor t needs 16 bytes"),
    "huge shape": (build([], [entry("t", (1 << 62, 1 << 62, 1 << 62, 1 << 62))], bytes(64)), BadCheckpoint,
    "tensor t needs"),
    "no data": (build([], ONE), BadCheckpoint, "tensor t needs 32 bytes"),
    "zero dimension": (build([], [entry("t", (4, 0))]), BadCheckpoint, "shape"),
    "no dimensions": (build([], [entry("t", ()) + bytes(16)]), BadCheckpoint, "0 dimensions"),
    "five dimensions": (build([], [entry("t", (1,) * 5)]), BadCheckpoint, "5 dimensions"),
    "part of a block": (build([], [Q4_1_ROW], bytes(64)), BadCheckpoint, "multiple of 32"),
    "no weights": (build([], [entry("blk.0.x", (256,), kind=15)], bytes(320)), UnsupportedModel,
    "blk.0.x has the type Q8_K"),
    "new type": (build([], [entry("t", (4,), kind=77)], bytes(64)), UnsupportedModel,
    "tensor t has the type number 77"),
    "no type": (build([], [entry("t", (4,), kind=1 << 20)], bytes(64)), BadCheckpoint, "type number 1048576"),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "error", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_headers_fail_at_once(
    tmp_path: Path, raw: bytes, error: type[EngineError], message: str
) -> None:
    started = time.process_time()
    with pytest.raises(error, match=message) as caught:
        opened(raw, tmp_path)
    assert time.process_time() - started < 1
    assert "m.gguf" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_texts_that_are_not_utf8_are_no_reason_to_refuse_a_vocabulary(tmp_path: Path) -> None:
    texts = text(b"\xffa") + text(b"b\xc3") + text(b"c")
    checkpoint = opened(build([key("k", 9, U32(8) + U64(3) + texts)], []), tmp_path)
    assert checkpoint.metadata["k"] == ["\ufffda", "b\ufffd", "c"]


def test_tensors_written_with_four_dimensions_are_matrices(tmp_path: Path) -> None:
    entries = [
        entry("m", (8, 2, 1, 1)),
        entry("x", (8, 2, 3, 1), offset=64),
        entry("v", (8, 1, 1, 1), offset=256),
    ]
    tensors = opened(build([], entries, bytes(288)), tmp_path).tensors
    assert [tensors[name].shape for name in "mxv"] == [(2, 8), (3, 2, 8), (1, 8)]


def test_a_description_that_is_not_utf8_is_no_reason_to_refuse_a_model(tmp_path: Path) -> None:
    checkpoint = opened(build([key("k", 8, text(b"na\xc3"))], []), tmp_path)
    assert checkpoint.metadata["k"] == "na\ufffd"


@functools.cache
def _small_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write_gguf(Path(folder) / "m.gguf", TINY.but(layers=1)).read_bytes()


HEADER_BYTES = 13000
"""More than the header of `_small_file`, most of which are tokenizer arrays."""


def _look(raw: bytes) -> None:
    """All that the program does with a file before it loads weights; only `EngineError` may come out, and
    soon.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        path.write_bytes(raw)
        started = time.process_time()
        with contextlib.suppress(EngineError):
            describe(path)
            checkpoint = open_checkpoint(path)
            for name in checkpoint.metadata:
                checkpoint.metadata[name]
            for tensor in checkpoint.tensors.values():
                assert tensor.dequantise().shape == tensor.shape
        assert time.process_time() - started < 5


_relaxed = settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@_relaxed
@given(st.lists(st.tuples(st.integers(0, HEADER_BYTES), st.integers(1, 255)), min_size=1, max_size=8))
@example([(4, 3)])
def test_flipped_bytes(flips: list[tuple[int, int]]) -> None:
    raw = bytearray(_small_file())
    for at, mask in flips:
        raw[at] ^= mask
    _look(bytes(raw))


@settings(_relaxed, max_examples=100)
@given(st.data())
def test_truncated_anywhere(data: st.DataObject) -> None:
    whole = _small_file()
    length = data.draw(st.integers(0, HEADER_BYTES) | st.integers(0, len(whole) - 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        path.write_bytes(whole[:length])
        with pytest.raises(BadCheckpoint):
            open_checkpoint(path)


@pytest.mark.slow
@settings(_relaxed, max_examples=150)
@given(
    st.integers(0, HEADER_BYTES),
    st.sampled_from([0, 1, 0xFFFFFFFF, 1 << 31, 1 << 60, (1 << 64) - 1, 1 << 63]),
    st.booleans(),
)
def test_wild_numbers_in_the_header(at: int, number: int, wide: bool) -> None:
    raw = bytearray(_small_file())
    patch = U64(number) if wide else U32(number & 0xFFFFFFFF)
    raw[at : at + len(patch)] = patch
    _look(bytes(raw))


def _split(folder: Path, **changes: Any) -> list[Path]:
    """A model in three parts as `gguf-split` writes them: the first holds the metadata, each has some
    tensors.
    """
    reader = gguf.GGUFReader(write_gguf(folder / "whole", TINY, "Q8_0"))
    paths = []
    for part in range(3):
        paths.append(folder / f"tiny-{part + 1:05d}-of-00003.gguf")
        writer = gguf.GGUFWriter(paths[-1], "llama")
        if part == 0:
            for name in ("llama.block_count", "llama.context_length"):
                writer.add_uint32(name, reader.fields[name].contents())
        writer.add_uint16("split.no", part)
        writer.add_uint16("split.count", changes.get("count", 3))
        for tensor in reader.tensors[part::3]:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def test_split_files_are_one_model(tmp_path: Path) -> None:
    paths = _split(tmp_path)
    whole = GgufFile(tmp_path / "whole")
    for opened_by in (paths[0], paths[2]):
        checkpoint = open_checkpoint(opened_by)
        assert checkpoint.path == paths[0]
        assert checkpoint.metadata["llama.block_count"] == 2
        assert set(checkpoint.tensors) == set(whole.tensors)
        for name, tensor in whole.tensors.items():
            np.testing.assert_array_equal(checkpoint.tensors[name].data, tensor.data)
    assert open_checkpoint(tmp_path).path == paths[0]


def test_split_files_that_are_not_whole(tmp_path: Path) -> None:
    paths = _split(tmp_path)
    alone = tmp_path / "renamed.gguf"
    alone.write_bytes(paths[0].read_bytes())
    with pytest.raises(BadCheckpoint, match="one of 3 parts, but 1 part"):
        open_checkpoint(alone)
    paths[1].unlink()
    with pytest.raises(BadCheckpoint, match=r"tiny-00002-of-00003\.gguf is not beside it"):
        open_checkpoint(paths[0])
    named = write_gguf(tmp_path / "other-00001-of-00002.gguf")  # which says nothing of parts
    assert open_checkpoint(named).path == named


def test_a_tensor_in_two_parts(tmp_path: Path) -> None:
    paths = _split(tmp_path)
    paths[1].write_bytes(paths[0].read_bytes())
    with pytest.raises(BadCheckpoint, match="occurs twice"):
        open_checkpoint(paths[0])


def test_what_can_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no file or folder"):
        open_checkpoint(tmp_path / "nothing")
    with pytest.raises(ModelNotFound, match="neither"):
        open_checkpoint(tmp_path)
    first = write_gguf(tmp_path / "a.gguf")
    assert open_checkpoint(tmp_path).path == first
    write_gguf(tmp_path / "b.gguf")
    with pytest.raises(ModelNotFound, match=r"2 GGUF models \(a.gguf, b.gguf\)"):
        open_checkpoint(tmp_path)
    first.rename(tmp_path / "blob")
    assert (
        open_checkpoint(tmp_path / "blob").metadata["tokenizer.ggml.tokens"][0]
        in tiny_tokenizer()["model"]["vocab"]
    )
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnsupportedModel, match=r"notes\.txt"):
        open_checkpoint(tmp_path / "notes.txt")
