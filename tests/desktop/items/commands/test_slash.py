"""Slash commands that match what is typed."""

from __future__ import annotations

import pytest

from desktop.items.commands.slash import Entry, completed, escaped, matching, unescaped

ACTIONS = (
    Entry("preset", "Use a preset", "text"),
    Entry("system", "Change the system prompt", "text"),
    Entry("stop", "Stop"),
    Entry("next", "Answer as", "text"),
)
PROMPTS = (Entry("Summary", "Sum up", "prompt", "Sum up this text."),)
CHOICES = {"preset": ("Precise", "Creative"), "next": ()}


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("/", ["preset", "system", "stop", "Summary"]),  # "next" has no choice
        ("/S", ["system", "stop", "Summary"]),
        ("/st", ["stop"]),
        ("/preset ", ["preset Precise", "preset Creative"]),
        ("/Preset CREA", ["preset Creative"]),
        ("/preset none", []),
        ("/system Be brief", ["system"]),
        ("/system Be brief\nand kind", ["system"]),
        ("/stop now", []),
        ("/stop\n", []),
        ("//st", []),
        ("xst", []),
    ],
)
def test_commands_that_match(typed: str, words: list[str]) -> None:
    assert [entry.word for entry in matching(typed, ACTIONS, PROMPTS, CHOICES)] == words


def test_what_is_inserted_and_sent() -> None:
    assert [completed(entry) for entry in ACTIONS[1:3]] == ["/system ", "/stop"]
    assert [unescaped(text) for text in ("//etc", "/etc", "a//b")] == ["/etc", "/etc", "a//b"]
    assert [escaped(text) for text in ("/etc", "//etc", "a//b", "")] == ["//etc", "///etc", "a//b", ""]
