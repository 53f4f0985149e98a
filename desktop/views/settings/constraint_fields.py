"""The fields of a reply's format and pattern: examples for each format, a text for each, and errors."""

from __future__ import annotations

from typing import Any

from PySide6.QtWidgets import QHBoxLayout, QMenu, QPushButton

from desktop.services.settings.validation import ValidationService
from desktop.views.layout.fill import fill
from desktop.views.settings.form import SettingsForm
from desktop.views.settings.text_editors import TextEditor
from desktop.views.settings.validated_fields import ValidatedFields
from engine.settings import ConstraintSettings
from engine.words import N_, _, translate

__all__ = ["ConstraintFields"]

_WITHOUT_PATTERN = ("none", "json")
_LABELS = {
    "json_schema": N_("JSON schema"),
    "regex": N_("Regular expression"),
    "grammar": N_("Lark or GBNF grammar"),
    "choices": N_("Choices, one per line"),
}
_NO_LABEL = N_("Pattern")
_PLACEHOLDERS = {
    "none": N_("Replies are not constrained."),
    "json": N_("Any JSON value. No pattern is needed."),
    "json_schema": '{\n  "type": "object",\n  "properties": {"name": {"type": "string"}},\n'
    '  "required": ["name"]\n}',
    "regex": r"[A-Z][a-z]+( [A-Z][a-z]+)*",
    "grammar": 'start: "yes" | "no"',
    "choices": "yes\nno\nperhaps",
}
_EMPTY = N_("Enter a pattern or insert an example. Until then, replies are not affected.")
_EMPTY_AFTER = N_(
    "Enter a pattern, insert an example, or choose Free text. Until then, replies keep the previous format."
)
_MISSING = N_(
    "This format needs a text before replies can be written. Enter one, insert an example, or choose Free "
    "text."
)
_UNTIL = N_("Replies are not affected until this is corrected.")
_UNTIL_AFTER = N_("Replies keep the previous format until this is corrected.")
_EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "json_schema": (
        (N_("A person"), """{
  "type": "object",
  "properties": {
    "name": {"type": "string"},
    "age": {"type": "integer", "minimum": 0}
  },
  "required": ["name", "age"]
}"""),
        (N_("A list of words"), """{
  "type": "array",
  "items": {"type": "string"},
  "minItems": 1,
  "maxItems": 10
}"""),
        (N_("A judgement and the reason for it"), """{
  "type": "object",
  "properties": {
    "reason": {"type": "string"},
    "judgement": {"enum": ["good", "fair", "poor"]}
  },
  "required": ["reason", "judgement"]
}"""),
    ),
    "regex": (
        (N_("A date"), r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"),
        (N_("A number"), r"-?\d+(\.\d+)?"),
        (N_("Yes or no, and why"), r"(Yes|No), because [^.\n]+\."),
    ),
    "grammar": (
        (N_("A sum"), 'start: number (" + " number)+\nnumber: /[0-9]+/'),
        (N_("A list of points"), 'start: item+\nitem: "- " /[^\\n]+/ "\\n"'),
        (N_("A question and its answer"), 'start: "Q: " line "A: " line\nline: /[^\\n]+/ "\\n"'),
    ),
    "choices": (
        (N_("Yes or no"), "Yes\nNo"),
        (N_("A mood"), "positive\nneutral\nnegative"),
    ),
}  # fmt: skip


class ConstraintFields(ValidatedFields):
    """The rows `format` and `pattern` of the constraint form."""

    def __init__(self, form: SettingsForm, validation: ValidationService) -> None:
        super().__init__(form, ("format", "pattern"), validation, "constraint")
        self._texts: dict[str, str] = {}
        self._format = ""
        self._editor: TextEditor | None = None
        form.row_made.connect(self._on_made)
        form.values_shown.connect(self._on_shown)
        self._fit()

    def _on_made(self, name: str) -> None:
        if name != "pattern":
            return
        row, editor = self._form.row("pattern"), self._form.editor("pattern")
        assert isinstance(editor, TextEditor)
        self._editor = editor
        editor.box.use_code_font()
        self.examples = QPushButton(_("Insert example"))
        self.examples.setProperty("tone", "quiet")
        self._menu = QMenu(self.examples)
        self.examples.setMenu(self._menu)
        line = fill(QHBoxLayout(), self.examples, 1, margins=(0, 0, 0, 0))
        row.body.insertLayout(row.body.indexOf(row.note), line)
        self._fit_row(editor)

    def look(self, at_once: bool) -> None:
        """Check format and pattern; no check is needed without a pattern."""
        form, pattern = self.values()
        self._fit()
        if form in _WITHOUT_PATTERN:
            self.accept()
        elif not pattern.strip():
            self.say(translate(_EMPTY_AFTER if self._applies() else _EMPTY), "muted")
        else:
            super().look(at_once)

    def say(self, sentence: str, tone: str = "danger") -> None:
        until = translate(_UNTIL_AFTER if self._applies() else _UNTIL)
        super().say(f"{sentence} {until}" if sentence and tone == "danger" else sentence, tone)

    def _applies(self) -> bool:
        """Whether a format applies to replies while another one is not valid yet."""
        shown = self._form.shown
        assert isinstance(shown, ConstraintSettings)
        return shown.format == "json" or (shown.format != "none" and bool(shown.pattern.strip()))

    def _on_proposed(self, name: str, value: Any, at_leisure: bool) -> None:
        if name == "format":
            self._swap_text(str(value))
        super()._on_proposed(name, value, at_leisure)

    def _on_shown(self) -> None:
        """A reset can change the text without the format."""
        self._fit()
        if not self._form.proposes(self._names):
            form, pattern = self.values()
            super().say("" if form in _WITHOUT_PATTERN or pattern.strip() else translate(_MISSING))

    def _swap_text(self, form: str) -> None:
        """Each format keeps its own text, so that trying another one loses nothing."""
        if self._format not in _WITHOUT_PATTERN:
            self._texts[self._format] = self._form.proposed_value("pattern")
        if form not in _WITHOUT_PATTERN and (
            form in self._texts or self._format not in (*_WITHOUT_PATTERN, form)
        ):
            self._form.propose("pattern", self._texts.get(form, ""))

    def _fit(self) -> None:
        """Name, placeholder and examples of the pattern for the chosen format."""
        form = str(self._form.proposed_value("format"))
        if form == self._format:
            return
        self._format = form
        if self._editor is not None:
            self._fit_row(self._editor)

    def _fit_row(self, editor: TextEditor) -> None:
        self._form.row("pattern").rename(translate(_LABELS.get(self._format, _NO_LABEL)))
        editor.box.setPlaceholderText(translate(_PLACEHOLDERS[self._format]))
        editor.setEnabled(self._format not in _WITHOUT_PATTERN)
        self._menu.clear()
        for title, text in _EXAMPLES.get(self._format, ()):
            self._menu.addAction(title).triggered.connect(
                lambda _checked=False, text=text: editor.box.replace_text(text)
            )
        self.examples.setVisible(not self._menu.isEmpty())
