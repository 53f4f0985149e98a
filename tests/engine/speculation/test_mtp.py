"""Drafting with a model's own head: replies are the same, bit for bit, whatever the head guesses."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.__main__ import main
from engine.chat import LocalChat, finished, open_chat
from engine.core import ChatRequest, Done, Message, Prefill, Stats, Text
from engine.errors import BadSetting
from engine.models.drafting.mtp import MtpModel
from engine.models.paged import PagedCache
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    LoadSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from engine.speculation.mtp import MtpDrafter
from tests.engine.models.architectures import ids, write_checkpoint
from tests.engine.models.drafting.mtp_files import KINDS, outer_tensors, write_file, write_folder

GREEDY = SamplerSettings(temperature=0.0)
SAMPLED = SamplerSettings(temperature=0.9, top_k=40, seed=7)
HEAD = SpeculationSettings(method="mtp", draft_tokens=4, adaptive=False)
NONE = SpeculationSettings()
PROMPT = ids(45)
WIDTH = 64


def perfect(apart: bool, tensors: dict[str, Any]) -> None:
    """Layers that add nothing: the next token depends on the last one alone, and is none that ends a text."""
    tensors["lm_head.weight"][:10] = 0
    tensors["model.norm.weight"][:] = 0.0 if apart else 1.0
    for name, values in tensors.items():
        if any(end in name for end in ("o_proj", "out_proj", "down_proj")):
            values[:] = 0


def perfect_outer(apart: bool) -> dict[str, Any]:
    """A head that repeats the embedding: it knows as much as the model above."""
    one = np.full(WIDTH, 0.0 if apart else 1.0, np.float32)
    copied = np.concatenate([np.eye(WIDTH), np.zeros((WIDTH, WIDTH))], 1).astype(np.float32)
    return {"enorm": one, "hnorm": one, "eh_proj": copied, "shared_head.norm": one}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, bool], Path]:
    """The path of a model by its name, its form, and whether its head is perfect; written once."""
    made: dict[tuple[str, str, bool], Path] = {}

    def get(name: str, form: str, good: bool) -> Path:
        kind, key = KINDS[name], (name, form, good)
        if key not in made:
            folder = tmp_path_factory.mktemp("drafts") / "model"
            outer = perfect_outer(kind.apart) if good else outer_tensors(kind)
            write_folder(kind, folder, outer, partial(perfect, kind.apart) if good else None)
            made[key] = folder if form == "folder" else write_file(kind, folder, folder / "model.gguf")
        return made[key]

    return get


@pytest.fixture
def models(paths: Callable[[str, str, bool], Path]) -> Iterator[Callable[..., LocalChat]]:
    """Opens chats."""
    chats: list[LocalChat] = []

    def get(
        name: str = "Qwen 3.5", form: str = "folder", good: bool = False, backend: str = "reference",
        **load: Any,
    ) -> LocalChat:  # fmt: skip
        settings = LoadSettings(backend=backend, threads=2, **load)
        chats.append(
            finished(open_chat(paths(name, form, good), settings, CacheSettings(context_length=512)))
        )
        chats[-1].generator.drafters.threshold = 0.0  # tiny models are never sure
        return chats[-1]

    yield get
    for chat in chats:
        chat.close()


def asked(
    sampler: SamplerSettings, speculation: SpeculationSettings, count: int = 40, **more: Any
) -> ChatRequest:
    stops = StopSettings(max_tokens=count, min_tokens=count)
    return ChatRequest(
        (), sampler, stops, speculation=speculation, output=OutputSettings(alternatives=0), **more
    )


def written(chat: LocalChat, request: ChatRequest, prompt: list[int] = PROMPT) -> tuple[list[int], Stats]:
    found, stats = [], None
    for event in chat.complete(prompt, request, threading.Event()):
        if isinstance(event, Text):
            found += [token.id for token in event.tokens]
        elif isinstance(event, Done):
            stats = event.stats
    assert stats is not None
    return found, stats


QUICK = (("Qwen 3.5", "reference"), ("Qwen 3.5", "cpu"), ("GLM-4.5 to 4.7", "cpu"))


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(name, backend, marks=() if (name, backend) in QUICK else pytest.mark.slow)
        for name in KINDS
        for backend in ("reference", "cpu")
    ],
)
def test_a_random_head_changes_nothing(models: Callable[..., LocalChat], name: str, backend: str) -> None:
    chat = models(name, backend=backend)
    plain, _ = written(chat, asked(GREEDY, NONE, 24))
    for _ in range(2):  # the second time the prompt is cached, and the head's own pairs
        found, stats = written(chat, asked(GREEDY, HEAD, 24))
        assert found == plain
        assert stats.drafted_tokens > 20
        assert 0 <= stats.accepted_tokens < stats.drafted_tokens
    assert written(chat, asked(SAMPLED, HEAD, 24))[0] == written(chat, asked(SAMPLED, HEAD, 24))[0]
    assert written(chat, asked(GREEDY, NONE, 24))[0] == plain


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("name", "form", "backend"),
    [
        ("Qwen 3.5", "folder", "reference"), ("Qwen 3.5", "gguf", "cpu"), ("GLM-4.5 to 4.7", "folder", "cpu"),
        ("DeepSeek V3", "gguf", "reference"),
    ],
)  # fmt: skip
def test_a_perfect_head_is_always_right(
    models: Callable[..., LocalChat], name: str, form: str, backend: str
) -> None:
    chat = models(name, form, True, backend)
    plain, _ = written(chat, asked(GREEDY, NONE))
    found, stats = written(chat, asked(GREEDY, HEAD))
    assert found == plain
    assert stats.acceptance_rate == 1.0
    assert stats.passes <= 12  # 40 tokens, five a pass


@pytest.mark.slow
def test_a_head_of_random_numbers_is_seldom_right(models: Callable[..., LocalChat]) -> None:
    _, stats = written(models(), asked(GREEDY, HEAD))
    assert stats.acceptance_rate < 0.5


@pytest.mark.slow
def test_turns_of_a_chat(models: Callable[..., LocalChat]) -> None:
    """The model has its prompt cached, but hidden states are known of new tokens only; with the pairs that
    the head has cached, and the last state of the reply before, none is missing.
    """
    chat = models("GLM-4.5 to 4.7", good=True)
    first, _ = written(chat, asked(GREEDY, HEAD, 20))
    second, stats = written(chat, asked(GREEDY, HEAD, 20), [*PROMPT, *first, 17, 18])
    assert stats.cached_tokens > len(PROMPT)
    assert stats.acceptance_rate == 1.0
    assert second == written(chat, asked(GREEDY, NONE, 20), [*PROMPT, *first, 17, 18])[0]
    # switched on in the middle of a chat that is cached without the head's pairs
    other = models("GLM-4.5 to 4.7", good=True)
    written(other, asked(GREEDY, NONE, 20))
    found, stats = written(other, asked(GREEDY, HEAD, 20), [*PROMPT, *first, 17, 18])
    assert found == second
    assert stats.acceptance_rate == 1.0


@pytest.mark.slow
def test_what_is_taken_back(models: Callable[..., LocalChat]) -> None:
    """Banned strings rewind the text, and with it the states and the head's pairs."""
    for name in ("Qwen 3.5", "GLM-4.5 to 4.7"):
        chat = models(name)
        text = chat.tokenizer.decode(written(chat, asked(GREEDY, NONE))[0])
        banned = ConstraintSettings(banned_strings=(text[10:14], text[30:33]))
        plain, _ = written(chat, asked(GREEDY, NONE, constraint=banned))
        found, stats = written(chat, asked(GREEDY, HEAD, constraint=banned))
        assert found == plain
        assert stats.drafted_tokens > 0


def test_a_long_prompt_is_read_by_the_head_as_it_comes(
    models: Callable[..., LocalChat], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more hidden states are kept than may wait."""
    chat, waiting, hear = models("GLM-4.5 to 4.7", good=True), list[int](), MtpDrafter.hear

    def heard(drafter: MtpDrafter, start: int, text: list[int], states: Any) -> None:
        hear(drafter, start, text, states)
        waiting.append(len(drafter._waiting))

    monkeypatch.setattr(MtpDrafter, "hear", heard)
    monkeypatch.setattr("engine.speculation.mtp._MOST_WAITING", 150)
    chat.generator.cache.rows = 100
    long = [int(i) for i in np.random.default_rng(3).integers(3, 307, 470)]
    plain, _ = written(chat, asked(GREEDY, NONE, 20), long)
    chat.generator.cache.table.forget()
    found, stats = written(chat, asked(GREEDY, HEAD, 20), long)
    assert found == plain
    assert stats.acceptance_rate == 1.0
    assert 100 <= max(waiting) <= 150


def test_two_replies_at_a_time(models: Callable[..., LocalChat]) -> None:
    chat = models("Qwen 3.5", good=True, backend="cpu")
    prompts = [PROMPT, ids(30)]
    plain = [written(chat, asked(GREEDY, NONE), prompt)[0] for prompt in prompts]
    written(chat, asked(GREEDY, HEAD), [5, 6])  # loads the head
    streams = [chat.complete(prompt, asked(GREEDY, HEAD), threading.Event()) for prompt in prompts]
    found: list[list[int]] = [[], []]
    rates = []
    while streams[0] is not None or streams[1] is not None:
        for at, stream in enumerate(streams):
            event = next(stream, None) if stream is not None else None
            if event is None:
                streams[at] = None  # type: ignore[call-overload]
            elif isinstance(event, Text):
                found[at] += [token.id for token in event.tokens]
            elif isinstance(event, Done):
                rates.append(event.stats.acceptance_rate)
    assert found == plain
    assert rates == [1.0, 1.0]


def test_guidance_and_eight_bit_prompts(models: Callable[..., LocalChat]) -> None:
    chat = models("Qwen 3.5", backend="cpu", prompt_bits="8")
    from engine.settings import GuidanceSettings

    for more in ({}, {"guidance": GuidanceSettings("no", 1.5)}):
        plain, _ = written(chat, asked(GREEDY, NONE, **more))
        found, stats = written(chat, asked(GREEDY, HEAD, **more))
        assert found == plain
        assert stats.drafted_tokens > 0


def test_a_model_without_a_head_is_refused(tmp_path: Path) -> None:
    path = write_checkpoint(KINDS["GLM-4.5 to 4.7"].case, tmp_path / "plain")
    chat = finished(open_chat(path, LoadSettings(backend="reference"), CacheSettings(context_length=512)))
    try:
        assert not chat.info.mtp
        with pytest.raises(BadSetting, match=r"^plain has no head for multi-token prediction"):
            written(chat, asked(GREEDY, HEAD))
        assert written(chat, asked(GREEDY, NONE))[0]
    finally:
        chat.close()


@pytest.mark.slow
def test_the_head_is_released(models: Callable[..., LocalChat]) -> None:
    chat = models("GLM-4.5 to 4.7")
    plain, _ = written(chat, asked(GREEDY, NONE))
    written(chat, asked(GREEDY, HEAD))
    drafters = chat.generator.drafters
    assert drafters.has_model
    chat._draft.close()
    assert not drafters.has_model
    with pytest.raises(BadSetting, match="the head is not loaded"):
        drafters.drafting(HEAD, None, None)  # type: ignore[arg-type]
    assert written(chat, asked(GREEDY, HEAD))[0] == plain


def test_a_chat_streams_with_it(models: Callable[..., LocalChat]) -> None:
    chat = models("Qwen 3.5", good=True)
    request = dataclasses.replace(asked(GREEDY, HEAD, 10), messages=(Message("user", "Hello"),))
    done = [event for event in chat.stream(request, threading.Event()) if isinstance(event, Done | Prefill)][
        -1
    ]
    assert isinstance(done, Done)
    assert done.stats.accepted_tokens > 0


def guessed(chat: LocalChat, text: list[int], count: int) -> list[int]:
    """What the head guesses after a text that is read at once."""
    cache = chat.generator.cache
    head = cache_of_head(chat).model
    assert isinstance(head, MtpModel)
    states = []
    with cache.table.open((), key="other") as lease:
        for first in range(0, len(text) - 1, 64):
            part = text[:-1][first : first + 64]
            cache.run(lease, part)
            assert cache.model.kept is not None
            states.append(cache.model.kept[: len(part)].copy())
    known = np.concatenate(states)
    own = PagedCache(head, CacheSettings(context_length=512))
    found: list[int] = []
    with own.table.open(()) as lease:
        tokens = text[1:]
        for _ in range(count):
            head.given[: len(tokens)] = known
            logits = own.run(lease, tokens)[-1]
            assert head.kept is not None
            known = head.kept[len(tokens) - 1 : len(tokens)].copy()
            tokens = [int(logits.argmax())]
            found += tokens
    own.close()
    return found


def cache_of_head(chat: LocalChat) -> PagedCache:
    cache = chat.generator.drafters._draft_cache
    assert cache is not None
    return cache


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("name", "waiting"), [("GLM-4.5 to 4.7", 512), ("GLM-4.5 to 4.7", 20), ("Qwen 3.5", 20)]
)
def test_each_guess_is_that_of_the_head_for_the_whole_text(
    models: Callable[..., LocalChat], name: str, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through rejected guesses, banned strings, pauses without pages and further turns, whose prompts are
    cached, also without the last token of the reply before. Hidden states are taken in as they come, or all
    together.
    """
    monkeypatch.setattr("engine.speculation.mtp._MOST_WAITING", waiting)
    chat, noted = models(name), list[tuple[list[int], list[int]]]()
    propose = MtpDrafter.propose

    def watched(drafter: MtpDrafter, text: list[int], count: int) -> list[int]:
        if len(noted) % 5 == 3:
            drafter.suspend()
        found = propose(drafter, text, count)
        noted.append((list(text), list(found)))
        return found

    monkeypatch.setattr(MtpDrafter, "propose", watched)
    first, _ = written(chat, asked(GREEDY, HEAD, 20))
    banned = ConstraintSettings(banned_strings=(chat.tokenizer.decode(first)[6:9],))
    written(chat, asked(GREEDY, HEAD, 20, constraint=banned))
    turn = [*PROMPT, *first, 17, 18]
    second, stats = written(chat, asked(GREEDY, HEAD, 20), turn)
    assert stats.cached_tokens > 0
    written(chat, asked(GREEDY, HEAD, 5), [*turn, *second[:-1], 40, 41, 42])
    assert len(noted) > 40
    assert sum(map(len, (found for _, found in noted))) > 100
    for text, found in noted[::3]:
        assert found == guessed(chat, text, len(found))


def test_the_command_line(
    paths: Callable[[str, str, bool], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(paths("Qwen 3.5", "gguf", True))
    command = ["run", model, "--ids", "7,8,9", "--max-tokens", "12", "--temperature", "0", "--backend"]
    found = []
    for method in ("none", "mtp"):
        assert main([*command, "reference", "--drafting", method, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["ids"] == found[1]["ids"]
    assert found[1]["stats"]["drafted_tokens"] >= found[1]["stats"]["accepted_tokens"] >= 0
