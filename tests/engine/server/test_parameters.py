"""How much a model shall think, as names of chat templates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.parameters import template_variables, thinking

ON = {"enable_thinking": True, "thinking": True}
OFF = {"enable_thinking": False, "thinking": False}


@pytest.mark.parametrize(
    ("effort", "switch", "expected"),
    [
        (None, None, {}),
        ("none", None, {"reasoning_effort": "low", **OFF}),
        ("minimal", None, {"reasoning_effort": "low", **OFF}),
        ("medium", None, {"reasoning_effort": "medium", **ON}),
        ("xhigh", None, {"reasoning_effort": "high", **ON}),
        ("max", False, {"reasoning_effort": "high", **OFF}),
        (None, True, ON),
        (None, False, OFF),
    ],
)
def test_thinking(effort: str | None, switch: bool | None, expected: dict[str, Any]) -> None:
    assert thinking(Fields({"effort": effort}), "effort", switch) == expected
    if effort is None:
        assert thinking(None, "effort", switch) == expected


def test_an_unknown_effort_is_refused() -> None:
    with pytest.raises(ApiError, match=r"reasoning\.effort"):
        thinking(Fields({"effort": "huge"}, "reasoning"), "effort")


def test_what_the_request_says_of_the_template_comes_first() -> None:
    fields = Fields({"chat_template_kwargs": {"enable_thinking": False, "more": 1}})
    assert json.loads(template_variables(fields, ON)) == {
        "thinking": True,
        "enable_thinking": False,
        "more": 1,
    }
    assert json.loads(template_variables(Fields({}), OFF)) == OFF
    assert template_variables(Fields({})) == ""
