"""Which commands can act now, and why the others cannot: told by menus, by their tool tips and by the
command palette.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import QModelIndex, QObject, QTimer
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from desktop.items.chats.messages import MESSAGE_ROLE, MessageItem
from desktop.services.session.chat_session import ChatSession
from desktop.views.commands.edit_menu import EditMenu

__all__ = ["CommandStates"]

_EDITING = ("cut", "copy", "paste", "select_all")


class CommandStates(QObject):
    """Keeps `actions`, by the command's name, enabled as far as they can act; keys of the others do
    nothing.
    """

    def __init__(
        self,
        session: ChatSession,
        actions: Mapping[str, QAction],
        editing: EditMenu,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._session, self._actions, self._editing = session, actions, editing
        self._told: dict[str, str] = {}
        self._undo_before: tuple[str, bool] | None = None
        self._troubles: dict[str, Callable[[], str]] = {
            "copy_reply": self._no_reply,
            "find": self._no_message,
            "fork": self._no_message,
            "copy_chat": self._no_message,
            "export_chat": self._no_message,
            "origin": self._no_reply,
            "regenerate": self._no_message,
            "continue": self._no_last_reply,
            "previous_variant": lambda: self._no_variant(-1),
            "next_variant": lambda: self._no_variant(1),
            "rename": lambda: "" if session.conversation else "No chat is open.",
            "delete_chat": lambda: "" if session.conversation else "No chat is open.",
            "unload": lambda: "" if session.model is not None else "No model is loaded.",
            "reload": lambda: "" if session.model is not None else "No model is loaded.",
        }
        messages = session.messages
        for signal in (session.state_changed, session.model_changed, session.conversation_changed):
            signal.connect(lambda _what: self.refresh())
        for changed in (
            messages.modelReset,
            messages.rowsInserted,
            messages.rowsRemoved,
            messages.dataChanged,
        ):
            changed.connect(lambda *_where: self.refresh())
        for edit_menu in (menu for menu in actions["copy"].associatedObjects() if isinstance(menu, QMenu)):
            edit_menu.aboutToShow.connect(self._show_editing)
            # after what was chosen is done
            edit_menu.aboutToHide.connect(lambda: QTimer.singleShot(0, self, self._free_editing))
        self.refresh()

    def trouble(self, name: str) -> str:
        """Why a command cannot act now; "" when it can."""
        if name in _EDITING:
            return self._editing.trouble(name)
        if name in self._troubles:
            return self._troubles[name]()
        return (
            ""
            if self._actions[name].isEnabled()
            else {"stop": "Nothing runs now.", "undo": "There is nothing to undo."}.get(name, "")
        )

    def refresh(self) -> None:
        """Bring everything up to date."""
        for name, trouble in self._troubles.items():
            self._show(name, trouble())

    def _show(self, name: str, trouble: str) -> None:
        if self._told.get(name) != trouble:
            self._told[name] = trouble
            action = self._actions[name]
            action.setEnabled(not trouble)
            action.setToolTip(trouble)
            action.setStatusTip(trouble)

    def _show_editing(self) -> None:
        """The Edit menu opens: only there these tell whether they can act, because their keys ask by
        themselves.
        """
        for name in _EDITING:
            self._show(name, self._editing.trouble(name))
        if self._editing.can_undo_text():
            self._undo_before = (self._actions["undo"].text(), self._actions["undo"].isEnabled())
            self._actions["undo"].setText("Undo typing")
            self._actions["undo"].setEnabled(True)
        else:
            self._undo_before = None

    def _free_editing(self) -> None:
        for name in _EDITING:
            self._show(name, "")
        if self._undo_before is not None:
            text, enabled = self._undo_before
            self._undo_before = None
            self._actions["undo"].setText(text)
            self._actions["undo"].setEnabled(enabled)

    # -- why not

    def _last(self) -> MessageItem | None:
        model = self._session.messages
        rows = model.rowCount()
        item = model.index(rows - 1, 0, QModelIndex()).data(MESSAGE_ROLE) if rows else None
        return item if isinstance(item, MessageItem) else None

    def _no_message(self) -> str:
        return (
            ""
            if self._session.messages.rowCount() or self._session.notebook
            else "This chat has no messages yet."
        )

    def _no_reply(self) -> str:
        model = self._session.messages
        found = self._session.notebook or any(
            model.index(row, 0).data(MESSAGE_ROLE).role == "assistant"
            for row in reversed(range(model.rowCount()))
        )
        return "" if found else "This chat has no reply yet."

    def _no_last_reply(self) -> str:
        if self._session.notebook:
            return ""
        last = self._last()
        return "" if last is not None and last.role == "assistant" else "This chat does not end with a reply."

    def _no_variant(self, step: int) -> str:
        last = self._last()
        if last is None or last.role != "assistant":
            return "This chat does not end with a reply."
        if last.variant_count < 2:
            return "The last reply has one version only."
        if not 0 <= last.variant_index + step < last.variant_count:
            return "This is the first version." if step < 0 else "This is the last version."
        return ""
