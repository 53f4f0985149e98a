"""The pieces and the end of a text in the form of llama.cpp's server."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import Stats
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.replies import Ended, Reading, Score, Written
from engine.server.texts.completion import _Choice, _prompts

STATS = Stats(
    prompt_tokens=9, prefill_tokens=4, cached_tokens=5, new_tokens=2, context_tokens=11, prefill_seconds=0.5,
    decode_seconds=0.25, seed=77,
)  # fmt: skip
A, B = Score(5, b"a", -0.5, (Score(6, b"b", -1.5),)), Score(6, b"b\n", -1.0)


def choice(index: int = 0, **fields: Any) -> _Choice:
    return _Choice(index, "Hello", ServedModel("tiny", context_length=64), Fields(fields))


def test_pieces_count_what_was_read_and_written() -> None:
    assert choice().piece("", ())["tokens_evaluated"] == 0
    written = choice(2)
    assert written.feed(Reading(3, 9, 5)) is None
    first, second = written.feed(Written("a", 1)), written.feed(Written("b", 2))
    assert first == {
        "index": 2, "id_slot": 0, "stop": False, "content": "a", "tokens": [], "tokens_predicted": 1,
        "tokens_evaluated": 9,
    }  # fmt: skip
    assert second is not None
    assert (second["content"], second["tokens_predicted"]) == ("b", 3)
    assert written.feed(Ended("max_tokens", "", STATS)) is None


def test_the_end_has_the_speed_of_both_stages() -> None:
    written = choice()
    for event in (Written("a", 1), Written("b\n", 1), Ended("max_tokens", "", STATS)):
        written.feed(event)
    found = written.whole(streamed=False)
    assert (found["content"], found["has_new_line"], found["stop"]) == ("ab\n", True, True)
    assert (found["tokens_predicted"], found["tokens_evaluated"], found["tokens_cached"]) == (2, 9, 11)
    assert (found["prompt"], found["truncated"], found["model"]) == ("Hello", False, "tiny")
    assert found["generation_settings"] == {"n_ctx": 64, "seed": 77}
    assert found["timings"] == {
        "cache_n": 5, "prompt_n": 4, "prompt_ms": 500.0, "prompt_per_token_ms": 125.0,
        "prompt_per_second": 8.0,
        "predicted_n": 2, "predicted_ms": 250.0, "predicted_per_token_ms": 125.0,
        "predicted_per_second": 8.0,
    }  # fmt: skip
    assert written.whole(streamed=True)["content"] == ""


def test_a_prompt_that_was_read_before_has_no_speed() -> None:
    written = choice()
    written.feed(Ended("stop_token", "", Stats(cached_tokens=9)))
    timings = written.whole(streamed=False)["timings"]
    assert (timings["prompt_n"], timings["prompt_per_token_ms"], timings["prompt_per_second"]) == (
        0,
        0.0,
        0.0,
    )


@pytest.mark.parametrize(
    ("reason", "trigger", "kind", "word"),
    [
        ("max_tokens", "", "limit", ""), ("context_full", "", "limit", ""), ("time_limit", "", "limit", ""),
        ("loop", "x", "limit", ""), ("stop_string", "You:", "word", "You:"),
        ("stop_token", "</s>", "eos", ""),
    ],
)  # fmt: skip
def test_why_it_ended(reason: str, trigger: str, kind: str, word: str) -> None:
    written = choice()
    written.feed(Ended(reason, trigger, STATS))
    found = written.whole(streamed=False)
    assert (found["stop_type"], found["stopping_word"]) == (kind, word)


def test_ids_and_probabilities_come_where_they_are_asked_for() -> None:
    first = {"id": 5, "token": "a", "bytes": [97], "logprob": -0.5}
    top = {"id": 6, "token": "b", "bytes": [98], "logprob": -1.5}
    ids, probabilities, neither = choice(return_tokens=True), choice(n_probs=1), choice(n_probs=0)
    assert (ids.logprobs, probabilities.logprobs, neither.logprobs) == (True, True, False)
    for one in (ids, probabilities, neither):
        one.feed(Written("ab\n", 2, (A, B)))
        one.feed(Ended("stop_token", "", STATS))
    found = ids.whole(streamed=False)
    assert found["tokens"] == [5, 6]
    assert "completion_probabilities" not in found
    found = probabilities.whole(streamed=False)
    assert found["tokens"] == []
    assert found["completion_probabilities"][0] == {**first, "top_logprobs": [top]}
    assert found["completion_probabilities"][1]["top_logprobs"] == []
    assert "completion_probabilities" not in neither.whole(streamed=False)


@pytest.mark.parametrize(
    ("prompt", "prompts", "several"),
    [
        ("a", ["a"], False), (["a", "b"], ["a", "b"], True), ([1, 2], [(1, 2)], False),
        ([1, "a"], [(1, "a")], False), (["a"], ["a"], True), ([[1, 2], "a"], [(1, 2), "a"], True),
    ],
)  # fmt: skip
def test_lists_of_prompts_and_prompts_that_are_lists(prompt: Any, prompts: list[Any], several: bool) -> None:
    found, listed = _prompts(Fields({"prompt": prompt}), 4, ServedModel("tiny"))
    assert ([tuple(one) if isinstance(one, list) else one for one in found], listed) == (prompts, several)
