"""A call of a tool as the window shows it: a line about it, and its arguments and result as Markdown."""

from __future__ import annotations

import json
import re

from desktop.store.conversations.tool_calls import NOT_ALLOWED, StoredCall
from engine.json_value import json_value
from engine.printable import one_line, printable
from engine.words import N_, translate

__all__ = ["INSIDE", "call_brief", "call_label", "call_markdown", "fenced"]

INSIDE = "\0"
"""Closes what a call's Markdown is in, which folds like a thought; the Markdown itself never has it."""
_RUN = re.compile("`{3,}")
_BRIEF = 80
_LABELS = {
    "waiting": N_("The model wants to call {tool}"),
    "running": N_("Calling {tool}…"),
    "complete": N_("Called {tool}"),
    "failed": N_("Calling {tool} failed"),
    "stopped": N_("The call of {tool} was stopped"),
}
_REFUSED = N_("The call of {tool} was not allowed")


def call_label(call: StoredCall, state: str, result: str) -> str:
    """What happens to a call, on one line: "Called read (files)"."""
    words = _REFUSED if state == "stopped" and result == NOT_ALLOWED else _LABELS[state]
    tool = f"{call.tool} ({call.server})" if call.server else call.name
    return translate(words, tool=one_line(tool))


def call_brief(call: StoredCall) -> str:
    """The values of a call's arguments on one line of at most 80 characters; empty if there are none."""
    found = json_value(call.arguments, call.arguments)
    values = list(found.values()) if isinstance(found, dict) else [found]
    brief = one_line(", ".join(value if isinstance(value, str) else _compact(value) for value in values))
    return brief if len(brief) <= _BRIEF else f"{brief[: _BRIEF - 1].rstrip()}…"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def call_markdown(call: StoredCall, result: str) -> str:
    """The arguments and the result of a call in fences that neither of them ends. Control, direction and
    invisible characters are escapes there.
    """
    # what moves the cursor or turns a line round would show another call
    parts = [fenced(printable(_indented(call.arguments)), "json")]
    if result:
        parts.append(fenced(printable(result)))
    return "\n\n".join(parts)


def _indented(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def fenced(text: str, language: str = "") -> str:
    """A block of code in a fence that the text does not end."""
    marks = "`" * max((len(run) + 1 for run in _RUN.findall(text)), default=3)
    return f"{marks}{language}\n{text}\n{marks}"
