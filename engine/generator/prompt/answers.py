"""A format that a request asks for holds for the answer, not for the thought before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.constraint import make_filters
from engine.constraint.answer import AnswerFilter, ThoughtEnd, tag_end
from engine.constraint.filter import Filter
from engine.settings import ConstraintSettings
from engine.text.template.channels import HARMONY, ChannelFormat
from engine.text.template.reasoning import Tag, opened_by
from engine.text.tokenizer.aside import made_aside
from engine.text.tokenizer.tokenizer import Tokenizer

__all__ = ["answer_filters", "reply_filters"]

_TAG_TOKENS = 32
"""The most tokens that a tag may have."""
_FINAL = b"<|channel|>final<|message|>"
_NEXT = b"<|end|><|start|>assistant" + _FINAL
_ANSWER = re.compile(rb"<\|channel\|>final[^<]{0,40}(?:<\|constrain\|>[^<]{0,40})?<\|message\|>")
_MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>")
_MARK = re.compile("|".join(map(re.escape, _MARKS)).encode())
_LONG = 200
"""More bytes than a header has."""


def reply_filters(
    constraint: ConstraintSettings,
    tokenizer: Tokenizer,
    template: str,
    tags: Sequence[Tag],
    before: Sequence[int] | None,
) -> tuple[Filter, ...]:
    """The filters of a reply, as `answer_filters` where those must not constrain a thought; `before` is None
    for plain text. Made aside (`engine.text.tokenizer.aside`). Raises `BadSetting`.
    """

    def made() -> tuple[Filter, ...]:
        if before is not None and (found := answer_filters(constraint, tokenizer, template, tags, before)):
            return found
        return tuple(make_filters(constraint, tokenizer))

    return made_aside("filters", made) if constraint.format != "none" or constraint.begin_with else ()


def answer_filters(
    constraint: ConstraintSettings,
    tokenizer: Tokenizer,
    template: str,
    tags: Sequence[Tag],
    before: Sequence[int],
) -> tuple[Filter, ...]:
    """The filters of a format, and of a beginning, for a reply whose prompt is `before`; none where there is
    no thought that they must not constrain.

    There is one if the prompt opens it, and may be one, where a format is asked for, if the source of the
    `template` has one of the `tags` and the prompt does not close it. Raises `BadSetting`.
    """
    if constraint.format == "none" and not constraint.begin_with:
        return ()
    end = tokenizer.decode(before[-_TAG_TOKENS:], skip_special=False).rstrip()
    own = tuple(tag for tag in tags if all(part in template for part in tag))
    opened: ThoughtEnd | None = None
    if tokenizer.channels is not None:
        format = tokenizer.channels.format
        opened, own = _header_end(format) if end.endswith(format.start) else None, ()
    elif closing := opened_by(end, tags):
        opened = tag_end(closing)
    elif constraint.format == "none" or any(end.endswith(tag[1]) for tag in own):
        own = ()
    begun = constraint.begin_with.lstrip()
    if (opened is None and not own) or any(begun.startswith(tag[0]) for tag in own):
        return ()
    parts: tuple[str, ...]
    if tokenizer.channels is not None:
        parts = (*_MARKS, *tokenizer.channels.format.tokens)
    else:
        parts = (*(part for tag in own for part in tag), opened.text.decode() if opened is not None else "")
    marks = frozenset(tokenizer.marker_ids("\n".join(parts)).values()).difference(tokenizer.stop_token_ids)
    lead = () if opened is not None else own
    return tuple(
        AnswerFilter(tokenizer, one, opened, lead, marks) for one in make_filters(constraint, tokenizer)
    )


def _closing(message: bytes) -> bytes:
    """What leads from a message that is no answer, which ends in these bytes, to the answer."""
    mark = max(_MARK.finditer(message), key=re.Match.end, default=None)
    name, rest = (b"", message) if mark is None else (mark[0], message[mark.end() :])
    if name == b"<|message|>" or (mark is None and len(message) > _LONG):
        return _NEXT
    if name in (b"", b"<|start|>"):
        return b"assistant".removeprefix(rest) + _FINAL if name and b"assistant".startswith(rest) else _FINAL
    if name == b"<|end|>":
        return _NEXT.removeprefix(b"<|end|>")
    missing = b"final".removeprefix(rest) if name == b"<|channel|>" and b"final".startswith(rest) else b""
    message += missing + b"<|message|>"
    return missing + b"<|message|>" + (b"" if _ANSWER.search(message) else _NEXT)


_CHANNELS = ThoughtEnd(_ANSWER, _closing)


def _header_end(format: ChannelFormat) -> ThoughtEnd:
    """What ends all that comes before the answer in channels."""
    if format is HARMONY:
        return _CHANNELS
    ends = f"{format.thought[1]}{format.joint}{format.answer}".encode()

    def closing(message: bytes) -> bytes:
        if not message.strip() and not format.opens:
            return format.answer.encode()
        last = range(min(len(message), len(ends)), -1, -1)
        return ends[next(n for n in last if ends.startswith(message[len(message) - n :])) :]

    return ThoughtEnd(re.compile(re.escape(format.answer.encode())), closing)
