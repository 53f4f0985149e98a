"""Matrices beyond the limit lie in a file without a name, and a model with such matrices writes the same."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
import threading
import weakref
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from engine.backends.cpu.runtime import weight_memory
from engine.backends.cpu.runtime.memory import HUGE_PAGE, aligned
from engine.backends.cpu.runtime.weight_memory import Place, WeightMemory
from engine.chat import LocalChat, finished, open_chat
from engine.core import ChatRequest, Message, Text
from engine.errors import NotEnoughMemory
from engine.models.memory.fit import fit
from engine.platform.folders import CACHE_VARIABLE
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings
from engine.units import size_text
from engine.vision.describe import describe
from tests.tiny import Tiny, write_gguf

MODEL = Tiny(layers=6, width=256, heads=4, kv_heads=2, head_dim=64, ffn_width=1024, vocab_size=307)
"""About 5 MB as Q8_0."""
CACHE = CacheSettings(context_length=512)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, where the file is made: other temporary files may lie in memory."""
    found = tmp_path / "cache"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    monkeypatch.setenv(CACHE_VARIABLE, str(found))
    return found


def filled(memory: WeightMemory, size: int, seed: int) -> tuple[Place, bytes]:
    """A place with random bytes, written in two parts, the last one first."""
    data = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    place = memory.place(size)
    place.write(size // 3, data[None, size // 3 :], 0)
    place.write(0, data[None, : size // 3], 0)
    return place, data.tobytes()


def test_what_is_beyond_the_limit_lies_in_a_file_without_a_name(folder: Path) -> None:
    memory = WeightMemory(3000)
    sizes = (1000, 3000, 5000, 1999, 2000)  # the first and the fourth fit
    found = [filled(memory, size, seed) for seed, size in enumerate(sizes)]
    assert memory.on_disk == 3000 + 5000 + 2000
    for (place, data), size in zip(found, sizes, strict=True):
        assert place.address % 64 == 0
        assert ctypes.string_at(place.address, size) == data
        ctypes.string_at(place.address + size, 4096)  # kernels read a little past the end
    assert os.listdir(folder) == []
    assert folder.stat().st_mode & 0o077 == 0


def test_without_a_limit_nothing_is_on_the_disk(folder: Path) -> None:
    memory = WeightMemory()
    place, data = filled(memory, 10_000, 1)
    assert ctypes.string_at(place.address, 10_000) == data
    assert memory.on_disk == 0
    assert not folder.exists()


def test_matrices_in_memory_share_blocks_that_go_with_the_last_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks begin at a huge page and are as large as all before them, so that hardly a page is not huge."""
    blocks: list[weakref.ref[Any]] = []

    def noted(size: int) -> Any:
        block = aligned(size)
        blocks.append(weakref.ref(block))
        return block

    monkeypatch.setattr(weight_memory, "aligned", noted)
    memory, rng = WeightMemory(), np.random.default_rng(0)
    sizes = [3 << 20, 1_000_003, 5 << 20, *(int(size) for size in rng.integers(1, 3 << 20, 60))]
    found = [filled(memory, size, seed) for seed, size in enumerate(sizes)]
    spans = sorted(
        (place.address, place.address + size) for (place, _), size in zip(found, sizes, strict=True)
    )
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(start % 64 == 0 for start, _ in spans)
    for (place, data), size in zip(found, sizes, strict=True):
        assert ctypes.string_at(place.address, size) == data
        ctypes.string_at(place.address + size, 4096)  # kernels read a little past the end
    assert 4 <= len(blocks) <= 8
    assert sum(start % HUGE_PAGE == 0 for start, _ in spans) >= 4
    last, data = found[7]
    del found, place
    assert sum(block() is not None for block in blocks) == 1
    assert ctypes.string_at(last.address, sizes[7]) == data
    del last
    assert not any(block() is not None for block in blocks)
    assert memory.place(64).address % 64 == 0


def test_the_file_goes_with_its_last_matrix(folder: Path) -> None:
    memory, process = WeightMemory(0), psutil.Process()
    before = len(process.memory_maps(grouped=False)), process.num_fds()
    first, second = filled(memory, 1 << 20, 1)[0], filled(memory, 1 << 20, 2)[0]
    assert first.address != second.address
    assert len(process.memory_maps(grouped=False)) > before[0]
    del first
    assert second.address
    del second
    assert process.num_fds() == before[1]
    assert not any("deleted" in each.path and str(folder) in each.path for each in process.memory_maps())


def test_a_full_disk_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = WeightMemory(0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=999_999))
    memory.check_disk(999_999)
    with pytest.raises(NotEnoughMemory, match=r"^1 MB of the weights do not fit .* for only 1 MB; free"):
        memory.check_disk(1_000_000)

    class Full:
        def seek(self, _: int) -> None: ...

        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(NotEnoughMemory, match="No space left on device; free some space there"):
        filled(memory, 1000, 1)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(NotEnoughMemory, match="cannot be used: Not a directory; choose another"):
        WeightMemory(0).place(1)


def reply(chat: LocalChat) -> str:
    request = ChatRequest(
        (Message("user", "The quick brown fox"),), sampler=SamplerSettings(seed=3),
        stops=StopSettings(max_tokens=24, min_tokens=24),
    )  # fmt: skip
    return "".join(each.text for each in chat.stream(request, threading.Event()) if isinstance(each, Text))


def test_a_model_larger_than_memory_writes_what_it_writes_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "m.gguf", MODEL, "Q8_0")
    load, offload = (LoadSettings(backend="cpu", threads=2, offload=on) for on in (False, True))
    whole = finished(open_chat(path, load, CACHE))
    wanted = reply(whole)
    assert whole.info.offloaded_bytes == 0
    assert whole.info.notice == ""
    whole.close()
    info = describe(path)
    needed = info.resident_bytes
    judged = fit(info, CACHE, 1 << 40)
    free = (judged.work + judged.cache + needed // 2) * 8 // 7
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free, total=free))
    part = finished(open_chat(path, offload, CACHE))
    assert 0 < part.info.offloaded_bytes < needed
    assert needed // 4 < part.info.resident_bytes <= needed // 2
    assert part.info.resident_bytes + part.info.offloaded_bytes == needed
    assert f"{size_text(part.info.offloaded_bytes)} of the weights of m.gguf did not fit" in part.info.notice
    assert reply(part) == wanted
    part.close()
    free = judged.total
    fitting = finished(open_chat(path, offload, CACHE))
    assert fitting.info.offloaded_bytes == 0
    fitting.close()
    free = needed - 1
    with pytest.raises(NotEnoughMemory, match="or turn on “Offload to disk”"):
        finished(open_chat(path, load, CACHE))
