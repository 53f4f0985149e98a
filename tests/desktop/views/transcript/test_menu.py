"""The context menu of messages: what is offered for whom, what is disabled then, and what it asks for."""

from __future__ import annotations

from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.rows import RowKind
from tests.desktop.views.transcript.conftest import Show

LINK = "See [this](https://example.org/page)."
CHAT = [
    MessageItem(1, "user", "Why?"),
    MessageItem(2, "assistant", "So.", variant_index=1, variant_count=3),
    MessageItem(3, "user", "And?", variant_index=0, variant_count=2),
    MessageItem(4, "assistant", "Then.", variant_index=1, variant_count=2),
]


def menu_of(view: TranscriptView, message: int) -> QMenu:
    row = next(row for row in view.messages.rows_of(message) if row.text)
    widget = view.pool.widget(row)
    assert widget is not None
    return view.make_menu(widget.geometry().center())


def offered(view: TranscriptView, message: int) -> dict[str, bool]:
    """The texts of the menu, with whether they can be chosen."""
    menu = menu_of(view, message)
    found = {action.text(): action.isEnabled() for action in menu.actions() if action.text()}
    menu.deleteLater()
    return found


def test_each_message_is_offered_what_can_be_done_with_it(show: Show) -> None:
    view, _ = show(CHAT, 600, 800)
    usual = ["Copy", "Select all", "Copy message", "Edit message"]
    assert list(offered(view, 1)) == [
        *usual, "Generate several replies", "Compare replies…", "Fork from here", "Delete message",
    ]  # fmt: skip
    assert offered(view, 2) == {
        **dict.fromkeys(usual, True), "Copy": False, "Regenerate the reply": True,
        "Continue the reply": False, "Reply details": True, "Generate several replies": True,
        "Compare replies…": True, "Previous version (2 of 3)": True, "Next version": True,
        "Compare versions": True, "Fork from here": True, "Delete message": True,
    }  # fmt: skip
    third, last = offered(view, 3), offered(view, 4)
    assert (third["Previous version (1 of 2)"], third["Next version"]) == (False, True)
    assert "Compare versions" not in third
    assert (last["Previous version (2 of 2)"], last["Next version"]) == (True, False)
    assert last["Continue the reply"]


def test_a_reply_that_is_being_written_can_only_be_copied(show: Show) -> None:
    running = MessageItem(5, "assistant", "Well", running=True, variant_index=1, variant_count=2)
    view, _ = show([CHAT[0], running], 600, 500)
    found = offered(view, 5)
    assert {text for text, usable in found.items() if usable} == {"Select all", "Copy message"}
    assert "Continue the reply" in found


def test_only_what_the_owner_offers_is_in_the_menu(show: Show) -> None:
    view, _ = show(CHAT, 600, 800)
    view.offered = frozenset({"copy", "fork"})
    assert list(offered(view, 2)) == ["Copy", "Select all", "Copy message", "Fork from here"]


def test_what_is_selected_can_be_quoted(show: Show) -> None:
    view, _ = show(CHAT, 600, 800)
    asked: list[tuple[str, int]] = []
    view.action.connect(lambda name, message: asked.append((name, message)))
    view.select_all()
    menu = menu_of(view, 2)
    next(action for action in menu.actions() if action.text() == "Quote in your message").trigger()
    menu.deleteLater()
    assert asked == [("quote", 2)]
    view.offered -= {"quote"}
    assert "Quote in your message" not in offered(view, 2)


def test_a_table_is_copied_with_a_cell_for_each_of_its_own(show: Show, qtbot: QtBot) -> None:
    head = "| Fruit | *Price* & more |\n|---|--:|\n| **Fig**<br>ripe | a\\|b<c |\n"
    rows = [f"| {number} | [x](https://example.org) |" for number in range(900)]
    view, _ = show([MessageItem(1, "assistant", head + "\n".join(rows))], 600, 800)
    parts = [row for row in view.messages.layout.rows if row.kind is RowKind.TABLE]
    assert len(parts) > 1
    view.scrolling.to_row(parts[1])
    qtbot.waitUntil(view.settled)
    menu = view.make_menu(QPoint(view.viewport().width() // 2, 50))
    next(action for action in menu.actions() if action.text() == "Copy table").trigger()
    menu.deleteLater()
    copied = QApplication.clipboard().mimeData()
    assert copied is not None
    lines = copied.text().split("\n")
    assert lines[:2] == ["Fruit\tPrice & more", "Fig ripe\ta|b<c"]
    assert lines[2:] == [f"{number}\tx" for number in range(900)]
    assert copied.html().startswith("<table><tr><td>Fruit</td><td>Price &amp; more</td></tr><tr><td>Fig ripe")
    assert copied.html().count("<tr>") == len(lines)


def test_a_choice_is_reported_with_its_message(show: Show) -> None:
    view, _ = show(CHAT, 600, 800)
    asked: list[tuple[str, int]] = []
    view.action.connect(lambda name, message: asked.append((name, message)))
    for message, text in ((2, "Fork from here"), (3, "Next version"), (2, "Compare versions")):
        menu = menu_of(view, message)
        next(action for action in menu.actions() if action.text() == text).trigger()
        menu.deleteLater()
    assert asked == [("fork", 2), ("next", 3), ("versions", 2)]


def test_the_address_of_a_link_is_copied(show: Show) -> None:
    view, _ = show([MessageItem(1, "assistant", LINK)], 600, 400)
    row = next(row for row in view.messages.rows_of(1) if row.kind is RowKind.TEXT)
    widget = view.pool.widget(row)
    assert widget is not None
    place = widget.geometry()
    spots = [QPoint(x, place.center().y() + 2) for x in range(place.left() + 2, place.right(), 6)]
    menus = [view.make_menu(spot) for spot in spots]
    found = [menu for menu in menus if "Copy link address" in [action.text() for action in menu.actions()]]
    assert 0 < len(found) < len(menus)
    next(action for action in found[0].actions() if action.text() == "Copy link address").trigger()
    assert QApplication.clipboard().text() == "https://example.org/page"
    for menu in menus:
        menu.deleteLater()
