"""The generator over a fake model that says something else after any mistake in the cache."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engine.core import Done, Prefill, Text
from engine.errors import BadSetting, ContextTooLong
from engine.generator.dynamic import DynamicGenerator
from engine.generator.streaming import StreamingGenerator
from engine.settings import SamplerSettings, StopSettings
from tests.engine.generator.fakes import Scripted, fresh_reply, make, stream, tokenizer

GREEDY = SamplerSettings(temperature=0.0)
PROMPT = [int(i) for i in np.random.default_rng(1).integers(10, 700, 600)]


def write(generator, ids, count, **more):
    """Ids of a greedy reply of `count` tokens, and the last event."""
    events = list(stream(generator, ids, GREEDY, StopSettings(max_tokens=count), **more))
    reply = [token.id for event in events if isinstance(event, Text) for token in event.tokens]
    assert isinstance(events[-1], Done)
    return reply, events[-1]


def test_events_in_order_and_counts():
    generator, model = make(rows=256)
    events = list(stream(generator, PROMPT, GREEDY, StopSettings(max_tokens=20), seed=5))
    progress = [event for event in events if isinstance(event, Prefill)]
    assert [(p.done, p.total, p.cached) for p in progress] == [
        (done, 600, 0) for done in (0, 256, 512, 599, 600)
    ]
    assert events[: len(progress)] == progress
    assert model.program.ran == [256, 256, 87] + [1] * 20
    stats = events[-1].stats
    assert (stats.prompt_tokens, stats.prefill_tokens, stats.cached_tokens, stats.new_tokens) == (
        600,
        600,
        0,
        20,
    )
    assert (stats.context_tokens, stats.context_length, stats.seed) == (620, 1024, 5)
    assert 0 < stats.prefill_seconds <= stats.first_token_seconds
    assert stats.decode_seconds > 0
    reply = [token.id for event in events if isinstance(event, Text) for token in event.tokens]
    assert reply == fresh_reply(PROMPT, 20)
    assert "".join(e.text for e in events if isinstance(e, Text)) == tokenizer().decode(reply)


@pytest.mark.parametrize("kind", [StreamingGenerator, DynamicGenerator])
def test_the_cache_of_another_model_is_refused(kind):
    generator, _ = make()
    _, other = make()
    with pytest.raises(ValueError, match="made for another model"):
        kind(other, generator.cache, tokenizer())
    assert kind(generator.model, generator.cache, tokenizer()).cache is generator.cache


def test_a_generator_without_an_open_sequence_has_no_passes_over_a_prompt():
    generator, _ = make(rows=256)
    assert generator.reading() == ()
    next(stream(generator, PROMPT, GREEDY, StopSettings(max_tokens=2)))
    assert generator.reading() == (((0, 256), (256, 256), (512, 87), (599, 1)),)
    generator.close()
    assert generator.reading() == ()


def test_follow_up_regenerate_and_edit_read_only_what_is_new():
    generator, model = make()
    first, _ = write(generator, PROMPT, 30)
    model.program.ran.clear()

    follow_up = PROMPT + first + PROMPT[:40]
    reply, done = write(generator, follow_up, 10)
    assert reply == fresh_reply(follow_up, 10)
    # The last token of the first reply was sampled but never run.
    assert (done.stats.cached_tokens, done.stats.prefill_tokens) == (629, 41)
    assert sum(model.program.ran) == 41 + 9

    again, done = write(generator, follow_up, 10)
    assert again == reply
    assert done.stats.prefill_tokens == 1

    regenerated, done = write(generator, PROMPT, 30)
    assert regenerated == first
    assert done.stats.prefill_tokens == 1

    edited = PROMPT[:300] + [99] + PROMPT[301:]
    reply, done = write(generator, edited, 10)
    assert reply == fresh_reply(edited, 10)
    assert done.stats.prefill_tokens == 300
    generator.cache.table.check()


def test_two_conversations_in_turn_keep_their_pages():
    generator, _ = make(context=2048)
    other = PROMPT[::-1]
    for ids, cached in ((PROMPT, 0), (other, 0), (PROMPT, 599), (other, 599)):
        reply, done = write(generator, ids, 5)
        assert reply == fresh_reply(ids, 5)
        assert done.stats.cached_tokens == cached


def test_a_full_context_forks_without_losing_its_way():
    generator, _ = make(context=640)
    first, done = write(generator, PROMPT, 0)
    assert done.reason == "context_full"
    assert done.stats.context_tokens == 641
    assert first == fresh_reply(PROMPT, 41)
    forked = PROMPT[:550] + [33] * 60
    assert write(generator, forked, 30)[0] == fresh_reply(forked, 30)
    assert write(generator, PROMPT, 30)[0] == fresh_reply(PROMPT, 30)
    generator.cache.table.check()


@pytest.mark.parametrize("runs", range(1, 9))
def test_stopping_anywhere_and_going_on_equals_fresh(runs):
    """`stop` set during the n-th run: chunks of 128 for 600 tokens are five runs, the rest are decode
    steps.
    """
    generator, model = make(rows=128)
    stop, seen = threading.Event(), [0]

    def count():
        seen[0] += 1
        if seen[0] == runs:
            stop.set()

    model.program.before_run = count
    part, done = write(generator, PROMPT, 50, stop=stop)
    assert done.reason == "cancelled"
    assert seen[0] == runs, "nothing runs after a stop"
    assert part == fresh_reply(PROMPT, max(0, runs - 5))[: len(part)]
    model.program.before_run = lambda: None
    reply, done = write(generator, PROMPT, 12)
    assert reply == fresh_reply(PROMPT, 12)
    assert done.stats.cached_tokens == min(599, 128 * runs)
    generator.cache.table.check()


def test_an_abandoned_stream_gives_its_pages_back():
    generator, _ = make()
    events = stream(generator, PROMPT, GREEDY)
    for event in events:
        if isinstance(event, Text):
            break
    events.close()
    table = generator.cache.table
    assert table.free + table.idle == table.page_count
    held = stream(generator, PROMPT, GREEDY)
    next(held)
    write(generator, PROMPT, 3)
    assert list(held) == [], "a new stream ends the one before"
    assert table.free + table.idle == table.page_count


def test_an_error_in_a_step_leaves_a_cache_that_goes_on():
    generator, model = make(rows=128)
    calls = [0]

    def fail():
        calls[0] += 1
        if calls[0] == 7:
            raise KeyboardInterrupt

    model.program.before_run = fail
    with pytest.raises(KeyboardInterrupt):
        write(generator, PROMPT, 20)
    assert write(generator, PROMPT, 20)[0] == fresh_reply(PROMPT, 20)
    generator.cache.table.check()


def test_same_seed_same_reply():
    warm = SamplerSettings(temperature=1.3, top_k=0, top_p=1.0, min_p=0.0)

    def reply(**more):
        generator, _ = make()
        return [
            t.id
            for e in stream(generator, PROMPT, warm, StopSettings(max_tokens=40), **more)
            if isinstance(e, Text)
            for t in e.tokens
        ]

    assert reply(seed=0) == reply(seed=0) != reply(seed=1)
    done = list(stream(make()[0], PROMPT, warm, StopSettings(max_tokens=1)))[-1]
    other = list(stream(make()[0], PROMPT, warm, StopSettings(max_tokens=1)))[-1]
    assert done.stats.seed != other.stats.seed
    assert (
        list(stream(make()[0], PROMPT, SamplerSettings(seed=77), StopSettings(max_tokens=1)))[-1].stats.seed
        == 77
    )


@pytest.mark.parametrize("kept", [False, True])
def test_a_stop_token_is_shown_last_if_it_is_kept(kept):
    first, answer = tokenizer().encode("the quick"), tokenizer().encode("brown fox")
    eos = tokenizer().eos_token_id
    generator, _ = make(Scripted(len(first), [*answer, eos, *answer]))
    events = list(stream(generator, first, GREEDY, StopSettings(keep_stop=kept, max_tokens=20), logits=True))
    tokens = [token for event in events if isinstance(event, Text) for token in event.tokens]
    name = tokenizer().decode([eos], skip_special=False)
    assert [token.id for token in tokens] == [*answer, *[eos] * kept]
    assert "".join(event.text for event in events if isinstance(event, Text)) == "brown fox" + name * kept
    assert "".join(token.text for token in tokens) == "brown fox" + name * kept
    done = events[-1]
    assert (done.reason, done.trigger, done.stats.new_tokens) == ("stop_token", name, len(answer) + 1)


def test_prompts_that_cannot_be_run():
    generator, model = make(context=512)
    with pytest.raises(ContextTooLong, match="600 tokens, but the context holds 512; shorten it by 88"):
        stream(generator, PROMPT)
    with pytest.raises(BadSetting, match="empty"):
        stream(generator, [])
    with pytest.raises(BadSetting, match="Token id 100000 "):
        stream(generator, [1, 100000])
    assert model.program.ran == []
    assert write(generator, PROMPT[:512], 5)[1].reason == "context_full"
