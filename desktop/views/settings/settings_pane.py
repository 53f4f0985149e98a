"""The right pane: a search, the system prompt, and one collapsible group of settings per entry of PANES."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QVBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.layout.tab_order import TabOrder
from desktop.views.settings.form import SettingsForm
from desktop.views.settings.search import first_control, query_words, show_in
from desktop.views.settings.search_line import SearchLine
from desktop.views.settings.system_prompt_field import SystemPromptField
from desktop.views.widgets.collapsible import Group
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.wrapping_text import WrappingButton
from engine.settings import Settings
from engine.words import _, translate

__all__ = ["Group", "Inspector"]


class Inspector(QWidget):
    """Search, system prompt, settings, the switch for advanced settings, "Save as defaults".

    `changed(cls, name, value)` and `reset_requested(cls, name)` name a field of a settings class in `panes`;
    `system_prompt_changed(text, inherits)` as `SystemPromptField`; `advanced_changed(shown)`;
    `save_requested()`; `escaped()` from the button `back` of a narrow window. The owner answers with
    `show_values`, `show_system_prompt` and `show_advanced`.
    """

    changed = Signal(object, str, object)
    reset_requested = Signal(object, str)
    system_prompt_changed = Signal(str, bool)
    advanced_changed = Signal(bool)
    save_requested = Signal()
    escaped = Signal()

    def __init__(self, panes: Sequence[tuple[str, type[Settings]]], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("inspector")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName(_("Settings"))
        self.forms: dict[type[Settings], SettingsForm] = {}
        self.groups: list[Group] = []
        self._tabs = TabOrder(self)
        self.prompt_field = SystemPromptField("chat")
        self.prompt = self.prompt_field.box
        self.prompt_field.changed.connect(self.system_prompt_changed)
        self._nothing = text_label(_("No matching settings."), "muted", wraps=True)
        self._nothing.setContentsMargins(8, 8, 6, 8)
        self._nothing.hide()
        body = QWidget()
        body.setObjectName("inspectorBody")
        column = fill(QVBoxLayout(body), self.prompt_field, self._nothing, margins=(12, 4, 12, 12), spacing=6)
        for position, (title, cls) in enumerate(panes):
            group = Group(translate(title), self._form(cls), opened=position == 0)
            self.groups.append(group)
            column.addWidget(group)
        column.addStretch(1)
        self._scroll = VerticalScrollArea(body)
        fill(
            QVBoxLayout(self), self._head(), (self._scroll, 1), self._foot(), margins=(1, 0, 0, 10), spacing=8
        )

    def _head(self) -> QHBoxLayout:
        self.query = SearchLine(_("Search settings"))
        self.query.textChanged.connect(self._search)
        self.back = IconButton("close", _("Back to the chat"))
        self.back.clicked.connect(self.escaped)
        self.back.hide()
        return fill(QHBoxLayout(), (self.query, 1), self.back, margins=(20, 10, 18, 0))

    def _foot(self) -> FlowLayout:
        self.advanced = QCheckBox(_("Advanced"))
        self.advanced.setAccessibleName(_("Show advanced settings"))
        self.advanced.setToolTip(
            _("Show every setting in all panes, including those that are rarely changed.")
        )
        self.advanced.clicked.connect(self.advanced_changed)
        self.save = WrappingButton(_("Save as defaults"))
        self.save.setToolTip(_("Use these settings for new chats."))
        self.save.clicked.connect(self._save)
        return fill(FlowLayout(), self.advanced, 1, self.save, margins=(20, 0, 18, 0))

    def _form(self, cls: type[Settings]) -> SettingsForm:
        form = SettingsForm(cls, advanced=False)
        form.changed.connect(lambda name, value: self.changed.emit(cls, name, value))
        form.reset_requested.connect(lambda name: self.reset_requested.emit(cls, name))
        form.row_made.connect(self._tabs.renew)
        self.forms[cls] = form
        return form

    def set_extra(
        self,
        cls: type[Settings],
        widget: QWidget,
        *,
        replaces: Sequence[str] = (),
        below: bool = False,
        words: str = "",
    ) -> None:
        """Put `widget` above (or `below`) the form of `cls`; the fields that it `replaces` leave the form.

        A search finds the widget by the words of those fields, and by `words`.
        """
        self.forms[cls].add_extra(widget, below, replaces, words)
        self._tabs.renew()

    def group(self, cls: type[Settings]) -> Group:
        """The group of a settings class."""
        return self.groups[list(self.forms).index(cls)]

    # -- what is shown

    def show_values(
        self,
        settings: Settings,
        sources: dict[str, str],
        below: Settings | None = None,
        levels: Mapping[str, Sequence[tuple[str, Any]]] | None = None,
    ) -> None:
        """Show a settings object and, for each field, its source, the value below it, and all that set it."""
        form = self.forms[type(settings)]
        form.show_values(settings, sources, below, levels)
        own = form.own_values
        self.group(type(settings)).show_note(_("{own} changed", own=own) if own else "")

    def show_system_prompt(
        self, text: str, inherited: str = "", source: str = "", inherits: bool = True
    ) -> None:
        """Show the open conversation's own system prompt, and what applies without one."""
        self.prompt_field.show_prompt(text, inherited, source, inherits)

    def show_advanced(self, shown: bool) -> None:
        """Show advanced settings too, or only those that were changed."""
        self.advanced.setChecked(shown)
        for form in self.forms.values():
            form.set_advanced(shown)

    def reveal(self, cls: type[Settings], name: str) -> None:
        """Scroll to the field `name` of a settings class and focus its editor; without a name, to the system
        prompt.
        """
        self.query.clear()
        target: QWidget | None = self.prompt_field
        if name:
            self.group(cls).open()
            target = self.forms[cls].call(name)
        if target is not None:
            own = bool(name) and not self.forms[cls].replaced(name)
            show_in(self._scroll, target, self.forms[cls].control(name) if own else first_control(target))

    def opened_groups(self) -> tuple[str, ...]:
        """The titles of the unfolded groups."""
        return tuple(group.title for group in self.groups if group.opened)

    def open_groups(self, titles: Iterable[str]) -> None:
        """Unfold these groups and fold the others."""
        requested = set(titles)
        for group in self.groups:
            group.open(group.title in requested)

    # -- what the user does

    def _search(self, text: str) -> None:
        words = query_words(text)
        name = f"system prompt {_('System prompt')}".lower()  # also by the word of the interface's language
        self.prompt_field.setVisible(all(word in name for word in words))
        found = False
        for form, group in zip(self.forms.values(), self.groups, strict=True):
            by_title = bool(words) and all(word in group.title.lower() for word in words)
            group.show_found(words)
            any_row = form.set_query([] if by_title else words)
            group.show_search(any_row or by_title if words else None)
            found = found or any_row
        self._nothing.setVisible(bool(words) and not found and self.prompt_field.isHidden())
        self._scroll.verticalScrollBar().setValue(0)

    def finish(self) -> None:
        """Emit pending changes now: another conversation is about to be opened, or the window to close."""
        self.prompt.commit()
        for form in self.forms.values():
            form.finish()

    def _save(self) -> None:
        self.finish()
        self.save_requested.emit()
