"""Replies in channels: headers of control tokens become thinking tags.

With OpenAI's harmony format, a model writes
`<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`. Without the control
tokens that would read "analysis…assistantfinal…"; here, text not meant for the reader becomes a thought
between plain tags, and a call of a tool, where these are looked for, stands as its format says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.lazy_dataclass import dataclass
from engine.text.template.reasoning import PLAIN_TAG, Tag

__all__ = [
    "CALL_BEGIN", "CALL_END", "FORMATS", "HARMONY", "ID", "KIMI", "MUSE", "SOLAR", "ChannelFormat",
    "ChannelTokens", "Channels",
]  # fmt: skip

CALL_BEGIN, CALL_END = "\ue0c1", "\ue0c2"
"""Characters for private use, which no text is likely to have."""
ID = "\ue0c3"
"""Stands for an id, of letters, digits and any of _ - . , in the texts of a form."""


@dataclass(frozen=True, slots=True)
class ChannelFormat:
    """How a family of models marks the messages of a reply.

    A header begins with one of the tokens `begins` and goes up to one of `bodies`, which is part of it; the
    message ends with one of `ends`. Where `closes` is not empty, that token and a name up to one of `bodies`
    end a message instead.

    Attributes:
        thoughts, calls, others: expressions for headers, with a space before them, of messages that are not
            meant for the reader, that call a tool, and that the model does not write itself.
        named: a call is passed on as `CALL_BEGIN`, its name (the group of `calls`), a line break, the text
            and `CALL_END`; else as it is written, with control tokens, and with its header if `closes`.
        start: how a prompt ends in which a reply begins.
        thought: what a thought begins with, and ends with.
        joint: what stands between two messages besides their headers and ends.
        answer: the header of the answer.
        call: the header of calls; empty where that is part of their form.
        apart: each call is a message of its own.
    """

    begins: tuple[str, ...]
    bodies: tuple[str, ...]
    ends: tuple[str, ...]
    thoughts: str
    calls: str
    others: str
    start: str
    thought: Tag
    joint: str
    answer: str
    call: str = ""
    apart: bool = False
    closes: str = ""
    named: bool = False

    @property
    def tokens(self) -> tuple[str, ...]:
        """The control tokens of headers."""
        return (*self.begins, *self.bodies, *self.ends, *filter(None, (self.closes,)))

    @property
    def opens(self) -> bool:
        """Whether a prompt may end inside a thought."""
        return self.start == self.thought[0]

    @property
    def tags(self) -> tuple[Tag, ...]:
        """The tags of thoughts in texts and prompts."""
        return (PLAIN_TAG, (self.start, PLAIN_TAG[1])) if self.opens else (PLAIN_TAG,)


HARMONY = ChannelFormat(
    ("<|start|>", "<|channel|>"), ("<|message|>",), ("<|end|>",),
    thoughts=r"^ (?:assistant)?\s*analysis| to=(?!assistant\b(?! analysis))",
    calls=r" to=functions\.([^\s<]+)",
    others=r"^ (?:assistant)?\s*(?:user|system|developer|functions\.)", start="<|start|>assistant",
    thought=("<|channel|>analysis<|message|>", "<|end|>"), joint="<|start|>assistant",
    answer="<|channel|>final<|message|>", named=True,
)  # fmt: skip

MUSE = ChannelFormat(
    ("<|start|>",), ("<|message|>",), ("<|eom|>",),
    thoughts=r" to=(?!user\b|commentary\b)", calls=r" to=(?!(?:self|user|commentary|developer)\b)[^\s<]",
    others=r"^ (?:user|system|tool)\b", start="<|start|>assistant",
    thought=(" to=self<|message|>", "<|eom|>"), joint="<|start|>assistant", answer=" to=user<|message|>",
    call=f" to={ID}<|message|>", apart=True,
)  # fmt: skip

SOLAR = ChannelFormat(
    ("<|begin|>",), ("<|think|>", "<|content|>", "<|tool_calls|>"), ("<|end|>",),
    thoughts=r"<\|think\|>|<\|tool_calls\|>", calls=r"<\|tool_calls\|>", others=r"^ (?:user|system|tool)\b",
    start="<|begin|>assistant", thought=("<|think|>", "<|end|>"), joint="<|begin|>assistant",
    answer="<|content|>", call="<|tool_calls|>",
)  # fmt: skip

KIMI = ChannelFormat(
    ("<|open|>",), ("<|sep|>",), (), closes="<|close|>", thoughts="^ (?:think|tools)<", calls="^ tools<",
    others="^ message", start="<|open|>think<|sep|>",
    thought=("<|open|>think<|sep|>", "<|close|>think<|sep|>"), joint="", answer="<|open|>response<|sep|>",
)  # fmt: skip

FORMATS = (HARMONY, MUSE, SOLAR, KIMI)
"""Of gpt-oss, Muse Glimmer, Solar Open and Kimi K3."""


@dataclass(frozen=True, slots=True)
class ChannelTokens:
    """A format, with the texts of all control tokens of a vocabulary by their ids."""

    format: ChannelFormat
    texts: Mapping[int, str]

    @classmethod
    def among(cls, ids: Mapping[str, int]) -> ChannelTokens | None:
        """The format of a vocabulary with these control tokens, {text: id}; None if it has no channels."""
        found = next((one for one in FORMATS if all(text in ids for text in one.tokens)), None)
        return None if found is None else cls(found, {id: text for text, id in ids.items()})

    def beginning(self, ids: Sequence[int]) -> int:
        """Where to start reading `ids` so that the state at their end is known: the second-to-last header."""
        first = self.format.begins[0]
        starts = [place for place, id in enumerate(ids) if self.texts.get(id) == first][-2:]
        return starts[0] if starts else len(ids)


@dataclass(frozen=True, slots=True)
class _State:
    """Inside a header, `header` is what has come of it, or of the name that `closing` ends a message by."""

    header: str | None
    thinking: bool
    spoken: bool
    others: bool = False
    calling: bool = False
    closing: bool = False


class Channels:
    """Follows one reply: turns control tokens and headers into tags and message separators; with `calls`,
    messages to tools into calls.
    """

    def __init__(self, tokens: ChannelTokens, *, calls: bool = False) -> None:
        self._tokens, self._format, self._calls = tokens, tokens.format, calls
        self._now = _State(None, False, False)

    def control(self, id: int) -> str:
        """The text that replaces a control token."""
        now, format = self._now, self._format
        text = self._tokens.texts.get(id, "")
        if now.calling and format.closes:
            return self._in_section(text)
        body = text in format.bodies
        called = CALL_END if now.calling and format.named else ""
        if text in format.begins:
            # a recipient may stand before the channel
            again = text != format.begins[0] and now.header is not None
            self._now = _State(f"{now.header} " if again else "", now.thinking, now.spoken)
        elif text and text == format.closes:
            self._now = replace(now, header="", closing=True)
        elif body and now.closing:
            self._now = replace(now, header=None, closing=False, others=True)
        elif body:
            return self._begin(now.header or "", text)
        elif now.calling and not format.named and text not in format.ends:
            return text
        elif now.calling:
            self._now = replace(now, calling=False)
        return called

    def words(self, text: str) -> str:
        """Text as it is shown; empty inside a header."""
        now = self._now
        if now.header is None:
            if now.others and self._format.closes:
                return ""  # nothing stands between two messages
            self._now = replace(now, spoken=now.spoken or (bool(text) and not now.others))
            return text
        self._now = replace(now, header=now.header + text)
        return text if now.calling else ""

    def _in_section(self, text: str) -> str:
        """A control token among calls that a name closes."""
        now = self._now
        if text == self._format.closes:
            self._now = replace(now, header="", closing=True)
        elif text in self._format.bodies:
            over = now.closing and now.header == "tools"
            self._now = replace(now, header=None, closing=False, calling=not over, others=over)
        return text

    def _begin(self, header: str, body: str) -> str:
        """Begin a message with this header. Messages to tools count as thoughts too."""
        was, format = self._now, self._format
        whole = f" {header}{body}"
        function = re.search(format.calls, whole) if self._calls else None
        if function is not None:
            self._now = _State(None, False, False, calling=True)
            end = f"\n{PLAIN_TAG[1]}\n\n" if was.thinking else ""
            if format.named:
                return f"{end}{CALL_BEGIN}{function[1]}\n"
            return f"{end}{format.begins[0]}{header}{body}" if format.closes else end
        others = re.search(format.others, whole) is not None
        thinks = not others and re.search(format.thoughts, whole) is not None
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
