"""Slash commands as plain data: the commands that can follow a "/" at the start of a message, and those that
match the typed text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from engine.lazy_dataclass import dataclass
from engine.words import N_

__all__ = ["ACTIONS", "Entry", "SlashWord", "completed", "escaped", "matching", "unescaped"]


@dataclass(frozen=True)
class Entry:
    """One command. `word` follows the slash; `kind` is "action", "choice" (an action with the argument
    `value`), "text" (an action with a typed argument, which `takes` names) or "prompt" (whose text is
    `value`).
    """

    word: str
    words: str
    kind: str = "action"
    value: str = ""
    takes: str = ""


class SlashWord(NamedTuple):
    """What a word does that is no command of the window.

    `act` gets the argument; where there are `choices`, it is one of these.
    """

    act: Callable[[str], object]
    choices: Callable[[], Sequence[str]] | None = None


ACTIONS: tuple[Entry, ...] = (
    Entry("new", N_("New chat")),
    Entry("temp", N_("New temporary chat")),
    Entry("regenerate", N_("Regenerate the last reply")),
    Entry("continue", N_("Continue the last reply")),
    Entry("several", N_("Generate several replies to choose from")),
    Entry("compare", N_("Compare replies with other settings or models")),
    Entry("system", N_("Change this chat's system prompt"), "text", takes="TEXT"),
    Entry("model", N_("Choose a model")),
    Entry("preset", N_("Use a sampler preset in this chat"), "text", takes="NAME"),
    Entry("persona", N_("Choose a persona for this chat")),
    Entry("roles", N_("Edit the participants of this chat")),
    Entry("as", N_("Write under another of your names"), "text", takes="NAME"),
    Entry("next", N_("Let a participant reply"), "text", takes="NAME"),
    Entry("attach", N_("Attach files")),
    Entry("prompts", N_("Manage saved prompts")),
    Entry("fork", N_("Fork into a new chat")),
    Entry("export", N_("Export this chat")),
    Entry("find", N_("Find in this chat")),
    Entry("help", N_("Keyboard shortcuts")),
)
"""What can be done; those that this window cannot do are left out."""
_WITH_CHOICES = ("preset", "as", "next")


def matching(
    text: str, actions: Sequence[Entry], prompts: Iterable[Entry], choices: Mapping[str, Sequence[str]]
) -> tuple[Entry, ...]:
    """The commands that match a text beginning with one slash; none for other texts.

    `choices` are the possible arguments of a word.
    """
    if (
        not text.startswith("/")
        or text.startswith("//")
        or ("\n" in text and not text.casefold().startswith("/system "))
    ):
        return ()
    typed = text[1:]
    word, space, argument = typed.partition(" ")
    if space:
        fitting = [entry for entry in actions if entry.word == word.casefold() and entry.kind == "text"]
        if fitting and word.casefold() in _WITH_CHOICES:
            start = argument.strip().casefold()
            return tuple(
                Entry(f"{fitting[0].word} {name}", fitting[0].words, "choice", name)
                for name in choices.get(fitting[0].word, ())
                if start in name.casefold()
            )
        if fitting:
            return tuple(fitting)
    folded = typed.casefold()
    begun = [entry for entry in actions if entry.word.startswith(folded) and choices.get(entry.word, ("",))]
    return (*begun, *(entry for entry in prompts if folded in entry.word.casefold()))


def completed(entry: Entry) -> str:
    """The text that Tab inserts."""
    return f"/{entry.word} " if entry.kind == "text" else f"/{entry.word}"


def unescaped(text: str) -> str:
    """The text to send: two slashes at its start become one."""
    return text[1:] if text.startswith("//") else text


def escaped(text: str) -> str:
    """The text to type so that `text` is sent: a slash at its start is no command, and becomes two."""
    return "/" + text if text.startswith("/") else text
