"""Several participants in one chat: what the model is asked for a reply of one of them, and who is next.

Plain functions over plain data. The participant who replies is the template's assistant, all others are its
user. Where more than one is on the user's side, every text begins with "Name: ", and so does the reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from desktop.services.session.leading_name import LeadingName
from desktop.services.session.pictures import sent
from desktop.store.conversations.participants import UNNAMED, Author, Cast
from desktop.store.conversations.records import HIDDEN, StoredMessage
from engine.core import Message

__all__ = [
    "AuthoredMessage", "Scene", "SceneParticipant", "authored", "mentioned", "next_in_order",
    "next_participant", "replies_since_user",
]  # fmt: skip

_USER, _ASSISTANT = "User", "Assistant"
"""Names for those who have none."""
_BEGIN = "(The conversation begins.)"
"""A message of the user for a chat without one: many templates need it."""


class AuthoredMessage(NamedTuple):
    """One message: the role it is stored under, its text and its author."""

    role: str
    text: str
    author: Author = UNNAMED


def authored(path: Sequence[StoredMessage]) -> list[AuthoredMessage]:
    """The stored messages that the model reads: all but the hidden ones."""
    return [
        AuthoredMessage(message.role, message.text, message.author)
        for message in path
        if message.role != HIDDEN
    ]


class SceneParticipant(NamedTuple):
    """A participant with the present name and prompt of its persona, whose id is `persona` (0 for none)."""

    name: str
    prompt: str = ""
    persona: int = 0
    preset: str = ""
    model_path: str = ""

    @property
    def author(self) -> Author:
        """The author of its messages."""
        return Author(self.name, self.persona)

    def wrote(self, author: Author) -> bool:
        """Whether messages of this author are its own; a renamed persona stays the same."""
        return _same(self.name, author.name) or bool(self.persona and self.persona == author.persona)


class Scene(NamedTuple):
    """One reply to come, of `replying`, one of `participants`; `user` is the name the user writes as ("" for
    none), `prompt` the chat's system prompt. `begins`: the reply may begin with its author's name; that of a
    model that thinks first may not.
    """

    prompt: str
    participants: tuple[SceneParticipant, ...]
    replying: SceneParticipant
    user: str = ""
    begins: bool = True

    def messages(
        self, path: Sequence[AuthoredMessage], goes_on: bool = False, begun: bool = True
    ) -> tuple[Message, ...]:
        """The system prompt (unless empty) and one message for each of `path`; then, if `begun`, the
        beginning of the reply. With `goes_on`, the last of `path` is that beginning itself.
        """
        named = self._has_names(path)
        system = self.system(path)
        found = [Message("system", system)] if system else []
        for each in path:
            other = each.role if each.role in ("system", "tool") else "user"
            role = "assistant" if self._is_own(each) else other
            signed = named and role in ("assistant", "user")
            found.append(sent(role, f"{self._name(each)}: {each.text}" if signed else each.text))
        if begun and not goes_on and not any(message.role == "user" for message in found):
            found.append(Message("user", _BEGIN))
        if begun and self.begins_with_name(path, goes_on):
            found.append(Message("assistant", f"{self.replying.name}: "))
        return tuple(found)

    def begins_with_name(self, path: Sequence[AuthoredMessage], goes_on: bool = False) -> bool:
        """Whether the messages end with the author's name, which the reply continues."""
        return not goes_on and self.begins and self._has_names(path)

    def system(self, path: Sequence[AuthoredMessage] = ()) -> str:
        """The chat's prompt, who takes part, and the prompt of the one who replies."""
        me = self.replying.name
        others = self._others(path)
        known = {each.name.casefold(): each for each in self.participants}
        lines = []
        if others:
            lines.append(f"This is a conversation between {_listed([me, *others])}.")
        lines.append(f"You are {me}." + (f" Write only what {me} says next, in one turn." if others else ""))
        about = [
            f"{other.name}: {_first_line(other.prompt)}"
            for name in others
            if (other := known.get(name.casefold())) and other.prompt
        ]
        if about:
            lines += ["The others:", *about]
        parts = (self.prompt.strip(), "\n".join(lines), self.replying.prompt.strip())
        return "\n\n".join(part for part in parts if part)

    def stops(self, path: Sequence[AuthoredMessage]) -> tuple[str, ...]:
        """Strings that end the reply because another one begins to speak."""
        return tuple(
            f"\n{begin}"
            for name in self._others(path)
            for begin in (f"{name}:", f"**{name}:**", f"**{name}**:")
        )

    def leading(
        self, path: Sequence[AuthoredMessage], opened: str = "", tags: Iterable[tuple[str, str]] = ()
    ) -> LeadingName:
        """What removes a name from the beginning of the reply, after its thoughts."""
        return LeadingName((self.replying.name, *self._names(path)), opened, tags)

    # -- parts

    def _is_own(self, message: AuthoredMessage) -> bool:
        if message.role != "assistant":
            return False
        # Replies without a name are those of the only participant.
        return self.replying.wrote(message.author) or (
            not message.author.name and len(self.participants) == 1
        )

    def _name(self, message: AuthoredMessage) -> str:
        if self._is_own(message):
            return self.replying.name
        if message.role != "assistant":
            return message.author.name or self.user or _USER
        known = next((each.name for each in self.participants if each.wrote(message.author)), "")
        return known or message.author.name or _ASSISTANT

    def _names(self, path: Sequence[AuthoredMessage]) -> list[str]:
        """The participants, the user, and who else has written something."""
        written = (self._name(each) for each in path if each.role in ("user", "assistant"))
        found: dict[str, str] = {}
        for name in (*(each.name for each in self.participants), self.user or _USER, *written):
            found.setdefault(name.casefold(), name)
        return list(found.values())

    def _others(self, path: Sequence[AuthoredMessage]) -> list[str]:
        return [name for name in self._names(path) if not _same(name, self.replying.name)]

    def _has_names(self, path: Sequence[AuthoredMessage]) -> bool:
        """Whether more than one is on the user's side."""
        return len(self._others(path)) > 1


def next_participant(
    cast: Cast, participants: Sequence[SceneParticipant], path: Sequence[AuthoredMessage]
) -> SceneParticipant | None:
    """Who answers if nobody is chosen; None if the user chooses, or without participants."""
    if not participants or cast.turn == "hand":
        return None
    if cast.turn == "named" and path:
        last = path[-1]
        others = [each for each in participants if last.role != "assistant" or not each.wrote(last.author)]
        if (named := mentioned(last.text, others)) is not None:
            return named
    return next_in_order(participants, path)


def next_in_order(
    participants: Sequence[SceneParticipant], path: Sequence[AuthoredMessage]
) -> SceneParticipant:
    """The one after the participant who replied last; the first one if none has."""
    for message in reversed(path):
        if message.role == "assistant":
            for place, each in enumerate(participants):
                if each.wrote(message.author):
                    return participants[(place + 1) % len(participants)]
    return participants[0]


def mentioned(text: str, participants: Sequence[SceneParticipant]) -> SceneParticipant | None:
    """The one whose name, or its first word, occurs last in the text; the longer name if two end alike."""
    places = []
    for each in participants:
        for name in dict.fromkeys((each.name, each.name.split()[0])):
            pattern = rf"(?<!\w){re.escape(name)}(?!\w)"
            found = [match.end() for match in re.finditer(pattern, text, re.IGNORECASE)]
            if found:
                places.append((found[-1], len(name), each))
    return max(places, key=lambda place: place[:2])[2] if places else None


def replies_since_user(path: Sequence[AuthoredMessage]) -> int:
    """How many replies follow the last message of the user."""
    count = 0
    for each in reversed(path):
        if each.role == "user":
            break
        count += each.role == "assistant"
    return count


def _same(first: str, second: str) -> bool:
    return bool(first) and first.casefold() == second.casefold()


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _first_line(text: str) -> str:
    """At most 160 characters of the first line, enough to know somebody by."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 160 else line[:159].rsplit(" ", 1)[0] + "…"
