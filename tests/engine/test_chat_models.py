"""Whole turns on real checkpoints: tiny ones on the reference backend, and the starter on the CPU's
kernels.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.chat import LocalChat, finished, open_chat
from engine.core import ChatRequest, Done, Loading, Message, Text
from engine.drain import drain
from engine.errors import BadSetting, Cancelled, EngineError, ModelNotFound
from engine.generator.streaming import StreamingGenerator
from engine.models.paged import PagedCache
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings
from engine.text.template.encoding import encode_chat
from tests.engine.generator.fakes import stepping
from tests.tiny import TINY, write_folder, write_gguf

REFERENCE = LoadSettings(backend="reference")
GREEDY = SamplerSettings(temperature=0.0)
SYSTEM = Message("system", "Be brief.")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Threads cost more than they bring on matrices this small."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["folder", "gguf"])
def tiny(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return (
        write_folder(tmp_path / "tiny")
        if request.param == "folder"
        else write_gguf(tmp_path / "tiny.gguf", TINY, "Q8_0")
    )


@pytest.fixture
def chat(tiny: Path) -> Iterator[LocalChat]:
    chat = finished(open_chat(tiny, REFERENCE))
    yield chat
    chat.close()


def ask(
    chat: LocalChat, messages: list[Message], sampler: SamplerSettings = GREEDY, tokens: int = 16, **more: Any
) -> tuple[str, Done]:
    """The reply and its end."""
    events = list(
        chat.stream(
            ChatRequest(tuple(messages), sampler, StopSettings(max_tokens=tokens, **more)), threading.Event()
        )
    )
    done = events[-1]
    assert isinstance(done, Done)
    texts = [event for event in events if isinstance(event, Text)]
    assert "".join(token.text for event in texts for token in event.tokens) == "".join(
        event.text for event in texts
    )
    return "".join(event.text for event in texts), done


class Alone:
    """The same model with a cache of its own that is forgotten each time: what any cached run must equal."""

    def __init__(self, chat: LocalChat) -> None:
        self.chat = chat
        self.cache = PagedCache(chat.generator.model, CacheSettings(context_length=512))

    def logits(self, ids: list[int]) -> Any:
        with self.cache.table.open(()) as lease:
            result = self.cache.run(lease, ids)[-1].copy()
        self.cache.table.forget()
        return result

    def reply(self, messages: list[Message], count: int) -> str:
        """The greedy reply by running the whole text anew for each token."""
        tokenizer = self.chat.tokenizer
        ids = encode_chat(tokenizer, self.chat.template, messages)[1]
        written: list[int] = []
        while len(written) < count:
            token = int(self.logits(ids + written).argmax())
            if token in tokenizer.stop_token_ids:
                break
            written.append(token)
        return tokenizer.decode(ids + written, skip_special=False)[
            len(tokenizer.decode(ids, skip_special=False)) :
        ]


def test_loading_reports_its_progress(tiny):
    loading = open_chat(tiny, REFERENCE, CacheSettings(context_length=512))
    events = []
    chat = drain(loading, events.append)
    assert all(isinstance(event, Loading) for event in events)
    assert [event.stage for event in events if event.total == TINY.layers] == ["Loading the weights"] * (
        TINY.layers + 1
    )
    assert (chat.info.layers, chat.context_length, chat.info.vocab_size) == (2, 512, 307)
    chat.close()


def test_loading_can_be_stopped_at_any_event(tiny):
    for count in range(1, 6):
        stop = threading.Event()
        loading = open_chat(tiny, REFERENCE, CacheSettings(), stop)
        for _ in range(count):
            next(loading)
        stop.set()
        with pytest.raises(Cancelled, match="was stopped"):
            next(loading)


def test_python_collects_as_before_when_loading_has_ended(tiny):
    """Done, stopped or given up: the searches for cycles that loading puts off come back."""
    before = gc.get_threshold()
    finished(open_chat(tiny, REFERENCE)).close()
    assert gc.get_threshold() == before
    loading = open_chat(tiny, REFERENCE)
    next(loading)
    assert gc.get_threshold()[0] > before[0]
    loading.close()
    assert gc.get_threshold() == before


def test_loading_what_cannot_be_loaded(tiny, tmp_path):
    with pytest.raises(ModelNotFound):
        finished(open_chat(tmp_path / "nothing"))
    with pytest.raises(BadSetting, match="supports at most 1,024"):
        finished(open_chat(tiny, REFERENCE, CacheSettings(context_length=1025)))
    assert issubclass(Cancelled, EngineError)


@pytest.mark.slow_after(1)
def test_turns_equal_a_model_without_a_cache(chat):
    messages, text, alone = [SYSTEM], "", Alone(chat)
    for question in ("Hello there!", "How are you today?", "🙂 1 2 3"):
        messages.append(Message("user", question))
        text, done = ask(chat, messages, tokens=10)
        assert text == alone.reply(messages, 10)
        messages.append(Message("assistant", text))
        if len(messages) > 3:
            assert done.stats.cached_tokens > 0
    again, done = ask(chat, messages[:-1], tokens=10)
    assert (again, done.stats.prefill_tokens) == (text, 1)
    edited = [*messages[:3], Message("user", "Who are you?")]
    assert ask(chat, edited, tokens=10)[0] == alone.reply(edited, 10)


def test_stopping_at_every_step_then_the_whole_reply(chat):
    messages = [SYSTEM, Message("user", "The quick brown fox jumps over the lazy dog.")]
    required = Alone(chat).reply(messages, 6)
    chat.generator.cache.rows = 32
    for steps in range(1, 9):
        stop = threading.Event()
        for count, _ in enumerate(
            chat.stream(ChatRequest(tuple(messages), GREEDY, StopSettings(max_tokens=16)), stop), 1
        ):
            if count == steps:
                stop.set()
        assert ask(chat, messages, tokens=6)[0] == required
        chat.generator.cache.table.forget()


def test_the_step_by_step_face_against_torch(chat):
    torch = pytest.importorskip("torch")
    ids, alone = chat.tokenizer.encode("The quick brown"), Alone(chat)
    generator = StreamingGenerator(chat.generator.model, chat.generator.cache, chat.tokenizer)
    sampler = SamplerSettings(temperature=0.9, top_k=0, top_p=1.0, min_p=0.0, seed=4)
    steps = stepping(
        generator, ids, sampler, probabilities=True, top_tokens=3, logits=True, max_new_tokens=12
    )
    sequence, result = list(ids), {"eos": False}
    while not result["eos"]:
        result = steps.step()
        for i, token in enumerate(result["chunk_token_ids"][0]):
            logits = torch.from_numpy(alone.logits(sequence))
            assert np.allclose(result["logits"][0, i], logits.numpy(), atol=1e-4)
            expected = torch.softmax(logits / 0.9, dim=0)
            assert result["probs"][0, i] == pytest.approx(float(expected[token]), rel=1e-3)
            assert result["top_probs"][0, i] == pytest.approx(
                torch.topk(expected, 3).values.numpy(), rel=1e-3
            )
            assert result["top_tokens"][0, i].tolist() == torch.topk(expected, 3).indices.tolist()
            sequence.append(int(token))
    assert len(sequence) > len(ids)


def test_same_seed_same_reply(tiny):
    warm, messages = SamplerSettings(temperature=1.2, seed=11), [Message("user", "Hello there!")]
    replies = []
    for _ in range(2):
        chat = finished(open_chat(tiny, REFERENCE))
        replies += [ask(chat, messages, warm)[0] for _ in range(2)]
        chat.close()
    assert len(set(replies)) == 1
    assert replies[0] != ask_fresh(tiny, messages, SamplerSettings(temperature=1.2, seed=12))


def ask_fresh(path: Path, messages: list[Message], sampler: SamplerSettings) -> str:
    chat = finished(open_chat(path, REFERENCE))
    try:
        return ask(chat, messages, sampler)[0]
    finally:
        chat.close()


@pytest.mark.real_model
@pytest.mark.slow
def test_the_starter_keeps_its_cache_over_turns(starter_path):
    chat = finished(open_chat(starter_path, LoadSettings(threads=1), CacheSettings(context_length=1024)))
    try:
        messages = [SYSTEM]
        for turn, question in enumerate(("Name three animals.", "And three plants.", "Thank you!")):
            messages.append(Message("user", question))
            text, done = ask(chat, messages, SamplerSettings(temperature=1.0, seed=3), 60)
            assert text.strip()
            if turn:
                between = f"<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
                new = len(chat.tokenizer.encode(between, special=True))
                assert done.stats.prefill_tokens <= new + 1
            messages.append(Message("assistant", text))
        text, done = ask(chat, messages[:-1], SamplerSettings(temperature=1.0, seed=3), 60)
        assert done.stats.prefill_tokens == 1
    finally:
        chat.close()
