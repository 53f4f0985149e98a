"""Connects saved prompts and slash commands with the composer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QWidget

from desktop.items.commands.slash import ACTIONS, Entry, SlashWord, matching
from desktop.services.composer.saved_prompts import SavedPromptService
from desktop.services.session.chat_session import ChatSession
from desktop.store.settings.presets import all_presets, find_preset
from desktop.store.settings.prompt_variables import variables
from desktop.store.settings.saved_prompts import Prompt
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.commands.actions import COMMANDS
from desktop.views.composer.slash_popup import SlashPopup
from engine.words import _, translate

if TYPE_CHECKING:
    from desktop.views.composer.saved_prompts_window import SavedPromptsWindow

__all__ = ["SavedPromptController"]

_MOST_IN_MENU = 20


class SavedPromptController(QObject):
    """Opens the list of prompts, inserts prompts into the message, and runs slash commands.

    A slash word runs the command of the window that has it in the table, or else what `words` says.
    """

    def __init__(
        self,
        service: SavedPromptService,
        session: ChatSession,
        chat: ChatPane,
        actions: Mapping[str, QAction],
        words: Mapping[str, SlashWord],
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._service, self._session, self._chat, self._window = service, session, chat, window
        self._actions = {command.slash: actions[command.name] for command in COMMANDS if command.slash}
        self._words = {
            "system": SlashWord(self._set_system),
            "preset": SlashWord(self._choose_preset, self._presets),
            **words,
        }
        self._list: SavedPromptsWindow | None = None
        chat.composer.prompts_requested.connect(self._show_menu)
        self.popup = SlashPopup(chat.composer, self.find)
        self.popup.chosen.connect(self._do)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that opens the list of prompts."""
        return {"prompts": self.open_list}

    def find(self, text: str) -> tuple[Entry, ...]:
        """The slash commands that match a text."""
        if not text.startswith("/"):
            return ()
        prompts = [
            Entry(prompt.name, _words(prompt), "prompt", prompt.text) for prompt in self._service.prompts()
        ]
        known = [
            dataclasses.replace(entry, words=translate(entry.words))
            for entry in ACTIONS
            if self._can(entry.word)
        ]
        choices = {name: tuple(word.choices()) for name, word in self._words.items() if word.choices}
        return matching(text, known, prompts, choices)

    def open_list(self) -> None:
        """Show the saved prompts."""
        if self._list is None:
            from desktop.views.composer.saved_prompts_window import SavedPromptsWindow  # only when needed

            self._list = SavedPromptsWindow(self._service, self._window)
            self._list.chosen.connect(self.insert)
        self._list.show()
        self._list.activateWindow()

    def insert(self, prompt: Prompt) -> None:
        """Insert a prompt into the message, after asking for its variables."""
        if variables(prompt.text):
            from desktop.views.composer.saved_prompt_form import SavedPromptForm  # only when needed

            form = SavedPromptForm(prompt, self._window)
            form.inserted.connect(self._write)
            form.open()
        else:
            self._write(prompt.text)

    def _write(self, text: str) -> None:
        box = self._chat.composer.box
        box.insertPlainText(text)
        box.ensureCursorVisible()
        box.setFocus()

    def _show_menu(self) -> None:
        prompts = self._service.prompts()
        if not prompts:
            self.open_list()
            return
        menu = QMenu(self._window)
        for prompt in prompts[:_MOST_IN_MENU]:
            menu.addAction(prompt.name.replace("&", "&&"), partial(self.insert, prompt))
        menu.addSeparator()
        menu.addAction(_("Manage saved prompts…"), self.open_list)
        menu.aboutToHide.connect(menu.deleteLater)
        button = self._chat.composer.prompts
        menu.popup(button.mapToGlobal(QPoint(0, -menu.sizeHint().height())))

    # -- slash commands

    def _can(self, word: str) -> bool:
        return word in self._words or (word in self._actions and self._actions[word].isEnabled())

    def _do(self, entry: Entry, text: str) -> None:
        self._chat.composer.box.clear()
        word, _unused, _unused = entry.word.partition(" ")
        if entry.kind == "prompt":
            self.insert(Prompt(0, entry.word, entry.value))
        elif word in self._actions:
            self._actions[word].trigger()
        elif entry.kind == "choice":
            self._words[word].act(entry.value)
        elif self._words[word].choices is None:
            self._words[word].act(text.partition(" ")[2].strip())

    def _set_system(self, text: str) -> None:
        if self._session.set_system_prompt(text):
            self._session.conversation_changed.emit(self._session.conversation)  # The settings show it too.
            self._chat.banner.show_notice(_("The system prompt of this chat was changed."), "info")

    def _presets(self) -> Sequence[str]:
        return [preset.name for preset in all_presets(self._session.preferences)]

    def _choose_preset(self, name: str) -> None:
        found = find_preset(self._session.preferences, name)
        if found is not None and self._session.choose_preset(found):
            self._chat.banner.show_notice(
                _("The preset “{name}” is now used in this chat.", name=name), "info"
            )


def _words(prompt: Prompt) -> str:
    """The beginning of a prompt, on one line."""
    return " ".join(prompt.text[:200].split())
