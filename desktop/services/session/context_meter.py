"""How full the context is, how much of it is cached, and what the next message costs to read."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import NamedTuple

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.job import Job
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.debounce import debounce
from engine.core import ChatRequest, ChatSource, Foreseen, Stats
from engine.errors import ContextTooLong, EngineError
from engine.settings import ConstraintSettings, GuidanceSettings, Settings, StopSettings, ThinkingSettings
from engine.units import seconds_text
from engine.words import _, ngettext

__all__ = ["ContextMeter", "Measured", "cost_words"]

_SOON_MS = 220
_CHARACTERS = 4.0
"""Assumed of a token before any was counted, for what is typed while the engine is busy."""
_FAR_TOO_LONG = 32
"""A draft of more characters for each token of the context is estimated: counting megabytes takes seconds,
during which the engine does nothing else, and it does not fit anyway.
"""


class Measured(NamedTuple):
    """Tokens: `system`, `tools`, `messages` and `draft` add up to `used`, of `length`; `cached` of them need
    not be read, `next_read` are read by the next reply. `starts` has (message id, first token, end) of each
    message that is read; `rate` is tokens read per second, 0 if not known. `about`: the draft is estimated,
    because the engine is busy; all are estimates if not `exact`.
    """

    length: int = 0
    system: int = 0
    messages: int = 0
    draft: int = 0
    cached: int = 0
    dropped: int = 0
    rate: float = 0.0
    about: bool = False
    starts: tuple[tuple[int, int, int], ...] = ()
    trouble: str = ""
    exact: bool = True
    tools: int = 0

    @property
    def used(self) -> int:
        """Tokens of the next prompt."""
        return self.system + self.tools + self.messages + self.draft

    @property
    def next_read(self) -> int:
        """Tokens that the next reply reads."""
        return max(0, self.used - self.cached)

    def cost_of_editing(self, message_id: int) -> int:
        """Tokens that are read again if this message is edited; 0 if it is left out."""
        for id, start, end in self.starts:
            if id == message_id:
                return end - min(start, self.cached)
        return 0


def cost_words(tokens: int, rate: float, exact: bool = False) -> str:
    """For example "about 3,120 tokens, about 4 s"; without the time if no speed was measured, and without the
    first "about" if the number is `exact`.
    """
    words = (
        ngettext("{n} token", "{n} tokens", tokens)
        if exact
        else ngettext("about {n} token", "about {n} tokens", tokens)
    )
    if rate <= 0:
        return words
    seconds = tokens / rate
    if seconds < 1:
        return _("{words}, less than 1 s", words=words)
    return _(
        "{words}, about {seconds}",
        words=words,
        seconds=seconds_text(seconds) if seconds < 100 else _("{seconds:.0f} min", seconds=seconds / 60),
    )


class ContextMeter(QObject):
    """Measures the open chat with what is typed, on the engine's thread while it is free.

    Signals:
        changed(object): another `Measured`.
    """

    changed = Signal(object)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._draft, self._counted_draft, self._closed = "", "", False
        self._job: Job | None = None
        self._rate, self._characters = 0.0, _CHARACTERS
        self.measured = Measured()
        self._soon = debounce(self, self._measure, _SOON_MS)
        for signal in (session.state_changed, session.model_changed, session.conversation_changed):
            signal.connect(self._later)
        shown = session.messages
        for signal in (shown.rowsInserted, shown.rowsRemoved, shown.dataChanged, shown.modelReset):
            signal.connect(self._later)
        session.tools.offer_changed.connect(self._later)
        session.settings_changed.connect(self._on_settings)
        session.stats_changed.connect(self._on_stats)
        session.running_changed.connect(self._on_running)

    def set_draft(self, text: str) -> None:
        """Count this text, which is not sent yet, with its attachments."""
        if text != self._draft:
            self._draft = text
            if self._session.state != "idle":
                self._estimate()
            self._later()

    def edit_words(self, message: int) -> str:
        """What editing a message costs; "" while it is not known."""
        tokens = self.measured.cost_of_editing(message)
        return _("Editing this rereads {cost}", cost=cost_words(tokens, self.measured.rate)) if tokens else ""

    @Slot()
    def prompt_changed(self) -> None:
        """The system prompt or the cast has changed."""
        self._later()

    def close(self) -> bool:
        """Stop measuring: the engine's thread ends."""
        self._closed = True
        self._soon.stop()
        return True

    @Slot()
    def _later(self) -> None:
        if self._closed:
            return
        if self._session.model is None or self._session.notebook:  # a notebook's page counts its own tokens
            self._soon.stop()
            self._emit(Measured())
        elif not self._soon.isActive():
            self._soon.start()

    @Slot(object)
    def _on_settings(self, cls: type[Settings]) -> None:
        if cls in (StopSettings, GuidanceSettings, ThinkingSettings):
            self._later()

    @Slot(object, str)
    def _on_stats(self, stats: Stats | None, _reason: str) -> None:
        if stats is not None and stats.prefill_tokens >= 16 and stats.prefill_seconds > 0:
            self._rate = stats.prefill_tokens_per_second
        self._later()

    @Slot(object)
    def _on_running(self, stats: Stats) -> None:
        """A running reply brings its own figures; all of it is cached."""
        if self._session.notebook:
            return
        now = self.measured
        messages = max(0, stats.context_tokens - now.system - now.tools)
        draft = self._about()
        self._emit(
            now._replace(
                length=stats.context_length,
                messages=messages,
                cached=stats.context_tokens,
                draft=draft,
                about=bool(draft),
            )
        )

    def _far_too_long(self) -> bool:
        model = self._session.model
        most = _FAR_TOO_LONG * model.context_length if model is not None else 0
        return 0 < most < len(self._counted_draft)

    def _about(self) -> int:
        """Tokens of the draft, estimated from its length."""
        return round(len(self._draft) / self._characters) if self._draft.strip() else 0

    def _estimate(self) -> None:
        tokens = self._about()
        self._emit(self.measured._replace(draft=tokens, about=bool(tokens)))

    @Slot()
    def _measure(self) -> None:
        session = self._session
        if session.state != "idle" or session.model is None or not session.conversation:
            return
        if self._job is not None:  # its end measures again
            self._job.stop()
            return
        self._counted_draft = self._draft
        draft = "" if self._far_too_long() else self._draft.strip("\n").rstrip()
        # An empty draft is counted as an empty message: templates need one, and it has a minimum cost.
        messages, ids = session.next_messages(draft)
        request = ChatRequest(
            messages,
            stops=session.settings(StopSettings), guidance=session.settings(GuidanceSettings),
            constraint=ConstraintSettings(), thinking=session.settings(ThinkingSettings),
            local_only=session.local_only, tools=session.tools.offered_here(),
        )  # fmt: skip
        self._job = session.replies.engine.ask(
            lambda source, stop: _foreseen(source, request, stop),
            lambda _event: None,
            lambda result, _trouble: self._on_counted(result, ids),
        )

    def _on_counted(self, result: Foreseen | str | None, ids: list[int]) -> None:
        self._job = None
        if self._counted_draft != self._draft or result is None:
            self._later() if self._session.model is not None else self._emit(Measured())
        if isinstance(result, str):
            model = self._session.model
            length = model.context_length if model is not None else 0
            full = length if isinstance(result, _TooLong) else 0
            self._emit(Measured(length, messages=full, rate=self._rate, trouble=result))
        elif result is not None:
            self._emit(self._sorted(result, ids))

    def _sorted(self, found: Foreseen, ids: list[int]) -> Measured:
        system = bool(ids and not ids[0])
        kept = [*ids[:system], *ids[system + found.dropped_messages :]]
        *shares, draft = found.messages
        starts, place = [], found.tools  # definitions stand at the beginning
        for id, share in zip(kept, shares, strict=False):
            if id:
                starts.append((id, place, place + share))
            place += share
        empty, guessed = not self._counted_draft.strip(), self._far_too_long()
        if not empty and not guessed:
            self._characters = max(1.0, len(self._counted_draft) / max(1, draft))
        prompt = sum(shares[:system])
        return Measured(
            found.context_length, prompt, sum(shares) - prompt,
            0 if empty else self._about() if guessed else draft,
            min(found.cached_tokens, found.tools + sum(shares) + draft), found.dropped_messages, self._rate,
            about=guessed, starts=tuple(starts), exact=found.exact, tools=found.tools,
        )  # fmt: skip

    def _emit(self, measured: Measured) -> None:
        if measured != self.measured:
            self.measured = measured
            self.changed.emit(measured)


class _TooLong(str):
    """The sentence about messages that no context of this length holds."""


def _foreseen(
    source: ChatSource, request: ChatRequest, stop: threading.Event
) -> Generator[None, None, Foreseen | str]:
    yield from ()
    try:
        return source.foresee(request)
    except ContextTooLong as error:
        return _TooLong(error)
    except EngineError as error:  # refused by the template
        return str(error)
