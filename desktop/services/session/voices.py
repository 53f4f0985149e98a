"""Several voices in one chat: what the model is asked so that one of them speaks, who is next, and names
taken off what it writes.

Plain functions over plain data. The voice that is to speak is the template's assistant, all others are its
user; where more than one voice is on the user's side every text stands behind "Name: ", and the reply is
begun with the name of its voice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from desktop.store.conversations.participants import UNNAMED, Author, Cast
from engine.core import Message

__all__ = ["LeadingName", "Said", "Scene", "Voice", "mentioned", "next_voice", "replies_since_user"]

_USER, _ASSISTANT = "User", "Assistant"
"""What those are called who have no name."""
_BEGIN = "(The conversation begins.)"
"""Stands for a message of the user where there is none yet: many templates want one."""


class Said(NamedTuple):
    """One message: the role it is kept under, its text and who said it."""

    role: str
    text: str
    speaker: Author = UNNAMED


@dataclass(frozen=True, slots=True)
class Voice:
    """A participant as the model is told of it. `persona` is the number of one that is there now, else 0."""

    name: str
    prompt: str = ""
    persona: int = 0
    preset: str = ""
    model_path: str = ""

    @property
    def spoken(self) -> Author:
        """How its messages are signed."""
        return Author(self.name, self.persona)

    def is_of(self, speaker: Author) -> bool:
        """Whether it said a message of this speaker; a persona is the same one under another name."""
        return _same(self.name, speaker.name) or bool(self.persona and self.persona == speaker.persona)


@dataclass(frozen=True, slots=True)
class Scene:
    """One reply to be: `speaker` is the one of `voices` whose it is, `user` the name the user writes as
    (empty for none), `prompt` the chat's system prompt. `begins` is whether the reply may be begun with its
    name: a model that thinks first is not.
    """

    prompt: str
    voices: tuple[Voice, ...]
    speaker: Voice
    user: str = ""
    begins: bool = True

    def messages(
        self, said: Sequence[Said], goes_on: bool = False, begun: bool = True
    ) -> tuple[Message, ...]:
        """The system prompt (if there is anything in it) and one message for each of `said`; then, if
        `begun`, the reply's beginning.

        With `goes_on` the last of `said` is that beginning itself.
        """
        named = self._named(said)
        system = self.system(said)
        found = [Message("system", system)] if system else []
        for each in said:
            role = (
                "assistant"
                if self._is_own(each)
                else each.role
                if each.role in ("system", "tool")
                else "user"
            )
            found.append(
                Message(role, self._signed(each) if named and role in ("assistant", "user") else each.text)
            )
        if begun and not goes_on and not any(message.role == "user" for message in found):
            found.append(Message("user", _BEGIN))
        if begun and self.opens(said, goes_on):
            found.append(Message("assistant", f"{self.speaker.name}: "))
        return tuple(found)

    def opens(self, said: Sequence[Said], goes_on: bool = False) -> bool:
        """Whether the messages end with the speaker's name, to be written on from."""
        return not goes_on and self.begins and self._named(said)

    def system(self, said: Sequence[Said] = ()) -> str:
        """The chat's prompt, who takes part, and what the speaker is told of itself."""
        others = [name for name in self._names(said) if not _same(name, self.speaker.name)]
        known = {voice.name.casefold(): voice for voice in self.voices}
        lines = []
        if others:
            lines.append(f"This is a conversation between {_listed([self.speaker.name, *others])}.")
        lines.append(
            f"You are {self.speaker.name}."
            + (f" Write only what {self.speaker.name} says next, in one turn." if others else "")
        )
        about = [
            f"{voice.name}: {_first_line(voice.prompt)}"
            for name in others
            if (voice := known.get(name.casefold())) and voice.prompt
        ]
        if about:
            lines += ["The others:", *about]
        parts = (self.prompt.strip(), "\n".join(lines), self.speaker.prompt.strip())
        return "\n\n".join(part for part in parts if part)

    def stops(self, said: Sequence[Said]) -> tuple[str, ...]:
        """Texts at which the reply ends, because another one would speak."""
        names = [name for name in self._names(said) if not _same(name, self.speaker.name)]
        return tuple(f"\n{begin}" for name in names for begin in (f"{name}:", f"**{name}:**", f"**{name}**:"))

    def leading(
        self, said: Sequence[Said], opened: str = "", tags: Iterable[tuple[str, str]] = ()
    ) -> LeadingName:
        """What takes a name off the beginning of the reply, behind its thoughts."""
        return LeadingName((self.speaker.name, *self._names(said)), opened, tags)

    # -- parts

    def _is_own(self, said: Said) -> bool:
        if said.role != "assistant":
            return False
        # Replies from before there were names are those of the only one there is now.
        return self.speaker.is_of(said.speaker) or (not said.speaker.name and len(self.voices) == 1)

    def _name(self, said: Said) -> str:
        if self._is_own(said):
            return self.speaker.name
        if said.role == "assistant":
            return (
                next((voice.name for voice in self.voices if voice.is_of(said.speaker)), said.speaker.name)
                or _ASSISTANT
            )
        return said.speaker.name or self.user or _USER

    def _signed(self, said: Said) -> str:
        return f"{self._name(said)}: {said.text}"

    def _names(self, said: Sequence[Said]) -> list[str]:
        """Everybody: those who take part, the user, and who else has said something."""
        found = {voice.name.casefold(): voice.name for voice in self.voices}
        for name in (
            self.user or _USER,
            *(self._name(each) for each in said if each.role in ("user", "assistant")),
        ):
            found.setdefault(name.casefold(), name)
        return list(found.values())

    def _named(self, said: Sequence[Said]) -> bool:
        """Whether more than one voice is on the user's side."""
        return sum(not _same(name, self.speaker.name) for name in self._names(said)) > 1


class LeadingName:
    """Takes blanks and a name with its colon off the beginning of a text that comes in pieces, behind the
    thought it begins with.

    `opened` closes the thought that the text begins inside of; `tags` are pairs that a thought can stand
    between.
    """

    def __init__(self, names: Iterable[str], opened: str = "", tags: Iterable[tuple[str, str]] = ()) -> None:
        forms = {
            form.casefold()
            for name in names
            if name
            for form in (f"{name}:", f"**{name}:**", f"**{name}**:", f"*{name}*:")
        }
        self._forms = sorted(forms, key=len, reverse=True)
        self._tags = tuple(tags)
        self.opened = self._closing = opened
        self._text = ""
        self.decided = False
        self.behind_thought = bool(opened)
        self.removed = 0

    def feed(self, text: str) -> str:
        """The part of the text so far that can be shown and was not before."""
        if self.decided:
            return text
        self._text += text
        shown = ""
        if not self._closing:
            begun = self._text.lstrip()
            closing = next((end for begin, end in self._tags if begun.startswith(begin)), "")
            if not closing and any(begin.startswith(begun) for begin, _ in self._tags):
                return ""
            self._closing, self.behind_thought = closing, self.behind_thought or bool(closing)
        if self._closing:
            shown, behind = self._past_thought()
            if not behind:
                return shown
        return shown + self._without_name(ended=False)

    def end(self) -> str:
        """What was held back, now that nothing follows."""
        if self.decided:
            return ""
        if self._closing:
            self.decided = True
            return self._text
        return self._without_name(ended=True)

    def _past_thought(self) -> tuple[str, bool]:
        """What of the thought can be shown, and whether it is over."""
        at = self._text.find(self._closing)
        if at >= 0:
            end = at + len(self._closing)
            blanks = len(self._text[end:]) - len(self._text[end:].lstrip())
            if end + blanks == len(self._text):  # the blanks between thought and text stay, and more may come
                return "", False
            shown, self._text, self._closing, self._tags = (
                self._text[: end + blanks],
                self._text[end + blanks :],
                "",
                (),
            )
            return shown, True
        keep = len(self._closing) - 1
        cut = max(0, len(self._text) - keep)
        shown, self._text = self._text[:cut], self._text[cut:]
        return shown, False

    def _without_name(self, ended: bool) -> str:
        rest = self._text.lstrip()
        folded = rest.casefold()
        longer = any(form.startswith(folded) and form != folded for form in self._forms)
        found = next((form for form in self._forms if folded.startswith(form)), "")
        if not ended and (longer or not rest):
            return ""
        if found:
            behind = rest[_length(rest, found) :]
            if not behind.strip() and not ended:
                return ""  # blanks behind the name go, too
            rest = behind.lstrip()
        self.decided = True
        self.removed = len(self._text) - len(rest)
        return rest


def _length(text: str, folded: str) -> int:
    """How many characters of `text` fold to `folded`, with which its folding begins."""
    length = 0
    while length < len(text) and len(text[:length].casefold()) < len(folded):
        length += 1
    return length


def next_voice(roles: Cast, voices: Sequence[Voice], said: Sequence[Said]) -> Voice | None:
    """Who answers now without being chosen; None where the user chooses, or there is nobody."""
    if not voices or roles.turn == "hand":
        return None
    if roles.turn == "named" and said:
        last = said[-1]
        named = mentioned(
            last.text,
            [voice for voice in voices if not (last.role == "assistant" and voice.is_of(last.speaker))],
        )
        if named is not None:
            return named
    return in_turn(voices, said)


def in_turn(voices: Sequence[Voice], said: Sequence[Said]) -> Voice:
    """The one behind the voice that spoke last; the first one where none has."""
    for each in reversed(said):
        if each.role == "assistant":
            place = next((place for place, voice in enumerate(voices) if voice.is_of(each.speaker)), None)
            if place is not None:
                return voices[(place + 1) % len(voices)]
    return voices[0]


def mentioned(text: str, voices: Sequence[Voice]) -> Voice | None:
    """The voice whose whole name, or first word of it, stands last in the text; the longer name where two
    end alike.
    """
    places = []
    for voice in voices:
        for name in dict.fromkeys((voice.name, voice.name.split()[0])):
            found = [
                match.end() for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)
            ]
            if found:
                places.append((found[-1], len(name), voice))
    return max(places, key=lambda place: place[:2])[2] if places else None


def replies_since_user(said: Sequence[Said]) -> int:
    """How many replies stand behind the last message of the user."""
    count = 0
    for each in reversed(said):
        if each.role == "user":
            break
        count += each.role == "assistant"
    return count


def _same(first: str, second: str) -> bool:
    return bool(first) and first.casefold() == second.casefold()


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _first_line(text: str) -> str:
    """Enough to know somebody by."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 160 else line[:159].rsplit(" ", 1)[0] + "…"
