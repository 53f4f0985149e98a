"""How much a model shall think, as names of chat templates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.parameters import chat_thinking, template_variables, thinking


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
    assert template_variables(Fields({})) == ""
