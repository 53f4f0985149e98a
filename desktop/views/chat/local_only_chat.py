"""The strip that says that the open chat stays on this computer, and the command that pins it so."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton

from desktop.services.session.chat_session import ChatSession
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.layout.fill import fill
from desktop.views.widgets.banner import announce
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, translate

__all__ = ["LocalOnlyStrip"]

_WORDS = N_("This computer only")
_MORE = N_("Nothing in this chat is sent to a server. Only models on this computer can reply.")


class LocalOnlyStrip(QFrame):
    """Shown in `chat` while the open chat is pinned; `allow` takes the pin off. `action` is the menu's entry,
    with a tick while the chat is pinned.
    """

    def __init__(self, session: ChatSession, chat: ChatPane, action: QAction) -> None:
        super().__init__()
        self._session, self._action = session, action
        self.setObjectName("localOnlyStrip")
        self.setAccessibleName(translate(_WORDS))
        self.setToolTip(translate(_MORE))
        self.text = text_label(f"<b>{translate(_WORDS)}.</b> {translate(_MORE)}", wraps=True)
        self.allow = QPushButton(_("Allow servers"))
        self.allow.setToolTip(_("Let models on servers reply in this chat if you choose one"))
        fill(QHBoxLayout(self), (self.text, 1), self.allow, margins=(14, 5, 10, 5), spacing=8)
        self.hide()
        action.setCheckable(True)
        chat.add_strip(self)
        self.allow.clicked.connect(lambda: session.set_local_only(False))
        session.local_only_changed.connect(self._show)
        self._show(session.local_only)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that pins the open chat, or takes its pin off."""
        return {"local_only": self.toggle}

    def toggle(self) -> None:
        """Pin the open chat to this computer, or allow servers again."""
        self._session.set_local_only(not self._session.local_only)
        self._action.setChecked(self._session.local_only)

    def _show(self, pinned: bool) -> None:
        if pinned and self.isHidden():
            announce(self, f"{translate(_WORDS)}. {translate(_MORE)}")
        self.setVisible(pinned)
        self._action.setChecked(pinned)
