"""PyTorch's files: both formats, views, several files; what would run code is not run."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
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
