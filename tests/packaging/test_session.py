"""What the proof takes for a reply, with no machine."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from tests.packaging.session import Program

ASKED = ("user", "complete", "Who?")


def program(monkeypatch: pytest.MonkeyPatch, *reply: str) -> tuple[Program, list[str]]:
    """A program whose only reply has this state and text, and the keys that are pressed."""
    made, pressed = object.__new__(Program), list[str]()
    monkeypatch.setattr(made, "said", lambda _data: [ASKED, ("assistant", *reply)], raising=False)
    screen = SimpleNamespace(keys=lambda _title, *keys: pressed.extend(keys))
    monkeypatch.setattr(made, "screen", screen, raising=False)
    return made, pressed


@pytest.mark.parametrize(
    ("state", "text", "left_s", "keys"),
    [("running", "Ada. Ada.", 9, []), ("running", "Ada. Ada.", -9, ["Escape"]), ("running", "", -9, [])],
)
def test_a_reply_without_end_is_stopped(
    monkeypatch, state: str, text: str, left_s: int, keys: list[str]
) -> None:
    made, pressed = program(monkeypatch, state, text)
    assert made._reply(0, "", time.monotonic() + left_s) == ""
    assert pressed == keys


@pytest.mark.parametrize("state", ["complete", "stopped"])
def test_its_text_is_taken_when_it_has_ended(monkeypatch, state: str) -> None:
    made, pressed = program(monkeypatch, state, "Ada.")
    assert made._reply(0, "", 0.0) == "Ada."
    assert pressed == []


def test_a_failed_reply_is_none(monkeypatch) -> None:
    made, _ = program(monkeypatch, "failed", "Ada.")
    with pytest.raises(AssertionError):
        made._reply(0, "", 0.0)
