"""What a screen reader says about the open chat: that a reply begins and how it ends, a long load, and the
reply itself if the user wants that.
"""

from __future__ import annotations

from time import monotonic

from PySide6.QtCore import QObject, Slot

from desktop.blocks import BlockSplitter
from desktop.blocks.spoken_text import SENTENCE, spoken_so_far
from desktop.items.chats.messages import MessageItem
from desktop.services.engine.reply_record import spoken
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.debounce import debounce
from desktop.settings import Behaviour
from desktop.views.transcript import TranscriptView
from desktop.views.widgets.banner import announce
from engine.core import ModelInfo, Stats
from engine.words import _, ngettext

__all__ = ["REPLYING", "Announcer"]

REPLYING = ("waiting", "prefill", "answering", "stopping")
"""States with a reply in progress."""
_EACH_MS, _PROGRESS_SECONDS = 300, 10.0


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
            self._say(_("Generating the reply"))
        if state == "loading":
            self._reported = monotonic()
            self._say(_("Loading the model"))

    @Slot(int)
    def _conversation(self, _conversation: int) -> None:
        self._busy = self._awaited = self._session.state in REPLYING
        self._said = len(self._text()) if self._awaited else 0
        self._later.stop()

    @Slot(object)
    def _model(self, model: ModelInfo | None) -> None:
        if model is not None:
            self._say(_("{model} is ready", model=model.name))

    @Slot(str, int, int)
    def _progress(self, stage: str, done: int, total: int) -> None:
        """Say how far loading is, if it takes long."""
        if self._session.state == "loading" and total and monotonic() - self._reported >= _PROGRESS_SECONDS:
            self._reported = monotonic()
            self._say(_("{stage}, {done} percent", stage=stage, done=100 * done // total))

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
        ends = [found.end() for found in SENTENCE.finditer(text, self._said)]
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
            parts.append(
                _(
                    "{decode_tokens_per_second:,.0f} tokens per second",
                    decode_tokens_per_second=stats.decode_tokens_per_second,
                )
            )
        self._say(_("The reply has ended: {details}", details=", ".join(filter(None, parts))))
