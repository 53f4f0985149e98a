"""One setting in a form: its label, the source of its value, a reset button, its editor, and errors."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QCheckBox, QLabel, QSizePolicy, QVBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.settings.editors import Editor, make_editor
from desktop.views.settings.search import excerpt, marked
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.text_label import set_styled, text_label
from engine.settings import SettingInfo
from engine.units import number_text
from engine.words import N_, _, in_sentence, translate

__all__ = ["PRESET", "Row", "Source", "levels_words", "source_words", "value_words"]

_LONGEST, _SHORT = 60, 12

PRESET = "preset "
"""The prefix of a source that is a preset; its name follows."""
_NAMED = ("folder ", "persona ")
"""The prefixes of other sources with a name."""
_WORDS = {
    "conversation": (N_("this chat"), N_("Set in this chat")),
    "folder": (N_("this folder"), N_("Set in this folder")),
    "model": (N_("this model"), N_("Saved for this model")),
    "makers": (N_("model author"), N_("Recommended by the model author")),
    "saved default": (N_("saved"), N_("Your saved default")),
    "default": ("", N_("The program's default")),
}


def source_words(source: str) -> tuple[str, str]:
    """The source of a value: in a word or two, and as a phrase."""
    if source.startswith(PRESET):
        name = source.removeprefix(PRESET)
        return name, _("From the preset {name}", name=name)
    if source.startswith(_NAMED):
        kind, _space, name = source.partition(" ")
        if kind == "folder":
            short, phrase = _("folder {name}", name=name), _("From the folder {name}", name=name)
        else:
            short, phrase = _("persona {name}", name=name), _("From the persona {name}", name=name)
        return short if len(source) <= _SHORT else name, phrase
    short, phrase = _WORDS[source]
    return translate(short), translate(phrase)


def value_words(info: SettingInfo, value: Any) -> str:
    """A value in a few words: the label of a choice, "on" or "off", a shortened list."""
    if isinstance(value, bool):
        return _("on") if value else _("off")
    labels = dict(info.choices)
    if isinstance(value, list | tuple):
        words = ", ".join(labels.get(each, str(each)) for each in value)
    elif isinstance(value, float):
        words = number_text(value, ".6g")
    else:
        words = labels.get(value, str(value)) if value is not None else _("not set")
    words = " ".join(words.split())
    unit = f" {info.unit}" if info.unit and isinstance(value, int | float) else ""
    return (words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…") + unit if words else _("empty")


def levels_words(info: SettingInfo, levels: Sequence[tuple[str, Any]]) -> str:
    """Every source that sets the value, the effective one first; "" if only one besides the default does."""
    if len([source for source, _unused in levels if source != "default"]) < 2:
        return ""
    lines = [f"{source_words(source)[1]}: {value_words(info, value)}" for source, value in reversed(levels)]
    return "\n".join(lines)


class Source(QLabel):
    """A word in muted type, elided if there is no room."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self.setProperty("tone", "source")
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)

    def show_text(self, text: str) -> None:
        """Show `text`, elided if there is no room."""
        self._text = text
        self.setVisible(bool(text))
        self.updateGeometry()
        self._cut()

    def _cut(self) -> None:
        self.setText(
            QFontMetrics(self.font()).elidedText(self._text, Qt.TextElideMode.ElideRight, self.width())
        )

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(self.font())
        return QSize(
            min(metrics.horizontalAdvance(self._text), metrics.averageCharWidth() * 14) + 4, metrics.height()
        )

    def minimumSizeHint(self) -> QSize:
        return QSize(QFontMetrics(self.font()).averageCharWidth() * 4, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._cut()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self.updateGeometry()


class Row(QWidget):
    """Label, source, reset button and editor of one field, also known as `words`; below them errors."""

    def __init__(self, info: SettingInfo, kind: Any, words: str = "") -> None:
        super().__init__()
        self.info = info
        self.words = words
        self.editor: Editor = make_editor(info, kind)
        self.editor.setAccessibleName(info.label)
        self.reset = IconButton("reset", _("Reset {label}", label=in_sentence(info.label)))
        self.reset.setVisible(False)
        keep = self.reset.sizePolicy()
        keep.setRetainSizeWhenHidden(True)  # The layout does not move when it is shown or hidden.
        self.reset.setSizePolicy(keep)
        self._source = Source()
        self._source.hide()
        self.label: QLabel | None = None
        self.note = text_label(wraps=True, plain=True)
        self.note.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.note.hide()
        self.body = fill(QVBoxLayout(self), self._head(), margins=(0, 0, 0, 0), spacing=3)
        if not self.editor.labelled:
            self.body.addWidget(self.editor)
        self.body.addWidget(self.note)
        self._plain = ""
        self._help, self._spoken, self._reason = "", "", ""
        # Other places where a search matches; made for the first such search.
        self.found: QLabel | None = None
        self.explained: QLabel | None = None

    def _head(self) -> FlowLayout:
        head = FlowLayout(gap=6)
        if self.editor.labelled:
            head.addWidget(self.editor, 1)
        else:
            unit = self.info.unit
            unit_shown = not unit or unit in self.info.label.lower().split()
            self.label = text_label(
                self.info.label if unit_shown else f"{self.info.label} ({unit})", wraps=True, plain=True
            )
            head.addWidget(self.label, 1)
        head.addWidget(self._source)
        head.addWidget(self.reset)
        if self.editor.beside is not None:
            head.addWidget(self.editor.beside)
        return head

    def explain(self) -> None:
        """Show the help below the editor, not only in the tool tip, and no source: there is only one here."""
        self.explained = text_label(self.info.help, "muted", wraps=True, plain=True)
        self.body.insertWidget(self.body.indexOf(self.note), self.explained)

    def rename(self, label: str) -> None:
        """Change the label, which may depend on another setting."""
        if self.label is not None:
            self._plain = ""
            self.label.setTextFormat(Qt.TextFormat.PlainText)
            self.label.setText(label)

    def _focus_editor(self) -> None:
        parts = (self.editor, *self.editor.findChildren(QWidget))
        tab = Qt.FocusPolicy.TabFocus
        part = next((part for part in parts if part.focusPolicy() & tab and part.isVisible()), self.editor)
        part.setFocus(Qt.FocusReason.OtherFocusReason)

    def show_source(self, source: str, changed: bool, levels: Sequence[tuple[str, Any]] = ()) -> None:
        """Show where the value comes from.

        `changed`: a reset would change it. `levels` are all sources that set it, lowest first, with their
        values; if there are several, the tool tip lists them.
        """
        short, where = source_words(source)
        placed = source.startswith(_NAMED)
        named = changed or source == "makers" or source.startswith("folder ")
        self._source.show_text(short if named and self.explained is None else "")
        if not changed and self.reset.hasFocus():  # Qt would give it to the next setting
            self._focus_editor()
        self.reset.setVisible(changed)
        below = _("the program's default") if source == "saved default" else _("the default")
        if len(levels) > 1 and source not in ("saved default", "default"):
            under, value = levels[-2]
            below = (
                f"{value_words(self.info, value)} ({in_sentence(source_words(under)[1])})"
                if under != "default"
                else below
            )
        go_back = (
            _("Click to use {below} in this chat.", below=below)
            if placed
            else _("Click to reset to {below}.", below=below)
        )
        self.reset.set_face(
            "reset",
            _("Reset {label} to {below}", label=in_sentence(self.info.label), below=below),
            f"{where}. {go_back}",
        )
        listed = levels_words(self.info, levels)
        present, *others = listed.split("\n")
        lines = "<br>".join([f"<b>{escape(present)}</b>", *map(escape, others)])
        self._help = f"<p>{self.info.help}</p><p>{lines if listed else f'<i>{escape(where)}.</i>'}</p>"
        listed = listed.replace("\n", "; ")
        self._spoken = f"{self.info.help} {where}." + (f" {listed}." if listed else "")
        self._describe()

    def show_reason(self, reason: str, usable: bool) -> None:
        """Say why the setting does nothing now ("" if it works), and disable it unless it is `usable`."""
        self._reason = reason
        self.setEnabled(usable or not reason)
        self._describe()

    def _describe(self) -> None:
        self.setToolTip(f"<p><b>{escape(self._reason)}</b></p>{self._help}" if self._reason else self._help)
        spoken = f"{self._reason} {self._spoken}".strip()
        self.editor.setAccessibleDescription(spoken)
        self.setAccessibleDescription(spoken)  # without it, that is the tooltip with its tags

    def show_note(self, text: str, tone: str = "danger") -> None:
        """Show a sentence below the editor, as an error or ("muted") as advice; "" removes it."""
        if (text, tone) != (self.note.text(), self.note.property("tone")):
            self.note.setText(text)
            set_styled(self.note, "tone", tone)
        self.note.setAccessibleName(f"{self.info.label}: {text}" if text else "")
        self.note.setVisible(bool(text))

    def show_found(self, words: list[str]) -> None:
        """Mark these words in the label, or show where else they match; no words remove the marks."""
        name = (
            self.label.text()
            if self.label is not None and not self._plain
            else self._plain or self.info.label
        )
        found = marked(name, words, self.palette())
        if self.label is not None:
            self._plain = name if found else ""
            self.label.setTextFormat(Qt.TextFormat.RichText if found else Qt.TextFormat.PlainText)
            self.label.setText(found or name)
        for box in self.editor.findChildren(QCheckBox) if self.label is None else ():
            if bool(box.property("found")) != bool(found):
                set_styled(box, "found", bool(found))
        if self.explained is not None:
            found = marked(self.info.help, words, self.palette())
            self.explained.setTextFormat(Qt.TextFormat.RichText if found else Qt.TextFormat.PlainText)
            self.explained.setText(found or self.info.help)
        elsewhere = ""
        if words and any(word not in name.lower() for word in words):
            choices = ", ".join(label for _unused, label in self.info.choices)
            others = " ".join(
                dict.fromkeys(each for each in self.words.split() if any(word in each for word in words))
            )
            shown_help = "" if self.explained is not None else self.info.help
            places = (shown_help, choices, _("Also found as: {others}", others=others) if others else "")
            elsewhere = next(
                (text for place in places if (text := excerpt(place, words, self.palette()))), ""
            )
        if self.found is None and elsewhere:
            self.found = text_label(tone="muted", wraps=True)
            self.found.setTextFormat(Qt.TextFormat.RichText)
            self.body.addWidget(self.found)
        if self.found is not None:
            self.found.setText(elsewhere)
            self.found.setVisible(bool(elsewhere))

    def in_use(self) -> bool:
        """Whether the user is editing it now, so that it must not disappear."""
        focus = self.window().focusWidget() if self.isVisible() else None
        return self.isVisible() and (self.underMouse() or (focus is not None and self.isAncestorOf(focus)))
