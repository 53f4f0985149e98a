"""A reply made again from its exact prompt with the same settings and seed, outside every chat, and
compared token by token.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Signal

from desktop.services.engine.reply_record import stats_of
from desktop.services.engine.stream_thread import Job
from desktop.services.provenance.provenance import ReplyProvenance
from desktop.services.session.chat_session import ChatSession
from desktop.version import version
from engine.core import ChatRequest, ChatSource, Loading, ModelInfo, Prefill, Text, TokenInfo
from engine.errors import BadSetting
from engine.settings import (
    AdapterSettings,
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)

__all__ = ["Compared", "Replay", "doubts", "replay_request", "why_not"]

_CUT = ("cancelled", "time_limit")


@dataclass(frozen=True)
class Compared:
    """What a replay came to: `same` tokens are identical; at the first difference, `there` was written and
    `here` is now ("" at an end).
    """

    same: int
    total: int
    there: str = ""
    here: str = ""

    @property
    def identical(self) -> bool:
        """Whether every token is the same, and none is missing or too many."""
        return self.same == self.total and not self.here

    @property
    def sentence(self) -> str:
        """For people."""
        if self.identical:
            return f"Identical, {_tokens(self.total)}."
        place = (
            f"The first {_tokens(self.same)} are identical"
            if self.same
            else "The first token differs already"
        )
        there = f"the reply has “{self.there}”" if self.there else "the reply ends"
        here = f"the replay writes “{self.here}”" if self.here else "the replay ends"
        return f"{place}; then {there}, and {here}."


class Replay(QObject):
    """One replay, on the engine's thread. Sending a message, or `stop`, ends it.

    Signals:
        progress(str words, int done, int total)
        ended(object compared, str sentence): a `Compared`, or None with what went wrong; with an empty
        sentence it was stopped.
    """

    progress = Signal(str, int, int)
    ended = Signal(object, str)

    def __init__(self, session: ChatSession, told: ReplyProvenance, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._told = told
        expected = told.expected
        request = replay_request(told)
        trace = told.trace
        pieces = (
            tuple(trace.token(index).text for index in range(told.known, told.known + len(expected)))
            if trace is not None
            else ()
        )
        self._job: Job | None = session.replies.engine.ask(
            lambda source, stop: _replayed(source, request, expected, pieces, stop),
            self._on_told,
            self._on_ended,
        )
        session.replies.begun.connect(self.stop)

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self._job is not None

    def stop(self) -> None:
        """End it soon."""
        if self._job is not None:
            self._job.stop()

    def _on_told(self, event: Any) -> None:
        self.progress.emit(*event)

    def _on_ended(self, compared: Compared | None, sentence: str) -> None:
        self._job = None
        self.ended.emit(compared, sentence)


def replay_request(told: ReplyProvenance) -> ChatRequest:
    """The request that asks for the reply again: its own prompt and settings, the seed that was drawn, cut
    where it was cut.
    """
    assert told.provenance is not None
    stats, reason, length = stats_of(told.message.stats), told.message.stats.get("reason"), len(told.expected)
    sampler = SamplerSettings.from_json(told.settings(SamplerSettings))
    stops = StopSettings.from_json(told.settings(StopSettings))
    if reason in _CUT or "error" in told.message.stats:  # a clock or a hand ended it
        stops = dataclasses.replace(stops, max_tokens=length, time_limit=0.0)
    return ChatRequest(
        (),
        sampler=dataclasses.replace(sampler, seed=stats.seed) if stats is not None else sampler,
        stops=stops,
        speculation=SpeculationSettings.from_json(told.settings(SpeculationSettings)),
        constraint=ConstraintSettings.from_json(told.settings(ConstraintSettings)),
        guidance=GuidanceSettings.from_json(told.settings(GuidanceSettings)),
        output=dataclasses.replace(
            OutputSettings.from_json(told.settings(OutputSettings)), alternatives=0, stream_interval=1
        ),
        adapters=AdapterSettings.from_json(told.settings(AdapterSettings)),
        plain=bool(told.provenance.facts.get("plain", False)),
        replayed=told.provenance.prompt,
    )


def why_not(told: ReplyProvenance, model: ModelInfo | None, state: str) -> str:
    """Why the reply cannot be replayed now; "" when it can."""
    if told.message.state == "running":
        return "This reply is still being written."
    if told.provenance is None or told.provenance.prompt is None or stats_of(told.message.stats) is None:
        return "What this reply was made from was not kept, so it cannot be made again."
    if not told.expected or -1 in told.expected:
        return "The tokens of this reply are not known, so there is nothing to compare with."
    try:
        replay_request(told)
    except (BadSetting, TypeError) as error:
        return f"A setting of this reply is not understood any more: {error}"
    if model is None:
        return "Load the model first."
    return "" if state == "idle" else "Wait until the engine is free."


def doubts(
    told: ReplyProvenance, model: ModelInfo | None, loaded: tuple[LoadSettings, CacheSettings], identity: str
) -> list[str]:
    """What is not as it was, so that a replay may differ; sentences for people, none when nothing speaks
    against it.
    """
    if told.provenance is None or model is None:
        return []
    was, found = told.model, list[str]()
    if was.get("identity") != identity:
        found.append(
            f"The loaded model is {model.name}, whose files are others than those of "
            f"“{was.get('name', 'the model')}” then."
        )
    if (was.get("backend"), was.get("where")) != (model.backend, model.where):
        found.append(
            f"It ran on {_place(was.get('backend'), was.get('where'))}; now "
            f"{_place(model.backend, model.where)} is used."
        )
    if was.get("threads") != model.threads and not model.where:
        found.append(f"It was computed by {was.get('threads')} threads; now there are {model.threads}.")
    for cls, now in zip((LoadSettings, CacheSettings), loaded, strict=True):
        then, present = told.settings(cls), now.to_json()
        names = [name for name in present if name in _MATTERING[cls] and then.get(name) != present[name]]
        if names:
            found.append(
                "The model was loaded with another "
                f"{' and another '.join(_MATTERING[cls][name] for name in names)}."
            )
    if told.provenance.facts.get("engine") != version():
        found.append(
            f"It was written by version {told.provenance.facts.get('engine') or 'unknown'}; "
            f"this is {version()}."
        )
    if told.provenance.prompt is not None and not told.provenance.prompt.exact:
        found.append(
            "A part of its prompt was in the cache since an earlier session, and how that was read is not "
            "known."
        )
    sampler = told.settings(SamplerSettings)
    if (
        told.settings(SpeculationSettings).get("method") == "model"
        and sampler.get("seed") is None
        and sampler.get("temperature", 0) > 0
    ):
        found.append("A draft model guessed without a fixed seed, so that its guesses followed the clock.")
    return found


_MATTERING: dict[type, dict[str, str]] = {
    LoadSettings: {
        "quantise": "quantisation while loading", "quantise_head": "quantisation of the head",
        "prompt_bits": "precision of prompts",
        "chat_template": "chat template",
    },
    CacheSettings: {"dtype": "cache type", "value_dtype": "cache type of values"},
}  # fmt: skip


def _place(backend: object, where: object) -> str:
    return str(
        where
        or {"cpu": "the processor", "reference": "the reference backend"}.get(str(backend), "another device")
    )


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"


def _replayed(
    source: ChatSource,
    request: ChatRequest,
    expected: Sequence[int],
    pieces: Sequence[str],
    stop: threading.Event,
) -> Generator[tuple[str, int, int], None, Compared | None]:
    """Progress, then what came of it; None when it was stopped. Ends at the first difference."""
    events = source.stream(request, stop)
    same = 0
    with closing(events) if isinstance(events, Generator) else _Nothing():
        for event in events:
            if isinstance(event, Loading):
                yield event.stage, event.done, event.total
            elif isinstance(event, Prefill):
                yield "Reading the prompt as it was read then", event.done, event.total
            elif isinstance(event, Text):
                wrong = _first_other(event.tokens, expected[same:])
                if wrong is not None:
                    same += wrong
                    return Compared(
                        same, len(expected), "".join(pieces[same : same + 1]), event.tokens[wrong].text
                    )
                same += len(event.tokens)
                yield "Writing the reply again", same, len(expected)
    if stop.is_set():
        return None
    return Compared(same, len(expected), "".join(pieces[same : same + 1]))


def _first_other(tokens: Iterable[TokenInfo], expected: Sequence[int]) -> int | None:
    for number, token in enumerate(tokens):
        if number >= len(expected) or token.id != expected[number]:
            return number
    return None


class _Nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None
