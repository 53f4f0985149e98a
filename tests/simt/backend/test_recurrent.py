"""Models with recurrent layers on the CUDA backend, whose device is a fake one: replies as on the reference,
texts that are gone on with, edited and taken back, and layers on two devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.program import CudaProgram
from engine.backends.graph.nodes import PeerCopy
from engine.chat import LocalChat, finished, open_chat
from engine.core import Message
from engine.kv_cache.lease import Lease
from engine.models import Model
from engine.models.paged import PagedCache
from engine.models.saved import restore_cache, save_cache
from engine.settings import CacheSettings, LoadSettings
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.families import rwkv6_files, rwkv_files
from tests.simt.backend.test_cache import some
from tests.simt.backend.test_replies import ASK, CACHE, CASES, Reply
from tests.simt.fake import FakeDevice
from tests.simt.fake_machine import FakeMachine, install
from tests.simt.whole import Floats, on_gpu

FAMILIES = ("LFM2", "Qwen 3.5", "Granite 4", "Nemotron-H")
OF_FILES: dict[str, Callable[[Path], Path]] = {
    "RWKV-6": lambda folder: rwkv6_files.write_gguf(folder / "m.gguf", SIX, rwkv6_files.tensors(SIX)),
    "RWKV-7": lambda folder: rwkv_files.write_folder(folder / "m", SEVEN, rwkv_files.tensors(SEVEN)),
}
"""Those that transformers lacks."""
SIX, SEVEN = rwkv6_files.Shape(halved=2), rwkv_files.Shape()
REPLYING = (*FAMILIES, "RWKV-4", "RWKV-7")
WITH_STATES = (
    *REPLYING,
    "RWKV-6",
    "Inkling",
    "Inkling 2",
    "Inkling 2 Mini",
    "ZAYA1",
    "GLM-5 next",
    "DeepSeek V4",
)
"""Also those whose attention has states of its own."""
LONG = {"max_position_embeddings": 700}


def written(name: str, folder: Path) -> Path:
    """A model of this family with room for longer texts."""
    if name in OF_FILES:
        return OF_FILES[name](folder)
    case = BY_NAME[name]
    inner = (
        {"text_config": {**case.settings["text_config"], **LONG}} if "text_config" in case.settings else LONG
    )
    return write_checkpoint(replace(case, settings={**case.settings, **inner}), folder / "m")


@pytest.fixture(scope="module")
def machine() -> Iterator[FakeMachine]:
    with pytest.MonkeyPatch.context() as patch:
        yield install(patch)


@pytest.fixture(scope="module", params=some(REPLYING, "Qwen 3.5"))
def chats(
    machine: FakeMachine, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalChat, LocalChat]]:
    """On the device, and on the reference."""
    path = written(request.param, tmp_path_factory.mktemp("m"))
    both = tuple(
        finished(open_chat(path, LoadSettings(backend=name), CACHE)) for name in ("cuda", "reference")
    )
    yield both[0], both[1]
    for chat in both:
        chat.close()
    assert machine.taken == [0]


@pytest.mark.slow_after(4)
@pytest.mark.parametrize(
    "name", some(tuple(CASES), "plain", "drawn", "penalties", "bans", "guidance", "healing", "n-grams")
)
def test_as_on_the_reference(chats: tuple[LocalChat, LocalChat], name: str) -> None:
    found, expected = (Reply(chat, **CASES[name]) for chat in chats)
    assert found.reported == expected.reported
    assert Reply(chats[0], **CASES[name]).reported == found.reported


def test_a_conversation(machine: FakeMachine, chats: tuple[LocalChat, LocalChat]) -> None:
    """Each message is answered by steps that sample on the device, from states that the last reply left."""
    messages = ASK
    for text in ("and then?", "why?", "no more"):
        replies = []
        for chat in chats:
            before = machine.devices[0].graph_launches
            replies.append(Reply(chat, messages, tokens=24))
            if chat is chats[0]:
                assert machine.devices[0].graph_launches - before >= replies[0].stats.passes
        assert replies[0].reported == replies[1].reported
        assert messages is ASK or replies[0].stats.cached_tokens > 0
        messages = (*messages, Message("assistant", replies[0].text), Message("user", text))


# -- the cache

IDS = np.random.default_rng(1).integers(3, 300, 300).tolist()
START = 40
"""Tokens that all texts begin with, run in one step; behind them steps have at most eight rows."""


def read(cache: PagedCache, lease: Lease, ids: list[int], rows: int) -> Floats:
    """The logits after `ids`, of which only what the lease lacks is run."""
    while lease.length < len(ids):
        assert lease.length in (0, *range(START, 300))
        logits = cache.run(lease, ids[lease.length : START if lease.length < START else lease.length + rows])
        if lease.length == START:
            lease.keep_state()
    return logits[-1].copy()


def alone(cache: PagedCache, ids: list[int]) -> Floats:
    """The logits after a text of which nothing is cached."""
    cache.table.forget()
    with cache.open(ids) as lease:
        assert not lease.length
        return read(cache, lease, ids, 7)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", some(WITH_STATES, "LFM2", "Granite 4", "RWKV-7"))
@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_everything_equals_the_text_alone(name: str, devices: int, tmp_path: Path) -> None:
    """Bit for bit: a text that goes on, one that begins alike, and drafts that are taken back."""
    gpus = [FakeDevice(index=index) for index in range(devices)]
    model = on_gpu(written(name, tmp_path), gpus)
    settings = CacheSettings(context_length=600, memory=1)
    cache, fresh = PagedCache(model, settings), PagedCache(model, settings)
    for tail, known in ((IDS[100:120], 0), (IDS[100:109] + IDS[130:140], START), (IDS[100:135], START)):
        ids = IDS[:START] + tail
        with cache.open(ids) as lease:
            assert lease.length >= known
            np.testing.assert_array_equal(read(cache, lease, ids, 8), alone(fresh, ids))
            drafts = IDS[200:207]
            rejected = cache.run(lease, drafts, logit_rows=7)[6]
            np.testing.assert_array_equal(rejected, alone(fresh, ids + drafts))
            lease.truncate(len(ids))
            assert lease.length == len(ids)  # the state before the drafts is still there
            np.testing.assert_array_equal(read(cache, lease, [*ids, 11], 8), alone(fresh, [*ids, 11]))
        cache.table.check()
    assert all(gpu.done for gpu in gpus)
    cache.close()
    fresh.close()
    model.close()
    del model, cache, fresh
    assert [gpu.taken for gpu in gpus] == [0] * devices


def crossings(model: Model) -> list[PeerCopy]:
    """The copies between devices in a small batch."""
    cache = PagedCache(model, CacheSettings(context_length=300, memory=1))
    program: Any = cache.program
    assert isinstance(program, CudaProgram)
    found = [part for _, part in program._lowered.small if isinstance(part, PeerCopy)]
    cache.close()
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_states_lie_on_the_devices_of_their_layers(name: str, tmp_path: Path) -> None:
    """Between two layers rows and their norm go to the other device, and from a last layer to a tied head."""
    model = on_gpu(written(name, tmp_path), [FakeDevice(index=index) for index in range(2)])
    found = [(copy.x.device, copy.x.width) for copy in crossings(model)]
    assert found == [(0, model.config.width)] * 2 + [(1, model.config.width)] * model.config.tied
    model.close()


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_saved_states_come_back(devices: int, tmp_path: Path) -> None:
    """Bit for bit, in another cache."""
    model = on_gpu(written("Granite 4", tmp_path), [FakeDevice(index=index) for index in range(devices)])
    settings, ids = CacheSettings(context_length=600, memory=1), IDS[: START + 20]
    cache, other = PagedCache(model, settings), PagedCache(model, settings)
    with cache.open(ids) as lease:
        read(cache, lease, ids, 8)
    assert save_cache(cache, "me", tmp_path / "saved") == ""
    assert restore_cache(other, "me", tmp_path / "saved") == ""
    with other.open([*ids, 11]) as lease:
        assert lease.length == len(ids)
        found = read(other, lease, [*ids, 11], 8)
    other.table.check()
    np.testing.assert_array_equal(found, alone(cache, [*ids, 11]))
    cache.close()
    other.close()
    model.close()
