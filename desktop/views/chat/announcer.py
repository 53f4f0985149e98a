"""What a screen reader says about the open chat: that a reply begins and how it ends, a long load, and the
reply itself if the user wants that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from time import monotonic

from PySide6.QtCore import QObject, Slot

from desktop.blocks import Block, BlockSplitter, Kind
from desktop.blocks.spoken_math import spoken_math
from desktop.items.chats.messages import MessageItem
from desktop.services.engine.reply_record import spoken
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.debounce import debounce
from desktop.settings import Behaviour
from desktop.views.transcript import TranscriptView
from desktop.views.widgets.banner import announce
from engine.core import ModelInfo, Stats
from engine.words import ngettext

__all__ = ["REPLYING", "Announcer", "spoken_reply", "spoken_so_far"]

REPLYING = ("waiting", "prefill", "answering", "stopping")
"""States with a reply in progress."""
_SILENT = (Kind.MARKUP, Kind.RULE, Kind.THINKING)
_EACH_MS, _PROGRESS_SECONDS = 300, 10.0
_MARKS = re.compile(r"\]\([^)\s]*\)|^\s{0,3}(?:#{1,6}|[-*+]|>)\s+|[*_`|\[\]]+", re.MULTILINE)
"""Marks of Markdown, which are not said."""
_SENTENCE = re.compile(r"(?:(?<!\d)[.!?…][\"'”’)\]]*(?=\s)|[。！？]|\n)\s*")
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


def spoken_so_far(splitter: BlockSplitter, ended: bool) -> str:
    """The same of a reply that may still grow: the last line of its tail is not complete."""
    tail = splitter.tail(ended)
    return spoken_reply(
        [*splitter.closed, *(tail if ended else (replace(each, closed=False) for each in tail))]
    )


def _words(block: Block) -> str:
    if block.kind is Kind.MATH:
        return f"Formula: {spoken_math(block.body)}.\n" if block.closed else ""
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
            yield ngettext("Code in {language}, {n} line.\n", "Code in {language}, {n} lines.\n", lines,
                language=language)  # fmt: skip
        else:
            yield ngettext("Code, {n} line.\n", "Code, {n} lines.\n", lines)


def _table_words(blocks: list[Block]) -> Iterator[str]:
    for whole in _wholes(blocks):
        rows = sum(block.source.strip().count("\n") + 1 for block in whole) - 1  # without the line of dashes
        yield ngettext("A table with {n} row.\n", "A table with {n} rows.\n", rows)


class Announcer(QObject):
    """Announces for `transcript`, which shows the open chat of `session`."""

    def __init__(self, session: ChatSession, transcript: TranscriptView) -> None:
        super().__init__(transcript)
        self._session, self._transcript = session, transcript
        self._busy = self._awaited = False
        self._said = 0  # characters of the reply
        self._message, self._taken, self._splitter = 0, 0, BlockSplitter()
        self._reported = 0.0
        self._later = debounce(self, self._say_sentences, _EACH_MS)
        session.state_changed.connect(self._state)
        session.stats_changed.connect(self._ended)
        session.progress.connect(self._progress)
        session.model_changed.connect(self._model)
        session.conversation_changed.connect(self._conversation)
        session.messages.text_appended.connect(self._grown)

    def _say(self, text: str) -> None:
        announce(self._transcript, text)

    @Slot(str)
    def _state(self, state: str) -> None:
        busy = state in REPLYING
        begins, self._busy = busy and not self._busy, busy
        if begins and state != "stopping":
            self._awaited, self._said = True, 0
            self._say("Generating the reply")
        if state == "loading":
            self._reported = monotonic()
            self._say("Loading the model")

    @Slot(int)
    def _conversation(self, _conversation: int) -> None:
        self._busy = self._awaited = self._session.state in REPLYING
        self._said = len(self._text()) if self._awaited else 0
        self._later.stop()

    @Slot(object)
    def _model(self, model: ModelInfo | None) -> None:
        if model is not None:
            self._say(f"{model.name} is ready")

    @Slot(str, int, int)
    def _progress(self, stage: str, done: int, total: int) -> None:
        """Say how far loading is, if it takes long."""
        if self._session.state == "loading" and total and monotonic() - self._reported >= _PROGRESS_SECONDS:
            self._reported = monotonic()
            self._say(f"{stage}, {100 * done // total} percent")

    @Slot(int, str)
    def _grown(self, _position: int, _text: str) -> None:
        if self._mode == "sentence" and not self._later.isActive():
            self._later.start()

    @property
    def _mode(self) -> str:
        return self._session.settings(Behaviour).announce_replies

    def _text(self) -> str:
        """The last reply as far as it is known to be said."""
        items = self._session.messages.items()
        if not items or items[-1].role != "assistant":
            return ""
        item = items[-1]
        if item.id != self._message or len(item.text) < self._taken:
            self._restart(item, item.opened)
        self._splitter.feed(item.text[self._taken :])
        self._taken = len(item.text)
        if self._splitter.orphan:  # the prompt had opened a thought
            self._restart(item, self._splitter.orphan)
            return self._text()
        return spoken_so_far(self._splitter, not item.running)

    def _restart(self, item: MessageItem, opened: str) -> None:
        self._message, self._taken = item.id, 0
        self._splitter = BlockSplitter(self._transcript.messages.tags, opened)

    def _say_sentences(self) -> None:
        """Say the sentences that are complete."""
        if not self._awaited or self._mode != "sentence":
            return
        text = self._text()
        ends = [found.end() for found in _SENTENCE.finditer(text, self._said)]
        if ends:
            words, self._said = text[self._said : ends[-1]], ends[-1]
            self._say(" ".join(words.split()))

    @Slot(object, str)
    def _ended(self, stats: Stats | None, reason: str) -> None:
        if not self._awaited or self._session.conversation in self._session.replying_in:
            return
        if stats is None and not reason:
            return
        self._awaited = False
        self._later.stop()
        if self._mode != "off" and (rest := " ".join(self._text()[self._said :].split())):
            self._say(rest)
        parts = [spoken(reason)]
        if stats is not None:
            parts.append(ngettext("{n} token", "{n} tokens", stats.new_tokens))
            parts.append(f"{stats.decode_tokens_per_second:.0f} tokens per second")
        self._say(f"The reply has ended: {', '.join(filter(None, parts))}")
