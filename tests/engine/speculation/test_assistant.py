"""Drafting with an assistant: replies are the same, bit for bit, whatever it guesses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.__main__ import main
from engine.chat import LocalChat, finished, open_chat
from engine.core import Done, Text
from engine.errors import BadCheckpoint, BadSetting, UnsupportedModel
from engine.models.drafting.assistant import AssistantModel
from engine.models.paged import PagedCache
from engine.sampling.sampler import Sampler
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    SpeculationSettings,
)
from engine.speculation.assistant import AssistantDrafter
from engine.speculation.compatible import draft_problem_between
from engine.vision.describe import describe
from tests.engine.models.architectures import ids
from tests.engine.models.drafting.assistant_files import PAIRS, VOCABULARY, write_pair
from tests.engine.speculation.test_mtp import GREEDY, NONE, PROMPT, SAMPLED, asked, written

WIDTH, OWN_WIDTH = 64, 48


def perfect(main_path: Path, path: Path) -> None:
    """Layers of both that add nothing, so that the next token depends on the last one alone, of which the
    assistant knows what the model does: its embedding, in fewer dimensions.
    """
    tensors, own = load_file(main_path / "model.safetensors"), load_file(path / "model.safetensors")
    for name, values in (*tensors.items(), *own.items()):
        if any(
            end in name for end in ("o_proj", "down_proj", "layer_projection", "per_layer_projection.weight")
        ):
            values[:] = 0
    table, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    table[:, OWN_WIDTH:] = head[:, OWN_WIDTH:] = 0
    head[:10] = 0  # none that ends a text is written
    own["model.embed_tokens.weight"][:] = head[:, :OWN_WIDTH]
    for norm, size in ((tensors["model.norm.weight"], WIDTH), (own["model.norm.weight"], OWN_WIDTH)):
        norm[:] = 1
        assert norm.shape == (size,)
    own["pre_projection.weight"][:] = np.eye(OWN_WIDTH, 2 * WIDTH)
    for name, values in (*tensors.items(), *own.items()):
        if name.endswith("layer_scalar"):
            values[:] = 1
    save_file(tensors, main_path / "model.safetensors", {"format": "pt"})
    save_file(own, path / "model.safetensors", {"format": "pt"})


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], tuple[Path, Path]]:
    """The folders of a main model and of its assistant, which may be perfect; written once."""
    made: dict[tuple[str, bool], tuple[Path, Path]] = {}

    def get(name: str, good: bool) -> tuple[Path, Path]:
        if (name, good) not in made:
            made[name, good] = write_pair(PAIRS[name], tmp_path_factory.mktemp("pair"))
            if good:
                perfect(*made[name, good])
        return made[name, good]

    return get


@pytest.fixture
def chats(
    pairs: Callable[[str, bool], tuple[Path, Path]],
) -> Iterator[Callable[..., tuple[LocalChat, SpeculationSettings]]]:
    """Opens chats, each with the settings to draft with the assistant."""
    opened: list[LocalChat] = []

    def get(
        name: str = "E-series, clusters", good: bool = False, backend: str = "reference", **load: Any
    ) -> tuple[LocalChat, SpeculationSettings]:
        path, own = pairs(name, good)
        settings = LoadSettings(backend=backend, threads=2, **load)
        opened.append(finished(open_chat(path, settings, CacheSettings(context_length=512))))
        opened[-1].generator.drafters.threshold = 0.0  # tiny models are never sure
        return opened[-1], SpeculationSettings("model", str(own), draft_tokens=4, adaptive=False)

    yield get
    for chat in opened:
        chat.close()


Chats = Callable[..., tuple[LocalChat, SpeculationSettings]]


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(name, backend, marks=() if (at, backend) == (0, "reference") else pytest.mark.slow)
        for at, name in enumerate(PAIRS)
        for backend in ("reference", "cpu")
    ],
)
def test_random_guesses_change_nothing(chats: Chats, name: str, backend: str) -> None:
    chat, drafting = chats(name, backend=backend)
    plain, _ = written(chat, asked(GREEDY, NONE, 24))
    for _ in range(2):  # the second time the prompt is cached
        found, stats = written(chat, asked(GREEDY, drafting, 24))
        assert found == plain
        assert stats.drafted_tokens > 20
        assert 0 <= stats.accepted_tokens < stats.drafted_tokens
    assert written(chat, asked(SAMPLED, drafting, 24))[0] == written(chat, asked(SAMPLED, drafting, 24))[0]
    assert written(chat, asked(GREEDY, NONE, 24))[0] == plain


@pytest.mark.parametrize("backend", ["reference", pytest.param("cpu", marks=pytest.mark.slow)])
def test_a_perfect_assistant_is_always_right(chats: Chats, backend: str) -> None:
    chat, drafting = chats("dense", True, backend)
    plain, _ = written(chat, asked(GREEDY, NONE))
    found, stats = written(chat, asked(GREEDY, drafting))
    assert found == plain
    assert len(set(plain)) > 2
    assert stats.acceptance_rate == 1.0
    assert stats.passes <= 12  # 40 tokens, five a pass


def guessed(chat: LocalChat, text: list[int], count: int) -> list[int]:
    """What the assistant guesses after a text that is read at once."""
    cache, assistant = chat.generator.cache, chat.generator.drafters._assistant
    assert isinstance(assistant, AssistantModel)
    found: list[int] = []
    with cache.table.open((), key="other") as lease:
        for first in range(0, len(text) - 1, 64):
            part = text[:-1][first : first + 64]
            cache.run(lease, part)
            assert cache.model.kept is not None
            state = cache.model.kept[len(part) - 1]
        pages = cache.pages_up_to(lease, len(text) - 1)
        for _ in range(count):
            logits, state = assistant.guess([*text, *found][-1], state, len(text) - 1, pages)
            found.append(int(logits[: len(chat.tokenizer.texts)].argmax()))  # 307 of them are known
    return found


@pytest.mark.parametrize("name", ["E-series, clusters", pytest.param("dense", marks=pytest.mark.slow)])
def test_each_guess_is_that_for_the_whole_text(
    chats: Chats, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through rejected guesses, banned strings and further turns, whose prompts are cached."""
    chat, drafting = chats(name)
    noted = list[tuple[list[int], list[int]]]()
    propose = AssistantDrafter.propose

    def watched(drafter: AssistantDrafter, text: list[int], count: int) -> list[int]:
        found = propose(drafter, text, count)
        noted.append((list(text), list(found)))
        return found

    monkeypatch.setattr(AssistantDrafter, "propose", watched)
    first, _ = written(chat, asked(GREEDY, drafting, 20))
    banned = ConstraintSettings(banned_strings=(chat.tokenizer.decode(first)[6:9],))
    plain, _ = written(chat, asked(GREEDY, NONE, 20, constraint=banned))
    assert written(chat, asked(GREEDY, drafting, 20, constraint=banned))[0] == plain
    turn = [*PROMPT, *first, 17, 18]
    second, stats = written(chat, asked(GREEDY, drafting, 20), turn)
    assert stats.cached_tokens > 0
    written(chat, asked(GREEDY, drafting, 5), [*turn, *second[:-1], 40, 41, 42])
    assert len(noted) > 40
    assert sum(map(len, (found for _, found in noted))) > 100
    for text, found in noted[::3]:
        assert found == guessed(chat, text, len(found))


@pytest.mark.slow
def test_two_replies_at_a_time(chats: Chats) -> None:
    chat, drafting = chats("dense", good=True)
    prompts = [PROMPT, ids(30)]
    plain = [written(chat, asked(GREEDY, NONE), prompt)[0] for prompt in prompts]
    written(chat, asked(GREEDY, drafting), [5, 6])  # loads the assistant
    streams = [iter(chat.complete(prompt, asked(GREEDY, drafting), threading.Event())) for prompt in prompts]
    found: list[list[int]] = [[], []]
    rates = []
    while any(found) is False or len(rates) < 2:
        for at, stream in enumerate(streams):
            event = next(stream, None)
            if isinstance(event, Text):
                found[at] += [token.id for token in event.tokens]
            elif isinstance(event, Done):
                rates.append(event.stats.acceptance_rate)
    assert found == plain
    assert rates == [1.0, 1.0]


@pytest.mark.slow
def test_guidance_and_eight_bit_caches(pairs: Callable[[str, bool], tuple[Path, Path]]) -> None:
    path, own = pairs("dense", False)
    drafting = SpeculationSettings("model", str(own), draft_tokens=4, adaptive=False)
    cache = CacheSettings(context_length=512, dtype="q8")
    chat = finished(open_chat(path, LoadSettings(backend="cpu", threads=2, quantise="q8"), cache))
    chat.generator.drafters.threshold = 0.0
    try:
        for more in ({}, {"guidance": GuidanceSettings("no", 1.5)}):
            plain, _ = written(chat, asked(GREEDY, NONE, **more))
            found, stats = written(chat, asked(GREEDY, drafting, **more))
            assert found == plain
            assert stats.drafted_tokens > 0
    finally:
        chat.close()


def test_which_are_refused(
    chats: Chats, pairs: Callable[[str, bool], tuple[Path, Path]], tmp_path: Path
) -> None:
    """One of another model, a damaged one; and an assistant alone."""
    chat, drafting = chats("dense")
    plain, _ = written(chat, asked(GREEDY, drafting, 5))
    main_path, own = Path(chat.info.path), Path(drafting.draft_model)
    assert draft_problem_between(main_path, own) == ""
    info = describe(own)
    assert info.assistant
    assert (info.kv_shapes, info.vocab_size) == ((), VOCABULARY)
    with pytest.raises(UnsupportedModel, match="cannot write by itself"):
        finished(open_chat(own, LoadSettings(backend="reference")))
    changes = {
        "with 60 features and 308 tokens, but this one has 64 and 308": {"backbone_hidden_size": 60},
        "other keys and values": {"text_config": {"per_layer_config": {"3": {"head_dim": 32}}}},
    }
    for words, change in changes.items():
        config = json.loads((own / "config.json").read_text("utf-8"))
        config |= {**change, "text_config": config["text_config"] | change.get("text_config", {})}  # type: ignore[operator]
        folder = tmp_path / next(iter(change))
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        save_file(load_file(own / "model.safetensors"), folder / "model.safetensors")
        assert words in draft_problem_between(main_path, folder)
        with pytest.raises(BadSetting, match=words):
            written(chat, asked(GREEDY, SpeculationSettings("model", str(folder)), 5))
    assert written(chat, asked(GREEDY, drafting, 5))[0] == plain


def test_damaged_clusters(chats: Chats, tmp_path: Path) -> None:
    chat, drafting = chats()
    own = Path(drafting.draft_model)
    tensors = load_file(own / "model.safetensors")
    tensors["masked_embedding.token_ordering"][3] = VOCABULARY
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((own / "config.json").read_text("utf-8"), "utf-8")
    with pytest.raises(BadCheckpoint, match="do not hold each token once"):
        written(chat, asked(GREEDY, SpeculationSettings("model", str(tmp_path)), 5))


def test_the_assistant_is_released(chats: Chats) -> None:
    chat, drafting = chats()
    plain, _ = written(chat, asked(GREEDY, NONE, 5))
    written(chat, asked(GREEDY, drafting, 5))
    drafters = chat.generator.drafters
    assert drafters.has_model
    chat._draft.close()
    assert not drafters.has_model
    with pytest.raises(BadSetting, match="no draft model is loaded"):
        drafters.drafting(drafting, None, None)  # type: ignore[arg-type]
    assert written(chat, asked(GREEDY, drafting, 5))[0] == plain
    assert isinstance(chat.generator.cache, PagedCache)


@pytest.mark.slow
def test_the_command_line(
    pairs: Callable[[str, bool], tuple[Path, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    path, own = pairs("dense", True)
    command = ["run", str(path), "--ids", "7,8,9", "--max-tokens", "12", "--temperature", "0", "--backend"]
    found = []
    for more in ((), ("--drafting", "model", "--draft-model", str(own))):
        assert main([*command, "reference", *more, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["ids"] == found[1]["ids"]
    assert found[1]["stats"]["accepted_tokens"] > 0


class Successors:
    """Stands for a cache, its model and an assistant that guesses the number after each token."""

    def __init__(self) -> None:
        self.model = SimpleNamespace(config=SimpleNamespace(vocab_size=60))
        self.context_length, self.length = 50, 50
        self.asked: list[tuple[int, float, int]] = []

    def pages_up_to(self, lease: Any, known: int) -> str:
        return f"{known} of {lease.length}"

    def guess(self, token: int, state: Any, known: int, pages: str) -> tuple[Any, Any]:
        assert pages == f"{known} of {self.length}"
        self.asked.append((token, float(state), known))
        return 9.0 * np.eye(60, dtype=np.float32)[token + 1], state + 0.5


def test_guesses_begin_with_a_hidden_state_that_is_known_of_this_text() -> None:
    """The state before the last token, of the token that the text has there, where the model has its keys."""
    there: Any = Successors()
    drafter = AssistantDrafter(there, lambda: Sampler(GREEDY, 1), assistant=there, threshold=0.0)
    assert drafter.propose([5, 6, 7], 2) == []
    drafter.follow(lambda: there)
    drafter.hear(0, [5, 6, 7], np.arange(3.0))
    assert drafter.propose([5, 6, 7, 8], 2) == [9, 10]
    assert there.asked == [(8, 2.0, 3), (9, 2.5, 3)]
    assert drafter.propose([5, 6, 7, 8], 1) == [9]
    assert drafter.propose([5, 20], 3) == [21, 22, 23]
    for unknown in ([5], [5, 6, 4, 8], [5, 6, 7, 8, 9]):
        assert drafter.propose(unknown, 2) == []
    there.length = 2
    assert drafter.propose([5, 6, 7, 8], 2) == []
    assert drafter.propose([5, 6, 30], 2) == [31, 32]


def test_the_latest_hidden_states_are_kept_and_the_context_is_not_left() -> None:
    there: Any = Successors()
    drafter = AssistantDrafter(there, lambda: Sampler(GREEDY, 1), assistant=there, threshold=0.0)
    drafter.follow(lambda: there)
    text = list(range(3, 53))
    drafter.hear(0, text[:40], np.arange(40.0))
    drafter.hear(40, text[40:49], np.arange(40.0, 49.0))
    assert drafter.propose(text[:49], 4) == [52, 53]
    assert drafter.propose(text, 4) == [53]
    assert drafter.propose([*text[:18], 20], 2) == [21, 22]
    assert drafter.propose([*text[:17], 20], 2) == []
    drafter.close()
    assert drafter.propose(text, 4) == []
