"""Safetensors folders: what the library writes is read; what is broken is refused in one sentence."""

from __future__ import annotations

import contextlib
import json
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save, save_file

from engine.errors import BadCheckpoint, EngineError, ModelNotFound, UnsupportedModel
from engine.vision.describe import describe
from engine.weights import open_checkpoint
from tests.tiny import TINY, write_folder


def folder_of(folder: Path, raw: bytes) -> Path:
    """A model folder with `raw` as its only safetensors file."""
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(raw)
    return folder


def raw_file(header: Any, data: bytes = b"") -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + data


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(3, 5), "b": torch.randn(7).half(), "c": torch.randn(2, 3, 4).bfloat16(),
        "empty": torch.zeros(0, 4), "scalar": torch.tensor(2.5),
    }  # fmt: skip
    found = open_checkpoint(folder_of(tmp_path, save(tensors, {"format": "pt"}))).tensors
    assert {name: (tensor.type, tensor.shape) for name, tensor in found.items()} == {
        "a": ("F32", (3, 5)), "b": ("F16", (7,)), "c": ("BF16", (2, 3, 4)), "empty": ("F32", (0, 4)),
        "scalar": ("F32", ()),
    }  # fmt: skip
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name].dequantise(), tensor.float().numpy())


@pytest.mark.parametrize("shards", [1, 4])
def test_folder_and_file_inside_it(tmp_path: Path, shards: int) -> None:
    folder = write_folder(tmp_path / "m", TINY, shards=shards)
    expected = {
        name: values for file in folder.glob("*.safetensors") for name, values in load_file(file).items()
    }
    for path in (folder, *folder.glob("*.safetensors")):
        checkpoint = open_checkpoint(path)
        assert checkpoint.format == "safetensors"
        assert checkpoint.path == folder
        assert checkpoint.files == tuple(sorted(folder.glob("*.safetensors")))
        assert checkpoint.metadata["config"]["hidden_size"] == TINY.width
        assert checkpoint.metadata["generation_config"]["eos_token_id"] == [2, 0]
        assert set(checkpoint.tensors) == set(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(checkpoint.tensors[name].dequantise(), values.numpy())
        checkpoint.close()
    (folder / "generation_config.json").unlink()
    assert open_checkpoint(folder).metadata["generation_config"] == {}


def one(dtype: Any = "F32", shape: Any = (2, 2), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"t": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


DATA = bytes(16)
HOSTILE: dict[str, tuple[bytes, type[EngineError], str]] = {
    "empty": (b"", BadCheckpoint, "is empty"),
    "short": (b"abc", BadCheckpoint, "truncated"),
    "huge header": (struct.pack("<Q", 1 << 60) + DATA, BadCheckpoint, "claims 1152921504606846976 bytes"),
    "header past the end": (struct.pack("<Q", 17) + DATA, BadCheckpoint, "claims 17 bytes"),
    "no JSON": (raw_file(b"{nonsense"), BadCheckpoint, "not valid JSON"),
    "no UTF-8": (raw_file(b"{\xff\xfe\xfd}"), BadCheckpoint, "not valid JSON"),
    "deep JSON": (raw_file(b"[" * 200000), BadCheckpoint, "not valid JSON"),
    "a list": (raw_file([1]), BadCheckpoint, "holds a JSON list"),
    "name twice": (raw_file(b'{"t":{},"t":{}}'), BadCheckpoint, "twice"),
    "no entry": (raw_file({"t": 5}, DATA), BadCheckpoint, "tensor t has no proper"),
    "negative size": (raw_file(one(shape=[-2, 2]), DATA), BadCheckpoint, "tensor t has no proper"),
    "size true": (raw_file(one(shape=[True, 4]), DATA), BadCheckpoint, "tensor t has no proper"),
    "size 2.0": (raw_file(one(shape=[2.0, 2]), DATA), BadCheckpoint, "tensor t has no proper"),
    "huge product": (raw_file(one(shape=[1 << 61] * 8), DATA), BadCheckpoint, "larger than any"),
    "large product": (raw_file(one(shape=[1 << 20, 1 << 20]), DATA), BadCheckpoint, "tensor t of dtype F32"),
    "huge and empty": (raw_file(one(shape=[0, 1 << 61], offsets=[0, 0])), BadCheckpoint, "larger than any"),
    "JSON bomb": (raw_file(b'{"t":[' + b"[]," * (1 << 20) + b"[]]}"), BadCheckpoint, "more lists"),
    "JSON bomb of objects": (raw_file(b'{"t":[' + b"{}," * (1 << 20) + b"{}]}"), BadCheckpoint, "more lists"),
    "JSON of many numbers": (raw_file(b'{"t":[' + b"0," * (5 << 20) + b"0]}"), BadCheckpoint,
    "more lists or values"),
    "a number of 10000 digits": (raw_file(b'{"t":' + b"9" * 10000 + b"}"), BadCheckpoint, "not valid JSON"),
    "many dimensions": (raw_file(one(shape=[1 << 61] * 5000), DATA), BadCheckpoint,
    "tensor t has 5000 dimensions"),
    "long name": (raw_file({"n" * 9000: one()["t"]}, DATA), BadCheckpoint, "name has 9000 characters"),
    "too short": (raw_file(one(offsets=[0, 12]), DATA), BadCheckpoint, "16 bytes inside the file"),
    "past the end": (raw_file(one(offsets=[8, 24]), DATA), BadCheckpoint, "16 bytes inside the file"),
    "backwards": (raw_file(one(offsets=[16, 0]), DATA), BadCheckpoint, "16 bytes inside the file"),
    "three offsets": (raw_file(one(offsets=[0, 16, 16]), DATA), BadCheckpoint, "3 data_offsets"),
    "hole": (raw_file(one(), DATA + DATA), BadCheckpoint, "cover 16 of 32"),
    "overlap": (raw_file(one() | {"u": one(offsets=[8, 24])["t"]}, bytes(24)), BadCheckpoint,
    "tensor u begins at byte 8"),
    "4-bit floats": (raw_file(one("F4"), DATA), UnsupportedModel, "tensor t has the dtype 'F4'"),
    "dtype list": (raw_file(one(["F32"]), DATA), UnsupportedModel, "tensor t has the dtype"),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "error", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_headers_fail_at_once(
    tmp_path: Path, raw: bytes, error: type[EngineError], message: str
) -> None:
    started = time.process_time()
    with pytest.raises(error, match=message) as caught:
        open_checkpoint(folder_of(tmp_path, raw))
    assert time.process_time() - started < 1
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "shard",
    [
        "../outside.safetensors",
        "/etc/x.safetensors",
        "sub/x.safetensors",
        "..",
        "a\\b.safetensors",
        "x.bin",
        5,
        None,
    ],
)
def test_an_index_names_only_files_of_the_folder(tmp_path: Path, shard: Any) -> None:
    save_file({"t": torch.zeros(2)}, tmp_path / "outside.safetensors")
    folder = write_folder(tmp_path / "m", TINY, shards=2)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["t"] = shard
    index.write_text(json.dumps(content))
    with pytest.raises(BadCheckpoint, match="places tensor t in"):
        open_checkpoint(folder)


def test_folders_that_hold_no_model_of_ours(tmp_path: Path) -> None:
    """An adapter names its model; a folder in the makers' own format says so."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "params.json").write_text('{"model_type": "mamba"}')
    (own / "consolidated.00.pth").write_bytes(raw_file({}))
    with pytest.raises(UnsupportedModel, match=r"author's own format .*get the variant with a config\.json"):
        open_checkpoint(own)
    for given_base, said in (({"base_model_name_or_path": "org/base"}, "org/base"), ({}, r"\?")):
        (own / "adapter_config.json").write_text(json.dumps(given_base))
        with pytest.raises(UnsupportedModel, match=rf"an adapter \(PEFT\).*belongs to \({said}\)"):
            open_checkpoint(own)


def test_a_whole_file_counts_before_an_index(tmp_path: Path) -> None:
    """As for transformers: the index is of the model that was quantised, and its files are not there."""
    folder = write_folder(tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model-00001-of-00009.safetensors"}}'
    )
    assert open_checkpoint(folder).files == (folder / "model.safetensors",)


def test_of_two_tensors_with_a_name_the_one_that_the_index_names_counts(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", TINY, shards=2)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    for number, shard in enumerate(("a.safetensors", "b.safetensors")):
        save_file({"t": torch.full((2,), number), f"t{number}": torch.zeros(1)}, folder / shard)
        content["weight_map"][f"t{number}"] = shard
    for number, shard in enumerate(("a.safetensors", "b.safetensors")):
        content["weight_map"]["t"] = shard
        index.write_text(json.dumps(content))
        checkpoint = open_checkpoint(folder)
        assert checkpoint.tensors["t"].dequantise().tolist() == [number, number]
        checkpoint.close()


def test_broken_indexes(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", TINY, shards=2)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["ghost"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(BadCheckpoint, match="names tensor ghost"):
        open_checkpoint(folder)
    index.write_text("{}")
    with pytest.raises(BadCheckpoint, match="no weight_map"):
        open_checkpoint(folder)
    index.write_text(json.dumps({"weight_map": {"t": "model-00009-of-00002.safetensors"}}))
    with pytest.raises(BadCheckpoint, match="not in the folder"):
        open_checkpoint(folder)
    index.unlink()
    with pytest.raises(BadCheckpoint, match="2 safetensors files but no"):
        open_checkpoint(folder)


def test_folders_that_lack_something(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelNotFound, match=r"no \.safetensors file"):
        open_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(BadCheckpoint, match="not a list of tensors that PyTorch wrote"):
        open_checkpoint(tmp_path)
    lonely = tmp_path / "sub" / "model.safetensors"
    lonely.parent.mkdir()
    save_file({"t": torch.zeros(2)}, lonely)
    with pytest.raises(ModelNotFound, match=r"no config\.json beside it"):
        open_checkpoint(lonely)
    (lonely.parent / "config.json").write_text("[]")
    with pytest.raises(BadCheckpoint, match="holds a JSON list"):
        open_checkpoint(lonely)


_good: dict[str, bytes] = {}


def _good_files() -> dict[str, bytes]:
    if not _good:
        with tempfile.TemporaryDirectory() as name:
            folder = write_folder(Path(name) / "m", TINY.but(layers=1, width=32, ffn_width=32))
            _good.update({path.name: path.read_bytes() for path in folder.iterdir()})
    return _good


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.sampled_from(["model.safetensors", "config.json"]),
    st.lists(st.tuples(st.integers(0, 1500), st.integers(1, 255)), min_size=1, max_size=6),
)
def test_flipped_bytes(file: str, flips: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each, content in _good_files().items():
            (folder / each).write_bytes(content)
        raw = bytearray(_good_files()[file])
        for at, mask in flips:
            raw[at % len(raw)] ^= mask
        (folder / file).write_bytes(raw)
        started = time.process_time()
        with contextlib.suppress(EngineError):
            describe(folder)
        assert time.process_time() - started < 5
