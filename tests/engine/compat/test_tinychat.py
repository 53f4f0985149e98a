"""TinyChat's contract: cumulated text, usage, finish reasons, times, and turns that go on behind
`start_pos`.
"""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest

from engine.compat import tinychat
from engine.compat.tinychat import StreamGenerator
from engine.errors import BadSetting, NotSupportedYet
from tests.engine.generator.fakes import Scripted, fresh_reply, make, tokenizer

PARAMS = {"temp": 0.0, "n_predict": 9, "repeat_penalty": 1.0, "top_p": 1.0, "top_k": 0}


def test_whole_texts_every_few_tokens():
    generator, _ = make()
    prompt = tokenizer().encode("the quick brown", special=True)
    results = list(StreamGenerator(generator, tokenizer(), "the quick brown", 0, PARAMS, stream_interval=2))
    reply = fresh_reply(prompt, 9)
    last = results[-1]
    assert tokenizer().decode(prompt + reply) == "the quick brown" + last["text"]
    counts = [r["usage"]["completion_tokens"] for r in results[:-1]]
    assert counts[0] == 1
    assert len(counts) > 3
    assert all(later - earlier >= 2 for earlier, later in pairwise(counts))
    assert all(last["text"].startswith(r["text"]) for r in results)
    assert last["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": 9,
        "total_tokens": len(prompt) + 9,
    }
    assert (results[0]["finish_reason"], results[0]["timing"], last["finish_reason"]) == (
        None,
        None,
        "length",
    )
    timing = last["timing"]
    assert (timing["context_tokens"], timing["total_tokens"], len(timing["generation_time_list"])) == (
        len(prompt),
        len(prompt) + 9,
        8,
    )
    assert timing["context_time"] > 0
    echoed = list(
        StreamGenerator(generator, tokenizer(), "the quick brown", 0, SimpleNamespace(**PARAMS), echo=True)
    )
    assert echoed[-1]["text"] == "the quick brown" + last["text"]


@pytest.mark.parametrize("model", ["/models/tiny", tokenizer()])
def test_a_model_that_cannot_stream_is_named(model):
    """TinyChat's own scripts give a module of PyTorch."""
    with pytest.raises(TypeError, match=f"as its model, but got {type(model).__name__}; make one from"):
        next(StreamGenerator(model, tokenizer(), "the", 0, PARAMS))


def test_turns_keep_the_end_of_turn_token():
    eos, first = tokenizer().eos_token_id, tokenizer().encode("the quick")
    answer = tokenizer().encode("brown fox")
    generator, model = make(Scripted(len(first), [*answer, eos, *answer * 9]))
    start = 0
    (*_, result) = StreamGenerator(generator, tokenizer(), "the quick", start, PARAMS, chunk_prefilling=True)
    assert (result["text"], result["finish_reason"]) == ("brown fox", "stop")
    start += result["timing"]["total_tokens"]  # as TinyChat's demo.py does
    assert start == result["usage"]["total_tokens"]
    assert start == len(first) + len(answer) + 1, "the end-of-turn token counts"
    model.program.ran.clear()
    (*_, result) = StreamGenerator(
        generator, tokenizer(), "<|im_start|>dog", start, PARAMS, chunk_prefilling=True
    )
    new = tokenizer().encode("<|im_start|>dog", special=True)
    assert result["usage"]["prompt_tokens"] == len(new)
    decoding = result["usage"]["completion_tokens"] - 1
    assert sum(model.program.ran[:-decoding]) == len(new) + 1, "the new turn and that token, nothing else"
    with generator.cache.open([*first, *answer, eos, *new, 0]) as lease:
        assert lease.length >= len(first) + len(answer) + 1 + len(new)


def test_stop_ids_are_the_callers_own_and_do_not_add_up():
    ids = tokenizer().encode("one two three")
    for _ in range(2):
        generator, _ = make(Scripted(1, ids * 3))
        params = PARAMS | {"n_predict": 40}
        (*_, result) = StreamGenerator(
            generator, tokenizer(), tokenizer().piece(60), 0, params, stop_token_ids=[ids[-1]]
        )
        assert (result["text"], result["finish_reason"]) == (tokenizer().decode(ids[:-1]), "stop")
    generator, _ = make(Scripted(1, ids * 3))
    (*_, result) = StreamGenerator(
        generator, tokenizer(), tokenizer().piece(60), 0, PARAMS | {"n_predict": 4}
    )
    assert (result["finish_reason"], result["usage"]["completion_tokens"]) == ("length", 4)


def test_parameters():
    generator, _ = make()
    warm = PARAMS | {"temp": 1.0, "seed": 7}
    texts = [
        list(StreamGenerator(generator, tokenizer(), "the quick", 0, warm))[-1]["text"] for _ in range(2)
    ]
    assert texts[0] == texts[1]
    assert (
        list(StreamGenerator(generator, tokenizer(), "the quick", 0, PARAMS | {"temp": 1.0, "top_p": 0.0}))[
            -1
        ]["text"]
        == list(StreamGenerator(generator, tokenizer(), "the quick", 0, PARAMS))[-1]["text"]
    )
    wide = PARAMS | {"temp": 1.0, "seed": 7, "top_p": 1.5, "repeat_penalty": 0.0, "top_k": -1}
    assert list(StreamGenerator(generator, tokenizer(), "the quick", 0, wide))[-1]["text"] == texts[0]
    below = PARAMS | {"temp": 1.0, "top_p": -1.0}
    assert (
        list(StreamGenerator(generator, tokenizer(), "the quick", 0, below))[-1]["text"]
        == list(StreamGenerator(generator, tokenizer(), "the quick", 0, PARAMS))[-1]["text"]
    )
    with pytest.raises(BadSetting, match="start_pos is 10000"):
        next(StreamGenerator(generator, tokenizer(), "the", 10000, PARAMS, chunk_prefilling=True))


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, (0.7, 0.95, 40, 1.1, None)), ({"temp": 0.005, "seed": 0}, (0.01, 0.95, 40, 1.1, 0)),
        ({"temp": 1e-6, "top_p": 0.5}, (0.0, 1.0, 40, 1.1, None)),
        ({"temp": 1e-5}, (0.01, 0.95, 40, 1.1, None)),
        ({"top_p": 1e-9}, (0.0, 1.0, 40, 1.1, None)), ({"top_p": 2, "top_k": -3}, (0.7, 1.0, 0, 1.1, None)),
        ({"repeat_penalty": 0.9, "seed": -5}, (0.7, 0.95, 40, 1.0, None)),
    ],
)  # fmt: skip
def test_parameters_that_are_left_out_or_mean_off(params, expected):
    found, seed = tinychat._sampler(params.get)
    assert (found.temperature, found.top_p, found.top_k, found.repetition_penalty, seed) == expected
    assert (found.min_p, found.order) == (0.0, ("temperature", "repetition", "occurrence", "top_p", "top_k"))


def test_an_abandoned_turn_gives_its_pages_back():
    generator, _ = make()
    turn = StreamGenerator(generator, tokenizer(), "the quick brown", 0, PARAMS)
    next(turn)
    turn.close()
    table = generator.cache.table
    assert table.free + table.idle == table.page_count


def test_an_abandoned_turn_can_be_gone_on_from():
    generator, _ = make()
    turn = StreamGenerator(
        generator, tokenizer(), "the cat", 0, PARAMS | {"n_predict": 30}, chunk_prefilling=True
    )
    for state in turn:
        if state["usage"]["completion_tokens"] >= 4:
            break
    turn.close()
    start = state["usage"]["total_tokens"]
    cat = tokenizer().encode("the cat")
    written = state["usage"]["completion_tokens"]
    ids = [*cat, *fresh_reply(cat, written), *tokenizer().encode(" and")]
    assert start == len(cat) + written
    *_, last = StreamGenerator(
        generator, tokenizer(), " and", start, PARAMS | {"n_predict": 6}, chunk_prefilling=True
    )
    assert last["text"] == tokenizer().decode([*ids, *fresh_reply(ids, 6)]).removeprefix(
        tokenizer().decode(ids)
    )
    with pytest.raises(BadSetting, match="stream_interval"):
        next(StreamGenerator(generator, tokenizer(), "x", 0, PARAMS, stream_interval=0))


def test_generators_for_pictures_are_refused_by_name():
    for name in ("LlavaStreamGenerator", "NVILAStreamGenerator", "InternVLStreamGenerator"):
        with pytest.raises(NotSupportedYet, match=f"`{name}` is not supported here: pictures"):
            getattr(tinychat, name)(None)
    with pytest.raises(NotSupportedYet, match="gen_params"):
        tinychat.prepare_logits_processor(1.0, 1.0, 1.0, 1)
    with pytest.raises(AttributeError, match="no_such"):
        _ = tinychat.no_such
