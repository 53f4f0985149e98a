"""Generates a reply again from its exact prompt, settings and seed, outside every chat, and compares the
tokens.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Signal

from desktop.services.engine.job import Job
from desktop.services.engine.reply_record import stats_of
from desktop.services.provenance.provenance import ReplyProvenance
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.pictures import with_data
from desktop.store.attachments.pictures import PictureStore
from engine.core import ChatRequest, ChatSource, Loading, Message, ModelInfo, Prefill, Text, TokenInfo
from engine.errors import BadSetting
from engine.platform.version import version
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
from engine.words import N_, _, ngettext, translate

__all__ = ["Compared", "Replay", "doubts", "replay_request", "why_not"]

_CUT = ("cancelled", "time_limit")


class Compared(NamedTuple):
    """The result of a replay: the first `same` tokens are identical.

    At the first difference `there` is what the reply has and `here` what the replay wrote ("" at an end).
    """

    same: int
    total: int
    there: str = ""
    here: str = ""

    @property
    def identical(self) -> bool:
        """Whether all tokens are the same, with none missing or extra."""
        return self.same == self.total and not self.here

    @property
    def sentence(self) -> str:
        """The result as a sentence for the user."""
        if self.identical:
            return ngettext("Identical: {n} token.", "Identical: {n} tokens.", self.total)
        place = (
            ngettext("The first token is identical", "The first {n} tokens are identical", self.same)
            if self.same
            else _("The first token already differs")
        )
        there = _("the reply has “{there}”", there=self.there) if self.there else _("the reply ends")
        here = _("the replay writes “{here}”", here=self.here) if self.here else _("the replay ends")
        return _("{place}; then {there}, and {here}.", place=place, there=there, here=here)


class Replay(QObject):
    """One replay on the engine's thread. Sending a message ends it, and so does `stop`.

    Signals:
        progress(str words, int done, int total)
        ended(object compared, str sentence): a `Compared`, or None with the error; an empty sentence if it
        was stopped.
    """

    progress = Signal(str, int, int)
    ended = Signal(object, str)

    def __init__(self, session: ChatSession, reply: ReplyProvenance, parent: QObject | None = None) -> None:
        super().__init__(parent)
        expected = reply.expected
        request = replay_request(reply)
        if reply.pictures:
            pictures = PictureStore(session.stores.database_of(reply.message.id))
            request = with_data(request, pictures.get)
        trace = reply.trace
        pieces = (
            tuple(trace.token(index).text for index in range(reply.known, reply.known + len(expected)))
            if trace is not None
            else ()
        )
        self._job: Job | None = session.replies.engine.ask(
            lambda source, stop: _replayed(source, request, expected, pieces, stop),
            self._on_progress,
            self._on_ended,
        )
        session.replies.begun.connect(self.stop)

    @property
    def running(self) -> bool:
        return self._job is not None

    def stop(self) -> None:
        if self._job is not None:
            self._job.stop()

    def _on_progress(self, event: Any) -> None:
        self.progress.emit(*event)

    def _on_ended(self, compared: Compared | None, sentence: str) -> None:
        self._job = None
        self.ended.emit(compared, sentence)


def replay_request(reply: ReplyProvenance) -> ChatRequest:
    """The request for the same reply: its prompt, settings and drawn seed, ending where it was cut off. Its
    pictures have no bytes yet.
    """
    assert reply.provenance is not None
    stats, reason, length = (
        stats_of(reply.message.stats),
        reply.message.stats.get("reason"),
        len(reply.expected),
    )
    sampler = SamplerSettings.from_json(reply.settings(SamplerSettings))
    stops = StopSettings.from_json(reply.settings(StopSettings))
    if reason in _CUT or "error" in reply.message.stats:  # ended by a time limit or by the user
        stops = dataclasses.replace(stops, max_tokens=length, time_limit=0.0)
    pictures = reply.pictures
    return ChatRequest(
        (Message("user", "", pictures=pictures),) if pictures else (),
        sampler=dataclasses.replace(sampler, seed=stats.seed) if stats is not None else sampler,
        stops=stops,
        speculation=SpeculationSettings.from_json(reply.settings(SpeculationSettings)),
        constraint=ConstraintSettings.from_json(reply.settings(ConstraintSettings)),
        guidance=GuidanceSettings.from_json(reply.settings(GuidanceSettings)),
        output=dataclasses.replace(
            OutputSettings.from_json(reply.settings(OutputSettings)), alternatives=0, stream_interval=1
        ),
        adapters=AdapterSettings.from_json(reply.settings(AdapterSettings)),
        plain=bool(reply.provenance.facts.get("plain", False)),
        replayed=reply.provenance.prompt,
    )


def why_not(reply: ReplyProvenance, model: ModelInfo | None, busy: bool) -> str:
    """Why the reply cannot be replayed now; "" if it can. `busy`: the engine loads or answers."""
    if reply.message.state == "running":
        return _("This reply is still being written.")
    if reply.server:
        return _(
            "{server} wrote this reply. Only replies written on this computer can be replayed "
            "token by token.",
            server=reply.server,
        )
    if reply.provenance is None or reply.provenance.prompt is None or stats_of(reply.message.stats) is None:
        return _("The data needed to repeat this reply was not saved, so it cannot be replayed.")
    if not reply.expected or -1 in reply.expected:
        return _("The tokens of this reply were not saved, so there is nothing to compare with.")
    try:
        replay_request(reply)
    except (BadSetting, TypeError) as error:
        return _("A setting of this reply is no longer valid: {error}", error=error)
    if model is None:
        return _("Load the model first.")
    if model.host:
        return _("A model on a server cannot do this. Load the model that wrote the reply.")
    return _("Wait until the engine is free.") if busy else ""


def doubts(
    reply: ReplyProvenance, model: ModelInfo | None, loaded: tuple[LoadSettings, CacheSettings],
    identity: str, vision_identity: str = "",
) -> list[str]:  # fmt: skip
    """Reasons why a replay may differ, as sentences for the user; the identities are those of the loaded
    model's files and of its vision encoder's.
    """
    if reply.provenance is None or model is None:
        return []
    was, found = reply.model, _other_files(reply, model, identity, vision_identity)
    if (was.get("backend"), was.get("where")) != (model.backend, model.where):
        found.append(
            _(
                "The reply was computed on {place}; now {place_2} is used.",
                place=_place(was.get("backend"), was.get("where")),
                place_2=_place(model.backend, model.where),
            )
        )
    if was.get("threads") != model.threads and not model.where:
        found.append(
            _(
                "The number of threads was {was} and is now {threads}.",
                was=was.get("threads"),
                threads=model.threads,
            )
        )
    for cls, now in zip((LoadSettings, CacheSettings), loaded, strict=True):
        then, present = reply.settings(cls), now.to_json()
        if names := [name for name in present if name in _MATTERING[cls] and then.get(name) != present[name]]:
            found.append(
                _(
                    "The model was loaded with different settings: {names}.",
                    names=", ".join(translate(_MATTERING[cls][name]) for name in names),
                )
            )
    if reply.provenance.facts.get("engine") != version():
        found.append(
            _(
                "The reply was written by version {old}; this is version {version}.",
                old=reply.provenance.facts.get("engine") or _("unknown"),
                version=version(),
            )
        )
    if reply.provenance.prompt is not None and not reply.provenance.prompt.exact:
        found.append(
            _("A part of its prompt was cached in an earlier session, and how it was read is unknown.")
        )
    return found


def _other_files(reply: ReplyProvenance, model: ModelInfo, identity: str, vision_identity: str) -> list[str]:
    """What `doubts` says of the files."""
    was, found = reply.model, list[str]()
    if was.get("identity") != identity:
        found.append(
            _(
                "The loaded model is {model}, whose files differ from those of “{was}” at the time.",
                model=model.name,
                was=was.get("name", _("the model")),
            )
        )
    if reply.vision_path and reply.vision.get("identity") != vision_identity:
        from engine.weights.gguf.ollama import known_name

        found.append(
            _(
                "The loaded model's vision encoder differs from “{was}”, which read the pictures then.",
                was=known_name(Path(reply.vision_path)),
            )
        )
    return found


_MATTERING: dict[type, dict[str, str]] = {
    LoadSettings: {
        "quantise": N_("quantisation while loading"), "quantise_head": N_("quantisation of the head"),
        "prompt_bits": N_("precision of prompts"), "picture_tokens": N_("tokens per picture"),
        "chat_template": N_("chat template"),
    },
    CacheSettings: {"dtype": N_("cache type"), "value_dtype": N_("cache type of values")},
}  # fmt: skip


def _place(backend: object, where: object) -> str:
    return str(
        where
        or {"cpu": _("the processor"), "reference": _("the reference backend")}.get(
            str(backend), _("another device")
        )
    )


def _tokens(count: int) -> str:
    return ngettext("{n} token", "{n} tokens", count)


def _replayed(
    source: ChatSource,
    request: ChatRequest,
    expected: Sequence[int],
    pieces: Sequence[str],
    stop: threading.Event,
) -> Generator[tuple[str, int, int], None, Compared | None]:
    """Yields progress and returns the result; None if it was stopped. Ends at the first difference."""
    events = source.stream(request, stop)
    same = 0
    with closing(events) if isinstance(events, Generator) else _Nothing():
        for event in events:
            if isinstance(event, Loading):
                yield event.stage, event.done, event.total
            elif isinstance(event, Prefill):
                yield _("Reading the prompt as it was read originally"), event.done, event.total
            elif isinstance(event, Text):
                wrong = _first_other(event.tokens, expected[same:])
                if wrong is not None:
                    same += wrong
                    return Compared(
                        same, len(expected), "".join(pieces[same : same + 1]), event.tokens[wrong].text
                    )
                same += len(event.tokens)
                yield _("Generating the reply again"), same, len(expected)
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

    def __exit__(self, *_unused: object) -> None:
        return None
