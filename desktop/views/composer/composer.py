"""The message box: it grows, Enter sends (never while an input method composes), each chat has a draft."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QPalette
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from desktop.views.composer.message_edit import MessageEdit
from desktop.views.composer.thinking_picker import ThinkingPicker
from desktop.views.composer.tool_picker import ToolPicker
from desktop.views.layout.fill import fill
from desktop.views.widgets.growing_text_edit import GrowingTextEdit
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.text_label import set_styled
from engine.words import _

__all__ = ["COLUMN_WIDTH", "Composer"]

COLUMN_WIDTH = 860
_COMMANDING = (
    Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier
)
"""With one of them a key is a command, not text."""
_ALT_GR = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier
"""What Windows says of AltGr, with which text is typed."""


class Composer(QWidget):
    """The box, the beginning of the reply, and the buttons: files, pictures, beginning, saved prompts,
    thinking, and Send, or Stop while a reply is written.

    `submitted(text)` asks to send, or to queue while a reply is written; the text stays in the box until the
    owner calls `accept()`, so that a refused message is not lost. `stop_requested()` asks to stop;
    `previous_requested()` is the Up key in an empty box; `attach_requested()`, `pictures_requested()` and
    `prompts_requested()` are buttons. With `laden` a message without text can be sent. `left(conversation,
    text, opening)` comes before the text of another chat is shown, which is `saved(conversation)`, text and
    opening, the first time.
    """

    submitted = Signal(str)
    stop_requested = Signal()
    previous_requested = Signal()
    attach_requested = Signal()
    prompts_requested = Signal()
    pictures_requested = Signal()
    left = Signal(int, str, str)

    def __init__(self, saved: Callable[[int], tuple[str, str]] = lambda conversation: ("", "")) -> None:
        super().__init__()
        self._answering = self._laden = False
        self._saved = saved
        self._drafts: dict[int | None, tuple[str, str]] = {}
        self._conversation: int | None = None
        self.box = MessageEdit()
        self.box.setAccessibleName(_("Message"))
        self.opening_box = GrowingTextEdit(_("Start the reply with"), least=1, most=4)
        self.opening_box.setPlaceholderText(_("Start the reply with…"))
        self.opening_box.setAccessibleDescription(
            _("The model continues from this text. It applies to the next message only.")
        )
        self.opening_box.installEventFilter(self)
        self.opening_box.hide()
        self._make_buttons()
        self._arrange()
        self.setFocusProxy(self.box)
        self.box.send.connect(self._send)
        self.box.previous_requested.connect(self.previous_requested)
        self.box.focus_changed.connect(self._show_focus)
        self.box.textChanged.connect(self._show_state)
        self.set_send_with("enter")

    def _make_buttons(self) -> None:
        self.button = IconButton("send", _("Send message"), role=QPalette.ColorRole.HighlightedText)
        self.button.setObjectName("send")
        self.attach = IconButton("attach", _("Attach files"))
        self.picture = IconButton("picture", _("Attach pictures"))
        self.opening_button = IconButton("opening", _("Start the reply with…"))
        self.opening_button.setCheckable(True)
        self.prompts = IconButton("prompts", _("Saved prompts"))
        self.thinking, self.tools = ThinkingPicker(), ToolPicker()
        self.button.clicked.connect(self._pressed)
        self.attach.clicked.connect(self.attach_requested)
        self.picture.clicked.connect(self.pictures_requested)
        self.prompts.clicked.connect(self.prompts_requested)
        self.opening_button.toggled.connect(self._show_opening)

    def _arrange(self) -> None:
        self.frame = QFrame()
        self.frame.setObjectName("composerBox")
        self.frame.setMaximumWidth(COLUMN_WIDTH)
        left = (self.attach, self.picture, self.opening_button, self.prompts)
        buttons = fill(QHBoxLayout(), *left, 1, self.tools, self.thinking, self.button, spacing=2)
        self._inside = fill(
            QVBoxLayout(self.frame), self.opening_box, self.box, buttons, margins=(8, 6, 6, 6), spacing=4
        )
        self._above = QVBoxLayout()
        self._above.setContentsMargins(0, 0, 0, 0)
        self._above.setSpacing(6)
        column = QWidget()
        column.setMaximumWidth(COLUMN_WIDTH)
        fill(QVBoxLayout(column), self._above, self.frame, margins=(0, 0, 0, 0), spacing=6)
        fill(QHBoxLayout(self), 1, (column, 1000), 1, margins=(14, 6, 14, 4))

    def add_above(self, widget: QWidget) -> None:
        """Put a widget above the frame."""
        self._above.addWidget(widget)

    def add_inside(self, widget: QWidget) -> None:
        """Put a widget into the frame, above the text."""
        self._inside.insertWidget(0, widget)

    def text(self) -> str:
        """The text in the box."""
        return self.box.toPlainText()

    def set_text(self, text: str) -> None:
        """Replace the text, and put the cursor at its end."""
        self.box.setPlainText(text)
        self.box.moveCursor(self.box.textCursor().MoveOperation.End)

    def quote(self, text: str) -> None:
        """Write `text` as a quote where the cursor is, and go on below it."""
        cursor = self.box.textCursor()
        before = cursor.block().text()[: cursor.positionInBlock()]
        quoted = "\n".join(f"> {line}".rstrip() for line in text.strip().split("\n"))
        cursor.insertText(("\n\n" if before.strip() else "") + quoted + "\n\n")
        self.box.setTextCursor(cursor)
        self.box.ensureCursorVisible()
        self.box.setFocus()

    def take_key(self, event: QKeyEvent) -> bool:
        """Write what was typed or pasted where nothing can be written; False for any other key."""
        pastes = event.matches(QKeySequence.StandardKey.Paste)
        held = event.modifiers() & _COMMANDING
        types = event.text().isprintable() and event.text().strip() and (not held or held == _ALT_GR)
        if event.type() == QEvent.Type.ShortcutOverride and pastes:
            event.accept()  # before the window's command, which is for text boxes
        elif event.type() == QEvent.Type.KeyPress and (pastes or types):
            self.box.setFocus()
            QCoreApplication.sendEvent(self.box, event)
        else:
            return False
        return True

    def opening(self) -> str:
        """The beginning of the reply; empty for none."""
        text = self.opening_box.text() if self.opening_button.isChecked() else ""
        return text if text.strip() else ""

    def set_opening(self, text: str) -> None:
        """Show the beginning of the reply; empty hides it."""
        self.opening_box.show_text(text)
        self.opening_button.setChecked(bool(text))

    def accept(self) -> None:
        """The message was accepted: empty the box."""
        self.box.clear()
        self.set_opening("")

    def set_laden(self, laden: bool) -> None:
        """Set whether there is something to send besides the text."""
        self._laden = laden
        self._show_state()

    def set_pictures(self, reason: str) -> None:
        """Enable the button for pictures unless there is a reason against them, which it shows then."""
        self.picture.setEnabled(not reason)
        self.picture.setToolTip(reason or _("Attach pictures"))
        self.picture.setAccessibleDescription(reason)

    def set_answering(self, answering: bool) -> None:
        """Show Stop in place of Send while a reply is written."""
        self._answering = answering
        self._show_state()

    def set_send_with(self, key: str) -> None:
        """ "enter": Enter sends and Shift+Enter breaks the line; "ctrl+enter": only Ctrl+Enter sends."""
        self.box.send_with = key
        self.box.setAccessibleDescription(
            _("Press Enter to send, or Shift and Enter for a new line.")
            if key == "enter"
            else _("Press Control and Enter to send, or Enter for a new line.")
        )
        self._show_state()

    def switch_conversation(self, conversation: int | None) -> None:
        """Keep the text of the chat that was open, and restore that of `conversation`."""
        if conversation == self._conversation:
            return
        if self.text() or self.opening():
            self._drafts[self._conversation] = (self.text(), self.opening())
        self.left.emit(self.conversation, self.text(), self.opening())
        self._conversation = conversation
        text, opening = (
            self._drafts.pop(conversation) if conversation in self._drafts else self._saved(conversation or 0)
        )
        self.set_text(text)
        self.set_opening(opening)

    @property
    def conversation(self) -> int:
        """The chat whose text is shown; 0 before there is one."""
        return self._conversation or 0

    def _send(self) -> None:
        if self.text().strip() or self._laden:
            self.submitted.emit(self.text())

    def _pressed(self) -> None:
        if self._answering:
            self.stop_requested.emit()
        else:
            self._send()
        self.box.setFocus()

    def _show_state(self) -> None:
        enter = _("Enter") if self.box.send_with == "enter" else _("Ctrl+Enter")
        if self._answering:
            self.button.set_face("stop", _("Stop the reply"), _("Stop (Esc)"))
            self.box.setPlaceholderText(_("Write the next message"))
        else:
            self.button.set_face("send", _("Send message"), _("Send ({enter})", enter=enter))
            self.box.setPlaceholderText(
                _("Write a message")
                if self.box.send_with == "enter"
                else _("Write a message (Ctrl+Enter to send)")
            )
        self.box.viewport().update()  # Qt shows another placeholder only with the next paint.
        self.button.setEnabled(self._answering or self._laden or bool(self.text().strip()))

    def _show_opening(self, shown: bool) -> None:
        self.opening_box.setVisible(shown)
        if self.isVisible():
            (self.opening_box if shown else self.box).setFocus()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Enter in the reply's beginning moves to the message, Esc clears it."""
        if watched is self.opening_box and isinstance(event, QKeyEvent) and not self.opening_box.composing:
            held = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
            if event.key() == Qt.Key.Key_Escape and event.type() in (
                QEvent.Type.ShortcutOverride,
                QEvent.Type.KeyPress,
            ):
                event.accept()
                if event.type() == QEvent.Type.KeyPress:
                    self.set_opening("")
                return True
            if event.type() == QEvent.Type.KeyPress and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                if held == Qt.KeyboardModifier.NoModifier:
                    self.box.setFocus()
                    return True
                if held == Qt.KeyboardModifier.ControlModifier:
                    self._send()
                    return True
        return super().eventFilter(watched, event)

    def _show_focus(self, focused: bool) -> None:
        set_styled(self.frame, "focused", focused)
