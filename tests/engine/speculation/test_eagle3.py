"""Drafting with EAGLE-3: replies are the same, bit for bit, whatever the drafter guesses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.__main__ import main
from engine.chat import LocalChat, finished, open_chat
from engine.core import Done, Text
from engine.errors import BadCheckpoint, BadSetting, UnsupportedModel
from engine.models.paged import PagedCache
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    SpeculationSettings,
)
from engine.speculation.compatible import draft_problem_between
from engine.speculation.mtp import MtpDrafter
from engine.vision.describe import describe
from tests.engine.models.architectures import ids, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.drafting.eagle3_files import (
    IDS,
    LAYOUTS,
    Oracle,
    tensors_of,
    write_pair,
    write_perfect,
)
from tests.engine.speculation.test_mtp import GREEDY, NONE, SAMPLED, asked, written

PROMPT = ids(40)
PERFECT = "perfect"
Chats = Callable[..., tuple[LocalChat, SpeculationSettings]]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """The folders of a main model and of its drafter; written once."""
    made: dict[str, tuple[Path, Path]] = {}

    def get(name: str) -> tuple[Path, Path]:
        if name not in made:
            folder = tmp_path_factory.mktemp("pair")
            made[name] = write_perfect(folder) if name == PERFECT else write_pair(LAYOUTS[name], folder)
        return made[name]

    return get


@pytest.fixture
def chats(pairs: Callable[[str], tuple[Path, Path]]) -> Iterator[Chats]:
    """Opens chats, each with the settings to draft with its drafter."""
    opened: list[LocalChat] = []

    def get(
        name: str = "SafeAILab", backend: str = "reference", **load: Any
    ) -> tuple[LocalChat, SpeculationSettings]:
        path, own = pairs(name)
        context = min(512, describe(path).context_length)
        settings = LoadSettings(backend=backend, threads=2, **load)
        opened.append(
            finished(open_chat(path, settings, CacheSettings(context_length=context, dtype="fp32")))
        )
        opened[-1].generator.drafters.threshold = 0.0  # tiny models are never sure
        return opened[-1], drafting_with(own)

    yield get
    for chat in opened:
        chat.close()


def drafting_with(path: Path) -> SpeculationSettings:
    return SpeculationSettings("model", str(path), draft_tokens=4, adaptive=False)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_random_guesses_change_nothing(chats: Chats, name: str, backend: str) -> None:
    chat, drafting = chats(name, backend)
    plain, _ = written(chat, asked(GREEDY, NONE, 24), PROMPT)
    for _ in range(2):  # the second time the prompt is cached, and the drafter's own pairs
        found, stats = written(chat, asked(GREEDY, drafting, 24), PROMPT)
        assert found == plain
        assert stats.drafted_tokens > 20
        assert 0 <= stats.accepted_tokens < stats.drafted_tokens
    sampled = [written(chat, asked(SAMPLED, each, 24), PROMPT)[0] for each in (drafting, drafting)]
    assert sampled[0] == sampled[1]
    assert written(chat, asked(GREEDY, NONE, 24), PROMPT)[0] == plain


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_perfect_drafter_is_always_right(chats: Chats, backend: str) -> None:
    """Past the texts that it learnt from, too, which had 32 tokens."""
    chat, drafting = chats(PERFECT, backend)
    plain, _ = written(chat, asked(GREEDY, NONE))
    found, stats = written(chat, asked(GREEDY, drafting))
    assert found == plain
    assert len(set(plain)) > 2
    assert stats.acceptance_rate == 1.0
    assert stats.passes <= 12  # 40 tokens, five a pass


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", LAYOUTS)
def test_each_guess_is_what_plain_torch_makes_of_the_whole_text(
    chats: Chats, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through rejected guesses, banned strings and a further turn, whose prompt is cached."""
    chat, drafting = chats(name)
    noted, propose = list[tuple[list[int], list[int]]](), MtpDrafter.propose

    def watched(drafter: MtpDrafter, text: list[int], count: int) -> list[int]:
        found = propose(drafter, text, count)
        noted.append((list(text), list(found)))
        return found

    monkeypatch.setattr(MtpDrafter, "propose", watched)
    first, _ = written(chat, asked(GREEDY, NONE, 12), PROMPT)
    banned = ConstraintSettings(banned_strings=(chat.tokenizer.decode(first)[6:9],))
    plain, _ = written(chat, asked(GREEDY, NONE, 12, constraint=banned), PROMPT)
    chat.generator.cache.table.forget()  # of what is cached, hidden states are not known
    assert written(chat, asked(GREEDY, drafting, 12), PROMPT)[0] == first
    assert written(chat, asked(GREEDY, drafting, 12, constraint=banned), PROMPT)[0] == plain
    _, stats = written(chat, asked(GREEDY, drafting, 12), [*PROMPT, *first, 17, 18])
    assert stats.cached_tokens > 0
    assert sum(len(found) for _, found in noted) > 60
    oracle = Oracle(LAYOUTS[name], tensors_of(LAYOUTS[name]))
    for text, found in noted[::4]:
        assert found == guessed(oracle, text, len(found))


def guessed(oracle: Oracle, text: list[int], count: int) -> list[int]:
    """The likeliest tokens after a text."""
    states, tokens, found = oracle.features(text[:-1]), text[1:], list[int]()
    for _ in range(count):
        logits, after = oracle.run(tokens, states)
        found.append(int(oracle.targets()[int(logits[-1].argmax())]))
        tokens, states = [*tokens, found[-1]], oracle.torch.cat([states, after[-1:]])
    return found


def test_two_replies_at_a_time(chats: Chats) -> None:
    chat, drafting = chats(PERFECT, "cpu")
    prompts = [PROMPT, ids(30)]
    plain = [written(chat, asked(GREEDY, NONE), prompt)[0] for prompt in prompts]
    written(chat, asked(GREEDY, drafting), [5, 6])  # loads the drafter
    streams = [iter(chat.complete(prompt, asked(GREEDY, drafting), threading.Event())) for prompt in prompts]
    found: list[list[int]] = [[], []]
    rates = list[float]()
    while len(rates) < 2:
        for at, stream in enumerate(streams):
            event = next(stream, None)
            if isinstance(event, Text):
                found[at] += [token.id for token in event.tokens]
            elif isinstance(event, Done):
                rates.append(event.stats.acceptance_rate)
    assert found == plain
    assert rates == [1.0, 1.0]


@pytest.mark.slow
def test_guidance_eight_bit_caches_and_quantised_weights(pairs: Callable[[str], tuple[Path, Path]]) -> None:
    path, own = pairs("speculators")
    load = LoadSettings(backend="cpu", threads=2, quantise="q8")
    chat = finished(open_chat(path, load, CacheSettings(context_length=512, dtype="q8")))
    chat.generator.drafters.threshold = 0.0
    try:
        for more in ({}, {"guidance": GuidanceSettings("no", 1.5)}):
            plain, _ = written(chat, asked(GREEDY, NONE, **more))
            found, stats = written(chat, asked(GREEDY, drafting_with(own), **more))
            assert found == plain
            assert stats.drafted_tokens > 0
    finally:
        chat.close()


def changed(own: Path, folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> Path:
    """A copy of a drafter's folder with other keys in config.json and other tensors (None: without it)."""
    folder.mkdir()
    old = json.loads((own / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**old, **config}), "utf-8")
    stored = {**load_file(own / "model.safetensors"), **tensors}
    save_file({name: values for name, values in stored.items() if values is not None},
              folder / "model.safetensors")  # fmt: skip
    return folder


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "with 60 features and 307 tokens, but this one has 64 and 307": ({"target_hidden_size": 60}, {}),
    "with 64 features and 999 tokens, but this one has 64 and 307": ({"vocab_size": 999}, {}),
    "does not have those that it reads": ({IDS: [1, 2, 4]}, {}),
    "has 32 features of its own": ({"hidden_size": 32, "target_hidden_size": 64}, {}),
    "layers of the kind 'mpt', but only llama, qwen3": ({"model_type": "mpt"}, {}),
    "both norm_before_fc and fc_norm": ({"norm_before_fc": True, "fc_norm": True}, {}),
}


@pytest.mark.parametrize("words", REFUSED)
def test_which_are_refused(chats: Chats, tmp_path: Path, words: str) -> None:
    chat, drafting = chats()
    plain, _ = written(chat, asked(GREEDY, drafting, 5))
    folder = changed(Path(drafting.draft_model), tmp_path / "other", *REFUSED[words])
    assert words in draft_problem_between(chat.info.path, folder)
    with pytest.raises((BadSetting, BadCheckpoint, UnsupportedModel), match=words):
        written(chat, asked(GREEDY, drafting_with(folder), 5))
    assert draft_problem_between(chat.info.path, drafting.draft_model) == ""
    assert written(chat, asked(GREEDY, drafting, 5))[0] == plain


def test_a_model_without_hidden_states_between_its_layers(chats: Chats, tmp_path: Path) -> None:
    """Gemma 3n has several for each token."""
    _, drafting = chats()
    path = write_checkpoint(BY_NAME["Gemma 3n"], tmp_path / "model")
    own = changed(Path(drafting.draft_model), tmp_path / "own", {"vocab_size": describe(path).vocab_size}, {})
    other = finished(open_chat(path, LoadSettings(backend="reference"), CacheSettings(context_length=64)))
    try:
        assert "reads hidden states between the layers" in draft_problem_between(path, own)
        with pytest.raises(BadSetting, match="reads hidden states between the layers"):
            written(other, asked(GREEDY, drafting_with(own), 5))
    finally:
        other.close()


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("d2t", np.full(40, 300, np.int64), "table d2t does not name"),
        ("d2t", -np.arange(40), "table d2t does not name"),
        ("d2t", None, "lacks tensors that its headers name: d2t"),
        ("fc.weight", None, "lacks tensors that its headers name: fc.weight"),
    ],
)
def test_damaged_files(chats: Chats, tmp_path: Path, name: str, values: Any, words: str) -> None:
    chat, drafting = chats()
    says = {"architectures": ["LlamaForCausalLMEagle3"]}
    folder = changed(Path(drafting.draft_model), tmp_path / "other", says, {name: values})
    with pytest.raises(BadCheckpoint, match=words):
        written(chat, asked(GREEDY, drafting_with(folder), 5))


def test_tokens_that_no_text_has_are_not_drafted(chats: Chats, tmp_path: Path) -> None:
    """A model may have more tokens than its tokenizer, and a drafter may know these alone."""
    chat, drafting = chats()
    chat.generator.drafters._vocabulary = 200
    mapping = {"d2t": np.full(40, 250, np.int64)}
    folder = changed(Path(drafting.draft_model), tmp_path / "other", {}, mapping)
    plain, _ = written(chat, asked(GREEDY, NONE, 8))
    found, stats = written(chat, asked(GREEDY, drafting_with(folder), 8))
    assert found == plain
    assert stats.drafted_tokens == 0


def test_it_does_not_write_by_itself(pairs: Callable[[str], tuple[Path, Path]]) -> None:
    """Also the first layout, whose config.json is that of a Llama."""
    for name in LAYOUTS:
        with pytest.raises(UnsupportedModel, match="cannot write by itself"):
            finished(open_chat(pairs(name)[1], LoadSettings(backend="reference")))


def test_the_drafter_is_released(chats: Chats) -> None:
    """Without drafting, passes leave nothing for it."""
    chat, drafting = chats()
    plain, _ = written(chat, asked(GREEDY, NONE, 5))
    model = chat.generator.cache.model
    assert model.kept is None
    for _ in range(2):
        assert written(chat, asked(GREEDY, drafting, 5))[0] == plain
        assert chat.generator.drafters.has_model
        assert model.features is not None
        assert written(chat, asked(GREEDY, NONE, 5))[0] == plain
        assert not chat.generator.drafters.has_model
        assert (model.kept, model.features) == (None, None)
    assert isinstance(chat.generator.cache, PagedCache)


@pytest.mark.slow
def test_the_command_line(
    pairs: Callable[[str], tuple[Path, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    path, own = pairs(PERFECT)
    command = ["run", str(path), "--ids", "7,8,9", "--max-tokens", "12", "--temperature", "0", "--backend"]
    found = []
    for more in ((), ("--drafting", "model", "--draft-model", str(own))):
        assert main([*command, "reference", *more, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["ids"] == found[1]["ids"]
    assert found[1]["stats"]["accepted_tokens"] > 0
