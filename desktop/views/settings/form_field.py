"""One field of a form; its row is made when it becomes visible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from desktop.views.settings.form_row import Row
from engine.settings import SettingInfo

__all__ = ["FormField"]


class FormField:
    """The field `name` of type `kind`.

    `words` are other names for it; a `replaced` field has no row in the form.

    `row` is None until `make` is called: a row is a dozen widgets, and most fields are never looked at.
    """

    def __init__(self, name: str, info: SettingInfo, kind: Any, words: str) -> None:
        self.name, self.info, self.words = name, info, words
        self.replaced = False
        self.own_value = False
        self.row: Row | None = None
        self._kind = kind
        self._source: tuple[str, bool, Sequence[tuple[str, Any]]] | None = None
        self._note: tuple[str, str] = ("", "danger")
        self.reason = ""
        """Why the setting does nothing with the loaded model."""

    def make(self) -> Row:
        """Make the row with everything shown so far, but without a value."""
        row = self.row = Row(self.info, self._kind, self.words)
        if self._source is not None:
            row.show_source(*self._source)
        if self._note[0]:
            row.show_note(*self._note)
        self._show_reason()
        return row

    def show_reason(self, reason: str) -> None:
        """Show why the setting does nothing; one that has another value than by default can be reset."""
        self.reason = reason
        self._show_reason()

    def _show_reason(self) -> None:
        if self.row is not None:
            self.row.show_reason(self.reason, self.own_value)
            if not self._note[0] and (self.reason or self.row.note.property("tone") == "muted"):
                self.row.show_note(self.reason if self.own_value else "", "muted")

    def show_source(
        self, source: str, own_value: bool, changed: bool, levels: Sequence[tuple[str, Any]]
    ) -> None:
        """Show the source of the value, as `Row.show_source`.

        `own_value`: it differs from the program's default.
        """
        self.own_value = own_value or changed
        self._source = (source, changed, levels)
        if self.row is not None:
            self.row.show_source(*self._source)
            self._show_reason()

    def show_note(self, text: str, tone: str) -> None:
        """Show a sentence below the editor, as `Row.show_note`."""
        self._note = (text, tone)
        if self.row is not None:
            self.row.show_note(text, tone)

    def matches(self, words: list[str]) -> bool:
        """Whether label, help, heading and choices contain all these lower-case words."""
        choices = " ".join(label for _, label in self.info.choices)
        text = f"{self.info.label} {self.info.help} {self.info.group} {choices} {self.words}".lower()
        return all(word in text for word in words)
