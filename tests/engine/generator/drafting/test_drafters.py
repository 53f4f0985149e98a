"""Which drafter a sequence gets, what sequences share, and what a model's owner keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import BadSetting
from engine.generator.drafting.drafters import Drafters
from engine.generator.params import GenerationParams
from engine.settings import SamplerSettings, SpeculationSettings
from engine.speculation.draft_length import DraftLengthController
from engine.speculation.draft_model import DraftModel
from engine.speculation.ngram import NgramDrafter

RULES: Any = None
PARAMS = GenerationParams(SamplerSettings(mirostat=True, xtc_probability=0.5, skew=0.1, top_k=7), 1, RULES)
TEXT = [1, 2, 3, 4, 5, 6, 7, 8, 9] * 3


def model(weight_bytes: int) -> Any:
    return SimpleNamespace(
        weight_bytes_per_token=weight_bytes, config=SimpleNamespace(vocab_size=50, context_length=64)
    )


class Cache:
    """A cache of which only the model counts."""

    def __init__(self, weight_bytes: int) -> None:
        self.model, self.context_length, self.hidden, self.closed = model(weight_bytes), 64, [False], False

    def keep_hidden(self, on: bool, features: None = None) -> None:
        self.hidden.append(on)

    def close(self) -> None:
        self.closed = True


def made(weight_bytes: int = 1000) -> Drafters:
    cache: Any = Cache(weight_bytes)
    return Drafters(cache, 50)


def asked(drafters: Drafters, method: str, **more: Any) -> tuple[Any, DraftLengthController]:
    """The drafter of a sequence with these settings, and what chooses its lengths."""
    found = drafters.drafting(SpeculationSettings(method=method, **more), PARAMS, None)
    assert found.active
    assert found._draft_length is not None
    return found._drafter, found._draft_length


def proposed(drafter: NgramDrafter, ids: list[int]) -> list[int]:
    drafter.begin(ids)
    return drafter.propose(ids, 3)


def test_nothing_drafts_unless_it_is_asked_for() -> None:
    assert not made().drafting(SpeculationSettings(method="none"), PARAMS, None).active


def test_repeats_of_the_text_and_of_what_was_preloaded() -> None:
    drafters = made()
    first, _ = asked(drafters, "ngram")
    assert isinstance(first, NgramDrafter)
    assert proposed(first, [20, 21, 22, 5, 6]) == []
    drafters.preload(TEXT)
    second, _ = asked(drafters, "ngram")
    assert proposed(second, [20, 21, 22, 5, 6, 7])[:1] == [8]
    drafters.preload([30, 31, 32, 33, 34, 35])
    third, _ = asked(drafters, "ngram")
    assert proposed(third, [20, 30, 31, 32, 33])[:1] == [34]
    assert proposed(third, [20, 21, 22, 5, 6, 7])[:1] == [8]


def test_matches_have_the_lengths_of_the_settings() -> None:
    drafters = made()
    drafters.preload(TEXT)
    long, _ = asked(drafters, "ngram", ngram_min=4, ngram_max=5)
    assert proposed(long, [20, 21, 22, 5, 6, 7]) == []
    assert proposed(long, [20, 21, 4, 5, 6, 7])[:1] == [8]
    own, _ = asked(drafters, "ngram", ngram_prompt=False)
    drafters_without, _ = asked(made(), "ngram", ngram_prompt=False)
    assert proposed(own, [40, 41, 42, 43, 40, 41, 42]) == []
    assert proposed(drafters_without, TEXT) == []
    with pytest.raises(BadSetting, match="shortest match for drafting is 4 tokens, but the longest is 3"):
        asked(drafters, "ngram", ngram_min=4, ngram_max=3)
    asked(drafters, "ngram", ngram_min=3, ngram_max=3)


def test_sequences_with_the_same_settings_learn_their_lengths_together() -> None:
    drafters = made()
    _, one = asked(drafters, "ngram", draft_tokens=5)
    assert (one.longest, one.adaptive, one.free) == (5, True, True)
    assert asked(drafters, "ngram", draft_tokens=5)[1] is one
    assert asked(drafters, "ngram", draft_tokens=6)[1] is not one
    _, fixed = asked(drafters, "ngram", draft_tokens=5, adaptive=False)
    assert (fixed.longest, fixed.adaptive, fixed.free) == (5, False, True)
    assert asked(drafters, "ngram", draft_tokens=5, adaptive=False)[1] is not fixed


def test_without_its_model_a_method_says_what_is_missing() -> None:
    drafters = made()
    for method, words in (("model", "no draft model is loaded"), ("mtp", "the head is not loaded")):
        with pytest.raises(BadSetting, match=words):
            asked(drafters, method)
    draft: Any = Cache(100)
    drafters.set_model(draft.model, draft)
    with pytest.raises(BadSetting, match="the head is not loaded"):
        asked(drafters, "mtp")


def test_a_draft_model_of_its_owner() -> None:
    drafters = made()
    draft: Any = Cache(100)
    assert not drafters.has_model
    with pytest.raises(ValueError, match="another model"):
        drafters.set_model(model(100), draft)
    drafters.set_model(draft.model, draft)
    drafters.threshold = 0.4
    drafter, lengths = asked(drafters, "model", draft_tokens=4)
    assert drafters.has_model
    assert isinstance(drafter, DraftModel)
    assert (drafter.cache, drafter.threshold) == (draft, 0.4)
    assert (lengths.longest, lengths.free) == (4, False)
    _, free = asked(drafters, "ngram", draft_tokens=4)
    drafters.drop_model()
    assert (drafters.has_model, draft.closed) == (False, False)
    drafters.set_model(draft.model, draft)
    assert asked(drafters, "model", draft_tokens=4)[1] is not lengths
    assert asked(drafters, "ngram", draft_tokens=4)[1] is free


def test_no_token_is_drafted_that_the_model_with_its_adapters_lacks() -> None:
    cache: Any = Cache(1000)
    draft: Any = Cache(100)
    drafters = Drafters(cache, 50)
    drafters.set_model(draft.model, draft)
    assert asked(drafters, "model")[0]._shared == 50
    cache.model.config.vocab_size = 40
    assert asked(drafters, "model")[0]._shared == 40


def test_a_draft_samples_as_the_reply_without_steps_that_learn_or_are_random(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_of: list[tuple[Any, ...]] = []
    drafting = "engine.generator.drafting.drafters.Sampler"
    monkeypatch.setattr(drafting, lambda *given, **more: made_of.append((*given, more)))
    drafters, draft = made(), Cache(100)
    drafters.set_model(draft.model, draft)  # type: ignore[arg-type]
    asked(drafters, "model")
    settings, seed, tables, more = made_of[-1]
    assert settings == SamplerSettings(top_k=7)
    assert (seed, tables, more) == (PARAMS.seed, PARAMS.tables, {"races": False})


def test_a_large_draft_model_is_asked_for_shorter_drafts_before_anything_is_measured() -> None:
    """The first cost of a guess: what a pass of it reads, in passes of the model, and the row to check."""
    costs = []
    for weight_bytes in (100, 400):
        drafters, draft = made(1000), Cache(weight_bytes)
        drafters.set_model(draft.model, draft)  # type: ignore[arg-type]
        costs.append(asked(drafters, "model")[1].extra_cost(1))
    assert costs == pytest.approx([0.2, 0.5])
