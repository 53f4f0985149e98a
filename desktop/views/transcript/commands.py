"""What keys, links and the context menu do in the transcript."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import QMenu

from desktop.items.chats.messages import MessageItem
from desktop.views.transcript.links import LinkDialog
from desktop.views.transcript.rendering.footnotes import note_row
from desktop.views.transcript.rendering.inline_objects import FOOTNOTE_SCHEME
from desktop.views.transcript.rows import Row

if TYPE_CHECKING:
    from desktop.views.transcript.view import TranscriptView

__all__ = ["follow_link", "link_words", "make_menu", "press_key"]


def press_key(view: TranscriptView, event: QKeyEvent) -> bool:
    """Do what a key asks for; False when it is none of the transcript's own."""
    bar = view.verticalScrollBar()
    if event.matches(QKeySequence.StandardKey.Copy):
        view.copy()
    elif event.matches(QKeySequence.StandardKey.SelectAll):
        view.select_all()
    elif event.matches(QKeySequence.StandardKey.Find):
        view.finding.open()
    elif event.key() == Qt.Key.Key_Home:
        bar.setValue(0)
    elif event.key() == Qt.Key.Key_End:
        view.scroll_to_end()
    elif event.key() == Qt.Key.Key_Space:
        bar.setValue(
            bar.value()
            + (-1 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1) * bar.pageStep() * 9 // 10
        )
    else:
        return False
    return True


def make_menu(view: TranscriptView, point: QPoint) -> QMenu:
    """What can be done at a point of the viewport."""
    found = view.hit(point)
    link = found[1].link_at(found[2]) if found is not None else ""
    menu = QMenu(view)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    menu.addAction("Copy", view.copy).setEnabled(bool(view.selection.text()))
    if link and not link.startswith(FOOTNOTE_SCHEME):
        menu.addAction("Copy link address", partial(view.put_on_clipboard, link))
    menu.addAction("Select all", view.select_all)
    if found is not None:
        menu.addSeparator()
        _add_deeds(menu, view, found[0].item)
    return menu


def _add_deeds(menu: QMenu, view: TranscriptView, item: MessageItem) -> None:
    """What the buttons below a message do, so that the Menu key reaches it for every message."""
    last = view.row_at(1 << 30)
    is_last = last is not None and last.item.id == item.id
    reply = item.role == "assistant"
    menu.addAction("Copy message", partial(view.act, "copy", item.id))
    menu.addAction("Edit message", partial(view.act, "edit", item.id)).setEnabled(not item.running)
    if reply:
        menu.addAction("Regenerate the reply", partial(view.act, "regenerate", item.id)).setEnabled(
            not item.running
        )
        menu.addAction("Continue the reply", partial(view.act, "continue", item.id)).setEnabled(
            is_last and not item.running
        )
        menu.addAction("What produced this reply", partial(view.act, "origin", item.id)).setEnabled(
            not item.running
        )
    if item.variant_count > 1:
        shown = f"{item.variant_index + 1} of {item.variant_count}"
        back = menu.addAction(f"Previous version ({shown} is shown)", partial(view.act, "previous", item.id))
        back.setEnabled(item.variant_index > 0 and not item.running)
        on = menu.addAction("Next version", partial(view.act, "next", item.id))
        on.setEnabled(item.variant_index < item.variant_count - 1 and not item.running)
    menu.addAction("Fork from here", partial(view.act, "fork", item.id)).setEnabled(not item.running)
    menu.addSeparator()
    menu.addAction("Delete message", partial(view.act, "delete", item.id)).setEnabled(not item.running)


def follow_link(view: TranscriptView, row: Row, address: str) -> None:
    """Go to a footnote of the row's message, or ask whether to open a link outside the program."""
    note = note_row(view.rows_of(row.item.id), address)
    if note is not None:
        view.scroll_to_row(note, view.viewport().height() // 3)
    elif not address.startswith(FOOTNOTE_SCHEME):
        LinkDialog.ask(view, address)


def link_words(view: TranscriptView, row: Row, address: str) -> str:
    """What a link in `row` leads to: its address, or the words of a footnote."""
    note = note_row(view.rows_of(row.item.id), address)
    return note.text if note is not None else "" if address.startswith(FOOTNOTE_SCHEME) else address
