"""Subtle motion: short fades that show where something came from, unless they are disabled."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

from PySide6.QtCore import QEasingCurve, QObject, QPropertyAnimation, Qt, Signal, Slot
from PySide6.QtWidgets import QApplication, QGraphicsOpacityEffect, QWidget

__all__ = ["Fade", "Motion", "is_still"]

FADE_MS = 140
_STILL = "stillMotion"
_PORTAL = (
    "org.freedesktop.portal.Desktop",
    "/org/freedesktop/portal/desktop",
    "org.freedesktop.portal.Settings",
    "ReadOne",
)
_SWITCHES: tuple[tuple[str, str, Callable[[object], bool]], ...] = (
    ("org.freedesktop.appearance", "reduced-motion", lambda value: value == 1),
    ("org.gnome.desktop.interface", "enable-animations", lambda value: value is False),
    ("org.kde.kdeglobals.KDE", "AnimationDurationFactor", lambda value: str(value) in ("0", "0.0")),
)
"""Where Linux desktops store the preference for less motion: namespace, key and test.

Source: https://flatpak.github.io/xdg-desktop-portal/docs/doc-org.freedesktop.portal.Settings.html
"""
_EFFECTS = (Qt.UIEffect.UI_AnimateMenu, Qt.UIEffect.UI_FadeMenu, Qt.UIEffect.UI_AnimateCombo,
    Qt.UIEffect.UI_AnimateTooltip,
            Qt.UIEffect.UI_FadeTooltip, Qt.UIEffect.UI_AnimateToolBox)  # fmt: skip
_GET_CLIENT_AREA_ANIMATION = 0x1042


def is_still() -> bool:
    """Whether animations are disabled."""
    app = QApplication.instance()
    return app is None or bool(app.property(_STILL))


class Fade:
    """Fades `widget` in within 140 ms whenever it is shown; without motion it appears at once.

    The effect stays with the widget, disabled, because Qt deletes a removed effect even during an animation.
    """

    def __init__(self, widget: QWidget) -> None:
        self._widget = widget
        self.effect = QGraphicsOpacityEffect(widget)
        self.effect.setEnabled(False)
        widget.setGraphicsEffect(self.effect)
        self._animation = QPropertyAnimation(self.effect, b"opacity", widget)
        self._animation.setDuration(FADE_MS)
        self._animation.setStartValue(0.0)
        self._animation.setEndValue(1.0)
        self._animation.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._animation.finished.connect(self._end)

    def start(self) -> None:
        """The widget was just shown."""
        if is_still() or not self._widget.isVisible():
            return
        self._animation.stop()
        self.effect.setEnabled(True)
        self._animation.start()

    def _end(self) -> None:
        self.effect.setEnabled(False)


class Motion(QObject):
    """The user's choice: "system" follows the accessibility settings, "none" disables animation, "calm"
    enables it.
    """

    system_answered = Signal()

    def __init__(self, app: QApplication, parent: QObject | None = None) -> None:
        super().__init__(parent or app)
        self._app, self._choice, self._system_still = app, "system", False
        self._waiting: list[QObject] = []

    def apply(self, choice: str) -> None:
        """Apply a choice."""
        self._choice = choice
        still = choice == "none" or (choice == "system" and self._system_still)
        self._app.setProperty(_STILL, still)
        for effect in _EFFECTS:
            QApplication.setEffectEnabled(effect, not still)

    def ask_system(self) -> None:
        """Ask for the system's preference; the answer may arrive later."""
        if sys.platform == "win32":
            enabled = ctypes.c_int(1)
            if ctypes.windll.user32.SystemParametersInfoW(
                _GET_CLIENT_AREA_ANIMATION, 0, ctypes.byref(enabled), 0
            ):
                self._take(not enabled.value)
        elif sys.platform == "linux":
            self._ask_portal()

    def _ask_portal(self) -> None:
        # not before the first paint
        from PySide6.QtDBus import QDBusConnection, QDBusMessage, QDBusPendingCallWatcher

        bus = QDBusConnection.sessionBus()
        if not bus.isConnected():
            return
        for namespace, key, still in _SWITCHES:
            call = QDBusMessage.createMethodCall(*_PORTAL)
            call.setArguments([namespace, key])
            watcher = QDBusPendingCallWatcher(bus.asyncCall(call), self)
            watcher.setProperty("still", still)
            watcher.finished.connect(self._on_answer)
            self._waiting.append(watcher)

    @Slot(object)
    def _on_answer(self, watcher: QObject) -> None:
        from PySide6.QtDBus import QDBusMessage, QDBusVariant

        self._waiting.remove(watcher)
        reply = watcher.reply()  # type: ignore[attr-defined]
        if reply.type() == QDBusMessage.MessageType.ReplyMessage and reply.arguments():
            value = reply.arguments()[0]
            value = value.variant() if isinstance(value, QDBusVariant) else value
            if watcher.property("still")(value):
                self._take(True)
        watcher.deleteLater()
        if not self._waiting:
            self.system_answered.emit()

    def _take(self, still: bool) -> None:
        self._system_still = still
        self.apply(self._choice)
