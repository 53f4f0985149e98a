"""Fields whose values apply only if the engine accepts them: checked while the user types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QObject

from desktop.services.settings.validation import ValidationService
from desktop.views.settings.form import SettingsForm

__all__ = ["ValidatedFields"]


class ValidatedFields(QObject):
    """The fields `names` of `form`, checked together by the check `kind`; errors appear below the last of
    them.

    The previous values apply until all of them are valid.
    """

    def __init__(
        self, form: SettingsForm, names: Sequence[str], validation: ValidationService, kind: str
    ) -> None:
        super().__init__(form)
        self._form, self._names, self._validation, self._kind = form, tuple(names), validation, kind
        form.hold(self._names)
        form.proposed.connect(self._on_proposed)
        validation.checked.connect(self._on_checked)

    def values(self) -> tuple[Any, ...]:
        """The values to check."""
        return tuple(self._form.proposed_value(name) for name in self._names)

    def look(self, at_once: bool) -> None:
        """Check the values."""
        self._validation.check(self._kind, self.values(), at_once)

    def accept(self) -> None:
        """Accept the values."""
        self.say("")
        for name in reversed(self._names):
            self._form.accept(name)

    def say(self, sentence: str, tone: str = "danger") -> None:
        """Show a sentence below the last field."""
        self._form.show_note(self._names[-1], sentence, tone)

    def _on_proposed(self, name: str, _value: Any, at_leisure: bool) -> None:
        if name in self._names:
            self.look(at_leisure)

    def _on_checked(self, kind: str, values: Any, sentence: str) -> None:
        if kind != self._kind or values != self.values() or not self._form.proposes(self._names):
            return
        if sentence:
            self.say(sentence)
        else:
            self.accept()


class CheckedLines(ValidatedFields):
    """A field that is a list of texts, each of which is checked."""

    def values(self) -> tuple[Any, ...]:
        return tuple(self._form.proposed_value(self._names[0]))
