"""The text of a reply as a screen reader says it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from desktop.blocks.block import Block, Kind
from desktop.blocks.splitter import BlockSplitter
from desktop.blocks.spoken_math import spoken_math
from engine.text.template.reasoning import Tag
from engine.words import _, ngettext

__all__ = ["SENTENCE", "sentences", "spoken_message", "spoken_reply", "spoken_so_far", "unmarked"]

_SILENT = (Kind.MARKUP, Kind.RULE, Kind.THINKING)
_MARKS = re.compile(
    r"\]\([^)\s]*\)|^\s{0,3}(?:#{1,6}|[-*+]|>)\s+|(?<!\w)[*_]+|[*_]+(?!\w)|[`|\[\]]+", re.MULTILINE
)
"""Marks of Markdown, which are not said; what is within a word or between numbers is none."""
_COLUMNS = re.compile(r"^[|\s]*:?-{3,}[-:|\s]*$", re.MULTILINE)
"""The line under the head of a table."""
SENTENCE = re.compile(r"(?:(?<!\d)[.!?…][\"'”’)\]]*(?=\s)|[。！？]|\n)\s*")
"""The end of a sentence, or of a paragraph, after which more text follows."""


def spoken_reply(blocks: Iterable[Block]) -> str:
    """The text of a reply as it is said: without thoughts and marks of Markdown; code and tables by their
    size. What can still change is left out, so that a longer reply begins with what a shorter one was.
    """
    made: list[str] = []
    shown = [block for block in blocks if not block.thought and block.kind not in _SILENT]
    for kind, group in groupby(shown, lambda block: block.kind):
        found = list(group)
        if kind is Kind.CODE:
            made += _code_words(found)
        elif kind is Kind.TABLE:
            made += _table_words(found)
        else:
            made += map(_words, found)
    return "".join(made)


def unmarked(source: str) -> str:
    """A Markdown source without its marks, on one line."""
    return " ".join(_MARKS.sub("", _COLUMNS.sub("", source)).replace("|", " ").split())


def spoken_so_far(splitter: BlockSplitter, ended: bool) -> str:
    """The same of a reply that may still grow: the last line of its tail is not complete."""
    tail = splitter.tail(ended)
    return spoken_reply(
        [*splitter.closed, *(tail if ended else (replace(each, closed=False) for each in tail))]
    )


def spoken_message(text: str, tags: Sequence[Tag], opened: str = "") -> str:
    """The same of a whole message; `tags` and `opened` are those of `BlockSplitter`."""
    splitter = BlockSplitter(tags, opened)
    splitter.feed(text)
    if splitter.orphan and not opened:  # the prompt had opened a thought
        return spoken_message(text, tags, splitter.orphan)
    return spoken_so_far(splitter, ended=True)


def sentences(text: str) -> list[str]:
    """A text as it is said, sentence by sentence; those without a letter or a digit are left out."""
    ends = [found.end() for found in SENTENCE.finditer(text)]
    pieces = (text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True))
    lines = (" ".join(piece.split()) for piece in pieces)
    return [line for line in lines if any(map(str.isalnum, line))]


def _words(block: Block) -> str:
    if block.kind is Kind.MATH:
        if not block.closed:
            return ""
        return _("Formula: {spoken_math}.", spoken_math=spoken_math(block.body)) + "\n"
    return _MARKS.sub("", block.body).strip() + ("\n" if block.closed else "")


def _wholes(blocks: list[Block]) -> Iterator[list[Block]]:
    """The blocks that were cut for size put together again, if they are complete."""
    whole: list[Block] = []
    for place, block in enumerate(blocks):
        whole = [*whole, block] if block.joined else [block]
        last = place + 1 == len(blocks) or not blocks[place + 1].joined
        if last and block.closed:
            yield whole


def _code_words(blocks: list[Block]) -> Iterator[str]:
    for whole in _wholes(blocks):
        lines = replace(whole[0], source="".join(block.source for block in whole)).body.count("\n") + 1
        if language := whole[0].language:
            words = ngettext(
                "Code in {language}, {n} line.", "Code in {language}, {n} lines.", lines, language=language
            )
        else:
            words = ngettext("Code, {n} line.", "Code, {n} lines.", lines)
        yield f"{words}\n"


def _table_words(blocks: list[Block]) -> Iterator[str]:
    for whole in _wholes(blocks):
        rows = sum(block.source.strip().count("\n") + 1 for block in whole) - 1  # without the line of dashes
        yield ngettext("A table with {n} row.", "A table with {n} rows.", rows) + "\n"
