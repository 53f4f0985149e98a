"""Replies in channels (OpenAI's harmony format): headers of control tokens become thinking tags.

Such a model writes `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.
Without the control tokens that would read "analysis…assistantfinal…"; here, text not meant for the reader
becomes a thought between plain tags, and a call of a tool, where these are looked for, stands between
`CALL_BEGIN` and `CALL_END`: its name, a line break, its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.text.template.reasoning import PLAIN_TAG

__all__ = ["CALL_BEGIN", "CALL_END", "ChannelTokens", "Channels"]

CALL_BEGIN, CALL_END = "\ue0c1", "\ue0c2"
"""Characters for private use, which no text is likely to have."""
_FUNCTION = re.compile(r" to=functions\.([^\s<]+)")
_OTHERS = ("user", "system", "developer", "functions.")
_START, _CHANNEL, _MESSAGE, _END = "<|start|>", "<|channel|>", "<|message|>", "<|end|>"


@dataclass(frozen=True, slots=True)
class ChannelTokens:
    """The ids of the control tokens that form headers."""

    start: int
    channel: int
    message: int
    end: int

    @classmethod
    def among(cls, ids: Mapping[str, int]) -> ChannelTokens | None:
        """The ids from a vocabulary's control tokens {text: id}; None if it has no channels."""
        if not all(text in ids for text in (_START, _CHANNEL, _MESSAGE, _END)):
            return None
        return cls(ids[_START], ids[_CHANNEL], ids[_MESSAGE], ids[_END])

    def beginning(self, ids: Sequence[int]) -> int:
        """Where to start reading `ids` so that the state at their end is known: the second-to-last header."""
        starts = [place for place, id in enumerate(ids) if id == self.start][-2:]
        return starts[0] if starts else len(ids)


@dataclass(frozen=True, slots=True)
class _State:
    header: str | None
    thinking: bool
    spoken: bool
    others: bool = False
    calling: bool = False


class Channels:
    """Follows one reply: turns control tokens and headers into tags and message separators; with `calls`,
    messages to functions into calls.
    """

    def __init__(self, tokens: ChannelTokens, *, calls: bool = False) -> None:
        self._tokens, self._calls = tokens, calls
        self._now = _State(None, False, False)

    def control(self, id: int) -> str:
        """The text that replaces a control token."""
        now, tokens = self._now, self._tokens
        called = CALL_END if now.calling and id != tokens.message else ""
        if id == tokens.channel and now.header is not None:
            self._now = _State(now.header + " ", now.thinking, now.spoken)  # the recipient may stand first
        elif id in (tokens.start, tokens.channel):
            self._now = _State("", now.thinking, now.spoken)
        elif id == tokens.message:
            return self._begin(now.header or "")
        elif called:
            self._now = replace(now, calling=False)
        return called

    def words(self, text: str) -> str:
        """Text as it is shown; empty inside a header."""
        now = self._now
        if now.header is None:
            self._now = replace(now, spoken=now.spoken or (bool(text) and not now.others))
            return text
        self._now = replace(now, header=now.header + text)
        return ""

    def _begin(self, header: str) -> str:
        """Begin a message with this header. Messages to tools count as thoughts too."""
        was = self._now
        function = _FUNCTION.search(" " + header) if self._calls else None
        if function is not None:
            self._now = _State(None, False, False, calling=True)
            end = f"\n{PLAIN_TAG[1]}\n\n" if was.thinking else ""
            return f"{end}{CALL_BEGIN}{function[1]}\n"
        header = header.removeprefix("assistant").lstrip()
        others = header.startswith(_OTHERS)
        thinks = not others and (header.startswith("analysis") or " to=" in " " + header)
        self._now = _State(None, thinks, False, others=others)
        if thinks:
            return "\n\n" if was.thinking else f"{PLAIN_TAG[0]}\n"
        return f"\n{PLAIN_TAG[1]}\n\n" if was.thinking else "\n\n" if was.spoken else ""

    def snapshot(self) -> object:
        """The current state for `restore`."""
        return self._now

    def restore(self, snapshot: object) -> None:
        """Return to a `snapshot`."""
        assert isinstance(snapshot, _State)
        self._now = snapshot
