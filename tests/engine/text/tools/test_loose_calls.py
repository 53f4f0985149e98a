"""Calls as models write them where they do not keep to their form: without the first tag, or in a thought
that never ends.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.core import CallPiece, Tool
from engine.text.template.channels import KIMI as CHANNEL_KIMI
from engine.text.tools.form import CHANNEL_FORMS, HERMES, KNOWN, CallForm
from engine.text.tools.parser import ToolParser

THINK = ("<think>", "</think>")
TOOLS = (Tool("weather", "", json.dumps({"properties": {"city": {"type": "string"}}})), Tool("clock"))
FORMS = dict(KNOWN)
CODER, KIMI = FORMS["<function="], FORMS["<|tool_calls_section_begin|>"]
DEEPSEEK = FORMS["<｜tool▁calls▁begin｜>"]
DEEPSEEK_CLOCK = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```<｜tool▁call▁end｜>"
OSLO, NONE = ("weather", {"city": "Oslo"}), ("clock", {})


def read(
    form: CallForm, reply: str, *, opened: str = "", in_thoughts: bool = False
) -> tuple[str, list[tuple[str, Any]]]:
    """The text and the calls of a reply, which are the same wherever it is cut in two."""
    found = [_read(form, pieces, opened, in_thoughts) for pieces in ([reply], list(reply))]
    found += [_read(form, [reply[:at], reply[at:]], opened, in_thoughts) for at in range(len(reply))]
    assert all(one == found[0] for one in found)
    return found[0][0], [(name, json.loads(arguments)) for name, arguments in found[0][1]]


def _read(
    form: CallForm, pieces: list[str], opened: str, in_thoughts: bool
) -> tuple[str, list[tuple[str, str]]]:
    parser = ToolParser(form, TOOLS, (THINK,), opened, in_thoughts=in_thoughts)
    text, calls = "", list[tuple[str, str]]()
    for piece in [one for part in pieces for one in parser.feed(part)] + parser.finish():
        if isinstance(piece, str):
            text += piece
        elif piece.name:
            calls.append((piece.name, piece.arguments))
        elif isinstance(piece, CallPiece):
            calls[-1] = calls[-1][0], calls[-1][1] + piece.arguments
    assert parser.calls == len(calls)
    return text, calls


FUNCTION = "<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>"
BEGIN, END = "<|tool_call_begin|>", "<|tool_call_end|>"
KIMI_OSLO = f'{BEGIN}functions.weather:0<|tool_call_argument_begin|>{{"city": "Oslo"}}'
KIMI_CLOCK = f"{BEGIN}functions.clock:1<|tool_call_argument_begin|>{{}}"
SEARCHED = f"<tool_call>\n{FUNCTION}\n</tool_call>"


@pytest.mark.parametrize(
    ("form", "reply", "text", "calls"),
    [
        (CODER, f"{FUNCTION}\n</tool_call>", "", [OSLO]),
        (CODER, f"Look:\n{FUNCTION}\n</tool_call>\n{SEARCHED}", "Look:", [OSLO, OSLO]),
        (CODER, FUNCTION, "", [OSLO]),
        (CODER, "Write <function=weather> there.", "Write <function=weather> there.", []),
        (CODER, "<function=other>\n</function>", "<function=other>\n</function>", []),
        (KIMI, f"Hm.{KIMI_OSLO}{END}<|tool_calls_section_end|>", "Hm.", [OSLO]),
        (KIMI, f"{KIMI_OSLO}{END}{KIMI_CLOCK}{END}", "", [OSLO, NONE]),
        (KIMI, f"{KIMI_OSLO}{KIMI_CLOCK}", "", [OSLO, NONE]),
        (DEEPSEEK, DEEPSEEK_CLOCK, "", [NONE]),
    ],
)
def test_a_call_may_lack_its_first_tag(
    form: CallForm, reply: str, text: str, calls: list[tuple[str, Any]]
) -> None:
    assert read(form, reply) == (text, calls)


LOOKED = "Let me look.\n"


@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        (f"{LOOKED}{SEARCHED}", LOOKED, [OSLO]),
        (f"{LOOKED}{SEARCHED}\n{SEARCHED}\n", LOOKED, [OSLO, OSLO]),
        (f"{SEARCHED}", "", [OSLO]),
        (f"{LOOKED}{FUNCTION}", LOOKED, [OSLO]),
        (f"{LOOKED}{SEARCHED}</think>", f"{LOOKED}{SEARCHED}</think>", []),
        (f"{LOOKED}{SEARCHED} or\n{SEARCHED}", f"{LOOKED}{SEARCHED} or\n", [OSLO]),
        (f"{LOOKED}{SEARCHED[:-5]}", LOOKED, [OSLO]),
        (f"{LOOKED}<tool_call> is\n</think>{SEARCHED}", f"{LOOKED}<tool_call> is\n</think>", [OSLO]),
        (f"{LOOKED}<tool_call>\nno</think>No.", f"{LOOKED}<tool_call>\nno</think>No.", []),
    ],
)
def test_a_call_may_end_a_thought_that_has_no_end(
    reply: str, text: str, calls: list[tuple[str, Any]]
) -> None:
    assert read(CODER, reply, opened=THINK[1]) == (text, calls)
    assert read(CODER, THINK[0] + reply) == (THINK[0] + text, calls)


def test_a_token_of_calls_ends_a_thought_in_its_short_form_too() -> None:
    assert read(KIMI, f"<think>Hm{KIMI_OSLO}{END}", in_thoughts=True) == ("<think>Hm", [OSLO])
    held = f"<think>Hm{KIMI_OSLO}{END} or"
    assert read(KIMI, held, in_thoughts=True) == ("<think>Hm or", [OSLO])
    assert read(KIMI, held) == (held, [])


def test_a_form_with_one_tag_has_no_short_form() -> None:
    assert HERMES.bare is None
    assert CallForm("object").bare is None
    assert CHANNEL_FORMS[CHANNEL_KIMI].bare is None  # which begins as the whole one does
