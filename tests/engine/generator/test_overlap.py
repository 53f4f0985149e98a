"""Replies by a device that draws ahead are those of the host, whatever happens in between; so are those of a
CPU that runs several steps in a row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.backends.base import Step
from engine.backends.cpu import decode_loop as cpu_loop
from engine.backends.cuda.runtime.decode_loop import DeviceDecodeLoop
from engine.backends.decode_loop import KEPT_LOGITS, SamplingPlan
from engine.core import PAGE_TOKENS, Done, Text
from engine.errors import EngineError, NothingAllowed
from engine.generator.overlap import sampling_plan
from engine.generator.params import token_tables
from engine.generator.request import Guidance
from engine.generator.streaming import StreamingGenerator
from engine.models.paged import PagedCache
from engine.sampling.sampler import Sampled
from engine.sampling.tables import TokenTables
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from engine.tensors import Floats, Ints
from tests.engine.backends.cpu.host_sampling import HostSampling
from tests.engine.generator.fakes import (
    FakeModel,
    FakeProgram,
    FakeStore,
    Scripted,
    random_logits,
    stepping,
    stream,
    tokenizer,
)
from tests.engine.generator.test_bans import Insisting
from tests.simt.toy import Toy

GREEDY = SamplerSettings(temperature=0.0)
WARM = SamplerSettings(temperature=1.1, top_k=50, top_p=0.9, min_p=0.01)


class Walking(FakeProgram):
    """A fake whose device is a fake one: each step puts its token where keys would lie, through the block
    table it was given.
    """

    def __init__(self, model: Any, store: FakeStore, max_rows: int) -> None:
        super().__init__(model, store, max_rows)
        self.toy = Toy(self._step, tokenizer().vocab_size, 8192)
        self.plans: list[SamplingPlan] = []
        self.starts: list[int] = []
        self.open = False

    def _step(self, token: int, place: int, page: int) -> Floats:
        self.store.slots[page, place % PAGE_TOKENS] = token
        pages = self.toy.pages.numpy().view(np.int32)
        everywhere = np.arange(place + 1)
        sequence = self.store.slots[pages[everywhere // PAGE_TOKENS], everywhere % PAGE_TOKENS].tolist()
        assert -1 not in sequence
        return self.model.answering(sequence)

    def run(self, step: Any) -> Floats:
        self.toy.device.synchronize()  # in order with what was launched
        return super().run(step)

    def decode_loop(self, params: SamplingPlan) -> Any:
        self.plans.append(params)
        decode_loop = self.toy.decode_loops.decode_loop(params)
        return None if decode_loop is None else _Watched(decode_loop, self)


class _Watched:
    """Notes when a decode loop starts, and from where logits are fetched."""

    def __init__(self, decode_loop: Any, program: Walking | Running) -> None:
        self._decode_loop, self._program = decode_loop, program

    def start(
        self,
        ids: Sequence[int],
        pages: Ints,
        uniform: Callable[[int], float],
        states: tuple[int, int] | None = None,
        shift: int = 0,
    ) -> None:
        self._program.starts.append(len(ids))
        self._decode_loop.start(ids, pages, uniform, states, shift)

    def next(self, further: int) -> Sampled | None:
        drawn: Sampled | None = self._decode_loop.next(further)
        return drawn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decode_loop, name)


class WalkingModel(FakeModel):
    def record(self, cache: FakeStore, max_rows: int, context: int = 0) -> FakeProgram:
        self.program = Walking(self, cache, max_rows)
        return self.program


class Running(HostSampling, FakeProgram):
    """A fake that runs steps in a row over the block table of its latest pass, as a CPU's program does.
    `starts` are the lengths at which its loops started, `places` those of the steps.
    """

    def __init__(self, model: Any, store: FakeStore, max_rows: int) -> None:
        super().__init__(model, store, max_rows)
        self.starts: list[int] = []
        self.places: list[int] = []
        self._pages: Ints = np.empty(0, np.int32)

    def set_pages(self, pages: Ints) -> None:
        self._pages = pages.copy()

    def run(self, step: Step) -> Floats:
        self.set_pages(step.pages)
        return super().run(step)

    def run_row(self, token: int, place: int, shift: int = 0) -> Floats:
        self.places.append(place)
        return self.run(Step(np.array([token], np.int32), np.array([place], np.int32), self._pages))[0]

    def decode_loop(self, params: SamplingPlan) -> Any:
        loop = cpu_loop.decode_loop_of(self, self.sampling, params, tokenizer().vocab_size)
        return None if loop is None else _Watched(loop, self)


class RunningModel(FakeModel):
    def record(self, cache: FakeStore, max_rows: int, context: int = 0) -> FakeProgram:
        self.program = Running(self, cache, max_rows)
        return self.program


def pair(answering: Any = random_logits, context: int = 1024) -> list[StreamingGenerator]:
    """Generators over equal fakes, the second on a CPU that runs ahead, the third with a device that has a
    decode loop.
    """
    out = []
    for kind in (FakeModel, RunningModel, WalkingModel):
        model: Any = kind(answering)
        out.append(
            StreamingGenerator(model, PagedCache(model, CacheSettings(context_length=context)), tokenizer())
        )
    return out


def reported(events: Sequence[Any]) -> Any:
    """What must be equal: text, ids, what was taken back, the reason, the passes."""
    texts = [event for event in events if isinstance(event, Text)]
    done = events[-1]
    assert isinstance(done, Done)
    stats = done.stats
    return (
        [(event.text, event.suppressed, [token.id for token in event.tokens]) for event in texts],
        (done.reason, done.trigger, stats.new_tokens, stats.context_tokens, stats.passes),
    )


def both(
    ids: Sequence[int],
    *,
    answering: Any = random_logits,
    context: int = 1024,
    decode_loops: bool = True,
    **more: Any,
) -> Any:
    """The events of host and device, after checking that they are the same and that the device walked or
    not.
    """
    results = []
    for generator in pair(answering, context):
        events = list(stream(generator, list(ids), **more))
        generator.cache.table.check()
        results.append(events)
        passes_are_whole(generator)
    program = generator.model.program
    assert isinstance(program, Walking)
    assert bool(program.starts) == decode_loops
    assert reported(results[0]) == reported(results[1]) == reported(results[2])
    return results[2], program


def passes_are_whole(generator: StreamingGenerator) -> None:
    """What is remembered of the latest sequence has each of its tokens in a pass, in their order."""
    (_, ids), passes = next(reversed(generator.cache.readings._known.items()))
    ends = [*(at for at, _ in passes[1:]), len(ids) // 4]
    assert passes[0][0] == 0
    assert all(at < end <= at + rows for (at, rows), end in zip(passes, ends, strict=True))


def tokens_of(events: Sequence[Any]) -> list[Any]:
    return [token for event in events if isinstance(event, Text) for token in event.tokens]


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "sampler",
    [
        GREEDY,
        WARM,
        SamplerSettings(),
        replace(WARM, repetition_penalty=1.2, repetition_range=9, repetition_decay=4, presence_penalty=0.3),
    ],
)
def test_the_same_reply(sampler: SamplerSettings, seed: int) -> None:
    output = OutputSettings(alternatives=4)
    events, program = both(
        [9, 20 + seed], sampler=sampler, stops=StopSettings(max_tokens=40), seed=seed, output=output
    )
    assert program.ran == [1, 1]  # the prompt; everything else was walked
    assert program.starts == [3]
    # the first token is the prompt's, and nothing was begun behind the last
    assert len(program.toy.seen) == 39
    host = list(
        stream(pair()[0], [9, 20 + seed], sampler, StopSettings(max_tokens=40), seed=seed, output=output)
    )
    for one, other in zip(tokens_of(events), tokens_of(host), strict=True):
        assert (one.probability, one.raw_probability, one.entropy) == pytest.approx(
            (other.probability, other.raw_probability, other.entropy), rel=1e-5
        )
        assert [a.id for a in one.alternatives] == [a.id for a in other.alternatives]


def test_a_late_stop_leaves_nothing_behind() -> None:
    """The step after a stop token was begun already; what it wrote is no content, and the next turn is as
    if it had not been.
    """
    ids = [*tokenizer().encode("hello there"), tokenizer().eos_token_id, *tokenizer().encode(" never")]
    _, program = both([9, 8], answering=Scripted(2, ids), sampler=GREEDY)
    program.toy.device.synchronize()
    assert program.toy.seen[-1][0] == tokenizer().eos_token_id
    generators = pair()
    replies = []
    for generator in generators:
        text, log = [9, 8, 7], []
        for turn in range(6):
            events = list(
                stream(
                    generator, text, WARM, StopSettings(max_tokens=9 + turn, stop_strings=("e",)), seed=turn
                )
            )
            generator.cache.table.check()
            log.append((reported(events), events[-1].stats.cached_tokens, events[-1].stats.prefill_tokens))
            text = [*text, *(token.id for token in tokens_of(events)), 30 + turn]
        replies.append(log)
    assert replies[0] == replies[1] == replies[2]


@pytest.mark.slow
def test_pages_grow_under_way() -> None:
    events, program = both(
        list(range(20, 30)) * 25, sampler=WARM, stops=StopSettings(max_tokens=700), seed=3, context=1100
    )
    assert len(tokens_of(events)) == 700
    assert program.starts == [251]
    assert len({page for _, _, page in program.toy.seen}) == 4


def test_the_context_ends() -> None:
    events, program = both([9] * 200, sampler=GREEDY, context=260)
    assert events[-1].reason == "context_full"
    assert max(place for _, place, _ in program.toy.seen) == 259


@pytest.mark.slow
def test_bans_go_back() -> None:
    banned = ConstraintSettings(banned_strings=("LAZY dog", "very long banned string of many tokens"))
    insisting = Insisting("one two lazy dog days are over")
    _, program = both(
        [9], answering=insisting, sampler=GREEDY, stops=StopSettings(max_tokens=40), constraint=banned
    )
    assert len(program.starts) >= 2
    for seed in range(10):
        constraint = ConstraintSettings(banned_strings=("the", "an", "o d", "e", "xy", " "))
        sampler = replace(WARM, top_k=0, repetition_penalty=1.0 + seed % 2 / 4, repetition_range=12)
        both(
            [9, seed + 20],
            sampler=sampler,
            stops=StopSettings(max_tokens=25),
            seed=seed,
            constraint=constraint,
        )


def test_text_is_held_longer_than_logits_are_kept() -> None:
    words = "a b c d e f g h i j k l m n o p q r s t u v w x y z"
    insisting = Insisting(words + " and more and more and more")
    assert len(tokenizer().encode(words)) > 2 * KEPT_LOGITS
    constraint = ConstraintSettings(banned_strings=(words,))
    events, program = both(
        [9], answering=insisting, sampler=GREEDY, stops=StopSettings(max_tokens=90), constraint=constraint
    )
    assert any(event.suppressed == words for event in events if isinstance(event, Text))
    assert len(program.starts) >= 2


def test_at_least_so_many_tokens_then_ahead() -> None:
    ids = [tokenizer().eos_token_id] * 30

    def wants_to_stop(sequence: list[int]) -> Floats:
        logits = random_logits(sequence).copy()
        logits[ids[0]] = 3.0
        return logits

    _, program = both(
        [9], answering=wants_to_stop, sampler=WARM, stops=StopSettings(min_tokens=6, max_tokens=30), seed=2
    )
    assert program.starts[0] == 7


def test_the_device_cannot_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host decides such places from the device's logits, and some more, before the loop goes on."""
    own, count = DeviceDecodeLoop.next, [0]

    def unsure(decode_loop: DeviceDecodeLoop, further: int) -> Sampled | None:
        count[0] += 1
        drawn = own(decode_loop, further)
        return drawn if count[0] % 5 else None

    monkeypatch.setattr(DeviceDecodeLoop, "next", unsure)
    sampler = replace(WARM, repetition_penalty=1.2, frequency_penalty=0.1)
    _, program = both([9], sampler=sampler, stops=StopSettings(max_tokens=60), seed=1)
    assert len(program.starts) > 3
    assert len(program.ran) > 3
    constraint = ConstraintSettings(banned_strings=("the", "an", "o d", "e", "xy", " "))
    both([9], sampler=sampler, stops=StopSettings(max_tokens=60), constraint=constraint, seed=1)


@pytest.mark.parametrize(
    "more",
    [
        {"sampler": replace(WARM, mirostat=True)},
        {"sampler": replace(WARM, dry_multiplier=0.8)},
        {"sampler": replace(WARM, xtc_probability=0.5)},
        {"sampler": replace(WARM, max_temperature=2.0)},
        {"sampler": replace(WARM, skew=0.5)},
        {"sampler": SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)},
        {"guidance": Guidance((9, 11), 1.5)},
        {"speculation": SpeculationSettings(method="ngram")},
        {"constraint": ConstraintSettings(format="json")},
        {"output": OutputSettings(alternatives=50), "sampler": replace(WARM, smoothing_factor=0.3)},
    ],
)
def test_what_stays_with_the_host(more: dict[str, Any]) -> None:
    both([9, 12], decode_loops=False, stops=StopSettings(max_tokens=8), seed=1, **more)


def test_bias_and_bans_of_ids() -> None:
    best = [int(random_logits([9, 12]).argmax()), *range(20, 60)]
    constraint = ConstraintSettings(banned_tokens=tuple(best[3:]))
    both([9, 12], sampler=WARM, constraint=constraint, stops=StopSettings(max_tokens=30), seed=4)
    letters = tuple(tokenizer().encode(c)[0] for c in "ab")
    events, _ = both(
        [9],
        sampler=WARM,
        constraint=ConstraintSettings(allowed_tokens=letters),
        stops=StopSettings(max_tokens=12),
        seed=4,
    )
    assert {token.id for token in tokens_of(events)} <= set(letters)
    assert token_tables(tokenizer(), WARM, constraint).banned


def test_nothing_allowed_and_not_finite_are_the_hosts_errors() -> None:
    def broken(sequence: list[int]) -> Floats:
        logits = random_logits(sequence).copy()
        if len(sequence) > 5:
            logits[4] = np.nan
        return logits

    for generator in pair(broken):
        with pytest.raises(EngineError, match="not finite"):
            list(stream(generator, [9], GREEDY, StopSettings(max_tokens=20)))
        generator.cache.table.check()
    assert len(generator.model.program.starts) == 1

    def closing(sequence: list[int]) -> Floats:
        logits = random_logits(sequence).copy()
        if len(sequence) > 5:
            logits[best] = -np.inf
        return logits

    best = [4, 5, 6]
    for generator in pair(closing):
        with pytest.raises(NothingAllowed):
            list(
                stream(
                    generator,
                    [9],
                    GREEDY,
                    StopSettings(max_tokens=20),
                    constraint=ConstraintSettings(allowed_tokens=tuple(best)),
                )
            )
        generator.cache.table.check()


def test_a_stop_event_and_closing() -> None:
    for at in (1, 5):
        for generator in pair():
            stop = threading.Event()
            reasons = []
            for event in stream(generator, [9, 8], WARM, StopSettings(max_tokens=50), seed=1, stop=stop):
                reasons.append(event)
                if sum(isinstance(each, Text) for each in reasons) == at:
                    stop.set()
            assert reasons[-1].reason == "cancelled"
            events = stream(generator, [9, 8], WARM, StopSettings(max_tokens=50), seed=1)
            for _ in range(at + 4):
                next(events)
            events.close()
            generator.cache.table.check()
            again = list(stream(generator, [9, 8], WARM, StopSettings(max_tokens=20), seed=5))
            assert again[-1].stats.new_tokens == 20


def test_step_by_step_with_changing_bans_and_rules() -> None:
    """What the caller changes between two tokens counts for the next one, although the device drew it
    already.
    """
    results = []
    for generator in pair():
        steps = stepping(generator, [9, 8], WARM, seed=6, probabilities=True, top_tokens=3)
        ids: list[int] = []
        tops = []
        for turn in range(40):
            if turn == 20:
                steps.set_stop_conditions([tokenizer().eos_token_id, "q"])
            banned = ids[-2:] if turn % 4 == 1 else None
            result = steps.step(banned)
            ids += result["chunk_token_ids"].ravel().tolist()
            tops.append(result["top_tokens"].tolist())
            if result["eos"]:
                break
        results.append((ids, tops, result["eos"], list(steps.sequence)))
        steps.close()
        generator.cache.table.check()
    assert results[0] == results[1] == results[2]
    assert len(generator.model.program.starts) > 3


def test_plans() -> None:
    assert sampling_plan(WARM, TokenTables(), 100) is not None
    params = sampling_plan(
        replace(WARM, order=("temperature", "repetition"), repetition_penalty=1.1), TokenTables(), 100
    )
    assert params is None
    params = sampling_plan(
        GREEDY, TokenTables(90, ((3, 1.0), (100, 1.0)), frozenset({3, 4, 5, 100}), frozenset({5, 100})), 100
    )
    assert params is not None
    assert (params.vocabulary, params.greedy, params.steps) == (90, True, ())
    assert params.bias is not None
    assert np.flatnonzero(params.bias > -np.inf).tolist() == [3, 4]
    params = sampling_plan(GREEDY, TokenTables(bias=((3, 1.5), (7, -2.0), (3, 0.5))), 100)
    assert params is not None
    assert params.bias is not None
    assert {int(token): float(params.bias[token]) for token in np.flatnonzero(params.bias)} == {
        3: 2.0,
        7: -2.0,
    }
    assert sampling_plan(GREEDY, TokenTables(), 100).bias is None
