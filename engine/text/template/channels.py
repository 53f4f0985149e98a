"""Replies in channels (OpenAI's harmony format): headers of control tokens become thinking tags.

Such a model writes `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.
Without the control tokens that would read "analysis…assistantfinal…"; here, text not meant for the reader
becomes a thought between plain tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.text.template.reasoning import PLAIN_TAG

__all__ = ["ChannelTokens", "Channels"]

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


class Channels:
    """Follows one reply: turns control tokens and headers into tags and message separators."""

    def __init__(self, tokens: ChannelTokens) -> None:
        self._tokens = tokens
        self._now = _State(None, False, False)

    def control(self, id: int) -> str:
        """The text that replaces a control token."""
        now = self._now
        if id in (self._tokens.start, self._tokens.channel):
            self._now = _State("", now.thinking, now.spoken)
        elif id == self._tokens.message:
            return self._begin(now.header or "")
        return ""

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
        thinks = header.startswith("analysis") or " to=" in header
        self._now = _State(None, thinks, False, others=header.startswith(("user", "system", "developer")))
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
