"""PyTorch's files: both formats, views, several files; what would run code is not run."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.weights import open_checkpoint
from engine.weights.pytorch.file import read_pytorch

GENERATOR = torch.Generator().manual_seed(3)
BASE = torch.randn(6, 10, generator=GENERATOR)
TENSORS = {
    "a.weight": BASE, "tied.weight": BASE, "b.weight": BASE.bfloat16(), "c.weight": BASE.half()[2:5],
    "flipped.weight": BASE.T, "columns.weight": BASE[:, 3:7], "ids": torch.arange(7),
    "one": torch.tensor(2.5), "some.bias": torch.nn.Parameter(BASE[0]), "flags": torch.tensor([True, False]),
}  # fmt: skip


def written(path: Path, value: Any, new: bool = True) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=new)
    return path


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("wrap", [lambda found: found, lambda found: {"state_dict": found, "epoch": 3}])
def test_every_number(tmp_path: Path, new: bool, wrap: Any) -> None:
    found = {tensor.name: tensor for tensor in read_pytorch(written(tmp_path / "m.bin", wrap(TENSORS), new))}
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].shape == tuple(tensor.shape)
        np.testing.assert_array_equal(found[name].dequantise(), tensor.detach().float().numpy())
    some = found["flipped.weight"].take([7, 2]).dequantise()
    np.testing.assert_array_equal(some, BASE.T[[7, 2]].numpy())
    np.testing.assert_array_equal(found["columns.weight"].rows(2, 4).dequantise(), BASE[2:4, 3:7].numpy())


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_every_protocol(tmp_path: Path, protocol: int, new: bool) -> None:
    """What stands beside the tensors, in lists and sets of any kind, is passed over, with its own tensors."""
    value = {
        **TENSORS, "lists": [[], [1], [1, 2, [BASE.double(), None]], (1, 2, 3), (1, 2, 3, 4), ()],
        "dicts": {"none": {}, "one": {"x": -1}, "more": {1: 2.5, 1 << 40: 1 << 90}}, "sets": [set(), {7, 8}],
        "texts": ["", "x" * 300, "\u00e4", b"", b"y" * 300], "size": BASE.size(), "flag": False,
        "ordered": collections.OrderedDict(b=BASE), "device": BASE.device, "array": bytearray(b"z"),
        "counts": collections.Counter("aab"),
    }  # fmt: skip
    file = tmp_path / "m.bin"
    torch.save(value, file, pickle_protocol=protocol, _use_new_zipfile_serialization=new)
    found = {tensor.name: tensor for tensor in read_pytorch(file)}
    assert list(found) == list(TENSORS)
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(found[name].dequantise(), tensor.detach().float().numpy())


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize(
    ("dtype", "type"),
    [
        (torch.float64, "F64"), (torch.float32, "F32"), (torch.float16, "F16"), (torch.bfloat16, "BF16"),
        (torch.int64, "I64"), (torch.int32, "I32"), (torch.int16, "I16"), (torch.int8, "I8"),
        (torch.uint8, "U8"), (torch.bool, "BOOL"), (torch.float8_e4m3fn, "F8_E4M3"),
        (torch.float8_e5m2, "F8_E5M2"), (torch.uint16, "U16"), (torch.uint32, "U32"), (torch.uint64, "U64"),
    ],
)  # fmt: skip
def test_every_type(tmp_path: Path, dtype: torch.dtype, type: str, new: bool) -> None:
    """A tensor of each type, between two others: where its bytes end is right, too."""
    own = torch.arange(24).reshape(4, 6).to(dtype)
    file = written(tmp_path / "m.bin", {"a": BASE, "b": own[1:3], "c": BASE.double()}, new)
    a, b, c = read_pytorch(file)
    assert (b.type, b.shape) == (type, (2, 6))
    assert b.data.tobytes() == own[1:3].contiguous().view(torch.uint8).numpy().tobytes()
    np.testing.assert_array_equal(a.dequantise(), BASE.numpy())
    np.testing.assert_array_equal(c.dequantise(), BASE.numpy())


@pytest.mark.parametrize("name", ["state_dict", "model", "module"])
def test_tensors_in_a_dict_of_a_checkpoint(tmp_path: Path, name: str) -> None:
    """They are looked for only where the outer dict has none."""
    inner = {"x": BASE, "note": "hello"}
    file = written(tmp_path / "m.bin", {"epoch": 3, name: inner, "lr": 0.1})
    assert [tensor.name for tensor in read_pytorch(file)] == ["x"]
    file = written(tmp_path / "m.bin", {"y": BASE, name: inner})
    assert [tensor.name for tensor in read_pytorch(file)] == ["y"]


def test_lists_that_hold_each_other(tmp_path: Path) -> None:
    """Each is looked into once: a file of a few lines would otherwise keep the program busy for ever."""
    nested: list[Any] = []
    for _unused in range(100):
        nested = [nested, nested]
    file = written(tmp_path / "m.bin", {"a": BASE, "nested": nested}, new=False)
    assert [tensor.name for tensor in read_pytorch(file)] == ["a"]


def test_archives_that_pytorch_does_not_write(tmp_path: Path) -> None:
    """Compressed entries, two lists of tensors, and the numbers of a big-endian machine."""
    raw = zipfile.ZipFile(written(tmp_path / "m.bin", {"a": BASE}))
    entries = {entry.filename: raw.read(entry) for entry in raw.infolist()}
    raw.close()

    def read(entries: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> list[str]:
        with zipfile.ZipFile(tmp_path / "other.bin", "w", kind) as archive:
            for name, data in entries.items():
                archive.writestr(name, data)
        return [tensor.name for tensor in read_pytorch(tmp_path / "other.bin")]

    assert read(entries) == ["a"]
    with pytest.raises(BadCheckpoint, match=r"other\.bin is not a list of tensors"):
        read(entries, zipfile.ZIP_DEFLATED)
    with pytest.raises(BadCheckpoint, match=r"other\.bin is not a list of tensors"):
        read({**entries, "second/data.pkl": entries["m/data.pkl"]})
    with pytest.raises(UnsupportedModel, match=r"other\.bin holds big-endian numbers"):
        read({**entries, "m/byteorder": b"big"})


def test_folders(tmp_path: Path) -> None:
    """One file, or several with an index; beside safetensors they are not looked at."""
    (tmp_path / "config.json").write_text("{}")
    whole = written(tmp_path / "pytorch_model.bin", TENSORS)
    assert set(open_checkpoint(tmp_path).tensors) == set(open_checkpoint(whole).tensors) == set(TENSORS)
    assert open_checkpoint(tmp_path).files == (whole,)
    whole.unlink()
    names = {"a.weight": "pytorch_model-00001-of-00002.bin", "ids": "pytorch_model-00002-of-00002.bin"}
    for name, file in names.items():
        written(tmp_path / file, {name: TENSORS[name]})
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))
    assert set(open_checkpoint(tmp_path).tensors) == set(names)
    save_file({"x": torch.ones(2)}, tmp_path / "model.safetensors")
    assert set(open_checkpoint(tmp_path).tensors) == {"x"}


class Calls:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("new", [True, False])
def test_no_code_runs(tmp_path: Path, new: bool) -> None:
    file = written(tmp_path / "m.bin", {"a": BASE, "b": Calls(tmp_path / "made")}, new)
    with pytest.raises(UnsupportedModel, match=r"m\.bin asks for posix\.mkdir while it is read") as caught:
        read_pytorch(file)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "made").exists()


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    """Any damage ends in a sentence or is not seen, and never in another error."""
    rng = np.random.default_rng(4)
    for new in (True, False):
        raw = written(tmp_path / "m.bin", {"a": BASE, "b": BASE.half()}, new).read_bytes()
        file = tmp_path / "broken.bin"
        file.write_bytes(raw[: len(raw) // 2])
        with pytest.raises(BadCheckpoint, match=r"broken\.bin"):
            read_pytorch(file)
        for _unused in range(60):
            changed = bytearray(raw)
            for at in rng.integers(0, len(raw), 3):
                changed[at] = rng.integers(0, 256)
            file.write_bytes(bytes(changed))
            with contextlib.suppress(EngineError):
                for tensor in read_pytorch(file):
                    tensor.dequantise()
    for value in ([1, 2], "text", {"a": [[[]]]}):
        file.write_bytes(pickle.dumps(value))
        with pytest.raises(BadCheckpoint):
            read_pytorch(file)


def test_a_view_past_its_storage(tmp_path: Path) -> None:
    whole = written(tmp_path / "m.bin", {"a": BASE})
    raw = whole.read_bytes().replace(b"K\x06K\n\x86", b"K\x07K\n\x86")
    assert raw != whole.read_bytes()
    whole.write_bytes(raw)
    with pytest.raises(BadCheckpoint, match=r"a of shape \(7, 10\) reaches past its bytes"):
        read_pytorch(whole)
