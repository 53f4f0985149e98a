"""The dialogs that add a server of tools, or change one: by its fields, or by the JSON that it comes with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFormLayout,
    QLineEdit,
    QPlainTextEdit,
    QVBoxLayout,
    QWidget,
)

from desktop.services.tools.servers import ServerConfig
from desktop.store.database.database import StoreError
from desktop.views.layout.breakable import breakable
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.banner import announce
from desktop.views.widgets.combo_box import ComboBox
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.wrapping_text import WrappingCheckBox
from engine.errors import BadSetting
from engine.words import N_, _, translate

__all__ = ["JsonDialog", "ToolServerDialog"]

_TRUST = N_(
    "A program runs with your rights, and an address gets what the model sends to it: add only servers that "
    "you trust."
)
_JSON = N_(
    "Paste the JSON that the server's page gives for Claude Desktop, Cursor, VS Code or LM Studio. {trust}"
)
_EXAMPLE = '{"mcpServers": {"files": {"command": "npx", "args": ["…"]}}}'
_HIDDEN = "••••••"
_Pairs = tuple[tuple[str, str], ...]
_PROGRAM, _ADDRESS, _OLD_ADDRESS = range(3)
_KINDS = (N_("A program on this computer"), N_("An address"), N_("An address of the old form (SSE)"))


class _Dialog(QDialog):
    """A form. `save()` saves what it says and returns the name of a server; while that raises `BadSetting` or
    `StoreError`, the dialog stays open and shows the sentence.

    `saved(name)`: the name of a server that was saved.
    """

    saved = Signal(str)

    def __init__(self, title: str, save: Callable[[], str], parent: QWidget) -> None:
        super().__init__(parent)
        self._save = save
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.trouble = text_label(tone="danger", wraps=True, plain=True)
        self.trouble.hide()
        buttons = QDialogButtonBox.StandardButton
        self.buttons = QDialogButtonBox(buttons.Save | buttons.Cancel)
        self.buttons.button(buttons.Save).setProperty("tone", "primary")
        self.buttons.accepted.connect(self._try)
        self.buttons.rejected.connect(self.reject)

    def _put_together(self, about: str, body: QWidget) -> None:
        self._area = VerticalScrollArea(body)
        words = text_label(about, tone="muted", wraps=True, plain=True)
        dialog_margins(fill(QVBoxLayout(self), words, self.trouble, (self._area, 1), self.buttons))
        parent = self.parentWidget()
        wide, high = (parent.width(), parent.height()) if parent is not None else (600, 600)
        self.resize(min(560, max(340, wide - 40)), min(560, max(320, high - 40)))

    def _try(self) -> None:
        try:
            name = self._save()
        except (BadSetting, StoreError) as error:
            self.trouble.setText(breakable(str(error)))
            self.trouble.setAccessibleName(str(error))
            self.trouble.show()
            announce(self, str(error))
            return
        self.saved.emit(name)
        self.accept()


class ToolServerDialog(_Dialog):
    """Edits `config`, or a new one; `put` saves it. The values of variables and headers, which may be keys,
    are seen on request only.
    """

    def __init__(
        self, config: ServerConfig | None, put: Callable[[ServerConfig], None], parent: QWidget
    ) -> None:
        title = _("Add a tool server") if config is None else _("Edit {name}", name=config.name)
        super().__init__(title, self._save_fields, parent)
        self._config, self._put = config, put
        self.name, self.kind = QLineEdit(), ComboBox()
        self.kind.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.kind.addItems([translate(words) for words in _KINDS])
        self.command, self.folder, self.url = QLineEdit(), QLineEdit(), QLineEdit()
        self.arguments, self.environment, self.headers = (
            _lines(self, _("One argument per line")),
            _lines(self, _("NAME=value, one variable per line")),
            _lines(self, _("Name: value, one header per line")),
        )
        self.values = WrappingCheckBox(_("Show the values of variables and headers"))
        self._describe()
        self._arrange()
        if config is not None:
            self._show(config)
            self._hide_values(config)
        self._form.setRowVisible(self.values, self._hides_values)
        self.values.toggled.connect(self._show_values)
        self.kind.currentIndexChanged.connect(self._show_kind)
        self._show_kind()
        self.name.setFocus()

    def _describe(self) -> None:
        for line, example in ((self.command, "npx"), (self.folder, ""), (self.url, "https://HOST/mcp")):
            line.setPlaceholderText(example)
            line.setLayoutDirection(Qt.LayoutDirection.LeftToRight)

    def _arrange(self) -> None:
        body = QWidget()
        self._form = form = QFormLayout()
        fill(QVBoxLayout(body), form, 1, margins=(0, 0, 0, 0))
        form.setContentsMargins(0, 0, 0, 0)
        form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        for words, field in (
            (_("Name"), self.name), (_("Kind"), self.kind), (_("Program"), self.command),
            (_("Arguments"), self.arguments), (_("Environment"), self.environment),
            (_("Folder"), self.folder), (_("Address"), self.url), (_("Headers"), self.headers),
        ):  # fmt: skip
            field.setAccessibleName(words)
            form.addRow(words, field)
        form.addRow(self.values)
        self._put_together(translate(_TRUST), body)

    def _show(self, config: ServerConfig) -> None:
        self.name.setText(config.name)
        kind = _PROGRAM if not config.url else _OLD_ADDRESS if config.transport == "sse" else _ADDRESS
        self.kind.setCurrentIndex(kind)
        self.command.setText(config.command)
        self.arguments.setPlainText("\n".join(config.arguments))
        self.folder.setText(config.folder)
        self.url.setText(config.url)

    @property
    def _hides_values(self) -> bool:
        return self.environment.isReadOnly() or self.headers.isReadOnly()

    def _hide_values(self, config: ServerConfig) -> None:
        for field, pairs, mark in self._pairs_of(config):
            if pairs:
                field.setPlainText(_text_of(tuple((name, _HIDDEN) for name, _value in pairs), mark))
                field.setReadOnly(True)

    def _show_values(self) -> None:
        assert self._config is not None
        self.values.setEnabled(False)  # what is edited from now on is not hidden again
        for field, pairs, mark in self._pairs_of(self._config):
            if field.isReadOnly():
                field.setPlainText(_text_of(pairs, mark))
                field.setReadOnly(False)

    def _pairs_of(self, config: ServerConfig) -> tuple[tuple[QPlainTextEdit, _Pairs, str], ...]:
        return (self.environment, config.environment, "="), (self.headers, config.headers, ": ")

    def _show_kind(self) -> None:
        runs = self.kind.currentIndex() == _PROGRAM
        for field in (self.command, self.arguments, self.environment, self.folder):
            self._form.setRowVisible(field, runs)
        for field in (self.url, self.headers):
            self._form.setRowVisible(field, not runs)

    def _save_fields(self) -> str:
        before = self._config
        name, kind = self.name.text().strip(), self.kind.currentIndex()
        command, url = self.command.text().strip(), self.url.text().strip()
        if not name:
            raise BadSetting(_("The server has no name. Enter one that you will recognise."))
        made = dataclasses.replace(before, name=name) if before is not None else ServerConfig(name)
        environment, headers = (
            pairs if field.isReadOnly() else _pairs(field, mark.strip())
            for field, pairs, mark in self._pairs_of(made)
        )
        if kind == _PROGRAM:
            if not command:
                raise BadSetting(_("No program is given. Enter its name, such as npx, or its path."))
            made = dataclasses.replace(
                made, command=command, environment=environment,
                arguments=tuple(filter(None, self.arguments.toPlainText().split("\n"))),
                folder=self.folder.text().strip(),
                url="", headers=(), transport="",
            )  # fmt: skip
        else:
            if not url.lower().startswith(("http://", "https://")):
                raise BadSetting(_("The address “{url}” does not begin with http:// or https://.", url=url))
            made = dataclasses.replace(
                made, command="", arguments=(), environment=(), folder="", url=url,
                headers=headers, transport="sse" if kind == _OLD_ADDRESS else "",
            )  # fmt: skip
        self._put(made)
        return name


class JsonDialog(_Dialog):
    """Adds the servers of a pasted `text`, which `read` returns; `add` saves all of them or none."""

    def __init__(
        self,
        read: Callable[[str], tuple[ServerConfig, ...]],
        add: Callable[..., None],
        parent: QWidget,
        text: str = "",
    ) -> None:
        super().__init__(_("Add tool servers from JSON"), self._save_all, parent)
        self._read, self._add = read, add
        self.text = QPlainTextEdit(text)
        self.text.setAccessibleName(_("JSON of tool servers"))
        self.text.setPlaceholderText(_EXAMPLE)
        self.text.setTabChangesFocus(True)
        self.text.setProperty("tone", "field")
        self.text.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        self.text.setMinimumHeight(8 * self.fontMetrics().lineSpacing())
        self._put_together(translate(_JSON, trust=translate(_TRUST)), self.text)
        self.text.setFocus()

    def _save_all(self) -> str:
        found = self._read(self.text.toPlainText())
        self._add(*found)
        return found[-1].name


def _lines(parent: QWidget, example: str) -> QPlainTextEdit:
    field = QPlainTextEdit()
    field.setPlaceholderText(example)
    field.setTabChangesFocus(True)
    field.setProperty("tone", "field")
    field.setFixedHeight(4 * parent.fontMetrics().lineSpacing())
    return field


def _text_of(pairs: _Pairs, mark: str) -> str:
    return "\n".join(f"{name}{mark}{value}" for name, value in pairs)


def _pairs(field: QPlainTextEdit, mark: str) -> _Pairs:
    """The names and values of the lines of a field. Raises `BadSetting`."""
    found = []
    for line in field.toPlainText().split("\n"):
        if not line.strip():
            continue
        name, sign, value = line.partition(mark)
        if not sign or not name.strip():
            words = (
                _("The variable “{line}” has no equals sign. Write it as NAME=value.", line=line.strip()[:40])
                if mark == "="
                else _("The header “{line}” has no colon. Write it as Name: value.", line=line.strip()[:40])
            )
            raise BadSetting(words)
        found.append((name.strip(), value if mark == "=" else value.strip()))
    return tuple(found)
