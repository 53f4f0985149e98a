"""The editor in which a new key for a command is pressed; it says who has that key now."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import QFrame, QKeySequenceEdit, QLineEdit, QPushButton, QVBoxLayout, QWidget

from desktop.views.commands.keymap import Keymap, native, portable, typing_trouble
from desktop.views.layout.fill import fill
from desktop.views.widgets.banner import announce
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from engine.words import _

__all__ = ["ShortcutEditor"]

_KEYS = (QEvent.Type.KeyPress, QEvent.Type.KeyRelease, QEvent.Type.ShortcutOverride)


class ShortcutEditor(QFrame):
    """Changes one key of one command of `keymap`; emits `done(name)` at the end."""

    done = Signal(str)

    def __init__(self, keymap: Keymap, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("keyEdit")
        self._keymap = keymap
        self._name = self._before = ""
        self.keys = QKeySequenceEdit()
        self.keys.setMaximumSequenceLength(1)
        self.keys.setAccessibleName(_("Press the new key combination"))
        inner = self.keys.findChild(QLineEdit)
        if inner is not None:
            inner.setPlaceholderText(_("Press the new key combination"))
            inner.setAccessibleName(_("Press the new key combination"))
            # the field has a role for screen readers, which Qt's editor around it lacks
            inner.setFocusProxy(None)  # type: ignore[arg-type]
            self.keys.setFocusProxy(inner)
            inner.installEventFilter(self)
        self.keys.keySequenceChanged.connect(lambda _keys: self._check())
        self.keys.installEventFilter(self)
        self.use = QPushButton(_("Use"))
        self.use.clicked.connect(self._use)
        self.remove = QPushButton(_("Remove"))
        self.remove.setToolTip(_("Remove this key; the command's other keys stay"))
        self.remove.clicked.connect(self._remove)
        self.cancel = QPushButton(_("Cancel"))
        self.cancel.clicked.connect(self._end)
        self.note = text_label(wraps=True, plain=True)
        for button in (self.use, self.remove, self.cancel):
            button.setAutoDefault(False)
        line = fill(FlowLayout(), (self.keys, 1), self.use, self.remove, self.cancel)
        fill(QVBoxLayout(self), line, self.note, margins=(10, 8, 10, 8))

    def begin(self, name: str, key: str) -> None:
        """Ask for a key that replaces `key`; "" adds one."""
        self._name, self._before = name, key
        self.keys.setKeySequence(QKeySequence(key, QKeySequence.SequenceFormat.PortableText))
        self.remove.setVisible(bool(key))
        self.setAccessibleName(_("Key for {words}", words=self._keymap.words(name)))
        self.show()
        self._check()
        self.keys.setFocus(Qt.FocusReason.OtherFocusReason)

    @property
    def pressed(self) -> str:
        """The key that was pressed, as it is saved."""
        return portable(self.keys.keySequence().toString(QKeySequence.SequenceFormat.PortableText))

    def _check(self) -> None:
        """Say why the pressed key may not be a good choice."""
        key = self.pressed
        owner = self._keymap.owner(key) if key else ""
        taken = bool(owner) and owner != self._name
        words = (
            [
                _(
                    "{native} is already used for “{words}”.",
                    native=native(key),
                    words=self._keymap.words(owner),
                )
            ]
            if taken
            else []
        )
        trouble = typing_trouble(key)
        words += [trouble] if trouble else []
        if key and owner == self._name and key != self._before:
            words.append(_("{native} is already a key for this command.", native=native(key)))
        self.note.setText(" ".join(words))
        self.note.setVisible(bool(words))
        self.use.setText(_("Reassign") if taken else _("Use anyway") if trouble else _("Use"))
        self.use.setEnabled(bool(key) and key != self._before and owner != self._name)
        if words:
            announce(self.keys, " ".join(words))

    def _use(self) -> None:
        kept = self._keymap.keys(self._name)
        keys = (
            [self.pressed if key == self._before else key for key in kept]
            if self._before
            else [*kept, self.pressed]
        )
        self._keymap.set_keys(self._name, keys)
        self._end()

    def _remove(self) -> None:
        self._keymap.set_keys(
            self._name, [key for key in self._keymap.keys(self._name) if key != self._before]
        )
        self._end()

    def _end(self) -> None:
        self.done.emit(self._name)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Tab moves to the buttons: no command can have it. All other keys are for Qt's editor."""
        tabs = (Qt.Key.Key_Tab, Qt.Key.Key_Backtab)
        if (
            event.type() == QEvent.Type.KeyPress
            and isinstance(event, QKeyEvent)
            and event.key() in tabs
            and not event.modifiers()
            & (Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier)
        ):
            self.focusNextPrevChild(event.key() == Qt.Key.Key_Tab)
            return True
        if watched is not self.keys and event.type() in _KEYS:
            QCoreApplication.sendEvent(self.keys, event)
            return True
        return False
