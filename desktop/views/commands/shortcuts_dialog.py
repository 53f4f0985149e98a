"""The list of all keys, where they can be changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from PySide6.QtCore import QCoreApplication, QEvent, Qt, QTimer
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QDialog, QFrame, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from desktop.views.commands.actions import COMMANDS, ELSEWHERE, MENUS
from desktop.views.commands.keymap import Keymap, native
from desktop.views.commands.shortcut_editor import ShortcutEditor
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.layout.tab_order import TabOrder
from desktop.views.widgets.combo_box import add_clear_button
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import text_label
from engine.words import _, translate

__all__ = ["ShortcutsDialog"]

_AFTER_COMMA = re.compile(r"(?<=[,،、，])\s*")


class _KeyRow(QFrame):
    """A command, its keys, a button that adds one and a button that resets them.

    `edit(row, key)` is called to change a key, with "" to add one.
    """

    def __init__(self, keymap: Keymap, name: str, edit: Callable[[_KeyRow, str], None]) -> None:
        super().__init__()
        self.setObjectName("keyRow")
        self.name, self._keymap, self._edit = name, keymap, edit
        self.label = text_label(keymap.words(name), wraps=True, plain=True)
        self._keys = FlowLayout(gap=6)
        self.add = IconButton("add", _("Add a key for {words}", words=keymap.words(name)))
        self.add.clicked.connect(lambda: edit(self, ""))
        self.reset = IconButton("reset", _("Reset the keys for {words}", words=keymap.words(name)))
        self.reset.clicked.connect(self._reset)
        keep = self.reset.sizePolicy()
        keep.setRetainSizeWhenHidden(True)
        self.reset.setSizePolicy(keep)
        line = fill(
            FlowLayout(), (self.label, 1), self._keys, self.add, self.reset, margins=(4, 5, 4, 5), spacing=6
        )
        self.column = fill(QVBoxLayout(self), line, margins=(0, 0, 0, 0), spacing=0)
        self._shown: tuple[str, ...] | None = None
        self._buttons: list[QPushButton] = []
        self.refresh()

    def refresh(self) -> None:
        """Show the keys as they are now."""
        self.reset.setVisible(self._keymap.is_changed(self.name))
        keys = self._keymap.keys(self.name)
        if keys == self._shown:
            return
        self._shown = keys
        for old in self._buttons:
            self._keys.removeWidget(old)
            old.deleteLater()
        self._buttons = []
        for key in keys:
            # Names of keys are not mirrored.
            button = QPushButton(f"\u2066{native(key)}\u2069" if self.isRightToLeft() else native(key))
            button.setObjectName("key")
            button.setAutoDefault(False)
            button.setAccessibleName(
                _(
                    "{native}: change this key for {words}",
                    native=native(key),
                    words=self._keymap.words(self.name),
                )
            )
            button.setToolTip(_("Change or remove this key"))
            button.clicked.connect(lambda _checked=False, key=key: self._edit(self, key))
            self._keys.addWidget(button)
            self._buttons.append(button)

    def _reset(self) -> None:
        self._keymap.reset(self.name)
        self.add.setFocus()  # The pressed button is hidden now.

    def matches(self, words: list[str]) -> bool:
        """Whether the command and its keys contain all these lower-case words."""
        keys = " ".join(f"{native(key)} {native(key).replace('+', ' ')}" for key in self._shown or ())
        return all(word in f"{self.label.text()} {keys}".lower() for word in words)


class _Query(QLineEdit):
    """Esc clears it before it closes the dialog."""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        else:
            super().keyPressEvent(event)


class ShortcutsDialog(QDialog):
    """Shows and changes `keymap`; changes apply at once."""

    def __init__(self, keymap: Keymap, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(_("Keyboard shortcuts"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.keymap = keymap
        self._tabs = TabOrder(self)
        self._rows: dict[str, _KeyRow] = {}
        self._sections: list[tuple[QLabel, list[QWidget], list[str]]] = []
        self.query = _Query()
        self.query.setProperty("tone", "search")
        self.query.setPlaceholderText(_("Search commands and keys"))
        self.query.setAccessibleName(_("Search commands and keys"))
        add_clear_button(self.query)
        self.query.textChanged.connect(self._search)
        self.editor = ShortcutEditor(keymap, self)
        self.editor.done.connect(self._end_edit)
        self.editor.hide()
        self._nothing = text_label(_("No matching commands."), "muted", wraps=True)
        self._nothing.setContentsMargins(4, 12, 4, 12)
        self._nothing.hide()
        self._scroll = VerticalScrollArea(self._table())
        layout = fill(QVBoxLayout(self), self.query, (self._scroll, 1), self._buttons())
        dialog_margins(layout)
        self._menus = iter(MENUS)
        self._add_next()
        self._adding = QTimer(self)
        self._adding.timeout.connect(self._add_next)
        self._adding.start()
        keymap.changed.connect(self._refresh)
        self._refresh()
        self.query.setFocus()
        width = self.fontMetrics().averageCharWidth() * 84
        self.resize(min(width, parent.width()), min(round(width * 1.05), max(320, parent.height() - 40)))

    def _buttons(self) -> FlowLayout:
        self.reset_all, close = QPushButton(_("Reset all")), QPushButton(_("Close"))
        self.reset_all.setToolTip(_("Reset the keys of all commands to their defaults"))
        self.reset_all.clicked.connect(self._reset_all)
        close.clicked.connect(self.reject)
        for button in (self.reset_all, close):
            button.setAutoDefault(False)
        return fill(FlowLayout(), self.reset_all, 1, close)

    def _table(self) -> QWidget:
        table = QWidget()
        column = QVBoxLayout(table)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        self._column = column
        column.addWidget(self._nothing)
        column.addStretch(1)
        return table

    @property
    def rows(self) -> dict[str, _KeyRow]:
        """The rows by their commands' names. Those not seen at first are made while the window is idle."""
        self._add_all()
        return self._rows

    def _add_all(self) -> None:
        while self._adding.isActive():
            self._add_next()

    def _add_next(self) -> None:
        """Make the rows of the next menu; after the last one, those of the keys that cannot be changed."""
        menu = next(self._menus, None)
        if menu is not None:
            names = [command.name for command in COMMANDS if command.menu == menu and command.text]
            made = {name: _KeyRow(self.keymap, name, self._begin_edit) for name in names}
            self._rows |= made
            self._add_section(translate(menu), [*made.values()], [])
            return
        self._adding.stop()
        known = [(translate(text), translate(keys)) for text, keys in ELSEWHERE]
        fixed = [_fixed_row(text, keys) for text, keys in known]
        self._add_section(_("Fixed keys"), fixed, [f"{text} {keys}".lower() for text, keys in known])

    def _add_section(self, title: str, rows: Sequence[QWidget], texts: list[str]) -> None:
        heading = text_label(title, "heading")
        heading.setContentsMargins(4, 14 if self._sections else 4, 4, 4)
        section = QWidget()  # shown as a whole: each row shown alone would have all of them laid out again
        fill(QVBoxLayout(section), heading, *rows, margins=(0, 0, 0, 0), spacing=0)
        self._column.insertWidget(self._column.count() - 2, section)
        section.show()
        self._sections.append((heading, list(rows), texts))
        self._tabs.renew()

    # -- searching

    def _search(self, text: str) -> None:
        words = text.lower().split()
        self._add_all()
        any_row = False
        for heading, rows, texts in self._sections:
            seen = False
            for number, row in enumerate(rows):
                found = (
                    row.matches(words)
                    if isinstance(row, _KeyRow)
                    else all(word in texts[number] for word in words)
                )
                row.setVisible(found)
                seen = seen or found
            heading.setVisible(seen)
            any_row = any_row or seen
        self._nothing.setVisible(not any_row)
        self._scroll.verticalScrollBar().setValue(0)

    def _refresh(self) -> None:
        for row in self._rows.values():
            row.refresh()
        self._tabs.renew()
        self.reset_all.setEnabled(
            any(self.keymap.is_changed(command.name) for command in COMMANDS if command.text)
        )

    # -- changing

    def _begin_edit(self, row: _KeyRow, key: str) -> None:
        row.column.addWidget(self.editor)
        self._tabs.renew()
        self.editor.begin(row.name, key)
        QCoreApplication.sendPostedEvents(
            None, QEvent.Type.LayoutRequest.value
        )  # Now its place in the layout is known.
        # With room for its notes.
        self._scroll.ensureWidgetVisible(self.editor, 0, self.fontMetrics().height() * 3)

    def _end_edit(self, name: str) -> None:
        self.editor.hide()
        self.rows[name].add.setFocus()

    def _reset_all(self) -> None:
        self.editor.hide()
        self.keymap.reset_all()
        self.query.setFocus()


def _fixed_row(text: str, keys: str) -> QWidget:
    row = QFrame()
    row.setObjectName("keyRow")
    label, shown = QLabel(text), FlowLayout(gap=6)
    label.setWordWrap(True)
    for key in _AFTER_COMMA.split(keys):  # in a narrow window one below another
        shown.addWidget(text_label(key, "muted", plain=True))
    fill(FlowLayout(row), (label, 1), shown, margins=(4, 7, 4, 7))
    return row
