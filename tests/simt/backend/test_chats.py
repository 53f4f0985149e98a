"""Chats on the CUDA backend from loading to closing: drafting, conversations, a full context, several
GPUs, and what goes wrong.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.chat import LocalChat, finished, open_chat
from engine.compat.exllamav2 import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Config,
    ExLlamaV2Tokenizer,
)
from engine.compat.exllamav2.generator import ExLlamaV2Sampler, ExLlamaV2StreamingGenerator
from engine.core import ChatRequest, Done, Loading, Message, Text, Trimmed
from engine.errors import DeviceLost, NotEnoughMemory
from engine.settings import (
    AdapterSettings,
    CacheSettings,
    LoadSettings,
    OutputSettings,
    SpeculationSettings,
    StopSettings,
)
from tests.engine.models.lora.test_lora import write_adapter
from tests.simt.backend.test_replies import ASK, DRAWN, FEW, GREEDY, NGRAMS, Reply
from tests.simt.fake import FakeDevice
from tests.simt.fake_machine import FakeMachine, install
from tests.tiny import TINY, write_gguf

CACHE = CacheSettings(context_length=512, memory=1)
GPU = LoadSettings(backend="cuda")
Asked = tuple[Message, ...]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Codes, so that sums of other orders would show."""
    return write_gguf(tmp_path_factory.mktemp("m") / "m.gguf", TINY, "Q4_0")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    return install(monkeypatch)


def opened(path: Path, load: LoadSettings = GPU, cache: CacheSettings = CACHE) -> LocalChat:
    return finished(open_chat(path, load, cache))


def draft_of(path: Path) -> Path:
    """A model that mostly guesses as the other one writes: the same but for its types."""
    return write_gguf(path.with_name("draft.gguf"), TINY, "Q8_0")


@pytest.mark.slow
def test_drafting_changes_nothing(machine: FakeMachine, path: Path) -> None:
    """Whoever drafts, and however many, the tokens are those of one step after the other, and so are their
    probabilities.
    """
    chat = opened(path)
    assert (chat.info.backend, chat.info.where) == ("cuda", "fake 0")
    plain = Reply(chat, tokens=30, constraint=FEW)
    for speculation in (
        NGRAMS,
        SpeculationSettings("model", str(draft_of(path)), draft_tokens=4, adaptive=False),
    ):
        drafted = Reply(chat, tokens=30, constraint=FEW, speculation=speculation)
        assert drafted.reported == plain.reported
        assert [token.raw_probability for token in drafted.tokens] == pytest.approx(
            [token.raw_probability for token in plain.tokens]
        )
        assert drafted.stats.drafted_tokens > 0
        if speculation.method == "model":
            assert drafted.stats.accepted_tokens > 3
            assert len(machine.backends) == 2
    before = machine.taken[0]
    assert Reply(chat, tokens=30, constraint=FEW).reported == plain.reported  # the draft model goes
    assert machine.taken[0] < before
    chat.close()
    assert machine.taken == [0]


@pytest.mark.slow
def test_drawn_on_the_device_and_by_the_host(
    machine: FakeMachine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same seed gives the same reply, wherever it is drawn."""
    chat = opened(path)
    walked = [
        Reply(chat, sampler=settings, tokens=20)
        for settings in (DRAWN, GREEDY, replace(DRAWN, repetition_penalty=1.3))
    ]
    launches = machine.devices[0].graph_launches
    assert Reply(chat, sampler=DRAWN, tokens=20).reported == walked[0].reported
    assert machine.devices[0].graph_launches - launches >= 20
    monkeypatch.setattr(type(chat.generator.cache), "decode_loop", lambda *_: None)
    for settings, reply in zip((DRAWN, GREEDY, replace(DRAWN, repetition_penalty=1.3)), walked, strict=True):
        reported = Reply(chat, sampler=settings, tokens=20)
        assert reported.reported == reply.reported
        assert [token.probability for token in reported.tokens] == pytest.approx(
            [token.probability for token in reply.tokens], rel=1e-4
        )
    chat.close()


@pytest.mark.slow
def test_two_conversations_and_a_full_context(machine: FakeMachine, path: Path) -> None:
    """What is cached is read again only where texts differ; the oldest turns go when there is no room for
    them.
    """
    chat = opened(path, cache=CacheSettings(context_length=256, memory=1))
    one: Asked = (Message("user", "the quick brown fox " * 6),)
    other: Asked = (Message("user", "jumps over the lazy dog " * 6),)
    dropped = 0
    for turn in range(4):
        replies = [Reply(chat, messages, tokens=12) for messages in (one, other)]
        if turn:
            assert all(
                reply.stats.cached_tokens > 0 or any(isinstance(e, Trimmed) for e in reply.events)
                for reply in replies
            )
        dropped += sum(isinstance(event, Trimmed) for reply in replies for event in reply.events)
        again = Reply(chat, one, tokens=12)
        assert again.reported == replies[0].reported
        assert again.stats.prefill_tokens == 1
        more = "and the dog " * (3 + 5 * turn)
        one = (*one, Message("assistant", replies[0].text), Message("user", more))
        other = (*other, Message("assistant", replies[1].text), Message("user", more))
    assert dropped
    chat.close()


@pytest.mark.slow
def test_a_reply_that_is_stopped(machine: FakeMachine, path: Path) -> None:
    chat, stop = opened(path), threading.Event()
    plain = Reply(chat, tokens=30)
    events = []
    for event in chat.stream(
        ChatRequest(ASK, GREEDY, StopSettings(max_tokens=200), output=OutputSettings(stream_interval=1)), stop
    ):
        events.append(event)
        if sum(isinstance(each, Text) for each in events) == 4:
            stop.set()
    assert isinstance(events[-1], Done)
    assert events[-1].reason == "cancelled"
    assert plain.text.startswith("".join(event.text for event in events if isinstance(event, Text))[:8])
    assert Reply(chat, tokens=30).reported == plain.reported
    chat.close()
    assert machine.taken == [0]


@pytest.mark.slow
def test_adapters_in_a_chat(machine: FakeMachine, path: Path, tmp_path: Path) -> None:
    chat, lines = opened(path), AdapterSettings((str(write_adapter(tmp_path / "a")),))
    plain, taken = Reply(chat), machine.taken[0]
    changed = Reply(chat, adapters=lines)
    assert any(isinstance(event, Loading) for event in changed.events)
    assert changed.ids != plain.ids
    assert Reply(chat, adapters=lines).reported == changed.reported
    assert Reply(chat).reported == plain.reported
    assert machine.taken[0] <= taken + 100_000
    chat.close()
    assert machine.taken == [0]


@pytest.mark.slow
def test_several_gpus(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that lie apart compute the same; there the host draws."""
    replies = []
    for gpus in ("", "0,1"):
        machine = install(monkeypatch, *(FakeDevice(index=index) for index in range(2)))
        chat = opened(path, replace(GPU, gpus=gpus))
        assert [taken > 0 for taken in machine.taken].count(True) == (2 if gpus else 1)
        assert chat.info.where == ("GPU 0 and GPU 1" if gpus else chat.info.where)
        replies.append([Reply(chat, sampler=settings, tokens=12).reported for settings in (GREEDY, DRAWN)])
        chat.close()
        assert machine.taken == [0, 0]
    assert replies[0] == replies[1]


def test_too_little_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before anything is loaded."""
    machine = install(monkeypatch, FakeDevice(total_memory=200_000))
    with pytest.raises(NotEnoughMemory, match=r"m\.gguf .* free on fake 0"):
        opened(path)
    assert machine.taken == [0]
    assert len(machine.backends) == 1


def test_memory_that_goes_while_it_loads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program took it after the look: one sentence, and what had been loaded is given back."""
    machine = install(monkeypatch, FakeDevice())
    device = machine.devices[0]
    loading = open_chat(path, GPU, CACHE)
    while device.taken == 0:
        next(loading)
    device.total_memory = device.taken + 10_000
    with pytest.raises(NotEnoughMemory):
        finished(loading)
    del loading
    assert machine.taken == [0]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("settings", [GREEDY, replace(DRAWN, mirostat=True)])
def test_a_device_that_is_lost(machine: FakeMachine, path: Path, settings: Any) -> None:
    """The reply ends with one sentence, closing works, and a device that came back takes the model again."""
    chat, device, count = opened(path), machine.devices[0], 0
    expected = Reply(chat, sampler=settings).reported
    events = chat.stream(ChatRequest(ASK, settings, StopSettings(max_tokens=40)), threading.Event())
    while count < 3:
        count += isinstance(next(events), Text)
    device.lost = True
    with pytest.raises(DeviceLost, match=r"^The GPU stopped working: .*\. Restart Inglenook"):
        list(events)
    chat.close()
    assert machine.taken == [0]
    device.lost = False
    chat = opened(path)
    assert Reply(chat, sampler=settings).reported == expected
    chat.close()


@pytest.mark.slow
def test_exllamav2_names(machine: FakeMachine, path: Path) -> None:
    """Step by step, also over a cache of four bits, and with a draft model."""
    replies = []
    for kind in (ExLlamaV2Cache, ExLlamaV2Cache_Q4):
        config = ExLlamaV2Config(str(path))
        config.prepare()
        model = ExLlamaV2(config)
        cache = kind(model, max_seq_len=512, lazy=True)
        model.load_autosplit(cache)
        assert model.model.backend.name == "cuda"
        tokenizer = ExLlamaV2Tokenizer(config)
        for draft in (False, True):
            generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
            generator.speculative_ngram = draft
            prompt = tokenizer.encode("the dog and the fox, the dog")
            generator.begin_stream_ex(prompt, ExLlamaV2Sampler.Settings.greedy(), max_new_tokens=16)
            ids: list[int] = []
            while not (result := generator.stream_ex())["eos"]:
                ids += result["chunk_token_ids"].tolist()[0]
            replies.append(ids + result["chunk_token_ids"].tolist()[0])
            generator.close()
        cache.close()
        model.unload()
    assert replies[0] == replies[1]
    assert replies[2] == replies[3]
    assert len(replies[0]) == len(replies[2]) == 16
    assert machine.taken == [0]
