"""Parameters under the names of TabbyAPI and text-generation-webui."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.openai import parameters
from engine.server.openai.aliases import by_our_names
from engine.settings import SAMPLER_STEP_NAMES as STEPS
from engine.settings import TEMPERATURE_LAST, ConstraintSettings, GuidanceSettings, SamplerSettings

NEUTRAL = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ({"tfs": 0.5, "typical": 0.25}, {"tail_free": 0.5, "typical": 0.25}),
        ({"rep_pen": 1.5}, {"repetition_penalty": 1.5}),
        ({"penalty_range": 5}, {"repetition_range": 5}),
        ({"repetition_range": 5}, {"repetition_range": 5}),
        ({"repetition_penalty_range": 5}, {"repetition_range": 5}),
        ({"rep_pen_range": 5, "repetition_decay": 7}, {"repetition_range": 5, "repetition_decay": 7}),
        ({"typical_p": 0.75, "typical": 0.25}, {"typical": 0.75}),
        ({"smoothing_factor": 0.5, "skew": -2.0}, {"smoothing_factor": 0.5, "skew": -2.0}),
        ({"min_temp": 0.5, "max_temp": 2, "temp_exponent": 3},
         {"min_temperature": 0.5, "max_temperature": 2.0, "temperature_exponent": 3.0}),
        ({"dynatemp_low": 0.5, "dynatemp_high": 2, "dynamic_temperature": True},
         {"min_temperature": 0.5, "max_temperature": 2.0}),
        ({"dynatemp_low": 0.5, "dynatemp_high": 2, "dynamic_temperature": False}, {}),
        ({"dry_base": 0, "dry_allowed_length": 0, "dry_range": 9, "dry_multiplier": 0}, {}),
        ({"dry_base": 2, "dry_allowed_length": 3, "dry_range": 9, "dry_multiplier": 0.5},
         {"dry_multiplier": 0.5, "dry_base": 2.0, "dry_allowed_length": 3, "dry_range": 9}),
        ({"dry_penalty_last_n": -1, "dry_multiplier": 0.5}, {"dry_multiplier": 0.5}),
        ({"dry_sequence_breakers": '"\\n", ":"'}, {"dry_breakers": ("\\n", ":")}),
        ({"dry_sequence_breakers": ' ["a\\\\b"]'}, {"dry_breakers": ("a\\\\b",)}),
        ({"dry_sequence_breakers": ["\t", "x"]}, {"dry_breakers": ("\\t", "x")}),
        ({"temperature_last": True}, {"order": TEMPERATURE_LAST}),
        ({"temperature_last": False}, {}),
        ({"do_sample": False, "temperature": 3}, {"temperature": 0.0}),
        ({"mirostat_mode": 2, "mirostat_tau": 3}, {"mirostat": True, "mirostat_tau": 3.0}),
        ({"mirostat": True}, {"mirostat": True}),
        ({"mirostat": False}, {}),
    ],
)  # fmt: skip
def test_how_a_reply_is_sampled(body: dict[str, Any], changes: dict[str, Any]) -> None:
    assert parameters.sampler(by_our_names(Fields(body)), {}) == replace(NEUTRAL, **changes)


def test_the_temperature_comes_after_what_removes_tokens() -> None:
    assert {*TEMPERATURE_LAST} == {name for name, _ in STEPS}
    place = TEMPERATURE_LAST.index("temperature")
    for name in ("top_k", "top_p", "min_p", "typical", "top_a", "tail_free"):
        assert TEMPERATURE_LAST.index(name) < place
    assert TEMPERATURE_LAST[place + 1] == "dynamic_temperature"


def test_what_a_reply_must_not_contain() -> None:
    body = {
        "banned_strings": "x", "custom_token_bans": "5, 6", "allowed_token_ids": [7], "token_healing": True,
    }  # fmt: skip
    assert parameters.constraint(by_our_names(Fields(body)), None) == ConstraintSettings(
        banned_strings=("x",), banned_tokens=(5, 6), allowed_tokens=(7,), heal=True
    )
    for name, value, format in (
        ("regex_pattern", "a+", "regex"), ("grammar_string", 'root ::= "a"', "grammar"),
        ("json_schema", {"type": "object"}, "json_schema"),
    ):  # fmt: skip
        assert parameters.constraint(by_our_names(Fields({name: value})), None).format == format


def test_ends_of_replies() -> None:
    body = {"stop": ["a", 5], "stop_token_ids": [6], "min_length": 3, "max_length": 9, "ban_eos_token": True}
    fields = by_our_names(Fields(body))
    stops = parameters.stops(fields, parameters.most_tokens(fields, "max_tokens"))
    assert (stops.stop_strings, stops.stop_token_ids, stops.max_tokens) == (("a",), (6, 5), 9)
    assert stops.min_tokens >= 1 << 20
    assert parameters.stops(by_our_names(Fields({"min_length": 3, "stop_sequence": "b"})), 5).min_tokens == 3
    assert by_our_names(Fields({"auto_max_new_tokens": True, "max_tokens": 5})).get("max_tokens") == -1


def test_guidance_and_drafting() -> None:
    fields = by_our_names(Fields({"guidance_scale": 2, "negative_prompt": "x"}))
    assert parameters.guidance(fields) == GuidanceSettings("x", 2.0)
    assert parameters.guidance(Fields({})) == GuidanceSettings()
    for body, method in (
        ({"speculative_ngram": True}, "ngram"), ({"prompt_lookup_num_tokens": 3}, "ngram"),
        ({"prompt_lookup_num_tokens": 0, "speculative_ngram": False}, "none"), ({}, "none"),
    ):  # fmt: skip
        assert parameters.speculation(Fields(body)).method == method


def test_errors_name_what_was_sent() -> None:
    with pytest.raises(ApiError, match='tfs is "x", but a number from 0 to 1 was expected') as caught:
        parameters.sampler(by_our_names(Fields({"tfs": "x"}, "options")), {})
    assert caught.value.failure.param == "options.tfs"
    with pytest.raises(ApiError, match='tfs_z is "x"'):
        parameters.sampler(by_our_names(Fields({"tfs": 0.5, "tfs_z": "x"})), {})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"custom_token_bans": "5, x"}, "custom_token_bans"),
        ({"banned_tokens": "5, x"}, "banned_tokens"),
        ({"allowed_tokens": "-5"}, "allowed_tokens"),
        ({"dry_sequence_breakers": "[", "dry_multiplier": 1}, "dry_sequence_breakers"),
        ({"dry_sequence_breakers": "[" * 100_000, "dry_multiplier": 1}, "dry_sequence_breakers"),
    ],
)
def test_lists_that_are_none_are_refused(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        by_our_names(Fields(body))
    assert caught.value.failure.param == param
