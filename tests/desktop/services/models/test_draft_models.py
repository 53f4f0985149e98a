"""Which models can draft, checked off the GUI thread for each loaded model."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from desktop.items.models.local_models import ModelEntry, entry
from desktop.services.models.draft_models import ITSELF, DraftCandidate, DraftModelService
from engine.errors import BadCheckpoint
from tests.desktop.fakes import ECHO_INFO


class Judge:
    """Refuses "other...", cannot read "broken...", has a bug with "odd..."; counts its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.threads: set[int] = set()
        self.gate: threading.Event | None = None
        self.verdict = ""

    def __call__(self, target: Path, draft: Path) -> str:
        self.calls.append((target.name, draft.name))
        self.threads.add(threading.get_ident())
        if self.gate is not None:
            self.gate.wait(10)
        if draft.name.startswith("broken"):
            raise BadCheckpoint(f"The file {draft.name} ends too early: fetch it again.")
        if draft.name.startswith("odd"):
            raise ZeroDivisionError
        return "Its vocabulary is another one." if draft.name.startswith("other") else self.verdict


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture
def drafts(qtbot: QtBot, judge: Judge) -> Iterator[DraftModelService]:
    found = DraftModelService(judge)
    yield found
    assert found.close()


def entries(folder: Path, *names: str) -> tuple[ModelEntry, ...]:
    for name in names:
        (folder / name).write_bytes(b"x")
    return tuple(ModelEntry(str(folder / name), name) for name in names)


def known(drafts: DraftModelService) -> dict[str, str | None]:
    return {candidate.entry.name: candidate.problem for candidate in drafts.candidates}


def until_known(qtbot: QtBot, drafts: DraftModelService) -> dict[str, str | None]:
    qtbot.waitUntil(lambda: None not in known(drafts).values())
    return known(drafts)


def test_every_candidate_gets_an_answer(
    qtbot: QtBot, drafts: DraftModelService, judge: Judge, tmp_path: Path
) -> None:
    found = entries(tmp_path, "big", "small", "other", "broken", "odd", "later")
    judge.gate = threading.Event()
    drafts.set_entries((*found, ModelEntry("/nowhere", "gone", trouble="There is no model.")))
    assert drafts.candidates == ()
    assert judge.calls == []
    drafts.set_target(str(tmp_path / "big"))
    assert known(drafts) == dict.fromkeys(("big", "small", "other", "broken", "odd", "later")) | {
        "gone": "There is no model."
    }
    judge.gate.set()
    answers = until_known(qtbot, drafts)
    assert answers["big"] == ITSELF
    assert (answers["small"], answers["later"]) == ("", "")
    assert answers["other"] == "Its vocabulary is another one."
    assert "ends too early" in str(answers["broken"])
    assert "could not be compared" in str(answers["odd"])
    assert threading.get_ident() not in judge.threads


def test_an_assistant_is_checked_though_it_is_no_model_to_load(
    qtbot: QtBot, drafts: DraftModelService, judge: Judge, tmp_path: Path
) -> None:
    found = entry(
        dataclasses.replace(ECHO_INFO, path=str(tmp_path / "helper"), name="helper", assistant=True)
    )
    unread = ModelEntry(str(tmp_path / "damaged"), "damaged", trouble="It is damaged.")
    drafts.set_entries((found, unread))
    drafts.set_target(str(tmp_path / "big.gguf"))
    assert until_known(qtbot, drafts) == {"helper": "", "damaged": "It is damaged."}
    assert judge.calls == [("big.gguf", "helper")]
    assert {each.entry.name: each.assistant for each in drafts.candidates} == {
        "helper": True,
        "damaged": False,
    }
    assert not DraftCandidate(entry(ECHO_INFO)).assistant


def test_known_answers_are_shown_while_they_are_checked_again(
    qtbot: QtBot, drafts: DraftModelService, judge: Judge, tmp_path: Path
) -> None:
    drafts.set_entries(entries(tmp_path, "big", "small"))
    drafts.set_target(str(tmp_path / "big"))
    until_known(qtbot, drafts)
    drafts.set_target("")
    assert drafts.candidates == ()
    judge.verdict = "It has changed."
    expected = (str(tmp_path / "big"), str(tmp_path / "small"), "It has changed.")
    with qtbot.waitSignal(drafts.answered, check_params_cb=lambda *answer: answer == expected):
        drafts.set_target(str(tmp_path / "big"))
        assert known(drafts) == {"big": ITSELF, "small": ""}
    assert known(drafts) == {"big": ITSELF, "small": "It has changed."}
    judge.verdict = ""
    with qtbot.waitSignal(drafts.answered, check_params_cb=lambda *answer: answer[2] == ""):
        drafts.refresh()
    assert known(drafts) == {"big": ITSELF, "small": ""}


def test_entries_that_arrive_one_by_one_are_checked_once(
    qtbot: QtBot, drafts: DraftModelService, judge: Judge, tmp_path: Path
) -> None:
    found = entries(tmp_path, "big", "small", "other")
    drafts.set_target(str(tmp_path / "big"))
    for count in range(1, 4):
        drafts.set_entries(found[:count])
    until_known(qtbot, drafts)
    assert judge.calls == [("big", "small"), ("big", "other")]


def test_an_unknown_model_is_a_candidate_once_checked(
    qtbot: QtBot, drafts: DraftModelService, tmp_path: Path
) -> None:
    found = entries(tmp_path, "big", "small")
    drafts.set_target(str(tmp_path / "big"))
    with qtbot.waitSignal(drafts.answered):
        drafts.check(str(tmp_path / "small"))
    assert known(drafts) == {"small": ""}
    drafts.set_entries(found)
    assert until_known(qtbot, drafts) == {"big": ITSELF, "small": ""}


def test_a_check_requested_on_an_answer_is_answered_too(
    qtbot: QtBot, drafts: DraftModelService, tmp_path: Path
) -> None:
    entries(tmp_path, "big", "small")
    drafts.set_target(str(tmp_path / "big"))
    answers: list[str] = []

    def ask_again(_target: str, draft: str, _problem: str) -> None:
        answers.append(draft)
        if len(answers) < 3:
            drafts.check(draft)

    drafts.answered.connect(ask_again)
    drafts.check(str(tmp_path / "small"))
    qtbot.waitUntil(lambda: len(answers) == 3)


def test_another_target_while_the_first_is_being_checked(
    qtbot: QtBot, drafts: DraftModelService, judge: Judge, tmp_path: Path
) -> None:
    judge.gate = threading.Event()
    drafts.set_entries(entries(tmp_path, "big", "small", "other", "large"))
    drafts.set_target(str(tmp_path / "big"))
    qtbot.waitUntil(lambda: bool(judge.calls))
    drafts.set_target(str(tmp_path / "large"))
    judge.gate.set()
    assert until_known(qtbot, drafts)["large"] == ITSELF
    assert sum(target == "big" for target, _ in judge.calls) <= 1
    drafts.set_target(str(tmp_path / "big"))  # what was dropped then is asked again
    assert until_known(qtbot, drafts)["big"] == ITSELF


def test_without_a_target_nothing_is_checked(qtbot: QtBot, drafts: DraftModelService, judge: Judge) -> None:
    drafts.check("/somewhere/small.gguf")
    assert drafts.close()
    assert judge.calls == []
