"""The dialog with the prompts or resources of tool servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from desktop.services.tools.events import Part
from desktop.services.tools.servers import Offer, OfferedPrompt, OfferedResource, PromptArgument
from desktop.views.tools.offer_dialog import OfferDialog
from tests.desktop.views.tools.conftest import Tools

pytestmark = pytest.mark.gui
REVIEW = OfferedPrompt(
    "files", "review", "Review & mend", "Asks for a review.",
    (PromptArgument("text", "Text", required=True), PromptArgument("tone", "Tone", "kind or dry")),
)  # fmt: skip
GREET = OfferedPrompt("weather", "greet", "Greet")
NOTES = OfferedResource("files", "memo://notes", "Notes", "What was noted.")
Open = Callable[..., OfferDialog]


@pytest.fixture
def asked(service: Tools, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What is asked of the servers; the numbers begin with 1."""
    found: list[tuple[object, ...]] = []

    def ask(*what: object) -> int:
        found.append(what)
        return len(found)

    monkeypatch.setattr(service, "fetch_prompt", ask)
    monkeypatch.setattr(service, "fetch_resource", ask)
    monkeypatch.setattr(service, "cancel", lambda number: found.append(("cancelled", number)))
    return found


@pytest.fixture
def opened(service: Tools, parent: QWidget, asked: list[tuple[object, ...]]) -> Open:
    def make(*offers: Offer) -> OfferDialog:
        dialog = OfferDialog(offers, service, parent)
        dialog.open()
        return dialog

    return make


def rows(dialog: OfferDialog) -> list[str]:
    found = [dialog.list.item(row) for row in range(dialog.list.count())]
    return [item.text().replace("\u2068", "").replace("\u2069", "") for item in found if not item.isHidden()]


def test_a_prompt_is_filled_in_and_fetched(
    opened: Open, asked: list[tuple[object, ...]], service: Tools, qtbot: QtBot
) -> None:
    dialog = opened(REVIEW, GREET)
    assert rows(dialog) == ["Review & mend  ·  files", "Greet  ·  weather"]
    assert dialog.about.accessibleName() == "Asks for a review."
    assert dialog.fields["tone"].accessibleName() == "Tone (optional)"
    dialog.go.click()
    assert dialog.state.accessibleName() == "“Text” is empty. Fill it in."
    assert not asked
    dialog.fields["text"].setPlainText("Grüße")
    dialog.go.click()
    assert asked == [("files", "review", {"text": "Grüße"})]
    assert not dialog.go.isEnabled()
    parts = (Part("review", b"Review"),)
    with qtbot.waitSignal(dialog.arrived) as signal:
        service.fetched.emit(2, (), "of something else")
        assert dialog.isVisible()
        service.fetched.emit(1, parts, "")
    assert signal.args == [parts]


def test_tab_visits_the_fields_before_the_buttons(opened: Open, qtbot: QtBot) -> None:
    dialog = opened(GREET, REVIEW)
    dialog.list.setCurrentRow(1)  # whose fields are made now
    wanted = [*dialog.fields.values(), dialog.go]

    def visits() -> list[QWidget]:
        found, widget = [], dialog.list.nextInFocusChain()
        while widget is not dialog.list:
            found += [widget] if widget in wanted else []
            widget = widget.nextInFocusChain()
        return found

    qtbot.waitUntil(lambda: visits() == wanted)
    dialog.reject()


def test_a_resource_is_fetched(opened: Open, asked: list[tuple[object, ...]]) -> None:
    dialog = opened(NOTES)
    assert rows(dialog) == ["Notes"]
    assert not dialog.fields
    assert dialog.windowTitle() == "Attach a resource"
    dialog.go.click()
    dialog.go.click()
    assert asked == [("files", "memo://notes")]
    dialog.reject()


def test_why_nothing_came_is_said_and_it_can_be_tried_again(
    opened: Open, asked: list[tuple[object, ...]], service: Tools
) -> None:
    dialog = opened(GREET)
    dialog.go.click()
    service.fetched.emit(1, (), "The server is ill.")
    assert dialog.state.accessibleName() == "The server is ill."
    dialog.go.click()
    assert asked == [("weather", "greet", {})] * 2
    dialog.reject()


def test_closing_cancels(opened: Open, asked: list[tuple[object, ...]]) -> None:
    dialog = opened(GREET)
    dialog.go.click()
    dialog.reject()
    assert asked[-1] == ("cancelled", 1)


def test_the_search_finds_words_of_all_kinds(opened: Open) -> None:
    dialog = opened(REVIEW, GREET)
    for text, found in (
        ("WEATHER", ["Greet  ·  weather"]), ("review asks", ["Review & mend  ·  files"]), ("none", []),
    ):  # fmt: skip
        dialog.search.setText(text)
        assert rows(dialog) == found
        assert dialog.go.isEnabled() == bool(found)
    assert dialog.about.accessibleName() == "Nothing is found."
    dialog.search.setText("greet")
    assert dialog.go.isEnabled()
    assert not dialog.fields
    dialog.reject()
