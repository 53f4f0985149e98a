"""The generator over a fake model that says something else after any mistake in the cache."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engine.core import Done, Prefill, Text
from engine.errors import BadSetting, ContextTooLong, NotSupportedYet
from engine.generator.streaming import StreamingGenerator
from engine.settings import SamplerSettings, StopSettings
from tests.engine.generator.fakes import Scripted, fresh_reply, make, random_logits, tokenizer

GREEDY = SamplerSettings(temperature=0.0)
PROMPT = [int(i) for i in np.random.default_rng(1).integers(10, 700, 600)]


def write(generator, ids, count, **more):
    """Ids of a greedy reply of `count` tokens, and the last event."""
    events = list(generator.stream(ids, GREEDY, StopSettings(max_tokens=count), **more))
    reply = [token.id for event in events if isinstance(event, Text) for token in event.tokens]
    assert isinstance(events[-1], Done)
    return reply, events[-1]


def test_events_in_order_and_counts():
    generator, model = make(rows=256)
    events = list(generator.stream(PROMPT, GREEDY, StopSettings(max_tokens=20), seed=5))
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
    part, done = write(generator, PROMPT, 50, stop_event=stop)
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
    events = generator.stream(PROMPT, GREEDY)
    for event in events:
        if isinstance(event, Text):
            break
    events.close()
    table = generator.cache.table
    assert table.free + table.idle == table.page_count
    held = generator.stream(PROMPT, GREEDY)
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
            for e in generator.stream(PROMPT, warm, StopSettings(max_tokens=40), **more)
            if isinstance(e, Text)
            for t in e.tokens
        ]

    assert reply(seed=0) == reply(seed=0) != reply(seed=1)
    done = list(make()[0].stream(PROMPT, warm, StopSettings(max_tokens=1)))[-1]
    other = list(make()[0].stream(PROMPT, warm, StopSettings(max_tokens=1)))[-1]
    assert done.stats.seed != other.stats.seed
    assert (
        list(make()[0].stream(PROMPT, SamplerSettings(seed=77), StopSettings(max_tokens=1)))[-1].stats.seed
        == 77
    )


def test_prompts_that_cannot_be_run():
    generator, model = make(context=512)
    with pytest.raises(ContextTooLong, match="600 tokens, but the context holds 512; shorten it by 88"):
        generator.stream(PROMPT)
    with pytest.raises(BadSetting, match="empty"):
        generator.stream([])
    with pytest.raises(BadSetting, match="Token id 100000 "):
        generator.begin_stream_ex([1, 100000], GREEDY)
    assert model.program.ran == []
    assert write(generator, PROMPT[:512], 5)[1].reason == "context_full"


# The step-by-step face


def steps(generator, **more):
    results = []
    while not results or not results[-1]["eos"]:
        results.append(generator.stream_ex(**more))
    return results


@pytest.mark.parametrize("form", [list, np.array, lambda ids: np.array([ids])])
def test_begin_and_step(form):
    generator, _ = make()
    generator.begin_stream_ex(form(PROMPT), GREEDY, max_new_tokens=15, seed=3)
    results = steps(generator)
    reply = fresh_reply(PROMPT, 15)
    assert np.concatenate([r["chunk_token_ids"] for r in results], axis=1).tolist() == [reply]
    assert "".join(r["chunk"] for r in results) == tokenizer().decode(reply)
    assert set(results[0]) == {"chunk", "eos", "chunk_token_ids"}
    last = results[-1]
    assert (last["reason"], last["trigger"], last["stats"].seed, last["stats"].new_tokens) == (
        "max_tokens",
        "",
        3,
        15,
    )
    after = generator.stream_ex()
    assert (after["chunk"], after["eos"], after["reason"], after["chunk_token_ids"].shape) == (
        "",
        True,
        "max_tokens",
        (1, 0),
    )


KINDS = {
    "chunk_token_ids": "int64",
    "probs": "float32",
    "top_tokens": "int64",
    "top_probs": "float32",
    "logits": "float32",
}


def test_probabilities_top_tokens_and_logits():
    torch = pytest.importorskip("torch")
    generator, _ = make()
    sampler = SamplerSettings(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
    generator.begin_stream_ex(
        torch.tensor([PROMPT]),
        sampler,
        return_probabilities=True,
        return_top_tokens=4,
        return_logits=True,
        max_new_tokens=25,
        seed=1,
    )
    sequence = list(PROMPT)
    for result in steps(generator):
        n = result["chunk_token_ids"].shape[1]
        assert result["probs"].shape == (1, n)
        assert result["top_tokens"].shape == result["top_probs"].shape == (1, n, 4)
        assert result["logits"].shape == (1, n, tokenizer().vocab_size)
        kinds = {name: array.dtype.name for name, array in result.items() if isinstance(array, np.ndarray)}
        assert kinds == KINDS
        for i in range(n):
            logits = torch.from_numpy(random_logits(sequence))
            expected = torch.softmax(logits / 0.8, dim=0)
            token = int(result["chunk_token_ids"][0, i])
            assert np.array_equal(result["logits"][0, i], logits.numpy())
            assert result["probs"][0, i] == pytest.approx(float(expected[token]), rel=1e-4)
            best = torch.topk(expected, 4)
            assert result["top_tokens"][0, i].tolist() == best.indices.tolist()
            assert result["top_probs"][0, i] == pytest.approx(best.values.numpy(), rel=1e-4)
            sequence.append(token)
    assert len(sequence) == 625
    last = generator.stream_ex()
    assert {name: array.dtype.name for name, array in last.items() if isinstance(array, np.ndarray)} == KINDS


def test_fewer_candidates_than_top_tokens():
    generator, _ = make()
    generator.begin_stream_ex(
        PROMPT, SamplerSettings(top_k=2, top_p=1.0, min_p=0.0), return_top_tokens=5, max_new_tokens=1
    )
    (result,) = steps(generator)
    assert np.count_nonzero(result["top_probs"]) == 2
    assert result["top_probs"].sum() == pytest.approx(1.0)


def test_ban_tokens_counts_for_one_step():
    generator, _ = make()
    best = int(random_logits(PROMPT).argmax())
    generator.begin_stream_ex(PROMPT, GREEDY, max_new_tokens=2)
    generator.stream_ex(ban_tokens=[best])
    generator.stream_ex()
    written = generator.cache.table.open(PROMPT + [best]).length
    assert written == 600, "the banned token was not written"
    generator.begin_stream_ex(PROMPT, GREEDY, max_new_tokens=1)
    assert steps(generator)[0]["chunk_token_ids"].tolist() == [[best]]


def test_stop_conditions_are_replaced():
    ids = tokenizer().encode("one two STOP three")
    eos = tokenizer().eos_token_id
    script = Scripted(1, [*ids, eos, *ids])
    generator, _ = make(script)

    def run():
        generator.begin_stream_ex([9], GREEDY)
        results = steps(generator)
        return "".join(r["chunk"] for r in results), results[-1]["reason"], results[-1]["trigger"]

    assert run() == ("one two STOP three", "stop_token", "<|im_end|>")
    generator.set_stop_conditions(["STOP", eos])
    assert run() == ("one two ", "stop_string", "STOP")
    generator.set_stop_conditions([ids[-1]])
    text, reason, trigger = run()
    assert (reason, trigger) == ("stop_token", tokenizer().decode(ids[-1:]))
    assert text == tokenizer().decode(ids[:-1])
    for wrong in ([1.5], [None], [""], [True], ["ok", b"x"]):
        with pytest.raises(ValueError, match="stop condition"):
            generator.set_stop_conditions(wrong)


def test_special_tokens_as_text():
    start = tokenizer().encode("<|im_start|>", special=True)[0]
    generator, _ = make(Scripted(1, [60, start, 61, tokenizer().eos_token_id]))
    texts = []
    for special in (False, True):
        generator.begin_stream_ex([9], GREEDY, decode_special_tokens=special)
        texts.append("".join(r["chunk"] for r in steps(generator)))
    assert texts[1] == tokenizer().piece(60) + "<|im_start|>" + tokenizer().piece(61)
    assert texts[0] == texts[1].replace("<|im_start|>", "")


def test_abort_event():
    generator, model = make(rows=128)
    abort = threading.Event()
    model.program.before_run = abort.set
    generator.begin_stream_ex(PROMPT, GREEDY, abort_event=abort)
    result = generator.stream_ex()
    assert (result["eos"], result["reason"], result["chunk"], model.program.ran) == (
        True,
        "cancelled",
        "",
        [128],
    )
    abort.clear()
    model.program.before_run = lambda: None
    generator.begin_stream_ex(PROMPT, GREEDY, abort_event=abort)
    assert model.program.ran == [128, 128, 128, 128, 87, 1]
    generator.stream_ex()
    abort.set()
    assert generator.stream_ex()["reason"] == "cancelled"


@pytest.mark.parametrize(("name", "value"), [("input_embeddings", np.zeros((1, 2, 4)))])
def test_what_is_not_there_yet_says_so(name, value):
    generator, _ = make()
    with pytest.raises(NotSupportedYet, match=name):
        generator.begin_stream_ex(PROMPT, GREEDY, **{name: value})


def test_the_constructors_arguments():
    generator, _ = make()
    with pytest.raises(ValueError, match="another model"):
        StreamingGenerator(make()[1], generator.cache, tokenizer())
    with pytest.raises(RuntimeError, match="begin_stream_ex"):
        generator.stream_ex()
    with pytest.raises(ValueError, match="input_ids"):
        generator.begin_stream_ex(np.zeros((2, 3), np.int64), GREEDY)
    with pytest.raises(ValueError, match="input_ids"):
        generator.begin_stream_ex([1.5], GREEDY)


def test_what_fails_closes_the_sequence():
    """An error in the middle is told once, gives the pages back, and the next sequence is as if nothing
    had been.
    """
    generator, model = make(rows=128)

    def fail():
        raise MemoryError

    model.program.before_run = fail
    with pytest.raises(MemoryError):
        generator.begin_stream_ex(PROMPT, GREEDY)
    table = generator.cache.table
    assert table.free + table.idle == table.page_count
    with pytest.raises(RuntimeError, match="no sequence is open"):
        generator.stream_ex()
    model.program.before_run = lambda: None
    generator.begin_stream_ex(PROMPT, GREEDY, max_new_tokens=9)
    generator.stream_ex()
    model.program.before_run = fail
    with pytest.raises(MemoryError):
        generator.stream_ex()
    assert table.free + table.idle == table.page_count
    with pytest.raises(RuntimeError, match="no sequence is open"):
        generator.stream_ex()
    model.program.before_run = lambda: None
    generator.begin_stream_ex(PROMPT, GREEDY, max_new_tokens=9)
    ids = [token for result in steps(generator) for token in result["chunk_token_ids"][0].tolist()]
    assert ids == fresh_reply(PROMPT, 9)
    assert generator.get_sd_stats()[2] == 10
