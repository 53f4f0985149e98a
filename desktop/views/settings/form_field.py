"""One field of a form: what is known of it, and its row from the moment it is to be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from desktop.views.settings.form_row import Row
from engine.settings import SettingInfo

__all__ = ["FormField"]


class FormField:
    """The field `name` of type `kind`.

    `words` is what else it is called; one that is `replaced` has no row in the form.

    `row` is None until `make` is called: a row is a dozen widgets, and most fields of a window are not looked
    at.
    """

    def __init__(self, name: str, info: SettingInfo, kind: Any, words: str) -> None:
        self.name, self.info, self.words = name, info, words
        self.replaced = False
        self.own_value = False
        self.row: Row | None = None
        self._kind = kind
        self._source: tuple[str, bool, Sequence[tuple[str, Any]]] | None = None
        self._note: tuple[str, str] = ("", "danger")

    def make(self) -> Row:
        """The row with all that was told so far, but without a value."""
        row = self.row = Row(self.info, self._kind, self.words)
        if self._source is not None:
            row.tell_source(*self._source)
        if self._note[0]:
            row.show_note(*self._note)
        return row

    def tell_source(
        self, source: str, own_value: bool, changed: bool, levels: Sequence[tuple[str, Any]]
    ) -> None:
        """Where the value comes from, as of `Row.tell_source`.

        `own_value`: it is not the program's default.
        """
        self.own_value = own_value or changed
        self._source = (source, changed, levels)
        if self.row is not None:
            self.row.tell_source(*self._source)

    def show_note(self, text: str, tone: str) -> None:
        """A sentence below the editor, as of `Row.show_note`."""
        self._note = (text, tone)
        if self.row is not None:
            self.row.show_note(text, tone)

    def matches(self, words: list[str]) -> bool:
        """Whether label, help, heading or choices have all these lower-case words."""
        choices = " ".join(label for _, label in self.info.choices)
        text = f"{self.info.label} {self.info.help} {self.info.group} {choices} {self.words}".lower()
        return all(word in text for word in words)
