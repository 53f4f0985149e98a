"""Classifier-free guidance: the mix of two rows, both kept in the cache."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compat.exllamav2.step_by_step import prompt_rows
from engine.core import Done, Text
from engine.errors import BadSetting, ContextTooLong
from engine.generator.request import Guidance
from engine.settings import SamplerSettings, SpeculationSettings, StopSettings
from tests.engine.generator.fakes import all_steps, make, random_logits, stepping, stream, tokenizer

GREEDY = SamplerSettings(temperature=0.0)
PROMPT = [int(i) for i in np.random.default_rng(1).integers(10, 700, 300)]
NEGATIVE = tuple(int(i) for i in np.random.default_rng(2).integers(10, 700, 280))


def log_softmax(logits):
    x = np.asarray(logits, np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def guided(prompt, negative, scale, count):
    """Greedy ids by the formula, without a cache."""
    ids = []
    for _ in range(count):
        mixed = scale * log_softmax(random_logits([*prompt, *ids])) + (1 - scale) * log_softmax(
            random_logits([*negative, *ids])
        )
        ids.append(int(mixed.argmax()))
    return ids


def write(generator, prompt, guidance, count=15, **more):
    events = list(
        stream(generator, prompt, GREEDY, StopSettings(max_tokens=count), guidance=guidance, **more)
    )
    assert isinstance(events[-1], Done)
    return [token.id for event in events if isinstance(event, Text) for token in event.tokens], events[
        -1
    ].stats


@pytest.mark.parametrize("scale", [0.0, 1.5, 3.0])
@pytest.mark.parametrize(
    "speculation", [SpeculationSettings(), SpeculationSettings(method="ngram", adaptive=False)]
)
def test_the_formula(scale, speculation):
    generator, _ = make()
    ids, stats = write(generator, PROMPT, Guidance(NEGATIVE, scale), speculation=speculation)
    assert ids == guided(PROMPT, NEGATIVE, scale, 15)
    assert (stats.prompt_tokens, stats.prefill_tokens) == (300, 580)
    generator.cache.table.check()


@pytest.mark.parametrize("scale", [0.0, 1.0, 2.5])
def test_a_token_that_the_model_excludes_stays_excluded(scale):
    positive, negative = np.array([[1, -np.inf, -np.inf], [2, -np.inf, 0.5]], np.float32)
    mixed = Guidance((1,), scale).mixed(positive, negative)
    assert mixed.tolist() == [2 - scale, -np.inf, -np.inf]


def test_scale_one_is_the_prompt_alone():
    generator, _ = make()
    assert write(generator, PROMPT, Guidance(NEGATIVE, 1.0))[0] == write(generator, PROMPT, None)[0]


def test_both_rows_stay_cached_over_turns():
    generator, _ = make(context=2048)
    first, _ = write(generator, PROMPT, Guidance(NEGATIVE, 1.5))
    more = [*first, 77, 78, 79]
    ids, stats = write(generator, [*PROMPT, *more], Guidance((*NEGATIVE, *more), 1.5))
    assert ids == guided([*PROMPT, *more], [*NEGATIVE, *more], 1.5, 15)
    assert stats.prefill_tokens == 2 * 4  # the last token of the reply and the three new ones, in both rows
    again, stats = write(generator, [*PROMPT, *more], Guidance((*NEGATIVE, *more), 1.5))
    assert (again, stats.prefill_tokens) == (ids, 2)


def test_a_longer_negative_row_fills_the_context_first():
    generator, _ = make(context=320)
    events = list(
        stream(
            generator,
            PROMPT,
            GREEDY,
            StopSettings(max_tokens=0),
            guidance=Guidance((*NEGATIVE, *range(20, 50)), 2.0),
        )
    )
    assert events[-1].reason == "context_full"
    assert events[-1].stats.new_tokens == 320 - 310 + 1
    with pytest.raises(ContextTooLong):
        stream(generator, PROMPT, guidance=Guidance(NEGATIVE * 2, 2.0))
    with pytest.raises(BadSetting, match="empty"):
        stream(generator, PROMPT, guidance=Guidance((), 2.0))


def test_two_rows_step_by_step():
    generator, _ = make()
    rows = np.array([PROMPT, [0] * 20 + list(NEGATIVE)])
    mask = np.array([[True] * 300, [False] * 20 + [True] * 280])
    ids, guidance = prompt_rows(rows, mask, [[0], [-20]], 1.5)
    results = all_steps(stepping(generator, ids, GREEDY, guidance=guidance, max_new_tokens=10))
    written = [token for result in results for token in result["chunk_token_ids"][0].tolist()]
    assert written == guided(PROMPT, NEGATIVE, 1.5, 10)
    for wrong in (
        (rows, None, None, None),
        (rows[0], None, None, 2.0),
        (rows, mask[:, ::-1], None, 2.0),
        (rows, mask, [0, 0], 2.0),
    ):
        with pytest.raises(ValueError, match=r"input_ids|input_mask|position_offsets"):
            prompt_rows(*wrong)


def test_healing_heals_both_rows():
    last = tokenizer().encode(" th")[-1]
    generator, _ = make()
    ids, _ = write(generator, [*PROMPT, last], Guidance((*NEGATIVE, last), 1.5), heal=True, count=3)
    assert tokenizer().token_bytes(ids[0]).startswith(tokenizer().token_bytes(last))
    assert ids[1:] == guided([*PROMPT, ids[0]], [*NEGATIVE, ids[0]], 1.5, 2)
    with pytest.raises(BadSetting, match="same token"):
        stream(generator, [*PROMPT, last], guidance=Guidance(NEGATIVE, 1.5), heal=True)
    with pytest.raises(BadSetting, match="ends in the same token"):
        stream(generator, [*PROMPT, last], guidance=Guidance(NEGATIVE[:1], 1.5), heal=True)


@pytest.mark.parametrize("before", [0, 1])
def test_healing_leaves_the_negative_row_a_token(before):
    last = tokenizer().encode(" th")[-1]
    generator, _ = make()
    guidance = Guidance((*NEGATIVE[:before], last), 1.5)
    if before:
        ids, _ = write(generator, [*PROMPT, last], guidance, heal=True, count=2)
        assert ids[1:] == guided([*PROMPT, ids[0]], [NEGATIVE[0], ids[0]], 1.5, 1)
    else:
        with pytest.raises(BadSetting, match="has only the token that token healing writes again"):
            stream(generator, [*PROMPT, last], guidance=guidance, heal=True)


def test_two_rows_share_what_the_cache_holds():
    """The fake holds one context and two pages: long rows end the reply early, and are refused where they
    do not fit at all.
    """
    generator, _ = make(context=768)  # 5 pages
    other = tuple(range(20, 120)) * 7
    rows = list(PROMPT), Guidance(other[:500], 1.5)
    events = list(stream(generator, rows[0], GREEDY, StopSettings(max_tokens=0), guidance=rows[1]))
    assert events[-1].reason == "context_full"
    # the negative row may have a third page, the positive one not
    assert events[-1].stats.new_tokens == 512 - 300 + 1
    table = generator.cache.table
    assert table.free + table.idle == table.page_count
    with pytest.raises(ContextTooLong, match="more than the cache holds"):
        stream(generator, list(PROMPT) + list(range(20, 120)) * 3, guidance=Guidance(other, 1.5))


def test_two_rows_that_fill_the_cache_are_found_again():
    """The negative row begins with a copied page; while its source is kept for that, the positive one
    lacks a page.
    """
    generator, _ = make(context=512)  # 4 pages
    prompt, other = (PROMPT * 2)[:257], tuple(range(20, 120)) * 3
    replies = []
    for _ in range(3):
        events = stream(generator, prompt, GREEDY, StopSettings(max_tokens=20), guidance=Guidance(other, 1.5))
        replies.append([token.id for event in events if isinstance(event, Text) for token in event.tokens])
        generator.cache.table.check()
    assert replies == [guided(prompt, other, 1.5, 20)] * 3
