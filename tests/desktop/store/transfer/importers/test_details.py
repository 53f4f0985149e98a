"""Open WebUI's HTML `<details>` in replies: thoughts, tool calls and executed code, with odd values."""

from __future__ import annotations

import json
from html import escape
from typing import Any

import pytest

from desktop.store.transfer.importers.programs.open_webui.details import without_details


def details(kind: str, inner: str = "", **about: Any) -> str:
    given = "".join(f' {name}="{escape(json.dumps(value))}"' for name, value in about.items())
    return f'<details type="{kind}" done="true"{given}>\n<summary>Done</summary>{inner}\n</details>'


def block(words: str) -> str:
    return f"```\n{words}\n```"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("2", "2"), ({"stdout": "2", "result": "", "stderr": "w"}, "2\nstderr: w"),
        ({"stdout": "1", "result": "2"}, "1\n2"), ({"a": 1, "b": "é"}, '{\n  "a": 1,\n  "b": "é"\n}'),
        (["é"], '[\n  "é"\n]'), (json.dumps({"result": "twice"}), "twice"), ("{cut", "{cut"), (3, "3"),
    ],
)  # fmt: skip
def test_what_executed_code_returned(output: Any, expected: str) -> None:
    found = without_details(details("code_interpreter", "  print(2)", output=output))
    assert found == f"print(2)\n\n**Tool result**\n\n{block(expected)}"


def test_elements_without_a_result_or_an_end() -> None:
    assert without_details(details("code_interpreter", "x", output="")) == "x"
    assert without_details(details("tool_calls", name="f")) == '**Tool call: "f"**'
    for text in ("a <details", '<details type="reasoning" done', '<details type="reasoning">\nHm', "\n\na\n"):
        assert without_details(text) == text
    assert without_details(f"{details('reasoning', 'a')}b") == "<think>\na\n</think>\n\nb"


@pytest.mark.parametrize(
    ("inner", "thought"),
    [
        ("> a\n \n> b", "a\n \nb"), ("&gt; a &lt;b&gt;", "a <b>"), ("> a\nb", "> a\nb"),
        (">a &lt;", "a &lt;"), ("> > a", "> a"),
    ],
)  # fmt: skip
def test_quote_marks_of_thoughts(inner: str, thought: str) -> None:
    assert without_details(details("reasoning", f"\n{inner}")) == f"<think>\n{thought}\n</think>"
