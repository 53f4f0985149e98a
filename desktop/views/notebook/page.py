"""A notebook instead of transcript and message box: its text, and the bar for letting the model write."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent, QTextCursor
from PySide6.QtWidgets import QVBoxLayout, QWidget

from desktop.items.text.text_units import Units
from desktop.services.composer.document_saver import SAVE_MS, DocumentSaver
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.notebook import Document
from desktop.services.system.debounce import debounce
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.layout.fill import fill
from desktop.views.notebook.editor import NotebookEditor, safe
from desktop.views.notebook.find import NotebookFinding
from desktop.views.notebook.tokens import NotebookTokens
from desktop.views.notebook.toolbar import NotebookBar
from desktop.views.transcript.style import COLUMN_WIDTH, TranscriptColours, make_style
from engine.core import Alternative, Stats
from engine.words import N_, _, ngettext, translate

__all__ = ["NotebookPage"]

_SETTLE_MS = 6000
_HINT = N_("Press Ctrl+Enter to let the model continue from the cursor.")


class NotebookPage(QWidget):
    """Shows the open notebook of `session`.

    `changed()`: the text has changed; `restyled()`: the theme or the text size has changed.
    """

    changed = Signal()
    restyled = Signal()

    def __init__(self, session: ChatSession, saver: DocumentSaver) -> None:
        super().__init__()
        self._session, self._saver = session, saver
        self.setObjectName("notebookPage")
        self.editor, self.bar = NotebookEditor(), NotebookBar()
        self.tokens = NotebookTokens(session, self.editor, self, self._show_trace)
        self.finding = NotebookFinding(self.editor, self)
        fill(QVBoxLayout(self), (self.editor, 1), self.bar, margins=(0, 0, 0, 0), spacing=0)
        self.document: Document | None = None
        self._dirty = self._unsettled = False
        self._written: tuple[QTextCursor, QTextCursor] | None = None
        self._written_revision = -1
        self._notice = ""
        self._waits_for = ""  # the model that is to write here as soon as it is loaded
        self._save = debounce(self, self.flush, SAVE_MS)
        self._settle = debounce(self, self._settled, _SETTLE_MS)
        for timer in (self._save, self._settle):
            timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._connect()

    def _connect(self) -> None:
        self.editor.typed.connect(self._on_typed)
        self.editor.left.connect(self.flush)
        self.editor.cursorPositionChanged.connect(self._show_note)
        self.editor.write_requested.connect(self.write_on)
        self.bar.write.connect(self.write_on)
        self.bar.stop.connect(self._stop)
        self.bar.undo.connect(self.undo_writing)
        self.bar.again.connect(self.write_again)
        self.tokens.branch.connect(self._branch)
        replies = self._session.replies
        replies.document_grown.connect(self._on_grown)
        replies.changed.connect(self._on_reply_changed)
        self._session.state_changed.connect(self._show_state)
        self._session.running_changed.connect(self._on_running)

    # -- what is shown

    def show_document(self, document: Document | None) -> None:
        """Show a notebook's document, or leave the shown one."""
        self.tokens.close()
        same = (
            document is not None
            and self.document is not None
            and document.message_id == self.document.message_id
        )
        if not same:
            self._leave()
        self.document = document
        if document is None:
            return
        waiting = self._saver.waiting(document.message_id)
        text = document.text if waiting is None else waiting
        self._notice = document.notice
        if same and self.editor.streaming and not document.running:
            self._end_writing(document)
        elif not (same and safe(text) == self.editor.text()):
            self._load(document, text)
        self._show_trace()
        self._show_state(self._session.state)
        self.changed.emit()

    def _load(self, document: Document, text: str) -> None:
        units = Units(text)
        place = units.unit(document.place) if document.running else units.units
        self.editor.end_stream()
        self.editor.load(text, place)
        self._written = None
        start, end = document.stretch
        if end > start and document.text == text:
            self._mark_written(units.unit(start), units.unit(end))
        if document.running:
            self.editor.begin_stream(place)

    def _end_writing(self, document: Document) -> None:
        self.editor.end_stream()
        units = Units(document.text)
        start, end = document.stretch
        self._mark_written(units.unit(start), units.unit(end))
        self._written_revision = self.editor.document().revision()

    def _mark_written(self, start: int, end: int) -> None:
        first, last = QTextCursor(self.editor.document()), QTextCursor(self.editor.document())
        first.setPosition(min(start, self.editor.length))
        last.setPosition(min(end, self.editor.length))
        last.setKeepPositionOnInsert(True)  # text typed after the passage does not belong to it
        self._written = (first, last) if end > start else None

    def _show_trace(self) -> None:
        document = self.document
        if document is None or not self.editor.mode:
            self.editor.set_trace(None)
            return
        trace = self._session.tokens(document.message_id)
        if trace is not None and not document.running:
            trace = trace.edited(self.editor.text())
        self.editor.set_trace(trace)

    def set_mode(self, mode: str) -> None:
        """Tint tokens by "probability" or "entropy"; "" for no tint."""
        self.tokens.set_mode(mode)
        self._show_trace()

    def restyle(self, percent: int) -> None:
        """Follow theme and text size."""
        # the font is already scaled
        style = make_style(self.font(), 100, TranscriptColours.from_palette(self.palette()))
        self.editor.text_style = dataclasses.replace(
            style, column=round(COLUMN_WIDTH * max(100, percent) / 100)
        )
        self.editor.setFont(style.text_font)
        self.editor.fit()

    def _show_state(self, state: str) -> None:
        if self.document is None:
            return
        if self._waits_for and state not in ("stopping", "loading"):
            waited_for, self._waits_for = self._waits_for, ""
            if state == "idle" and self._session.model is not None and self._session.model.path == waited_for:
                self.write_on()
                return
        busy = state not in ("idle", "no_model", "loading")
        writing = self.editor.streaming or bool(self._waits_for)
        self.bar.show_state(writing=writing, stretch=self._written is not None, busy=busy and not writing)
        self._show_note()

    def _show_note(self) -> None:
        editor = self.editor
        if self.document is None:
            return
        behind = editor.length - editor.textCursor().selectionEnd()
        if self._notice:
            self.bar.show_note(self._notice, warning=True)
        elif self._waits_for:
            self.bar.show_note(_("The model is still loading. It will continue here as soon as it is ready."))
        elif editor.streaming:
            self.bar.show_note(_("The model is writing. You can scroll, select and copy."))
        elif behind and self._session.state == "idle":
            self.bar.show_note(
                ngettext(
                    "The model continues at the cursor. {n} character after it is kept but not read.",
                    "The model continues at the cursor. {n} characters after it are kept but not read.",
                    behind,
                )
            )
        else:
            self.bar.show_note(translate(_HINT))

    # -- what the model writes

    def _on_grown(self, message_id: int, text: str) -> None:
        if self.document is not None and message_id == self.document.message_id and self.editor.streaming:
            self.editor.grow_trace()
            self.editor.stream(text)

    def _on_reply_changed(self, message_id: int) -> None:
        if self.document is not None and message_id == self.document.message_id:
            found = self._session.document()
            self._notice = found.notice if found is not None else ""
            self._show_note()

    def _on_running(self, stats: Stats) -> None:
        if self.document is not None:
            self.bar.show_figures(stats.context_tokens, stats.context_length)

    # -- what the user does

    def write_on(self) -> None:
        """Let the model write at the cursor; a model that is being loaded begins as soon as it is ready."""
        place = self.editor.textCursor().selectionEnd()
        if self._session.opening and place and not self.editor.streaming:
            self._waits_for, self._notice = self._session.opening, ""
            self._show_state(self._session.state)
        else:
            self._begin(place)

    def _stop(self) -> None:
        """Stop writing, or waiting for the model."""
        if self._waits_for:
            self._waits_for = ""
            self._show_state(self._session.state)
        else:
            self._session.stop()

    def _begin(
        self,
        place: int,
        joins: bool = False,
        ids: tuple[int, ...] = (),
        other_seed: bool = False,
        trace: TokenTrace | None = None,
    ) -> bool:
        if self.document is None or self.editor.streaming:
            return False
        head, tail = self.editor.text_between(0, place), self.editor.text_between(place, self.editor.length)
        if not head:
            self._notice = _("Write something first: the model continues the text before the cursor.")
            self._show_note()
            return False
        self.flush()
        if not self._session.write_on(head, tail, ids, other_seed, trace):
            return False
        self._notice, self._written = "", None
        cursor = self.editor.textCursor()
        cursor.setPosition(place)
        self.editor.setTextCursor(cursor)
        self.editor.begin_stream(place, joins)
        self.document = self._session.document()
        self._show_trace()
        self._show_state(self._session.state)
        return True

    def undo_writing(self) -> None:
        """Undo the last written passage; Ctrl+Z brings it back."""
        editor = self.editor
        if self._written is None or editor.streaming:
            return
        if editor.document().revision() == self._written_revision and editor.document().isUndoAvailable():
            editor.undo()  # text that was removed for it comes back, too
        else:
            first, last = self._written
            editor.replace(first.position(), last.position(), "")
        self._written = None
        self._show_state(self._session.state)
        editor.setFocus()

    def written_text(self) -> str:
        """The last written passage; empty for none."""
        return (
            self.editor.text_between(self._written[0].position(), self._written[1].position())
            if self._written is not None
            else ""
        )

    def write_again(self) -> None:
        """Replace the last written passage by another one."""
        if self._written is None or self.editor.streaming or not self._session.may_write():
            return
        first, last = self._written
        place = first.position()
        self.editor.replace(place, last.position(), "")
        if not self._begin(place, joins=True, other_seed=True):
            self.editor.undo()

    def _branch(self, token: int, head: str, ids: tuple[int, ...], other: Alternative) -> None:
        start, _unused = self.editor.token_range(token)
        trace = self.editor.trace
        if start < 0 or trace is None or not self._session.may_write():
            return
        self.editor.replace(start, self.editor.length, head[trace.starts[token] :])
        if not self._begin(
            self.editor.length, joins=True, ids=ids, trace=trace.chosen(token, other, self.editor.text())
        ):
            self.editor.undo()
        self.editor.setFocus()

    # -- saving

    def _on_typed(self) -> None:
        self._dirty = self._unsettled = True
        self._settle.start()
        if not self._save.isActive():  # the next key does not delay it
            self._save.start()
        if self._notice:
            self._notice = ""
        if self._written is not None and self._written[0].position() >= self._written[1].position():
            self._written = None  # it was undone
            self._show_state(self._session.state)
        elif self._written is None and not self.editor.document().isEmpty():
            self._show_note()

    def flush(self) -> None:
        """Save what was typed since the last save."""
        self._save.stop()
        if self._dirty and self.document is not None:
            self._dirty = False
            self._saver.save(self.document.message_id, self.editor.text(), settled=False)
            self.changed.emit()

    def _settled(self) -> None:
        """Nothing was typed for a while: update the search index."""
        self.flush()
        if self._unsettled and self.document is not None and not self.editor.streaming:
            self._unsettled = False
            self._saver.save(self.document.message_id, self.editor.text(), settled=True)

    def _leave(self) -> None:
        self._waits_for = ""
        self._settle.stop()
        self._settled()
        self._dirty = self._unsettled = False
        self.finding.close()

    def close_page(self) -> None:
        """Save everything before the window closes."""
        self._leave()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and hasattr(self, "bar"):
            self.restyled.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.finding.is_open:
            self.finding.close()
        else:
            super().keyPressEvent(event)
