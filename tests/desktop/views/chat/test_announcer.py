"""What a screen reader hears of replies: beginning and end, and their sentences if the user wants that."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from desktop.blocks import BlockSplitter, split
from desktop.blocks.spoken_text import SENTENCE, spoken_reply, spoken_so_far
from desktop.settings import Appearance, Behaviour
from desktop.views.chat import announcer as module
from tests.desktop.hand import Hand

REPLY = """<think>Not said.</think># The *Nile*

It is [long](https://example.org). Is it the longest?

- first
- second

```python
x = 1
print(x)
```

| river | km |
|---|---|
| Nile | 6650 |
"""
FORMULA = "\n$$a^2$$\n\n"
WORDS = [
    "The Nile", "It is long. Is it the longest?", "first", "second", "Code in python, 2 lines.",
    "A table with 2 rows.",
]  # fmt: skip


@pytest.fixture
def hand(qtbot: QtBot, tmp_path: Path) -> Iterator[Hand]:
    made = Hand(qtbot, tmp_path)
    yield made
    made.close()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(module, "announce", lambda _widget, text: found.append(text))
    return found


def announce_replies(hand: Hand, how: str) -> None:
    hand.session.set_settings(replace(hand.session.settings(Behaviour), announce_replies=how))


def test_a_reply_is_said_without_thoughts_and_marks() -> None:
    assert spoken_reply(split(REPLY + FORMULA)).splitlines() == [*WORDS, "Formula: a squared."]


def test_more_of_a_reply_never_changes_what_was_said() -> None:
    reply = REPLY + FORMULA
    whole = spoken_reply(split(reply))
    for end in range(len(reply)):
        splitter = BlockSplitter()
        splitter.feed(reply[:end])
        part = spoken_so_far(splitter, ended=False)
        said = [found.end() for found in SENTENCE.finditer(part)]
        assert whole.startswith(part[: said[-1]] if said else "")


def test_sentences_are_said_as_they_are_complete_and_none_twice(
    hand: Hand, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EACH_MS", 0)
    hand.load()
    announce_replies(hand, "sentence")
    gates = {8: threading.Event(), 14: threading.Event()}
    hand.echo.chat.reply, hand.echo.chat.pauses = REPLY, gates
    hand.type("Tell me")
    hand.press(Qt.Key.Key_Return)
    for gate, said in zip(gates.values(), WORDS, strict=False):
        hand.qtbot.waitUntil(lambda said=said: heard[-1].endswith(said))
        gate.set()
    hand.qtbot.waitUntil(lambda: heard[-1].startswith("The reply has ended: "))
    begin = heard.index("Generating the reply")
    assert " ".join(heard[begin + 1 : -1]) == " ".join(WORDS)
    assert len(heard) - begin > 3, "it was said in pieces"
    assert re.fullmatch(r"The reply has ended: \d+ tokens, .* tokens per second", heard[-1])


def test_a_thought_that_the_prompt_had_opened_is_not_said_after_its_end(
    hand: Hand, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EACH_MS", 0)
    hand.load()
    announce_replies(hand, "sentence")
    hand.echo.chat.reply = "Let me see.\n</think>\nIt is the Nile. It is long."
    hand.say("Tell me")
    assert " ".join(heard[heard.index("Generating the reply") + 1 : -1]) == "It is the Nile. It is long."


def test_the_whole_reply_is_said_at_its_end(hand: Hand, heard: list[str]) -> None:
    hand.load()
    announce_replies(hand, "whole")
    hand.session.set_settings(replace(hand.session.settings(Appearance), token_colours="probability"))
    hand.echo.chat.reply = REPLY
    hand.say("Tell me")
    assert heard[heard.index("Generating the reply") + 1 : -1] == [" ".join(WORDS)]


def test_a_stopped_reply_says_so(hand: Hand, heard: list[str]) -> None:
    hand.load()
    hand.echo.chat.reply, hand.echo.chat.delay_s = "word " * 5000, 0.01
    hand.type("Tell me")
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: hand.items()[-1].text.startswith("word"))
    hand.session.stop()
    hand.wait_for("idle")
    assert heard[-1].startswith("The reply has ended: stopped by you")


def test_a_long_load_says_how_far_it_is(
    hand: Hand, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.load()
    assert heard == ["Loading the model", "echo is ready"]
    monkeypatch.setattr(module, "_PROGRESS_SECONDS", 0.0)
    hand.load("second.gguf")
    assert heard[-2:] == ["Loading weights, 50 percent", "second is ready"]
