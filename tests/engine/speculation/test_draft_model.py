"""The draft model's guesses are that model's own continuation, whatever became of earlier guesses."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.kv_cache.lease import Lease
from engine.models.paged import PagedCache
from engine.sampling.sampler import Sampler
from engine.settings import CacheSettings, SamplerSettings
from engine.speculation.draft_model import DraftModel
from engine.speculation.drafter import Drafter
from engine.speculation.ngram import NgramDrafter
from engine.tensors import Floats
from tests.engine.generator.fakes import FakeModel, random_logits, tokenizer
from tests.engine.models.oracle import load
from tests.tiny import TINY, write_folder

VOCABULARY = tokenizer().vocab_size
PROMPT = [int(i) for i in np.random.default_rng(2).integers(10, 300, 70)]
GREEDY, SAMPLED = (
    SamplerSettings(temperature=0.0),
    SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
)


class Watched(PagedCache):
    """Counts the rows of each run."""

    ran: list[int]

    def run(self, lease: Lease, ids: Sequence[int], logit_rows: int = 1) -> Floats:
        self.ran.append(len(ids))
        return super().run(lease, ids, logit_rows)


def watched(model: Any) -> Watched:
    cache = Watched(model, CacheSettings(context_length=512))
    cache.ran = []
    return cache


@pytest.fixture
def cache() -> Watched:
    return watched(FakeModel())


def logits_after(cache: PagedCache, ids: Sequence[int]) -> Floats:
    """Of the last token, from a sequence of its own."""
    with cache.table.open((), key="other") as lease:
        return cache.run(lease, ids)[-1].copy()


def greedy_after(cache: PagedCache, ids: Sequence[int], count: int) -> list[int]:
    text = list(ids)
    for _ in range(count):
        text.append(int(logits_after(cache, text).argmax()))
    return text[len(ids) :]


def drafter(
    cache: PagedCache,
    settings: SamplerSettings = GREEDY,
    seed: int = 5,
    threshold: float = 0.0,
    vocabulary: int = 0,
) -> DraftModel:
    return DraftModel(
        cache, lambda: Sampler(settings, seed, races=True), threshold=threshold, vocabulary=vocabulary
    )


def test_both_are_drafters(cache: PagedCache) -> None:
    both: tuple[Drafter, ...] = (drafter(cache), NgramDrafter())
    assert len(both) == 2


def test_a_real_model_as_its_own_target_guesses_all_right(tmp_path: Path) -> None:
    model = load(write_folder(tmp_path / "model", TINY.but(layers=1)))
    cache = watched(model)
    prompt = [token % TINY.vocab_size for token in PROMPT[:20]]
    required = greedy_after(cache, prompt, 15)
    draft, text = drafter(cache), list(prompt)
    draft.begin(text)
    while len(text) < len(prompt) + 10:
        cache.ran.clear()
        guesses = draft.propose(text, 5)
        assert guesses == required[len(text) - len(prompt) :][:5]
        if len(text) > len(prompt):
            # the last guess and the token after it, then each guess but the last
            assert cache.ran == [2, 1, 1, 1, 1]
        text = prompt + required[: len(text) - len(prompt) + 6]
    draft.close()
    cache.close()
    model.close()


def test_refused_guesses_are_forgotten(cache: Watched) -> None:
    draft, rng, text = drafter(cache), np.random.default_rng(0), list(PROMPT)
    draft.begin(text)
    for _ in range(12):
        guesses = draft.propose(text, 4)
        assert guesses == greedy_after(cache, text, 4)
        text += [*guesses[: rng.integers(0, 5)], int(rng.integers(10, VOCABULARY))]
        if rng.random() < 0.4:  # a rewind into what was settled before, and other tokens there
            text = [*text[: -int(rng.integers(1, 8))], int(rng.integers(10, VOCABULARY))]
    draft.close()


def test_a_rewound_text_that_grew_longer_than_before(cache: Watched) -> None:
    draft = drafter(cache)
    draft.begin(PROMPT)
    draft.propose([*PROMPT, 7, 8, 9, 10], 3)
    text = [*PROMPT, 7, 11, 12, 13, 14, 15, 16]
    assert draft.propose(text, 3) == greedy_after(cache, text, 3)
    draft.close()


def test_guesses_are_what_a_sampler_with_the_same_seed_draws(cache: Watched) -> None:
    draft, sampler = drafter(cache, SAMPLED), Sampler(SAMPLED, 5, races=True)
    draft.begin(PROMPT)
    for _ in range(2):
        text = list(PROMPT)
        for guess in draft.propose(PROMPT, 4):
            assert guess == sampler.sample(logits_after(cache, text), text).id
            text.append(guess)
    draft.close()


def test_a_suspended_drafter_holds_no_pages_and_guesses_the_same_later(cache: Watched) -> None:
    draft = drafter(cache)
    draft.begin(PROMPT)
    first = draft.propose(PROMPT, 3)
    draft.suspend()
    assert cache.table.free + cache.table.idle == cache.table.page_count
    cache.table.forget()
    assert draft.propose(PROMPT, 3) == first
    draft.close()
    assert cache.table.free + cache.table.idle == cache.table.page_count


def test_unlikely_guesses_are_left_out(cache: Watched) -> None:
    logits = logits_after(cache, PROMPT).astype(np.float64)
    probability = float(np.exp(logits.max()) / np.exp(logits).sum())
    for threshold, count in ((probability * 0.99, 1), (probability * 1.01, 0)):
        draft = drafter(cache, threshold=threshold)
        draft.begin(PROMPT)
        assert len(draft.propose(PROMPT, 1)) == count
        draft.close()


def test_the_default_threshold_looks_at_the_models_own_probability() -> None:
    """A greedy draw's own probability is always 1, which would never end a guess."""
    cache = watched(FakeModel(lambda sequence: 4 * random_logits(sequence)))
    draft, sides = DraftModel(cache, lambda: Sampler(GREEDY, 1)), set[bool]()
    draft.begin(PROMPT)
    text = list(PROMPT)
    for _ in range(20):
        logits = logits_after(cache, text).astype(np.float64)
        likely = float(np.exp(logits.max()) / np.exp(logits).sum())
        assert bool(draft.propose(text, 1)) == (likely >= 0.25)
        sides.add(likely >= 0.25)
        text.append(int(logits.argmax()))
    assert len(sides) == 2
    draft.close()


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_ids_beyond_the_targets_vocabulary_are_never_guessed(
    cache: Watched, settings: SamplerSettings
) -> None:
    best = greedy_after(cache, PROMPT, 1)[0]
    # the likeliest token is the first that the target lacks
    draft = drafter(cache, settings, vocabulary=best)
    draft.begin(PROMPT)
    text = list(PROMPT)
    for _ in range(20):
        found = draft.propose(text, 2)
        assert len(found) == 2
        assert max(found) < best
        text.append(found[0])
    draft.close()


def test_ids_that_the_draft_model_lacks_end_its_guessing(cache: Watched) -> None:
    draft = drafter(cache, vocabulary=VOCABULARY + 100)
    draft.begin(PROMPT)
    assert draft.propose([*PROMPT, VOCABULARY + 50], 3) == []
    assert len(draft.propose([*PROMPT, 9], 3)) == 3
    draft.close()


def test_a_stop_is_obeyed_within_a_chunk(cache: Watched) -> None:
    cache.rows = 16
    draft = drafter(cache)
    draft.stop = threading.Event()
    draft.begin(PROMPT)
    progress = draft.catch_up(PROMPT)
    assert (next(progress).done, cache.ran) == (16, [16])
    draft.stop.set()
    assert list(progress) == []
    assert draft.propose(PROMPT, 3) == []
    assert cache.ran == [16]
    draft.stop.clear()
    assert draft.propose(PROMPT, 3) == greedy_after(cache, PROMPT, 3)
    draft.close()


def test_the_prompt_is_read_in_chunks_and_what_the_cache_has_is_not_read_again(cache: Watched) -> None:
    cache.rows = 16
    draft = drafter(cache)
    draft.begin(PROMPT)
    assert [p.done for p in draft.catch_up(PROMPT)] == [16, 32, 48, 64]
    assert cache.ran == [16, 16, 16, 16]
    draft.propose(PROMPT, 1)
    assert cache.ran[4:] == [6]
    draft.close()
    assert cache.table.idle == 1
    cache.ran.clear()
    draft.begin([*PROMPT, 5, 6])
    draft.propose([*PROMPT, 5, 6], 1)
    assert cache.ran == [2]
    draft.close()


def test_guesses_end_at_the_context(cache: Watched) -> None:
    draft, text = drafter(cache), (PROMPT * 8)[:510]
    draft.begin(text)
    assert len(draft.propose(text, 5)) == 3  # the last guess need not be run
    assert len(draft.propose([*text, 4, 5], 5)) == 1
    assert draft.propose([*text, 4, 5, 6], 5) == []
    draft.close()


def test_other_sequences_that_hold_the_pages_end_the_guessing(cache: Watched) -> None:
    lease = cache.table.open((), key="other")
    lease.reserve(cache.table.page_count * 256)
    draft = drafter(cache)
    draft.begin(PROMPT)
    assert draft.propose(PROMPT, 3) == []
    lease.close()
    assert len(draft.propose(PROMPT, 3)) == 3
    draft.close()


class Looked(list[int]):
    """A list that counts how often one of its elements is looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += not isinstance(key, slice)
        return super().__getitem__(key)


def test_a_long_text_is_not_compared_token_by_token_again(cache: Watched) -> None:
    draft, text = drafter(cache), Looked((PROMPT * 6)[:400])
    draft.begin(text)
    draft.propose(text, 3)
    for token in range(10, 30):
        text.append(token)
        before = text.looks
        assert len(draft.propose(text, 3)) == 3
        assert text.looks - before < 20
    draft.close()
