"""The token inspector of a notebook: the popup of the token under the pointer or at the cursor."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from desktop.items.text.token_words import beginning
from desktop.services.engine.token_cache import model_key
from desktop.services.session.branching import branch_trouble
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.debounce import debounce
from desktop.store.conversations.token_trace import UNKNOWN, TokenTrace
from desktop.views.notebook.editor import NotebookEditor
from desktop.views.transcript.tokens.popup import TokenPopup
from engine.core import Alternative
from engine.words import _

__all__ = ["NotebookTokens"]

_OPEN_MS, _CLOSE_MS = 350, 250


class NotebookTokens(QObject):
    """`branch(int token, str head, tuple ids, object other)`: continue after `head`, which ends with the
    alternative `other` of a token; `ids` are its exact ids where they are known.

    `renew()` brings the editor's tokens up to its text.
    """

    branch = Signal(int, str, object, object)

    def __init__(
        self, session: ChatSession, editor: NotebookEditor, page: QWidget, renew: Callable[[], None]
    ) -> None:
        super().__init__(page)
        self._session, self._editor, self._page = session, editor, page
        self.popup = TokenPopup(page, _("Cut the document here and continue"))
        self.popup.chosen.connect(self._choose)
        self.popup.closed.connect(self._back)
        self._renew = renew
        self._shown = self._target = -1
        self._timer = debounce(self, self._change)
        editor.token_requested.connect(self._on_requested)
        editor.typed.connect(self.close)
        editor.verticalScrollBar().valueChanged.connect(self.close)

    def set_mode(self, mode: str) -> None:
        """Tint by "probability" or "entropy"; "" for no tint."""
        self.close()
        self._editor.mode = mode
        self._editor.viewport().update()

    def open(self, token: int, focus: bool = False) -> None:
        """Show the popup of a token; `focus` gives it the keyboard."""
        editor = self._editor
        if editor.stale and not editor.streaming:
            place = editor.token_range(token)[0]
            self._renew()
            token = editor.token_at(place)
        trace = editor.trace
        area = editor.area_of(token) if token >= 0 else None
        if (
            trace is None
            or editor.text_style is None
            or area is None
            or area.isEmpty()
            or trace.ids[token] == UNKNOWN
        ):
            self.close()
            return
        self._shown = self._target = token
        editor.mark(token)
        why_not, stops = self._why_not(trace)
        if not why_not and trace.healed(token):
            why_not = _(
                "This token was healed: it replaced the last token of the prompt, so it has no alternatives."
            )
        self.popup.show_token(trace.token(token), why_not, stops, editor.text_style)
        corner = editor.viewport().mapTo(self._page, area.topLeft())
        area.moveTopLeft(corner)
        self.popup.place(area, self._page.rect(), editor.text_style)
        if focus:
            self.popup.take_focus()

    def close(self) -> None:
        """Close the popup."""
        self._timer.stop()
        self._shown = self._target = -1
        self._editor.mark(-1)
        if self.popup.isVisible():
            if self.popup.busy():
                self._editor.setFocus()
            self.popup.hide()

    def _why_not(self, trace: TokenTrace) -> tuple[str, frozenset[int]]:
        model = self._session.model
        if (
            model is not None and self._session.state == "idle"
        ):  # by its text, because another model may have written it
            return "", frozenset(model.stop_token_ids)
        return branch_trouble(model, self._session.state, trace)

    def _on_requested(self, token: int, keyboard: bool) -> None:
        if not self._editor.mode:
            return
        if keyboard:
            self.open(token, focus=True)
        elif token != self._target or (token != self._shown and not self._timer.isActive()):
            self._target = token
            self._timer.start(_OPEN_MS if token >= 0 and not self.popup.busy() else _CLOSE_MS)

    def _change(self) -> None:
        if self.popup.busy():
            self._timer.start(_CLOSE_MS)
        elif self._target >= 0:
            self.open(self._target)
        else:
            self.close()

    def _back(self) -> None:
        self.close()
        self._editor.setFocus()

    def _choose(self, other: Alternative) -> None:
        token, trace = self._shown, self._editor.trace
        self.close()
        if token >= 0 and trace is not None:
            head, ids = beginning(trace, token, other)
            self.branch.emit(token, head, ids if trace.model == model_key(self._session.model) else (), other)
