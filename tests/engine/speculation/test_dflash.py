"""Drafting with DFlash: replies are the same, bit for bit, whatever the drafter guesses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.__main__ import main
from engine.chat import LocalChat, finished, open_chat
from engine.core import Done, Text
from engine.errors import BadCheckpoint, BadSetting, UnsupportedModel
from engine.settings import CacheSettings, ConstraintSettings, GuidanceSettings, LoadSettings
from engine.speculation.compatible import draft_problem_between
from engine.speculation.dflash import DFlashDrafter
from engine.vision.describe import describe
from tests.engine.models.architectures import ids, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.drafting.dflash_files import (
    LAYOUTS,
    OWN,
    Oracle,
    tensors_of,
    write_drafter_file,
    write_pair,
    write_perfect,
)
from tests.engine.speculation.test_eagle3 import Chats, changed, drafting_with
from tests.engine.speculation.test_mtp import GREEDY, NONE, SAMPLED, asked, written

PROMPT = ids(40)
PERFECT = "perfect"


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

    def get(name: str = "Qwen 3", backend: str = "reference", **load: Any) -> Any:
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


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_random_guesses_change_nothing(chats: Chats, name: str, backend: str) -> None:
    chat, drafting = chats(name, backend)
    plain, _ = written(chat, asked(GREEDY, NONE, 24), PROMPT)
    for _ in range(2):  # the second time the prompt is cached, and the drafter's own context
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
    assert stats.acceptance_rate == 1.0
    assert stats.passes <= 12  # 40 tokens, five a pass


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", LAYOUTS)
def test_each_guess_is_what_plain_torch_makes_of_the_whole_text(
    chats: Chats, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through rejected guesses, banned strings and a further turn, whose prompt is cached."""
    chat, drafting = chats(name)
    noted, propose = list[tuple[list[int], list[int]]](), DFlashDrafter.propose

    def watched(drafter: DFlashDrafter, text: list[int], count: int) -> list[int]:
        found = propose(drafter, text, count)
        noted.append((list(text), list(found)))
        return found

    monkeypatch.setattr(DFlashDrafter, "propose", watched)
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
        if found:
            logits = oracle.logits(oracle.features(text[:-1]), text[-1], len(found))
            assert found == logits.argmax(-1).tolist()


def test_a_prompt_of_more_tokens_than_a_pass_has_rows(chats: Chats) -> None:
    """The drafter reads it in parts, and guesses after the last."""
    chat, drafting = chats(PERFECT, "cpu")
    plain, _ = written(chat, asked(GREEDY, NONE, 10), ids(300))
    written(chat, asked(GREEDY, drafting, 10), [5, 6])  # loads the drafter
    cache = chat.generator.drafters._draft_cache
    assert cache is not None
    cache.rows = 32
    chat.generator.cache.table.forget()
    found, stats = written(chat, asked(GREEDY, drafting, 10), ids(300))
    assert found == plain
    assert stats.acceptance_rate == 1.0
    assert stats.drafted_tokens >= 6


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
    path, own = pairs("with causal windows")
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


REFUSED: dict[str, dict[str, Any]] = {
    "with 60 features and 307 tokens, but this one has 64 and 307": {"hidden_size": 60, "head_dim": 24},
    "with 64 features and 400 tokens, but this one has 64 and 307": {
        "mask_token_id": 307, "vocab_size": 400,
    },
    "mask_token_id is 307": {"mask_token_id": 307},
    "does not have those that it reads": {"target_layer_ids": [0, 4]},
    "does not say which layers of the main model": {"target_layer_ids": None},
    "config.json has no mask_token_id": {"mask_token_id": None},
    "layers of the kind 'chunked_attention'": {"layer_types": ["chunked_attention", "full_attention"]},
    "block_size": {"block_size": 1},
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_which_are_refused(chats: Chats, tmp_path: Path, words: str) -> None:
    chat, drafting = chats()
    plain, _ = written(chat, asked(GREEDY, drafting, 5))
    own = LAYOUTS["Qwen 3"].config()[OWN]
    keys = {**REFUSED[words], OWN: {**own, **REFUSED[words]}}
    folder = changed(Path(drafting.draft_model), tmp_path / "other", keys, {})
    assert words in draft_problem_between(chat.info.path, folder)
    with pytest.raises((BadSetting, BadCheckpoint, UnsupportedModel), match=words):
        written(chat, asked(GREEDY, drafting_with(folder), 5))
    assert draft_problem_between(chat.info.path, drafting.draft_model) == ""
    assert written(chat, asked(GREEDY, drafting, 5))[0] == plain


def test_a_model_without_hidden_states_between_its_layers(chats: Chats, tmp_path: Path) -> None:
    """Gemma 3n has several for each token."""
    _, drafting = chats()
    path = write_checkpoint(BY_NAME["Gemma 3n"], tmp_path / "model")
    own = {"target_layer_ids": [0, 1], "mask_token_id": 1}
    folder = changed(Path(drafting.draft_model), tmp_path / "own", {OWN: own}, {})
    other = finished(open_chat(path, LoadSettings(backend="reference"), CacheSettings(context_length=64)))
    try:
        assert "reads hidden states between the layers" in draft_problem_between(path, folder)
        with pytest.raises(BadSetting, match="reads hidden states between the layers"):
            written(other, asked(GREEDY, drafting_with(folder), 5))
    finally:
        other.close()


@pytest.mark.parametrize("name", ["d2t", "blk.1.attn_sinks.weight", "markov_w1.weight", "layer_fusion"])
def test_files_of_later_kinds_are_refused(chats: Chats, tmp_path: Path, name: str) -> None:
    chat, _ = chats()
    more = {name: np.zeros((4, 4), np.float32)}
    path = write_drafter_file(LAYOUTS["Qwen 3"], tmp_path / "drafter.gguf", **more)
    assert "of a later kind, with the tensor" in draft_problem_between(chat.info.path, path)
    with pytest.raises(UnsupportedModel, match="of a later kind, with the tensor"):
        written(chat, asked(GREEDY, drafting_with(path), 5))


def test_tables_of_another_vocabulary_are_refused(chats: Chats, tmp_path: Path) -> None:
    """Without tables of its own, a drafter may know fewer tokens or more."""
    chat, drafting = chats()
    plain, _ = written(chat, asked(GREEDY, NONE, 8))
    for more, fits in (({}, True), ({"lm_head.weight": np.zeros((303, 64), np.float32)}, False)):
        folder = changed(Path(drafting.draft_model), tmp_path / f"{fits}", {"vocab_size": 303}, more)
        problem = draft_problem_between(chat.info.path, folder)
        assert ("303 tokens, but this one has 64 and 307" in problem) == (not fits)
        if fits:
            assert problem == ""
            assert written(chat, asked(GREEDY, drafting_with(folder), 8))[0] == plain


@pytest.mark.parametrize(
    ("values", "words"),
    [(None, "lacks tensors that its headers name: fc.weight"), (np.zeros((64, 64), np.float32), "fc.weight")],
)
def test_damaged_files(chats: Chats, tmp_path: Path, values: Any, words: str) -> None:
    chat, drafting = chats()
    folder = changed(Path(drafting.draft_model), tmp_path / "other", {}, {"fc.weight": values})
    with pytest.raises(BadCheckpoint, match=words):
        written(chat, asked(GREEDY, drafting_with(folder), 5))


def test_it_does_not_write_by_itself(pairs: Callable[[str], tuple[Path, Path]]) -> None:
    with pytest.raises(UnsupportedModel, match="cannot write by itself"):
        finished(open_chat(pairs("Qwen 3")[1], LoadSettings(backend="reference")))


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
