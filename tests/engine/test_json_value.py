"""JSON of strangers: values, and what has none."""

from __future__ import annotations

import pytest

from engine.json_value import json_value

NESTED = "[" * 200_000


def test_a_text_has_its_value() -> None:
    assert json_value('{"a": [1, null]}') == {"a": [1, None]}
    assert json_value("null", "otherwise") is None
    assert json_value(b"\xc3\xa9".join((b'"', b'"'))) == "é"


@pytest.mark.parametrize("text", ["", "{", "nan?", b"\xff\xfe\xfa", NESTED, "9" * 5000])
def test_what_is_not_json_has_none(text: str | bytes) -> None:
    assert json_value(text) is None
    assert json_value(text, {}) == {}
