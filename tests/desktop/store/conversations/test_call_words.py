"""A call of a tool as text."""

import json

import pytest

from desktop.blocks import Block, BlockSplitter, Kind
from desktop.store.conversations.call_words import INSIDE, call_brief, call_label, call_markdown
from desktop.store.conversations.tool_calls import NOT_ALLOWED, UNFINISHED, StoredCall

CALL = StoredCall("call_1", "files_read", '{"path":"/ä","deep":{"a":[1]}}', "files", "read")


@pytest.mark.parametrize(
    ("state", "result", "label"),
    [
        ("waiting", "", "The model wants to call read (files)"),
        ("running", "", "Calling read (files)…"),
        ("complete", "x", "Called read (files)"),
        ("failed", "x", "Calling read (files) failed"),
        ("stopped", UNFINISHED, "The call of read (files) was stopped"),
        ("stopped", NOT_ALLOWED, "The call of read (files) was not allowed"),
        ("complete", NOT_ALLOWED, "Called read (files)"),
    ],
)
def test_the_label(state: str, result: str, label: str) -> None:
    assert call_label(CALL, state, result) == label


def test_the_label_of_an_unknown_tool_is_one_harmless_line() -> None:
    call = StoredCall("1", "fly\nto\u202e{tool}", "{}")
    assert call_label(call, "failed", "") == "Calling fly to\\u202e{tool} failed"


def test_arguments_are_indented_and_the_result_stands_below() -> None:
    assert call_markdown(CALL, "It says\nno.") == (
        '```json\n{\n  "path": "/ä",\n  "deep": {\n    "a": [\n      1\n    ]\n  }\n}\n```\n\n'
        "```\nIt says\nno.\n```"
    )
    assert call_markdown(CALL._replace(arguments="{not"), "") == "```json\n{not\n```"
    assert call_markdown(CALL._replace(arguments="[" * 100_000), "").startswith("```json\n[[[")


@pytest.mark.parametrize(
    "result",
    ["```\nout", "a ````` b", "<think>\nno", "</think>", "# Title", "", "\0", "\n```\n\0\n</think>\n"],
)
def test_nothing_in_a_result_ends_its_fence(result: str) -> None:
    text = call_markdown(CALL, result or "x")
    blocks = [block for block in _blocks(text) if block.kind is not Kind.MARKUP]
    assert [block.kind for block in blocks] == [Kind.THINKING, Kind.CODE, Kind.CODE]
    assert blocks[2].body.strip("\n") == (result or "x").strip("\n").replace("\0", "\\u0000")
    assert all(block.thought for block in blocks[1:])


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\x1b", "\r", "\u200b", "\u2028", "\x85"])
def test_nothing_in_a_call_reorders_or_hides_what_is_shown(sign: str) -> None:
    escape = f"\\u{ord(sign):04x}"
    arguments = json.dumps({"path": f"a{sign}b"}, ensure_ascii=False)
    for call, result in ((CALL._replace(arguments=arguments), "x"), (CALL, f"a{sign}b")):
        shown = call_markdown(call, result)
        assert sign not in shown
        assert f"a{escape}b" in shown.replace("\\r", "\\u000d")
    assert sign not in call_brief(CALL._replace(arguments=arguments))
    again = (
        call_markdown(CALL._replace(arguments=arguments), "").removeprefix("```json\n").removesuffix("\n```")
    )
    assert json.loads(again) == {"path": f"a{sign}b"}


def test_text_of_any_script_and_emoji_stay_as_they_are() -> None:
    result = "می\u200cخواهم 👩\u200d🔬\tשלום\r\n終"
    assert result in call_markdown(CALL, result)


@pytest.mark.parametrize(
    ("arguments", "brief"),
    [
        ("{}", ""),
        ('{"path": "/ä", "rows": [1, 4], "all": true}', "/ä, [1, 4], true"),
        ('{"text": "two\\nlines"}', "two lines"),
        ("[1]", "[1]"),
        ("{not", "{not"),
        ('{"text": "' + "long " * 100 + '"}', "long " * 15 + "long…"),
    ],
)
def test_the_arguments_in_brief(arguments: str, brief: str) -> None:
    assert call_brief(CALL._replace(arguments=arguments)) == brief
    assert len(brief) <= 80


def _blocks(text: str) -> list[Block]:
    splitter = BlockSplitter((), INSIDE)
    splitter.feed(text)
    return [each for each in splitter.blocks(ended=True) if each.source.strip() or each.kind is Kind.THINKING]
