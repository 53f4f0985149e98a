"""Replies in channels (OpenAI's harmony format): headers between control tokens become one pair of thinking
tags.

Such a model writes `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.
Without its control tokens that would read "analysis…assistantfinal…"; here what is not meant for the reader
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
    """The ids of the control tokens that make headers."""

    start: int
    channel: int
    message: int
    end: int

    @classmethod
    def among(cls, ids: Mapping[str, int]) -> ChannelTokens | None:
        """Those of a vocabulary whose control tokens have these ids by their texts; None when it knows no
        channels.
        """
        if not all(text in ids for text in (_START, _CHANNEL, _MESSAGE, _END)):
            return None
        return cls(ids[_START], ids[_CHANNEL], ids[_MESSAGE], ids[_END])

    def beginning(self, ids: Sequence[int]) -> int:
        """Where to begin reading `ids` so that the state at their end is known: two headers before it."""
        starts = [place for place, id in enumerate(ids) if id == self.start][-2:]
        return starts[0] if starts else len(ids)


@dataclass(frozen=True, slots=True)
class _State:
    header: str | None
    thinking: bool
    spoken: bool
    others: bool = False


class Channels:
    """Follows one reply: control tokens and the words of headers come in, tags and what parts messages
    come out.
    """

    def __init__(self, tokens: ChannelTokens) -> None:
        self._tokens = tokens
        self._now = _State(None, False, False)

    def control(self, id: int) -> str:
        """The text that stands for a control token."""
        now = self._now
        if id in (self._tokens.start, self._tokens.channel):
            self._now = _State("", now.thinking, now.spoken)
        elif id == self._tokens.message:
            return self._begin(now.header or "")
        return ""

    def words(self, text: str) -> str:
        """Text as it is shown: nothing while a header is written."""
        now = self._now
        if now.header is None:
            self._now = replace(now, spoken=now.spoken or (bool(text) and not now.others))
            return text
        self._now = replace(now, header=now.header + text)
        return ""

    def _begin(self, header: str) -> str:
        """A message with this header begins. What is addressed to a tool is not for the reader either."""
        was = self._now
        thinks = header.startswith("analysis") or " to=" in header
        self._now = _State(None, thinks, False, others=header.startswith(("user", "system", "developer")))
        if thinks:
            return "\n\n" if was.thinking else f"{PLAIN_TAG[0]}\n"
        return f"\n{PLAIN_TAG[1]}\n\n" if was.thinking else "\n\n" if was.spoken else ""

    def snapshot(self) -> object:
        """The state as it is, for `restore`."""
        return self._now

    def restore(self, snapshot: object) -> None:
        """Go back to a `snapshot`."""
        assert isinstance(snapshot, _State)
        self._now = snapshot
