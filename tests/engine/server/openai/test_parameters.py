"""Parameters of requests as settings: sampling, ends, bias, and how much a model shall think."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.openai.parameters import (
    chat_thinking,
    checked_choices,
    constraint,
    logprobs,
    most_tokens,
    sampler,
    stops,
    template_variables,
    thinking,
)
from engine.settings import SamplerSettings, StopSettings

NEUTRAL = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ({}, {}),
        ({"temperature": None, "top_p": 0.5, "min_p": 0}, {"top_p": 0.5}),
        ({"top_k": -1}, {}),
        ({"top_k": 7.0}, {"top_k": 7}),
        ({"seed": -1}, {}),
        ({"seed": 5}, {"seed": 7}),
        ({"seed": (1 << 63) - 1}, {"seed": 1}),
        ({"repeat_penalty": 1.25, "typical_p": 0.5}, {"repetition_penalty": 1.25, "typical": 0.5}),
        ({"xtc_probability": 0.5, "dry_multiplier": 0.75}, {"xtc_probability": 0.5, "dry_multiplier": 0.75}),
    ],
)
def test_how_the_third_choice_is_sampled(body: dict[str, Any], changes: dict[str, Any]) -> None:
    assert sampler(Fields(body), {}, 2) == replace(NEUTRAL, **changes)


def test_what_a_request_does_not_name_is_as_the_models_authors_recommend() -> None:
    found = sampler(Fields({"top_p": 0.5}), {"temperature": 0.6, "top_p": 0.9})
    assert found == replace(NEUTRAL, temperature=0.6, top_p=0.5)


def test_ends_of_replies() -> None:
    body = {
        "stop": ["a", "", "b"], "min_tokens": 3, "stop_token_ids": [1, 2], "include_stop_str_in_output": True,
        "t_max_predict_ms": 1500,
    }  # fmt: skip
    expected = StopSettings(
        max_tokens=9, min_tokens=3, stop_strings=("a", "b"), stop_token_ids=(1, 2), keep_stop=True,
        when_full="stop", time_limit=1.5,
    )  # fmt: skip
    assert stops(Fields(body), 9) == expected
    assert stops(Fields({"end": "x"}), None, "end", "drop_oldest") == StopSettings(
        max_tokens=0, min_tokens=0, stop_strings=("x",), when_full="drop_oldest"
    )
    assert stops(Fields({"ignore_eos": True}), 5).min_tokens >= 1 << 20
    assert [most_tokens(Fields(each), "n") for each in ({}, {"n": -1}, {"n": 5})] == [None, 0, 5]
    assert most_tokens(Fields({"n": 2**31 - 1}), "n") == 1 << 20, "clients write it for no limit"


def test_bias_choices_and_alternatives() -> None:
    assert constraint(Fields({"logit_bias": {"5": 2, "6": -0.5}}), None).logit_bias == ("5 = 2.0", "6 = -0.5")
    most = {str(n): 1 for n in range(4096)}
    assert len(constraint(Fields({"logit_bias": most}), None).logit_bias) == 4096
    with pytest.raises(ApiError, match="more than 4096 tokens"):
        constraint(Fields({"logit_bias": most | {"4096": 1}}), None)
    assert [checked_choices(Fields(each), 4) for each in ({}, {"n": 2}, {"n": 4, "best_of": 4})] == [1, 2, 4]
    for body, count in (
        ({}, None), ({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 20}, 20),
        ({"top_logprobs": 0}, None),
    ):  # fmt: skip
        assert logprobs(Fields(body)) == count


@pytest.mark.parametrize("body", [{"top_k": -2}, {"mirostat": 1}, {"mirostat": 3}])
def test_values_without_a_meaning_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match=next(iter(body))):
        sampler(Fields(body), {})


@pytest.mark.parametrize(
    ("effort", "switch", "expected"),
    [
        (None, None, "auto"),
        ("none", None, "off"),
        ("minimal", None, "minimal"),
        ("medium", None, "medium"),
        ("xhigh", None, "xhigh"),
        ("max", False, "off"),
        ("low", True, "low"),
        (None, True, "on"),
        (None, False, "off"),
    ],
)
def test_thinking(effort: str | None, switch: bool | None, expected: str) -> None:
    assert thinking(Fields({"effort": effort}), "effort", switch).thinking == expected
    if effort is None:
        assert thinking(None, "effort", switch).thinking == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, "auto"),
        ({"reasoning_effort": "low"}, "low"),
        ({"reasoning": {"effort": "high"}}, "high"),
        ({"reasoning": {"enabled": False}}, "off"),
        ({"reasoning": {"enabled": True}}, "on"),
        ({"reasoning": {}}, "auto"),
        ({"reasoning": {"effort": "high"}, "reasoning_effort": "low"}, "low"),
    ],
)
def test_the_thinking_of_a_chat_request(body: dict[str, Any], expected: str) -> None:
    assert chat_thinking(Fields(body)).thinking == expected


def test_an_unknown_effort_is_refused() -> None:
    with pytest.raises(ApiError, match=r"reasoning\.effort"):
        thinking(Fields({"effort": "huge"}, "reasoning"), "effort")


def test_further_names_for_the_template() -> None:
    fields = Fields({"chat_template_kwargs": {"enable_thinking": False, "more": 1}})
    assert json.loads(template_variables(fields)) == {"enable_thinking": False, "more": 1}
    assert template_variables(Fields({})) == template_variables(Fields({"documents": None})) == ""
    documents = [{"title": "T", "text": "D"}]
    fields = Fields({"documents": documents, "chat_template_kwargs": {"more": 1}})
    assert json.loads(template_variables(fields)) == {"documents": documents, "more": 1}
    with pytest.raises(ApiError, match="documents"):
        template_variables(Fields({"documents": ["D"]}))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "a.b is missing; a text was expected."),
        ([1, "é"], 'a.b is [1, "é"], but a text was expected.'),
        ("x" * 58, f'a.b is "{"x" * 58}", but a text was expected.'),
        ("x" * 59, f'a.b is "{"x" * 58}…, but a text was expected.'),
    ],
)
def test_a_wrong_field_is_named_with_what_it_holds(value: Any, words: str) -> None:
    failure = Fields({"b": value}, "a").wrong("b", "a text").failure
    assert (failure.message, failure.param, failure.status) == (words, "a.b", 400)
