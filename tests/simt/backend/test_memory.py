"""A GPU's memory on the CUDA backend: given back when a model goes or does not come, foretold, and one
word for what is free.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.backends import choice
from engine.backends.cuda.backend import CudaBackend
from engine.backends.cuda.runtime.driver import GpuInfo, Gpus
from engine.backends.cuda.runtime.kept_memory import kept_unused
from engine.chat import finished, open_chat
from engine.core import ChatRequest, Loading
from engine.errors import Cancelled, DeviceLost, EngineError, NotEnoughMemory
from engine.models.load import read_config, survey
from engine.models.memory.estimate import cache_bytes
from engine.models.memory.fit import fit, work_bytes, work_space
from engine.settings import CacheSettings, LoadSettings, SpeculationSettings
from engine.vision.describe import describe
from engine.weights import open_checkpoint
from tests.simt.backend.test_chats import CACHE, GPU, draft_of, opened
from tests.simt.backend.test_replies import ASK, Reply
from tests.simt.fake import FakeDevice
from tests.simt.fake_machine import FakeMachine, install
from tests.tiny import TINY, write_gguf

AUTO = LoadSettings()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("m") / "m.gguf", TINY, "Q4_0")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    return install(monkeypatch)


# --- given back ---


def test_a_model_that_goes_gives_its_memory_back(machine: FakeMachine, path: Path) -> None:
    """What torch keeps of it is taken to the driver: the next look would find too little, and take the
    processor without a word.
    """
    chat = opened(path)
    Reply(chat, tokens=2)
    chat.close()
    assert (machine.devices[0].taken, machine.devices[0].kept) == (0, 0)


def test_a_draft_model_that_goes(machine: FakeMachine, path: Path) -> None:
    chat, device = opened(path), machine.devices[0]
    plain = device.taken
    Reply(chat, tokens=2, speculation=SpeculationSettings("model", str(draft_of(path)), draft_tokens=2))
    assert device.taken > plain
    Reply(chat, tokens=2)
    assert device.kept == 0
    chat.close()


def test_a_draft_model_that_does_not_come(
    machine: FakeMachine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, device = opened(path), machine.devices[0]
    taken, draft = device.taken, draft_of(path)
    request = ChatRequest(ASK, speculation=SpeculationSettings("model", str(draft), draft_tokens=2))
    events = chat.stream(request, threading.Event())
    while device.taken == taken:
        assert isinstance(next(events), Loading)
    monkeypatch.setattr(device, "free_memory", lambda: 0)
    with pytest.raises(NotEnoughMemory):
        list(events)
    assert (device.taken, device.kept) == (taken, 0)
    chat.close()


@pytest.mark.parametrize("how", ["stopped", "closed", "no memory", "lost", "an error of ours"])
def test_a_load_that_fails_gives_its_memory_back(machine: FakeMachine, path: Path, how: str) -> None:
    """At once, though somebody still looks at the error."""
    device, stop = machine.devices[0], threading.Event()
    loading = open_chat(path, GPU, CACHE, stop)
    while device.taken == 0:
        next(loading)
    expected: type[Exception] = {"stopped": Cancelled, "no memory": NotEnoughMemory, "lost": DeviceLost}.get(
        how, ZeroDivisionError
    )
    if how == "closed":
        loading.close()
    else:
        stop.set() if how == "stopped" else None
        if how == "no memory":
            device.total_memory = device.taken + 1000
        device.lost = how == "lost"
        if how == "an error of ours":
            device.upload = lambda array: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        with pytest.raises(expected) as found:
            finished(loading)
        assert found.value.__traceback__ is not None
        assert gc.isenabled() is False, "no search for cycles has to come first"
    assert (device.taken, device.kept) == (0, 0)


def test_exllamav2_gives_memory_back(machine: FakeMachine, path: Path) -> None:
    from engine.compat.exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config

    config, device = ExLlamaV2Config(str(path)), machine.devices[0]
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, max_seq_len=256, lazy=True)
    model.load_autosplit(cache)
    model.unload()
    cache.close()  # in either order
    assert (device.taken, device.kept) == (0, 0)
    loading = ExLlamaV2(config).load_gen()
    next(loading)
    device.total_memory = device.taken
    with pytest.raises(NotEnoughMemory):
        list(loading)
    assert (device.taken, device.kept) == (0, 0)


# --- what is free ---


def test_one_word_for_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML's free counts as taken what torch keeps in this process: the look at the GPUs counts it back."""
    gpus = (
        GpuInfo(0, "NVIDIA Fake", 90, 1 << 34, 132, free_memory=5000),
        GpuInfo(1, "Other", 90, 1 << 34, 132, free_memory=None),
    )
    monkeypatch.setattr(choice, "find_gpus", lambda: Gpus(gpus))
    for name, value in {
        "is_initialized": lambda: True,
        "memory_reserved": lambda i: 3000,
        "memory_allocated": lambda i: 1000,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    assert [gpu.free for gpu in choice.usable_gpus().gpus] == [7000, 1 << 34]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert choice.usable_gpus().gpus[0].free == 5000
    monkeypatch.setitem(sys.modules, "torch", None)
    assert kept_unused(0) == 0


# --- foretold ---


def test_headers_say_what_a_gpu_needs(path: Path) -> None:
    """The work space is that of the CUDA backend, not the processor's."""
    info, device = describe(path), FakeDevice(capability=80, sm_count=64)
    backend, checkpoint = CudaBackend([device]), open_checkpoint(path)
    seen = survey(checkpoint, backend)
    assert seen.parts is not None
    assert info.gpu_work == work_space(read_config(checkpoint), backend, seen.parts)
    assert info.gpu_bytes == seen.bytes
    assert work_bytes(info, 512, "cuda") == info.gpu_work.bytes(512) != work_bytes(info, 512, "cpu")
    judged = fit(info, CACHE, 1 << 34, backend="cuda", where="NVIDIA Fake")
    assert judged.total == info.gpu_bytes + cache_bytes(
        info, CACHE, "cuda", free=1 << 34
    ).context_bytes + info.gpu_work.bytes(512)
    checkpoint.close()


def test_further_pages_are_taken_last(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the pass needs is not given to other conversations' pages."""
    cache, info = CacheSettings(context_length=256), describe(path)
    needed = fit(info, cache, 1 << 34, backend="cuda").total
    pages = []
    for total in (needed + 20_000, 1 << 33):
        machine = install(monkeypatch, FakeDevice(total_memory=total))
        chat = opened(path, replace(GPU, gpu_memory=0), cache)
        pages.append(chat.generator.cache.store.page_count)
        Reply(chat, tokens=3)
        chat.close()
        assert machine.taken == [0]
    assert pages[0] < pages[1]


def test_pages_that_were_too_many_after_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass took more than was foretold: one context is left."""
    machine, cache = install(monkeypatch, FakeDevice()), CacheSettings(context_length=256)
    record, asked = CudaBackend.record, []

    def too_much(self: CudaBackend, forward: Any, store: Any, rows: int) -> Any:
        asked.append(store.page_count)
        if store.page_count > 3:
            raise NotEnoughMemory("too little")
        return record(self, forward, store, rows)

    monkeypatch.setattr(CudaBackend, "record", too_much)
    chat = opened(path, GPU, cache)
    assert asked == [asked[0], 3]
    assert asked[0] > 3
    Reply(chat, tokens=3)
    chat.close()
    with pytest.raises(NotEnoughMemory, match="too little"):  # so many were asked for by name
        opened(path, GPU, replace(cache, memory=1))
    assert machine.taken == [0]


# --- the next device, and a word about it ---


@pytest.mark.parametrize("where", ["new_cache", "record", "prepare"])
def test_the_next_device_is_taken(
    path: Path, monkeypatch: pytest.MonkeyPatch, where: str, caplog: Any
) -> None:
    """Whether weights, cache or pass find no room: the processor, with a sentence that says so."""
    machine = install(monkeypatch, FakeDevice())

    def refuse(*_: Any) -> Any:
        raise NotEnoughMemory("fake 0 has too little free.")

    monkeypatch.setattr(CudaBackend, where, refuse)
    with caplog.at_level(logging.WARNING):
        chat = opened(path, AUTO)
    assert (chat.info.backend, machine.taken, machine.devices[0].kept) == ("cpu", [0], 0)
    expected = (
        "m.gguf runs on the processor (CPU), because fake 0 could not be used: fake 0 has too little free."
    )
    assert chat.info.notice == expected
    assert "fake 0 is not used for m.gguf: fake 0 has too little free." in caplog.text
    assert Reply(chat, tokens=2).ids
    chat.close()


def test_a_driver_that_refuses(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it may while a graph is recorded: the processor, too."""
    machine = install(monkeypatch, FakeDevice())

    def refuse(launches: Any) -> Any:
        raise EngineError("The GPU reported: operation not permitted when stream is capturing.")

    machine.devices[0].record = refuse  # type: ignore[method-assign]
    chat = opened(path, AUTO)
    assert (chat.info.backend, machine.taken, machine.devices[0].kept) == ("cpu", [0], 0)
    assert "could not be used: The GPU reported: operation not permitted" in chat.info.notice
    chat.close()
    with pytest.raises(EngineError, match="The GPU reported"):
        opened(path)


def test_a_model_that_is_too_large_for_the_gpu(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeDevice(total_memory=10_000_000))
    chat = opened(path, AUTO)
    assert chat.info.backend == "cpu"
    assert chat.info.notice.startswith(
        "m.gguf runs on the processor (CPU), because fake 0 could not be used: It needs "
    )
    chat.close()
    install(monkeypatch, FakeDevice())
    chat = opened(path, AUTO)
    assert (chat.info.backend, chat.info.notice) == ("cuda", "")
    chat.close()


# --- nothing is left for the reply to record ---


def test_graphs_are_recorded_at_load(machine: FakeMachine, path: Path) -> None:
    chat, device = opened(path), machine.devices[0]
    recorded = device.records
    assert recorded == 2  # a step of one row, and the same with the draw
    Reply(chat, tokens=12)
    assert device.records == recorded
    chat.close()


def test_several_gpus_record_at_load(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = install(monkeypatch, *(FakeDevice(index=index) for index in range(2)))
    chat = opened(path, replace(GPU, gpus="0,1"))
    recorded = [device.records for device in machine.devices]
    assert all(recorded)
    Reply(chat, tokens=6)
    assert [device.records for device in machine.devices] == recorded
    chat.close()


def test_memory_for_the_draw_is_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the host draws."""
    from engine.backends.cuda.runtime.decode_loop import DeviceDecodeLoop

    install(monkeypatch)

    def refuse(*_: Any) -> Any:
        raise NotEnoughMemory("too little")

    monkeypatch.setattr(DeviceDecodeLoop, "__init__", refuse)
    chat = opened(path)
    assert len(Reply(chat, tokens=5).ids) == 5
    chat.close()
