"""A settings dataclass as a form: one row per field, under group headings, with the source of its value."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from desktop.items.commands.synonyms import setting_words
from desktop.views.settings.editors import Editor
from desktop.views.settings.form_field import FormField
from desktop.views.settings.form_row import Row
from desktop.views.settings.search import first_control
from desktop.views.widgets.text_label import text_label
from engine.settings import Settings, setting_info

__all__ = ["SettingsForm"]


class SettingsForm(QWidget):
    """The rows of settings class `cls`, or of those of its fields that are in `names`, with or without the
    `advanced` ones at first. If `explained`, each shows its help below its editor.

    `changed(name, value)` is emitted when the user changed a value, `reset_requested(name)` when a reset
    button was pressed; the owner answers with `show_values`. `typed(name, value)` comes with every key and
    every step of a slider. Fields on hold emit `proposed(name, value, at_leisure)` instead of `changed`: at
    every key, and with `at_leisure` when the user pauses or leaves; `accept` turns a proposal into `changed`,
    `refuse` does not. A proposal stays in the editor until then, or until the value itself changes.
    `values_shown` comes after each `show_values`.

    A row is made when it becomes visible or is asked for: then `row_made(name)` is emitted.
    """

    changed = Signal(str, object)
    typed = Signal(str, object)
    reset_requested = Signal(str)
    proposed = Signal(str, object, bool)
    values_shown = Signal()
    row_made = Signal(str)

    def __init__(
        self,
        cls: type[Settings],
        advanced: bool = True,
        names: Sequence[str] = (),
        explained: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.cls = cls
        self.shown: Settings = cls()
        self._fields: dict[str, FormField] = {}
        self._sections: list[tuple[QLabel | None, list[FormField]]] = []
        self._extras: list[tuple[QWidget, tuple[str, ...], str]] = []
        self._held: set[str] = set()
        self._proposals: dict[str, Any] = {}
        self._advanced, self._explained = advanced, explained
        self._query: list[str] = []
        self._called = ""
        self._folded = False
        self._why: QLabel | None = None
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(12)
        self._body = QVBoxLayout()
        self._body.setSpacing(12)
        self._layout.addLayout(self._body)
        self._list_fields(names or tuple(cls().to_json()))

    def _list_fields(self, names: Sequence[str]) -> None:
        kinds = typing.get_type_hints(self.cls)
        known = {field.name: field for field in dataclasses.fields(self.cls)}  # type: ignore[arg-type]
        for field in map(known.__getitem__, names):
            words = setting_words(self.cls, field.name)
            self._fields[field.name] = FormField(field.name, setting_info(field), kinds[field.name], words)
        for group in dict.fromkeys(field.info.group for field in self._fields.values()):
            heading = self._heading(group) if group else None
            self._sections.append(
                (heading, [field for field in self._fields.values() if field.info.group == group])
            )

    def _make(self, field: FormField) -> Row:
        """Make the row of a field, in its place and with its value."""
        name, row = field.name, field.make()
        row.setVisible(False)
        if self._explained:
            row.explain()
        row.editor.set_value(self.proposed_value(name))
        row.editor.show_context(self.shown)
        if self._query:
            row.show_found(self._query)
        row.editor.edited.connect(lambda value: self._edited(name, value, True))
        row.editor.typed.connect(lambda value: self._edited(name, value, False))
        row.reset.clicked.connect(lambda: self._reset(name))
        self._body.insertWidget(self._place(field), row)
        self.row_made.emit(name)
        return row

    def _place(self, target: FormField) -> int:
        """The position of a field's row in the layout."""
        place = 0
        for heading, fields in self._sections:
            place += heading is not None
            for field in fields:
                if field is target:
                    return place
                place += field.row is not None
        return place

    def _heading(self, text: str) -> QLabel:
        heading = text_label(text, "subheading")
        heading.setIndent(0)
        self._body.addWidget(heading)
        return heading

    def show_values(
        self,
        settings: Settings,
        sources: dict[str, str],
        below: Settings | None = None,
        levels: Mapping[str, Sequence[tuple[str, Any]]] | None = None,
    ) -> None:
        """Show the fields of `settings`.

        `sources` gives the source of each field's value, as `LayeredSettings.source_of`; `below` are the
        values that a reset restores (the program's defaults if omitted); `levels` is what
        `LayeredSettings.source_layers` returns.
        """
        before, self.shown = self.shown, settings
        defaults = self.cls()
        below = below or defaults
        for name, field in self._fields.items():
            value, source = getattr(settings, name), sources[name]
            if name not in self._proposals or value != getattr(before, name):
                self._forget(name)
                if field.row is not None:
                    field.row.editor.set_value(value)
            changed = source == "saved default" or (source != "default" and value != getattr(below, name))
            field.show_source(
                source,
                value != getattr(defaults, name),
                changed,
                levels.get(name, ()) if levels is not None else (),
            )
            if field.row is not None:
                field.row.editor.show_context(settings)
        self._arrange()
        self.values_shown.emit()

    def values(self) -> Settings:
        """The values, as the form shows them. Raises `BadSetting` if the engine rejects one."""
        shown = {
            name: self.proposed_value(name) if field.row is None else field.row.editor.value()
            for name, field in self._fields.items()
        }
        return dataclasses.replace(self.shown, **shown)  # type: ignore[type-var]

    def finish(self) -> None:
        """Emit pending changes now instead of after a pause."""
        for row in self._made():
            row.editor.finish()

    def _made(self) -> list[Row]:
        return [field.row for field in self._fields.values() if field.row is not None]

    # -- fields whose values are checked before they apply

    def hold(self, names: Sequence[str]) -> None:
        """Put fields on hold: from now on they emit `proposed` instead of `changed`."""
        self._held.update(names)

    def proposed_value(self, name: str) -> Any:
        """The proposed value of a field on hold; otherwise its value."""
        return self._proposals.get(name, getattr(self.shown, name))

    def proposes(self, names: Sequence[str]) -> bool:
        """Whether the user proposes a value for any of these fields."""
        return any(name in self._proposals for name in names)

    def propose(self, name: str, value: Any) -> None:
        """Put a proposed value into the editor of a field on hold; `proposed` is not emitted."""
        self._proposals[name] = value
        self._put(name, value)

    def accept(self, name: str) -> None:
        """Accept a proposal: emit it as the new value."""
        if name in self._proposals:
            value = self._proposals.pop(name)
            if value != getattr(self.shown, name):
                self.changed.emit(name, value)

    def take_proposals(self) -> dict[str, Any]:
        """Take the open proposals out of the form; the editors show the values again."""
        taken = dict(self._proposals)
        for name in taken:
            self._forget(name)
            self._put(name, getattr(self.shown, name))
        return taken

    def put_proposals(self, proposals: dict[str, Any]) -> None:
        """Restore proposals that were taken, and have them checked."""
        for name, value in proposals.items():
            self.propose(name, value)
        for name, value in proposals.items():
            self.proposed.emit(name, value, True)

    def show_reasons(self, reasons: Mapping[str, str], words: str = "") -> None:
        """Show why fields do nothing with the loaded model, by their names; "" for those that work. What
        stands in for fields is disabled if none of them works. `words` are said above all of them.
        """
        for name, field in self._fields.items():
            field.show_reason(reasons.get(name, ""))
        for widget, replaced, _ in self._extras:
            if replaced:
                widget.setEnabled(not all(self._fields[name].reason for name in replaced))
        if self._why is None and words:
            self._why = text_label(tone="muted", wraps=True, plain=True)
            self._layout.insertWidget(0, self._why)
        if self._why is not None:
            self._why.setText(words)
            self._why.setVisible(bool(words))

    def show_note(self, name: str, text: str, tone: str = "danger") -> None:
        """Show a sentence below the editor of a field, as `Row.show_note`."""
        self._fields[name].show_note(text, tone)

    def _put(self, name: str, value: Any) -> None:
        row = self._fields[name].row
        if row is not None:
            row.editor.set_value(value)

    def _forget(self, name: str) -> None:
        if name in self._proposals:
            del self._proposals[name]
            self.show_note(name, "")

    def _edited(self, name: str, value: Any, at_leisure: bool) -> None:
        if not at_leisure:
            self.typed.emit(name, value)
        if name in self._held:
            self._proposals[name] = value
            self.proposed.emit(name, value, at_leisure)
        elif at_leisure:
            self.changed.emit(name, value)

    def _reset(self, name: str) -> None:
        self._forget(name)
        self.reset_requested.emit(name)

    # -- which rows are seen

    def set_advanced(self, shown: bool) -> None:
        """Show advanced fields too; those that differ from the program's default are always shown."""
        self._advanced = shown
        self._arrange(settled=True)

    def set_query(self, words: list[str]) -> bool:
        """Show only rows that contain all these words; without words show the usual ones.

        Returns whether any row is shown.
        """
        self._query = words
        self._called = ""
        for row in self._made():
            row.show_found(words)
        return self._arrange(settled=True)

    def call(self, name: str) -> QWidget | None:
        """Show the row of a field until the next search, advanced or not; returns it, or the widget that
        replaces it.
        """
        self._called = name
        if not self._fields[name].replaced:
            row = self.row(name)
            self._arrange(settled=True)
            return row
        self._arrange(settled=True)
        return next((widget for widget, replaced, _ in self._extras if name in replaced), None)

    def replaced(self, name: str) -> bool:
        """Whether another widget shows this field."""
        return self._fields[name].replaced

    def add_extra(self, widget: QWidget, below: bool, replaces: Sequence[str] = (), words: str = "") -> None:
        """Put a widget before the first row, or after the last one; the fields that it `replaces` lose their
        rows.

        A search finds the widget by the words of those fields, and by `words`.
        """
        self._layout.insertWidget(self._layout.count() if below else 0, widget)
        for name in replaces:
            self._fields[name].replaced = True
        self._extras.append((widget, tuple(replaces), words.lower()))
        self._arrange(settled=True)

    def setVisible(self, visible: bool) -> None:
        """Fold or unfold the form; rows are made before they become visible."""
        super().setVisible(visible)
        self._folded = not visible
        if visible:
            self._arrange(settled=True)

    def _arrange(self, settled: bool = False) -> bool:
        """Show or hide the rows; unless `settled`, a row that the user is editing stays."""
        any_row = False
        for heading, fields in self._sections:
            seen = [field for field in fields if self._is_seen(field) or (not settled and _at_it(field.row))]
            for field in fields:
                if field in seen and field.row is None and not self._folded:
                    self._make(field)
                if field.row is not None:
                    field.row.setVisible(field in seen)
            if heading is not None:
                heading.setVisible(bool(seen))
            any_row = any_row or bool(seen)
        for widget, replaced, words in self._extras:
            named = bool(words) and all(word in words for word in self._query)
            found = (
                not self._query or named or any(self._fields[name].matches(self._query) for name in replaced)
            )
            widget.setVisible(found)
            any_row = any_row or found
        return any_row

    def _is_seen(self, field: FormField) -> bool:
        if field.replaced:
            return False
        if self._query:
            return field.matches(self._query)
        return self._advanced or not field.info.advanced or field.own_value or field.name == self._called

    # -- parts

    @property
    def own_values(self) -> int:
        """The number of fields that differ from the program's defaults."""
        return sum(field.own_value for field in self._fields.values())

    def row(self, name: str) -> Row:
        """The row of the field `name`."""
        field = self._fields[name]
        if field.row is not None:
            return field.row
        row = self._make(field)
        row.setVisible(self._is_seen(field))
        return row

    def control(self, name: str) -> QWidget | None:
        """What takes the focus when the field `name` is gone to; a number may have only its box."""
        editor = self.editor(name)
        return first_control(editor) or (first_control(editor.beside) if editor.beside is not None else None)

    def editor(self, name: str) -> Editor:
        """The editor of the field `name`."""
        return self.row(name).editor


def _at_it(row: Row | None) -> bool:
    return row is not None and not row.isHidden() and row.in_use()
