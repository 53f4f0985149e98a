"""What a replay asks for, whether it can be made, and why it may differ, for recorded replies."""

from __future__ import annotations

import dataclasses
import threading
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from desktop.services.provenance.provenance import ReplyProvenance
from desktop.services.provenance.replay import Compared, Replay, doubts, replay_request, why_not
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.provenance.provenance import Provenance
from engine.core import Message, ModelInfo, Picture, Prefill, Rendered, Stats, Text, TokenInfo
from engine.drain import drain
from engine.platform.version import version
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, SpeculationSettings, StopSettings

MODEL = ModelInfo(
    "", "Owl", "llama", "gguf", 1, 32.0, 4, 1, 4096, 700, 8, (2,), True, backend="cpu", threads=2
)
LOADED = (LoadSettings(), CacheSettings())
PROMPT = Rendered((1, 2, 3), passes=(((0, 3),),))


def reply(settings: Any = (), prompt: Rendered = PROMPT, model: Any = (), **record: Any) -> ReplyProvenance:
    """A finished reply of two tokens; what is not given is as with `MODEL`, loaded by `LOADED`."""
    facts = {
        "engine": version(),
        "model": {"name": "Owl", "identity": "o", "backend": "cpu", "where": "", "threads": 2, **dict(model)},
        "settings": {type(each).__name__: each.to_json() for each in (*LOADED, *settings)},
    }
    record = {"reason": "stop_token", "stats": dataclasses.asdict(Stats(seed=77)), **record}
    trace = TokenTrace()
    trace.ids.extend((5, 6))
    message: Any = SimpleNamespace(stats=record, state="complete")
    return ReplyProvenance(message, Provenance(facts, prompt), trace)


DRAFTS = SpeculationSettings(method="model")


@pytest.mark.parametrize(
    ("made", "identity", "said"),
    [
        (reply(), "o", []),
        (reply(), "p", ["The loaded model is Owl, whose files differ from those of “Owl” at the time."]),
        (reply(model={"threads": 8}), "o", ["The number of threads was 8 and is now 2."]),
        (
            reply(model={"where": "GPU 0", "backend": "cuda"}), "o",
            ["The reply was computed on GPU 0; now the processor is used."],
        ),
        (
            reply(model={"backend": "tomorrow's"}), "o",
            ["The reply was computed on another device; now the processor is used."],
        ),
        (
            reply([CacheSettings(dtype="q8")]), "o",
            ["The model was loaded with different settings: cache type."],
        ),
        (
            reply(prompt=Rendered((1, 2, 3), passes=(((0, 0),),))), "o",
            ["A part of its prompt was cached in an earlier session, and how it was read is unknown."],
        ),
        (reply([DRAFTS, SamplerSettings(temperature=0.5)]), "o", []),
        (reply([SamplerSettings(temperature=0.5)]), "o", []),
    ],
)  # fmt: skip
def test_why_a_replay_may_differ(made: ReplyProvenance, identity: str, said: list[str]) -> None:
    assert doubts(made, MODEL, LOADED, identity) == said


def test_a_longer_context_does_not_make_a_replay_differ() -> None:
    made = reply([LoadSettings(), CacheSettings(context_length=512)])
    assert doubts(made, MODEL, (LoadSettings(), CacheSettings(context_length=1024)), "o") == []


def seeing(vision: Any) -> ReplyProvenance:
    """A reply about a picture, with what was recorded of the vision encoder's file."""
    made = reply()
    assert made.provenance is not None
    return made._replace(provenance=Provenance({**made.provenance.facts, "vision": vision}, PROMPT))


@pytest.mark.parametrize("now", ["w", ""])
def test_another_vision_encoder_may_make_a_replay_differ(now: str) -> None:
    seen = seeing({"path": "/m/mmproj-F16.gguf", "size": 850_000_000, "identity": "v"})
    assert doubts(seen, MODEL, LOADED, "o", "v") == []
    assert doubts(seen, MODEL, LOADED, "o", now) == [
        "The loaded model's vision encoder differs from “mmproj-F16.gguf”, which read the pictures then."
    ]


def test_a_reply_without_pictures_does_not_depend_on_the_vision_encoder() -> None:
    assert doubts(reply(), MODEL, LOADED, "o", "v") == doubts(seeing("x"), MODEL, LOADED, "o", "v") == []


def test_threads_do_not_matter_on_a_gpu() -> None:
    there = dataclasses.replace(MODEL, backend="cuda", where="GPU 0", threads=4)
    assert doubts(reply(model={"where": "GPU 0", "backend": "cuda"}), there, LOADED, "o") == []


def test_a_replay_asks_with_the_pictures_of_the_prompt() -> None:
    made = reply()
    assert made.provenance is not None
    kept = [["a" * 32, 60, 40], ["b" * 32, "60", 40], "c"]
    seen = made._replace(provenance=Provenance({**made.provenance.facts, "pictures": kept}, PROMPT))
    assert replay_request(seen).messages == (Message("user", "", pictures=(Picture("", "a" * 32, 60, 40),)),)
    assert replay_request(made).messages == ()


def test_a_replay_draws_with_the_seed_that_was_drawn() -> None:
    request = replay_request(reply([SamplerSettings(temperature=0.5), StopSettings(max_tokens=900)]))
    assert (request.sampler.temperature, request.sampler.seed) == (0.5, 77)
    assert (request.stops.max_tokens, request.replayed) == (900, PROMPT)
    assert not request.plain


@pytest.mark.parametrize("record", [{"reason": "cancelled"}, {"reason": "time_limit"}, {"error": "Lost."}])
def test_a_replay_ends_where_the_reply_was_cut_off(record: dict[str, Any]) -> None:
    request = replay_request(reply([StopSettings(max_tokens=900, time_limit=5.0)], **record))
    assert (request.stops.max_tokens, request.stops.time_limit) == (2, 0.0)


def test_why_there_is_no_replay() -> None:
    growing = reply()
    growing.message.state = "running"
    assert why_not(growing, MODEL, False) == "This reply is still being written."
    bare = ReplyProvenance(reply().message, None, reply().trace)
    assert "was not saved" in why_not(bare, MODEL, False)
    assert doubts(bare, MODEL, LOADED, "o") == doubts(reply(), None, LOADED, "o") == []
    assert why_not(reply(), MODEL, False) == ""
    assert why_not(reply(), MODEL, True) == "Wait until the engine is free."
    assert why_not(reply(), None, False) == "Load the model first."
    assert "on a server" in why_not(reply(), dataclasses.replace(MODEL, host="Lab"), False)
    assert "was not saved" in why_not(reply(stats=None), MODEL, False)
    assert why_not(reply(model={"server": "Lab"}), MODEL, False).startswith("Lab wrote this reply.")
    unknown = reply()
    unknown.trace.ids[1] = -1  # type: ignore[union-attr]
    nothing = reply()._replace(trace=TokenTrace())
    for made in (unknown, nothing):
        assert "nothing to compare with" in why_not(made, MODEL, False)


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ((5, 6), Compared(2, 2)),
        ((5,), Compared(1, 2, "t6")),
        ((), Compared(0, 2, "t5")),
        ((5, 9, 6), Compared(1, 2, "t6", "w9")),
        ((9, 6), Compared(0, 2, "t5", "w9")),
        ((5, 6, 7), Compared(2, 2, "", "w7")),
    ],
)
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_what_is_written_again_is_compared_token_by_token(
    written: tuple[int, ...], result: Compared, at_once: bool
) -> None:
    trace = TokenTrace()
    trace.extend([TokenInfo(id, f"t{id}", 1.0, 1.0) for id in (5, 6)])
    source, session, progress = mock.Mock(), mock.Mock(), list[tuple[str, int, int]]()
    tokens = [TokenInfo(id, f"w{id}", 1.0, 1.0) for id in written]
    texts = [Text("", tuple(tokens))] if at_once else [Text("", (token,)) for token in tokens]
    source.stream.return_value = iter([Prefill(3, 3, 0), *texts])
    ended: list[tuple[Compared | None, str]] = []
    replay = Replay(session, reply()._replace(trace=trace))
    replay.progress.connect(lambda *step: progress.append(step))
    replay.ended.connect(lambda *end: ended.append(end))
    work, on_progress, on_ended = session.replies.engine.ask.call_args.args
    assert replay.running
    steps = work(source, threading.Event())
    on_ended(drain(steps, on_progress), "")
    assert ended == [(result, "")]
    assert not replay.running
    assert progress[0] == ("Reading the prompt as it was read originally", 3, 3)
    if not at_once:
        assert [done for _words, done, _total in progress[1:]] == [*range(1, result.same + 1)]
    assert result.identical is (written == (5, 6))


@pytest.mark.parametrize(
    ("compared", "sentence"),
    [
        (Compared(1, 1), "Identical: 1 token."),
        (Compared(2, 2), "Identical: 2 tokens."),
        (
            Compared(1, 2, "a", "b"),
            "The first token is identical; then the reply has “a”, and the replay writes “b”.",
        ),
        (
            Compared(0, 2, "a"),
            "The first token already differs; then the reply has “a”, and the replay ends.",
        ),
        (
            Compared(2, 2, "", "b"),
            "The first 2 tokens are identical; then the reply ends, and the replay writes “b”.",
        ),
    ],
)
def test_what_a_comparison_says(compared: Compared, sentence: str) -> None:
    assert compared.sentence == sentence


def test_another_version_of_the_program_may_write_another_reply() -> None:
    old = reply()
    old.provenance.facts["engine"] = "0.0.1"  # type: ignore[union-attr, index]
    assert doubts(old, MODEL, LOADED, "o") == [
        f"The reply was written by version 0.0.1; this is version {version()}."
    ]


def test_the_tokens_of_a_stretch_of_a_document_count_only_where_it_stands_unchanged() -> None:
    trace = TokenTrace()
    trace.extend([TokenInfo(id, f"t{id}", 1.0, 1.0) for id in (5, 6, 7, 8)])
    made = reply()._replace(trace=trace)
    made.provenance.facts.update(plain=True, known=1)  # type: ignore[union-attr, attr-defined]
    stretch = [trace.starts[1], trace.end(2)]
    made.message.stats.update(stretch=stretch, written=2)
    assert made.expected == (6, 7)
    for changed in ({"stretch": [stretch[0] + 1, stretch[1] + 1]}, {"written": 9}, {"written": 0}):
        made.message.stats.update({"stretch": stretch, "written": 2, **changed})
        assert made.expected == ()
