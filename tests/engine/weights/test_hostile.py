"""Damaged and hostile model files of every container: one plain sentence, soon, and without more memory than
the file's size class.

Mutations of valid small files: flipped bytes, wild numbers, truncations, and pieces of one file spliced into
another.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from engine.errors import BadCheckpoint, EngineError, ModelNotFound
from engine.weights import open_checkpoint
from engine.weights.facts import licence, quantisation_name
from engine.weights.safetensors.json import read_json_list
from tests.tiny import TINY, write_folder, write_gguf

MOST_SECONDS = 5
MOST_BYTES = 48 << 20
"""The files here have some 100 kB; decoding works in pieces of a few MB whatever the file."""

Files = dict[str, bytes]
SMALL = TINY.but(layers=1, width=32, ffn_width=32)


def _folder_files(write: Callable[[Path], object]) -> Files:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "m"
        folder.mkdir()
        write(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _fp8(folder: Path) -> None:
    settings = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "quantization_config": settings})
    )
    save_file(
        {
            "a.weight": torch.ones(200, 40).to(torch.float8_e4m3fn),
            "a.weight_scale_inv": torch.ones(2, 1),
            "n.weight": torch.ones(40),
        },
        folder / "model.safetensors",
    )


def _mxfp4(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "mxfp4"}}))
    tensors = {
        "a_blocks": torch.ones(2, 4, 3, 16, dtype=torch.uint8),
        "a_scales": torch.ones(2, 4, 3, dtype=torch.uint8),
    }
    save_file(tensors, folder / "model.safetensors")


@functools.cache
def valid() -> dict[str, Files]:
    """Small models of each kind, as the bytes of their files."""
    return {
        "gguf": _folder_files(lambda folder: write_gguf(folder / "m.gguf", SMALL, "Q4_0")),
        "gguf of many types": _folder_files(
            lambda folder: write_gguf(folder / "m.gguf", TINY.but(layers=1), "F16", {"ffn_up": "Q8_0"})
        ),
        "folder": _folder_files(lambda folder: write_folder(folder, SMALL, "BF16")),
        "shards": _folder_files(lambda folder: write_folder(folder, SMALL, "F16", 3)),
        "fp8": _folder_files(_fp8),
        "mxfp4": _folder_files(_mxfp4),
    }


def look(files: Files) -> None:
    """Everything that is done with a model's files before and while its weights are loaded; only
    `EngineError` may come out.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        started = time.process_time()
        with contextlib.suppress(EngineError):
            checkpoint = open_checkpoint(folder)
            assert isinstance(quantisation_name(checkpoint) + licence(checkpoint), str)
            for key in checkpoint.metadata:
                checkpoint.metadata[key]
            for tensor in checkpoint.tensors.values():
                assert tensor.nbytes <= sum(map(len, files.values()))
                assert tensor.dequantise().shape == tensor.shape
                if len(tensor.shape) > 1 and tensor.shape[0]:
                    assert tensor.rows(0, 1).take([0]).dequantise().shape == (1, *tensor.shape[1:])
            checkpoint.close()
        assert time.process_time() - started < MOST_SECONDS


WILD = (
    0,
    1,
    2,
    31,
    127,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 60,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
TEXTS = (
    b"{}", b"[]", b"null", b"-1", b"1e999", b"NaN", b'"\\ud800"', b"true", b"9" * 30, b"\x00", b"\xff\xfe",
    b"[" * 3000, b"{" * 3000, b"..", b"/", b'"F32"', b'"F8_E4M3"', b'"I64"', b'"U8"', b"0,0", b"weight",
    b"_scale", b"_blocks", b"GGUF",
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> Files:
    """A valid model with one to four mutations in one of its files."""
    kinds = valid()
    files = dict(kinds[draw(st.sampled_from(sorted(kinds)))])
    name = draw(st.sampled_from(sorted(files)))
    raw = bytearray(files[name])
    for _ in range(draw(st.integers(1, 4))):
        # Headers come first, and are where most can go wrong.
        at = draw(st.integers(0, min(1500, len(raw))) | st.integers(0, len(raw)))
        how = draw(st.sampled_from(["flip", "wild", "text", "cut", "truncate", "splice", "repeat"]))
        if how == "flip" and at < len(raw):
            raw[at] ^= draw(st.integers(1, 255))
        elif how == "wild":
            width = draw(st.sampled_from([4, 8]))
            raw[at : at + width] = (draw(st.sampled_from(WILD)) & ((1 << 8 * width) - 1)).to_bytes(
                width, "little"
            )
        elif how == "text":
            raw[at : at + draw(st.integers(0, 12))] = draw(st.sampled_from(TEXTS))
        elif how == "cut":
            del raw[at : at + draw(st.integers(1, 64))]
        elif how == "truncate":
            del raw[at:]
        elif how == "splice":
            other = kinds[draw(st.sampled_from(sorted(kinds)))]
            piece = other[draw(st.sampled_from(sorted(other)))]
            start = draw(st.integers(0, len(piece)))
            raw[at:at] = piece[start : start + draw(st.integers(1, 400))]
        elif how == "repeat":
            raw[at:at] = raw[at : at + draw(st.integers(1, 200))] * draw(st.integers(1, 20))
    files[name] = bytes(raw)
    return files


relaxed = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def test_the_valid_ones_are_valid() -> None:
    for files in valid().values():
        with tempfile.TemporaryDirectory() as name:
            for file, content in files.items():
                (Path(name) / file).write_bytes(content)
            assert all(
                tensor.dequantise().shape == tensor.shape for tensor in open_checkpoint(name).tensors.values()
            )


@settings(relaxed, max_examples=250)
@given(mutated())
def test_mutations(files: Files) -> None:
    look(files)


@pytest.mark.slow
@settings(relaxed, max_examples=6000)
@given(mutated())
def test_many_mutations(files: Files) -> None:
    look(files)


@settings(relaxed, max_examples=25)
@given(mutated())
def test_memory_stays_in_the_class_of_the_file(files: Files) -> None:
    valid()
    tracemalloc.start()
    try:
        look(files)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES


def _bombs() -> dict[str, Files]:
    """Small things that ask for much."""
    head = b"GGUF" + (3).to_bytes(4, "little")
    u64 = functools.partial(int.to_bytes, length=8, byteorder="little")
    u32 = functools.partial(int.to_bytes, length=4, byteorder="little")
    key = u64(1) + b"k"
    padding = bytes(1 << 20)
    nested = b"".join(u32(9) + u64(1) for _ in range(4))
    entry = {"dtype": "F32", "shape": [0, 1 << 40], "data_offsets": [0, 0]}
    header = json.dumps({f"t{i}": entry for i in range(20)}).encode()
    return {
        "numbers": {"m.gguf": head + u64(0) + u64(1) + key + u32(9) + u32(0) + u64(1 << 40) + padding},
        "texts": {"m.gguf": head + u64(0) + u64(1) + key + u32(9) + u32(8) + u64(1 << 17) + padding},
        "nested": {"m.gguf": head + u64(0) + u64(1) + key + u32(9) + nested + padding},
        "long text": {"m.gguf": head + u64(0) + u64(1) + key + u32(8) + u64((1 << 64) - 1) + padding},
        "wrapping offset": {
            "m.gguf": head + u64(1) + u64(0) + key + u32(1) + u64(32) + u32(0) + u64((1 << 64) - 32) + padding
        },
        "wrapping shape": {
            "m.gguf": head + u64(1) + u64(0) + key + u32(4) + u64(1 << 32) * 4 + u32(0) + u64(0) + padding
        },
        "lists": {"config.json": b"[" + b"[]," * 300_000 + b"[]]", "model.safetensors": b"x"},
        "depth": {"config.json": b'{"a":' * 500_000, "model.safetensors": b"x"},
        "empty giants": {"config.json": b"{}", "model.safetensors": u64(len(header)) + header},
    }


@pytest.mark.parametrize("name", list(_bombs()))
def test_bombs(name: str) -> None:
    files = _bombs()[name]
    tracemalloc.start()
    try:
        look(files)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES


def test_links_that_lead_in_circles(tmp_path: Path) -> None:
    loop = tmp_path / "a.gguf"
    loop.symlink_to(tmp_path / "b.gguf")
    (tmp_path / "b.gguf").symlink_to(loop)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "self").symlink_to(folder)
    (folder / "config.json").symlink_to(folder / "config.json")
    (folder / "model.safetensors").symlink_to(folder / "model.safetensors")
    for path in (
        loop,
        folder,
        folder / "self" / "self",
        folder / "model.safetensors",
        folder / "config.json",
        loop / "x",
    ):
        with pytest.raises(ModelNotFound) as caught:
            open_checkpoint(path)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b", "~nobody-of-this-name/m.gguf", "/dev/null", ""])
def test_paths_that_are_none(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFound):
        open_checkpoint(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.timeout(20)
def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(ModelNotFound):
        open_checkpoint(tmp_path / "m.gguf")
    folder = write_folder(tmp_path / "m", SMALL)
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    os.mkfifo(folder / "README.md")
    with pytest.raises(ModelNotFound, match=r"model\.safetensors is not a plain file"):
        open_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    save_file({"t": torch.zeros(2, 2)}, folder / "model.safetensors")
    assert licence(open_checkpoint(folder)) == ""
    (folder / "generation_config.json").unlink()
    os.mkfifo(folder / "generation_config.json")  # it need not be there
    assert open_checkpoint(folder).metadata["generation_config"] == {}
    os.mkfifo(folder / "modules.json")
    with pytest.raises(ModelNotFound, match=r"modules\.json is not a plain file"):
        read_json_list(folder / "modules.json")


def test_a_file_that_should_hold_a_list(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("{}")
    with pytest.raises(BadCheckpoint, match=r"modules\.json holds a JSON dict; a list was expected"):
        read_json_list(tmp_path / "modules.json")


def test_numbers_that_are_none_do_not_stop_the_reading(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"t": torch.tensor([[float("nan"), float("inf"), -0.0]])}, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        open_checkpoint(tmp_path).tensors["t"].dequantise(), [[np.nan, np.inf, -0.0]]
    )


def test_a_header_that_changes_while_it_is_read(tmp_path: Path) -> None:
    """The tokenizer's arrays are decoded late: what was read at first is kept, so a shorter file then
    harms nothing.
    """
    path = write_gguf(tmp_path / "m.gguf", SMALL)
    expected = open_checkpoint(path).metadata["tokenizer.ggml.tokens"]
    checkpoint = open_checkpoint(path)
    path.write_bytes(b"GGUF")
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == expected
    with pytest.raises(BadCheckpoint, match=r"m\.gguf was changed"):
        next(iter(checkpoint.tensors.values())).dequantise()
