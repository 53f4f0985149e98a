"""Notifies the user when a long reply ends while nobody is looking at the window.

On Linux the notification goes over the session bus to the desktop's service; elsewhere it is shown by a tray
icon that exists only while it is needed. A click asks for the chat of the reply.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.background import Background
from desktop.services.session.chat_session import ChatSession
from desktop.settings import Behaviour
from desktop.store.conversations.stores import FIRST_TEMPORARY
from desktop.store.database.database import StoreError
from engine.words import _, ngettext

__all__ = ["BusNotifier", "Notifier", "ReplyWatch"]

log = logging.getLogger(__name__)

SERVICE, PLACE = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"
"""The desktop notification interface: https://specifications.freedesktop.org/notification-spec/latest/"""
_SHOWN = 20
"""Notifications to remember; a click on an older one does nothing."""


class Notifier(Protocol):
    """Shows notifications. `show` returns at once; `clicked(str token)` or `failed()` may be called later."""

    def show(self, title: str, text: str, clicked: Callable[[str], None], failed: Callable[[], None]) -> None:
        """Show one. `clicked` receives the desktop's activation token, or ""."""

    def close(self) -> None:
        """Remove what belongs to it."""


class BusNotifier(QObject):
    """Notifications over the session bus of a Linux desktop, on a thread of its own because the service may
    hang.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._background = Background("notify", self)
        self._connected = False
        self._shown: dict[int, Callable[[str], None]] = {}
        self._tokens: dict[int, str] = {}

    def show(self, title: str, text: str, clicked: Callable[[str], None], failed: Callable[[], None]) -> None:
        """Ask the desktop's service to show one."""
        self._connected = self._connected or self._connect()
        if not self._connected:
            failed()
            return

        def answered(number: int | None) -> None:
            if number is None:
                failed()
                return
            self._shown[number] = clicked
            for old in list(self._shown)[:-_SHOWN]:
                del self._shown[old]

        self._background.call(lambda _stop: _notify(title, text), answered)

    def close(self) -> None:
        """End the thread, if there is one."""
        self._background.close(timeout_s=1.0)

    def _connect(self) -> bool:
        try:
            from PySide6.QtCore import SLOT
            from PySide6.QtDBus import QDBusConnection
        except ImportError:
            return False
        bus = QDBusConnection.sessionBus()
        if not bus.isConnected():
            return False
        for name, slot in (("ActionInvoked", "invoked"), ("ActivationToken", "permitted")):
            receiver: Any = SLOT(f"{slot}(QDBusMessage)")  # a str, whatever the stubs say
            bus.connect("", PLACE, SERVICE, name, self, receiver)
        return True

    @Slot("QDBusMessage")
    def permitted(self, message: object) -> None:
        """The desktop provided an activation token; the click follows."""
        number, token = _arguments(message)
        self._tokens = {number: token}

    @Slot("QDBusMessage")
    def invoked(self, message: object) -> None:
        """A notification on the bus was clicked."""
        number, _unused = _arguments(message)
        clicked = self._shown.pop(number, None)
        if clicked is not None:
            clicked(self._tokens.pop(number, ""))


def _arguments(message: object) -> tuple[int, str]:
    """The number and the text of a signal of the service."""
    found = list(getattr(message, "arguments", list)())
    number, word = (*found, 0, "")[:2] if len(found) >= 2 else (0, "")
    return (number, word) if isinstance(number, int) and isinstance(word, str) else (0, "")


def _notify(title: str, text: str) -> int | None:
    """Call the service; returns the number of the notification, or None if there is no service."""
    from PySide6.QtCore import Q_ARG, Q_RETURN_ARG, QMetaObject
    from PySide6.QtDBus import QDBusConnection, QDBusInterface

    # QDBusInterface introspects the service: only then does a Python int become an unsigned number.
    service = QDBusInterface(SERVICE, PLACE, SERVICE, QDBusConnection.sessionBus())
    if not service.isValid():
        return None
    hints = {"desktop-entry": "inglenook", "category": "im.received"}
    arguments = (
        Q_ARG("QString", "Inglenook"), Q_ARG("uint", 0), Q_ARG("QString", "inglenook"),
        Q_ARG("QString", title), Q_ARG("QString", text),
        Q_ARG("QStringList", ["default", _("Show the reply")]), Q_ARG("QVariantMap", hints), Q_ARG("int", -1),
    )  # fmt: skip
    try:
        number = QMetaObject.invokeMethod(service, "Notify", Q_RETURN_ARG("uint"), *arguments)
    except RuntimeError as error:
        log.info("cannot show a notification: %s", error)
        return None
    return number if isinstance(number, int) and number > 0 else None


class ReplyWatch(QObject):
    """Watches the replies of `session`; `in_front()` is whether the user is looking at the program.

    Signals:
        show_requested(int conversation, str token): a notification was clicked: bring that conversation to
        the front.
        unheard(): a reply ended unseen, and no notification could be shown.
    """

    show_requested = Signal(int, str)
    unheard = Signal()

    def __init__(
        self,
        session: ChatSession,
        make_notifier: Callable[[], Notifier],
        in_front: Callable[[], bool],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._session, self._make, self._in_front = session, make_notifier, in_front
        self._notifier: Notifier | None = None
        self._began, self.clock = dict[int, float](), time.monotonic
        session.replies.begun.connect(self._on_begun)
        session.reply_ended.connect(self._on_ended)

    def close(self) -> None:
        """Remove what the notifications need."""
        if self._notifier is not None:
            self._notifier.close()

    @Slot(int)
    def _on_begun(self, message: int) -> None:
        self._began[message] = self.clock()

    @Slot(int, int)
    def _on_ended(self, conversation: int, message: int) -> None:
        least = self._session.settings(Behaviour).notify_after
        now = self.clock()
        seconds = now - self._began.pop(message, now)
        if not least or seconds < least or self._in_front():
            return
        if conversation in self._session.replying_in:
            return  # the last of several replies tells
        try:
            state = self._session.stores.of(message).message(message).state
            title = (
                ""
                if conversation >= FIRST_TEMPORARY
                else self._session.stores.of(conversation).get(conversation).title
            )
            tools = self._session.tools
            waits, goes_on = tools.waiting_in(conversation), tools.pending_in(conversation)
        except StoreError:
            return
        if state == "stopped" or (goes_on and not waits):
            return  # by the user, or another reply follows
        # the chat's title stands in the title, because the text below may be parsed as markup
        if state == "failed":
            what = (
                _("The reply in “{title}” ended early", title=title) if title else _("The reply ended early")
            )
        elif waits:
            what = (
                _("The model wants to call a tool in “{title}”", title=title)
                if title
                else _("The model wants to call a tool")
            )
        else:
            what = _("The reply in “{title}” is ready", title=title) if title else _("The reply is ready")
        if self._notifier is None:
            self._notifier = self._make()
        self._notifier.show(
            what,
            _("After {span}", span=_span(seconds)),
            lambda token: self.show_requested.emit(conversation, token),
            self.unheard.emit,
        )


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes:
        return _("{minutes} min {rest} s", minutes=minutes, rest=rest)
    return ngettext("{n} second", "{n} seconds", rest)
