"""Between saved prompts, slash commands and the composer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QWidget

from desktop.items.commands.slash import ACTIONS, Entry, matching
from desktop.services.composer.saved_prompts import SavedPromptService
from desktop.services.session.chat_session import ChatSession
from desktop.store.settings.presets import all_presets, find_preset
from desktop.store.settings.prompt_variables import variables
from desktop.store.settings.saved_prompts import Prompt
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.composer.slash_popup import SlashPopup

if TYPE_CHECKING:
    from desktop.views.composer.saved_prompts_window import SavedPromptsWindow

__all__ = ["SavedPromptController"]

_COMMANDS: dict[str, tuple[str, ...]] = {
    "new": ("new_chat",), "temp": ("new_temporary",), "regenerate": ("regenerate",),
    "continue": ("continue",), "attach": ("attach",), "prompts": ("prompts",), "fork": ("fork",),
    "export": ("export_chat",), "persona": ("persona",),
    "find": ("find",), "help": ("shortcuts",),
}  # fmt: skip
"""The window's command for a word: the first of these names that it has.

A word whose command is not there is not offered.
"""
_MOST_IN_MENU = 20


class SavedPromptController(QObject):
    """Opens the list of prompts, writes prompts into the message, and does what slash commands say.

    `choices` tells what the arguments of a word can be, `choose` does what one of them stands for, `run` what
    a word without a command of the window stands for.
    """

    def __init__(
        self, service: SavedPromptService, session: ChatSession, chat: ChatPane, window: QWidget
    ) -> None:
        super().__init__(window)
        self._service, self._session, self._chat, self._window = service, session, chat, window
        self._actions: Mapping[str, QAction] = {}
        self._list: SavedPromptsWindow | None = None
        self.choices: dict[str, Callable[[], Sequence[str]]] = {"preset": self._presets}
        self.choose: dict[str, Callable[[str], object]] = {"preset": self._choose_preset}
        self.run: dict[str, Callable[[], object]] = {}
        self.popup: SlashPopup | None = None
        chat.composer.prompts_requested.connect(self._show_menu)

    def begin(self, actions: Mapping[str, QAction]) -> None:
        """From now on slash commands do what these do."""
        self._actions = actions
        self.popup = SlashPopup(self._chat.composer, self.find)
        self.popup.chosen.connect(self._do)

    def find(self, text: str) -> tuple[Entry, ...]:
        """The slash commands that fit a text."""
        if not text.startswith("/"):
            return ()
        prompts = [
            Entry(prompt.name, _words(prompt), "prompt", prompt.text) for prompt in self._service.prompts()
        ]
        known = [entry for entry in ACTIONS if self._can(entry)]
        return matching(text, known, prompts, {word: tuple(tell()) for word, tell in self.choices.items()})

    def open_list(self) -> None:
        """Show the saved prompts."""
        if self._list is None:
            # when it is first wanted
            from desktop.views.composer.saved_prompts_window import SavedPromptsWindow

            self._list = SavedPromptsWindow(self._service, self._window)
            self._list.chosen.connect(self.insert)
        self._list.show()
        self._list.activateWindow()

    def insert(self, prompt: Prompt) -> None:
        """Write a prompt into the message, after its variables were asked for."""
        if variables(prompt.text):
            from desktop.views.composer.saved_prompt_form import SavedPromptForm  # when it is first wanted

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
        menu.addAction("Manage saved prompts…", self.open_list)
        menu.aboutToHide.connect(menu.deleteLater)
        button = self._chat.composer.prompts
        menu.popup(button.mapToGlobal(QPoint(0, -menu.sizeHint().height())))

    # -- slash commands

    def _can(self, entry: Entry) -> bool:
        if entry.word in self.choose or entry.word in self.run or entry.word == "system":
            return True
        action = self._action(entry.word)
        return action is not None and action.isEnabled()

    def _action(self, word: str) -> QAction | None:
        return next((self._actions[name] for name in _COMMANDS.get(word, ()) if name in self._actions), None)

    def _do(self, entry: Entry, text: str) -> None:
        self._chat.composer.box.clear()
        if entry.kind == "prompt":
            self.insert(Prompt(0, entry.word, entry.value))
        elif entry.kind == "choice":
            self.choose[entry.word.partition(" ")[0]](entry.value)
        elif entry.word == "system":
            self._set_system(text.partition(" ")[2].strip())
        elif entry.word in self.run:
            self.run[entry.word]()
        elif (action := self._action(entry.word)) is not None:
            action.trigger()

    def _set_system(self, text: str) -> None:
        if self._session.set_system_prompt(text):
            self._session.conversation_changed.emit(self._session.conversation)  # the settings show it too
            self._chat.banner.show_notice("The system prompt of this chat was set.", "info")

    def _presets(self) -> Sequence[str]:
        return [preset.name for preset in all_presets(self._session.preferences)]

    def _choose_preset(self, name: str) -> None:
        found = find_preset(self._session.preferences, name)
        if found is not None and self._session.choose_preset(found):
            self._chat.banner.show_notice(f"The preset “{name}” is in force in this chat.", "info")


def _words(prompt: Prompt) -> str:
    """The beginning of a prompt, on one line."""
    return " ".join(prompt.text[:200].split())
