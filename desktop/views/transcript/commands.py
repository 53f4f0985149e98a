"""What keys and the context menu do in the transcript."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape

from PySide6.QtCore import QMimeData, QPoint, Qt
from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QMenu

from desktop.blocks.parser import plain_table
from desktop.items.chats.messages import MessageItem
from desktop.store.attachments.picture_marks import in_words
from desktop.views.transcript.call_actions import call_actions
from desktop.views.transcript.find import Finding
from desktop.views.transcript.parts import TranscriptParts
from desktop.views.transcript.rendering.inline_objects import FOOTNOTE_SCHEME
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.scrolling import Scrolling
from engine.words import _, translate

__all__ = ["ALL_ACTIONS", "add_message_actions", "copy_text", "handle_key", "make_menu"]


ALL_ACTIONS = frozenset(
    ("copy", "edit", "regenerate", "several", "compare", "versions", "continue", "fork", "origin", "delete",
     "previous", "next", "quote")
)  # fmt: skip
"""What every transcript can offer for a message; where the system has a voice, "speak" too."""


def copy_text(text: str) -> None:
    """Put `text` on the clipboard, pictures by their names; an empty text leaves the clipboard as it is."""
    if text:
        QGuiApplication.clipboard().setText(in_words(text))


def _copy_table(parts: TranscriptParts, row: Row) -> None:
    """Put a table on the clipboard as a spreadsheet takes it, and a word processor."""
    cells = plain_table(parts.messages.body(row), row.references)
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(in_words(cell))}</td>' for cell in line)}</tr>" for line in cells
    )
    data = QMimeData()
    data.setText(in_words("\n".join(map("\t".join, cells))))
    data.setHtml(f"<table>{lines}</table>")
    QGuiApplication.clipboard().setMimeData(data)


def _copy_selection(parts: TranscriptParts) -> None:
    copy_text(parts.selection.text())


def handle_key(parts: TranscriptParts, scrolling: Scrolling, finding: Finding, event: QKeyEvent) -> bool:
    """Do what a key of the transcript asks for; False for any other key."""
    bar = parts.area.verticalScrollBar()
    if event.matches(QKeySequence.StandardKey.Copy):
        _copy_selection(parts)
    elif event.matches(QKeySequence.StandardKey.SelectAll):
        parts.selection.select_all()
    elif event.matches(QKeySequence.StandardKey.Find):
        finding.open()
    elif event.key() == Qt.Key.Key_Home:
        bar.setValue(0)
    elif event.key() == Qt.Key.Key_End:
        scrolling.to_end()
    elif event.key() == Qt.Key.Key_Space:
        back = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        bar.setValue(bar.value() + (-1 if back else 1) * bar.pageStep() * 9 // 10)
    else:
        return False
    return True


def make_menu(parts: TranscriptParts, scrolling: Scrolling, point: QPoint) -> QMenu:
    """The context menu at a point of the viewport."""
    found = scrolling.hit(point)
    link = found[1].link_at(found[2]) if found is not None else ""
    menu = QMenu(parts.area)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    selected = bool(parts.selection.text())
    menu.addAction(_("Copy"), partial(_copy_selection, parts)).setEnabled(selected)
    if selected and found is not None and "quote" in parts.view.offered:
        menu.addAction(_("Quote in your message"), partial(parts.view.act, "quote", found[0].item.id))
    if link and not link.startswith(FOOTNOTE_SCHEME):
        menu.addAction(_("Copy link address"), partial(copy_text, link))
    if found is not None and found[0].kind is RowKind.TABLE:
        menu.addAction(_("Copy table"), partial(_copy_table, parts, found[0]))
    menu.addAction(_("Select all"), parts.selection.select_all)
    if found is not None:
        menu.addSeparator()
        add_message_actions(menu, parts, found[0].item)
    return menu


def add_message_actions(
    menu: QMenu, parts: TranscriptParts, item: MessageItem, act: Callable[[str, int], None] | None = None
) -> None:
    """What the buttons below a message do, so that the Menu key reaches it for every message; `act` does it
    in the place of the transcript.
    """
    still, last = not item.running, parts.messages.layout.rows[-1].item.id == item.id

    def add(text: str, name: str, enabled: bool = still) -> None:
        if name not in parts.view.offered:
            return
        menu.addAction(text, partial(act or parts.view.act, name, item.id)).setEnabled(enabled)

    if item.call is None:
        add(_("Copy message"), "copy", True)
        add(_("Read aloud"), "speak")
        add(_("Edit message"), "edit")
    else:
        for name, words in call_actions(item).items():
            if name != "regenerate":  # said below
                menu.addAction(translate(words), partial(act or parts.view.act, name, item.id))
        menu.addAction(_("Copy arguments"), partial(copy_text, item.call.arguments))
        menu.addAction(_("Copy result"), partial(copy_text, item.result)).setEnabled(bool(item.result))
        add(_("Let the model continue from here"), "regenerate", item.state not in ("waiting", "running"))
    if item.role == "assistant":
        add(_("Regenerate the reply"), "regenerate")
        add(_("Continue the reply"), "continue", last and still)
        add(_("Reply details"), "origin")
    if item.role in ("assistant", "user"):
        add(_("Generate several replies"), "several")
        add(_("Compare replies…"), "compare")
    if item.variant_count > 1:
        shown = _(
            "{variant_index} of {variant_count}",
            variant_index=item.variant_index + 1,
            variant_count=item.variant_count,
        )
        add(_("Previous version ({shown})", shown=shown), "previous", item.variant_index > 0 and still)
        add(_("Next version"), "next", item.variant_index < item.variant_count - 1 and still)
        if item.role == "assistant":
            add(_("Compare versions"), "versions")
    add(_("Fork from here"), "fork")
    if "delete" in parts.view.offered:
        menu.addSeparator()
    add(_("Delete message"), "delete")
