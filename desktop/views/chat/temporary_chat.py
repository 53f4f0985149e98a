"""The strip that says that the open chat is temporary, and offers to keep it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton

from desktop.services.session.chat_session import ChatSession
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.layout.fill import fill
from desktop.views.widgets.banner import announce
from desktop.views.widgets.icons import pixmap
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, translate

__all__ = ["TemporaryStrip"]

_WORDS = N_("Temporary chat: not saved")
_MORE = N_("Nothing in this chat is saved to disk. It is discarded when you open another chat or quit.")


class TemporaryStrip(QFrame):
    """Says in `chat` that the open chat is not saved; `keep` is the button that saves it.

    `move_unsent(before, now)` moves unsent text from a temporary chat to the kept one.
    """

    def __init__(
        self, session: ChatSession, chat: ChatPane, move_unsent: Callable[[int, int], object]
    ) -> None:
        super().__init__()
        self._session, self._composer, self._move_unsent = session, chat.composer, move_unsent
        self.setObjectName("temporaryStrip")
        self.setAccessibleName(translate(_WORDS))
        self.setToolTip(translate(_MORE))
        self._picture = QLabel()
        self.text = text_label(
            f"<b>{translate(_WORDS)}.</b> {_('It is forgotten when you leave it.')}", wraps=True
        )
        self.text.setAccessibleDescription(translate(_MORE))
        self.keep = QPushButton(_("Keep"))
        self.keep.setAccessibleName(_("Keep this chat"))
        self.keep.setToolTip(_("Save this chat with all its messages"))
        fill(QHBoxLayout(self), self._picture, (self.text, 1), self.keep, margins=(14, 5, 10, 5), spacing=8)
        self._draw()
        self.hide()
        chat.add_strip(self)
        self.keep.clicked.connect(self.keep_chat)
        session.conversation_changed.connect(self._show)

    def _draw(self) -> None:
        ratio = self.devicePixelRatioF()
        colour = self.palette().color(QPalette.ColorRole.WindowText).name()
        picture = pixmap("temporary", colour, round(self.fontMetrics().height() * 1.25 * ratio)).copy()
        picture.setDevicePixelRatio(ratio)
        self._picture.setPixmap(picture)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme and the text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and hasattr(self, "keep"):
            self._draw()

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that keeps a temporary chat."""
        return {"keep": self.keep_chat}

    def keep_chat(self) -> None:
        """Save the open temporary chat among the others."""
        composer, before = self._composer, self._session.conversation
        text, opening = composer.text(), composer.opening()
        if self._session.keep_temporary():
            composer.set_text(text)
            composer.set_opening(opening)
            self._move_unsent(before, self._session.conversation)
            self._session.notice.emit(_("The chat is saved."), "info")

    def _show(self, _conversation: int) -> None:
        shown = self._session.temporary
        if shown and self.isHidden():
            announce(self, f"{translate(_WORDS)}. {translate(_MORE)}")
        self.setVisible(shown)
