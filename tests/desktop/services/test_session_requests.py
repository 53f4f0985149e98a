"""What a reply is asked with, how it begins inside another one, and what is told while it runs."""

from __future__ import annotations

import threading

import pytest

from engine.core import Stats
from engine.settings import (
    ConstraintSettings,
    GuidanceSettings,
    OutputSettings,
    SamplerSettings,
    Settings,
    SpeculationSettings,
    StopSettings,
)
from tests.desktop.services.conftest import Desk

CHANGED: tuple[Settings, ...] = (
    SamplerSettings(top_k=7),
    StopSettings(max_tokens=99),
    SpeculationSettings(method="ngram"),
    ConstraintSettings(banned_strings=("no",), heal=True),
    GuidanceSettings(negative_prompt="Be rude.", cfg_scale=2.0),
    OutputSettings(alternatives=3),
)


def test_the_request_has_all_settings_in_force(talking: Desk) -> None:
    for settings in CHANGED:
        assert talking.session.set_settings(settings)
    talking.ask("hello")
    asked = talking.chat.requests[-1]
    assert (asked.sampler, asked.stops, asked.speculation, asked.constraint, asked.guidance, asked.output) == CHANGED
    assert not asked.continue_last
    assert asked.continue_ids == ()


def test_a_branch_begins_with_its_text_and_goes_on(talking: Desk) -> None:
    talking.session.set_settings(ConstraintSettings(heal=True))
    talking.chat.reply = "one two three four"
    talking.ask("count")
    talking.ask("more")
    reply = talking.ids()[1]
    talking.chat.hold = threading.Event()
    assert talking.session.branch(reply, "one TWO", [1, 1002])
    item = talking.session.messages.items()[-1]
    assert (item.text, item.running, item.variant_index, item.variant_count) == ("one TWO", True, 1, 2)
    assert talking.saved() == ["count", "one TWO"]
    talking.chat.hold.set()
    talking.until_idle()
    assert talking.texts() == ["count", "one TWO three four"] == talking.saved()
    asked = talking.chat.requests[-1]
    assert [message.content for message in asked.messages] == ["count", "one TWO"]
    assert (asked.continue_last, asked.continue_ids) == (True, (1, 1002))
    assert not asked.constraint.heal  # the chosen token stays
    assert talking.session.show_variant(item.id, -1)
    assert talking.texts() == ["count", "one two three four", "more", "one two three four"]


def test_a_branch_of_white_space_is_continued_too(talking: Desk) -> None:
    talking.ask("count")
    assert talking.session.branch(talking.ids()[1], "\n", [198])
    talking.until_idle()
    assert talking.chat.requests[-1].continue_last
    assert talking.chat.requests[-1].messages[-1].content == "\n"
    assert talking.texts()[1].startswith("\n")


@pytest.mark.parametrize("what", ["own message", "unknown", "busy"])
def test_branches_that_cannot_be(talking: Desk, what: str) -> None:
    talking.ask("one two")
    own, reply = talking.ids()
    if what == "busy":
        talking.chat.hold = threading.Event()
        talking.session.submit("three")
    before = talking.saved()
    assert not talking.session.branch({"own message": own, "unknown": 999, "busy": reply}[what], "one", [1])
    assert talking.saved() == before
    assert ("still being" if what == "busy" else "Only a reply that is shown") in talking.notices()[-1]
    if talking.chat.hold is not None:
        talking.chat.hold.set()
    talking.until_idle()


def test_figures_while_it_runs(talking: Desk) -> None:
    talking.session.set_settings(SpeculationSettings(method="ngram"))
    talking.chat.running_every = 5
    talking.ask(" ".join("abcdefghijk"))
    told = [stats for (stats,) in talking.said["running_changed"]]
    assert [stats.new_tokens for stats in told] == [5, 10]
    assert all(isinstance(stats, Stats) for stats in told)
    assert told[-1].acceptance_rate == 0.75
    footer = talking.session.messages.items()[-1].footer
    assert "3.3 tokens per pass, 75 % of drafts kept" in footer


def test_figures_of_another_conversation_are_told_when_one_comes_to_it(talking: Desk) -> None:
    talking.ask("elsewhere")
    other = talking.session.conversation
    talking.session.new_conversation()
    mine = talking.session.conversation
    talking.chat.running_every, talking.chat.delay_s = 1, 0.005
    talking.chat.reply = "word " * 2000
    talking.session.submit("go")
    talking.qtbot.waitUntil(lambda: bool(talking.said["running_changed"]))
    talking.session.open_conversation(other)
    told = len(talking.said["running_changed"])
    talking.qtbot.wait(60)
    assert len(talking.said["running_changed"]) == told
    talking.session.open_conversation(mine)
    assert len(talking.said["running_changed"]) == told + 1
    talking.session.stop()
    talking.until_idle()


def test_avoided_phrases_are_told_and_counted(talking: Desk) -> None:
    talking.chat.suppressed = {2: " very bad", 3: " worse"}
    seen: list[str] = []
    talking.session.messages.dataChanged.connect(lambda first, last: seen.append(talking.session.messages.items()[-1].footer))
    talking.ask("a b c d")
    assert talking.said["avoided"] == [(1, " very bad"), (2, " worse")]
    assert "1 banned phrase avoided" in seen
    reply = talking.session.messages.items()[-1]
    assert reply.footer.endswith("2 banned phrases avoided")
    assert reply.text == "a b c d"
    assert talking.store.message(reply.id).stats["avoided"] == 2
