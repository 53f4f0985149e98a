"""Everything at once, drawn at random: no combination of settings may break what each of them promises
alone.
"""

from __future__ import annotations

import random
import re
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from engine.constraint.filter import Filter
from engine.constraint.grammar import GrammarFilter
from engine.constraint.prefix import PrefixFilter
from engine.constraint.select import SelectFilter
from engine.core import STOP_REASONS, Done, Prefill, Running, Stats, Text, TokenInfo
from engine.errors import BadSetting, ContextTooLong, NothingAllowed
from engine.generator.request import Guidance
from engine.generator.streaming import StreamingGenerator
from engine.models.paged import PagedCache
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from engine.tensors import Floats
from tests.engine.generator.fakes import FakeModel, random_logits, stream, tokenizer

CONTEXT = 512
WORDS = (
    "the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "and", "it's", "12", "345", "years",
    "since", "def", "f(x):", "return", "x", "+",
)  # fmt: skip
CHOICES = ("the dog", "the dog and the fox", "brown", "12 years", "näive 😀")
REGEXES = ("[a-z ]{5,30}", "(the |fox |dog )+", r"\d+( and \d+)*", "(brown|quick)?.{0,8}", "ab|abc+")
DRAFTINGS = tuple(SpeculationSettings(method=method, adaptive=adaptive, draft_tokens=3) for method,
    adaptive in
                  (("ngram", False), ("ngram", True), ("model", False), ("model", True)))  # fmt: skip


class Speaker:
    """Mostly goes on as the text did after the last token, now and then wants to end; all tokens count."""

    def __init__(self, seed: int, ending: float, noise: float = 0.0) -> None:
        self.seed, self.ending, self.noise = seed, ending, noise

    def __call__(self, sequence: list[int]) -> Floats:
        logits = random_logits([self.seed, *sequence])
        for at in range(len(sequence) - 2, 0, -1):
            if sequence[at] == sequence[-1]:
                logits[sequence[at + 1]] += 6.0
                break
        logits[list(tokenizer().stop_token_ids)] = logits[sequence[-1]] + self.ending
        if self.noise:
            logits += (
                np.random.default_rng(len(sequence))
                .normal(scale=self.noise, size=len(logits))
                .astype(np.float32)
            )
        return logits


@dataclass(frozen=True)
class Case:
    """One drawn combination; `filters` makes them anew for each run."""

    number: int
    prompt: tuple[int, ...]
    seed: int
    speaker: Speaker
    sampler: SamplerSettings
    stops: StopSettings
    constraint: ConstraintSettings
    output: OutputSettings
    guidance: Guidance | None
    heal: bool
    given: int
    kinds: tuple[tuple[str, str], ...] = ()

    def filters(self) -> list[Filter]:
        made: list[Filter] = []
        for kind, text in self.kinds:
            if kind == "regex":
                made.append(GrammarFilter.regex(tokenizer(), text))
            elif kind == "json":
                made.append(GrammarFilter.json(tokenizer()))
            elif kind == "select":
                made.append(SelectFilter(tokenizer(), CHOICES))
            else:
                made.append(PrefixFilter(tokenizer(), [text, "12"]))
        return made


def draw_sampler(draw: random.Random) -> SamplerSettings:
    """Greedy half of the time; each step with a chance of its own."""
    some: dict[str, Any] = {
        "temperature": 0.0 if draw.random() < 0.5 else draw.choice((0.3, 1.0, 1.5)),
        "min_p": 0.0,
        "top_k": 0,
    }
    choices: dict[str, Any] = {
        "top_k": 20, "top_p": 0.8, "min_p": 0.1, "repetition_penalty": 1.2, "repetition_range": 20,
        "frequency_penalty": 0.5, "dry_multiplier": 1.0, "mirostat": True, "adaptive_target": 0.4,
        "xtc_probability": 0.5, "skew": 0.5, "typical": 0.9, "smoothing_factor": 0.3, "max_temperature": 1.5,
        "top_n_sigma": 3.0, "tail_free": 0.95, "top_a": 0.1,
    }  # fmt: skip
    return SamplerSettings(**some | {name: value for name, value in choices.items() if draw.random() < 0.15})


def draw_case(number: int) -> Case:
    """The combination with this number."""
    draw = random.Random(number)
    words = draw.choices(WORDS, k=draw.randrange(1, 30))
    prompt = tokenizer().encode(" ".join(words))
    if draw.random() < 0.15:
        prompt = (prompt * CONTEXT)[: CONTEXT - draw.randrange(0, 12)]
    elif draw.random() < 0.15:
        prompt = (prompt * CONTEXT)[: draw.choice((255, 256, 257, 300))]
    stops: dict[str, Any] = {
        "max_tokens": draw.choice((0, 1, 7, 20) if len(prompt) > 450 else (1, 2, 7, 20, 40, 40, 70))
    }
    offers: dict[str, Any] = {
        "min_tokens": draw.choice((3, 12)),
        "stop_strings": tuple(draw.choices(("the", "fox j", " ", "12", "e d", "\n"), k=2)),
        "stop_regex": draw.choice((r"\w+ \w+ \w+\.?", "[xyz]{2}", "(fox|dog) [a-z]+")),
        "stop_token_ids": (draw.randrange(60, 90),), "keep_stop": True, "loop_window": draw.choice((4, 8)),
        "loop_repeats": 2,
    }  # fmt: skip
    stops |= {name: value for name, value in offers.items() if draw.random() < 0.25}
    constraint: dict[str, Any] = {
        "banned_strings": tuple(draw.choices(("the", "e", "OG", "fox j", "an", " ", "1", "er la", "x"),
        k=draw.randrange(1, 4))),
        "ban_ignore_case": False, "logit_bias": ("' fox' = 3", "70 = -4"),
        "allowed_tokens": tuple(sorted({*draw.sample(range(6, tokenizer().vocab_size), 80),
        *tokenizer().stop_token_ids})),
        "banned_tokens": tuple(draw.sample(range(6, tokenizer().vocab_size), 30)),
    }  # fmt: skip
    constraint = {name: value for name, value in constraint.items() if draw.random() < 0.25}
    kinds: list[tuple[str, str]] = []
    if draw.random() < 0.35:
        kinds.append(
            draw.choice(
                (
                    ("regex", draw.choice(REGEXES)),
                    ("json", ""),
                    ("select", ""),
                    ("prefix", draw.choice(CHOICES)),
                )
            )
        )
        if draw.random() < 0.2:
            kinds.append(draw.choice((("regex", draw.choice(REGEXES)), ("prefix", draw.choice(CHOICES)))))
    heal = draw.random() < 0.25
    given = 0
    if draw.random() < 0.3 and len(prompt) < 450:
        beginnings = (
            {"json": '{"the', "prefix": kinds[0][1][:5], "regex": "the ", "select": "the dog"}
            if kinds
            else {}
        )
        state = tokenizer().encode(beginnings[kinds[0][0]] if kinds else "the")
        prompt, given = prompt + state, len(state)
    other = tokenizer().encode(" ".join(draw.choices(WORDS, k=3)))
    negative = tuple((other * draw.choice((1, 1, CONTEXT)))[: CONTEXT - draw.randrange(2, 70)]) + tuple(
        prompt[-1:]
    )
    return Case(
        number, tuple(prompt), draw.randrange(1 << 32), Speaker(number, draw.choice((-20.0, -6.0, -1.0))),
        draw_sampler(draw), StopSettings(**stops), ConstraintSettings(**constraint),
        OutputSettings(draw.choice((0, 3)), draw.choice((1, 1, 4)), draw.random() < 0.2),
        Guidance(negative, draw.choice((1.5, 0.5))) if draw.random() < 0.15 else None, heal, given,
        tuple(kinds),
    )  # fmt: skip


def generator_of(case: Case, states: int = 0) -> StreamingGenerator:
    """Fresh, with a draft model that is often right; both have this many states of recurrent layers."""
    model: Any = FakeModel(case.speaker, states=states)
    draft: Any = FakeModel(Speaker(case.speaker.seed, case.speaker.ending, noise=0.7), states=states)
    cache = PagedCache(model, CacheSettings(context_length=CONTEXT))
    cache.rows = 64
    generator = StreamingGenerator(model, cache, tokenizer())
    generator.drafters.set_model(draft, PagedCache(draft, CacheSettings(context_length=CONTEXT)))
    return generator


@dataclass
class Reply:
    """What a run gave; `error` is the sentence of the refusal that ended it."""

    text: str = ""
    tokens: list[TokenInfo] = field(default_factory=list)
    suppressed: list[str] = field(default_factory=list)
    reason: str = ""
    trigger: str = ""
    stats: Stats = field(default_factory=Stats)
    error: str = ""

    @property
    def reported(self) -> tuple[Any, ...]:
        """Everything but times and the words of drafting."""
        tokens = [token._replace(seconds=0.0, drafted=False) for token in self.tokens]
        return (
            self.text,
            tokens,
            "".join(self.suppressed),
            self.reason,
            self.trigger,
            self.error,
            self.stats.new_tokens,
        )


class Broken(Exception):
    """What a pass raises when it is to fail."""


def run(
    generator: StreamingGenerator, case: Case, speculation: SpeculationSettings, how: str = "", after: int = 0
) -> Reply:
    """One reply; `how` it is to be cut short, if at all: "stop", "fail" or "close", after so many passes
    or events.
    """
    reply, event, program = Reply(), threading.Event(), generator.model.program  # type: ignore[attr-defined]
    passes = len(program.ran)

    def before_run() -> None:
        if how == "stop" and len(program.ran) - passes >= after:
            event.set()
        if how == "fail" and len(program.ran) - passes >= after:
            raise Broken

    program.before_run = before_run
    threads = threading.active_count()
    try:
        events = stream(
            generator, case.prompt, case.sampler, case.stops, speculation=speculation,
            constraint=case.constraint, guidance=case.guidance, output=case.output, filters=case.filters(),
            given=case.given, heal=case.heal, seed=case.seed, stop=event,
        )  # fmt: skip
        for count, one in enumerate(events):
            assert not reply.reason, "nothing comes after Done"
            if how == "close" and count >= after:
                events.close()
                break
            if isinstance(one, Text):
                assert one.text or one.tokens or one.suppressed
                reply.text += one.text
                reply.tokens += one.tokens
                reply.suppressed += [one.suppressed] if one.suppressed else []
            elif isinstance(one, Done):
                reply.reason, reply.trigger, reply.stats = one.reason, one.trigger, one.stats
            else:
                assert isinstance(one, (Prefill, Running))
        assert reply.reason in STOP_REASONS or how == "close"
    except Broken:
        assert how == "fail"
    except (NothingAllowed, BadSetting, ContextTooLong) as error:
        reply.error = str(error)
    finally:
        program.before_run = lambda: None
    assert threading.active_count() == threads, "a thread was left behind"
    for cache in (generator.cache, generator.drafters._draft_cache):
        assert cache is not None
        cache.table.check()
        assert cache.table.free + cache.table.idle == cache.table.page_count, "pages were left leased"
    return reply


def check_alone(case: Case, reply: Reply) -> None:
    """What must hold of one reply, whatever came before."""
    text, stats = reply.text, reply.stats
    joined = "".join(token.text for token in reply.tokens)
    # an error may come between a text and the end of its token
    assert joined == text or (reply.error and text.startswith(joined))
    ids = [token.id for token in reply.tokens]
    fold = str.lower if case.constraint.ban_ignore_case else str
    stopped = reply.reason == "stop_token"
    kept = case.stops.keep_stop and reply.reason in ("stop_token", "stop_string", "stop_regex")
    shown = text.removesuffix(reply.trigger) if kept and stopped else text
    for banned in case.constraint.banned_strings:
        assert fold(banned) not in fold(shown), f"banned {banned!r} in {shown!r}"
    body = text[: len(text) - len(reply.trigger)] if kept and not stopped else shown
    for string in case.stops.stop_strings:
        assert string not in body, f"stop string {string!r} in {body!r}"
    if reply.reason == "stop_string" and kept:
        assert text.endswith(reply.trigger)
        assert reply.trigger in case.stops.stop_strings
    if reply.error:
        return
    check_ids(case, reply, ids)
    assert stats.new_tokens >= len(ids)
    assert 0 <= stats.accepted_tokens <= stats.drafted_tokens
    assert stats.new_tokens <= (case.stops.max_tokens or CONTEXT)
    assert stats.context_tokens <= CONTEXT + 1
    assert stats.prompt_tokens == len(case.prompt)
    assert stats.prefill_tokens + stats.cached_tokens <= len(case.prompt) + (
        len(case.guidance.negative_ids) if case.guidance else 0
    )
    if not case.constraint.banned_strings:
        assert stats.passes + stats.accepted_tokens + 1 >= stats.new_tokens >= 0
    if reply.reason == "max_tokens":
        assert stats.new_tokens == case.stops.max_tokens
    if stopped:
        assert stats.new_tokens > case.stops.min_tokens or not case.stops.min_tokens
    check_language(case, reply)


def check_ids(case: Case, reply: Reply, ids: list[int]) -> None:
    """The ids are those of the text: all of them where nothing was cut, and healed only the first."""
    assert [token.healed for token in reply.tokens[1:]] == [False] * len(reply.tokens[1:])
    cut = reply.reason in ("stop_string", "stop_regex")
    if cut or reply.suppressed:
        return
    before = list(case.prompt[:-1] if reply.tokens and reply.tokens[0].healed else case.prompt)
    assert reply.stats.new_tokens == len(ids) + (reply.reason == "stop_token" and not case.stops.keep_stop)
    kept = reply.reason == "stop_token" and case.stops.keep_stop
    skip = not case.output.show_special
    whole, start = (
        tokenizer().decode(part, skip_special=skip)
        for part in (before + (ids[:-1] if kept else ids), list(case.prompt))
    )
    assert whole == start + (reply.text.removesuffix(reply.trigger) if kept else reply.text)


def check_language(case: Case, reply: Reply) -> None:
    """The whole reply, what was given of it included, is in the filters' languages, or begins a text of
    them.
    """
    data = reply.text
    if reply.reason == "stop_token" and case.stops.keep_stop:
        data = data.removesuffix(reply.trigger)
    if case.given:
        if case.heal:
            return
        data = tokenizer().decode(case.prompt[-case.given :]) + data
    if "\ufffd" in data:
        return
    whole = reply.reason in ("stop_token", "end_filter") and (
        reply.reason == "end_filter" or not case.stops.stop_token_ids or reply.trigger.startswith("<|")
    )
    for one, (kind, text) in zip(case.filters(), case.kinds, strict=True):
        assert one.can_begin(data.encode()), f"{data!r} does not begin {kind} {text!r}"  # type: ignore[attr-defined]
        if not whole:
            continue
        if kind == "regex":
            assert re.fullmatch(text, data), (data, text)
        elif kind == "select":
            assert data in CHOICES
        elif kind == "prefix":
            assert data.startswith((text, "12"))


def check(number: int, states: int = 0) -> None:
    """All promises of one combination."""
    case = draw_case(number)
    plain = run(generator_of(case), case, SpeculationSettings())
    check_alone(case, plain)
    raced, draw = plain, random.Random(-number)
    if case.sampler.temperature:  # a draft model that never guesses
        generator = generator_of(case)
        generator.drafters.threshold = 2.0
        raced = run(generator, case, SpeculationSettings(method="model"))
    for speculation in DRAFTINGS:
        generator = generator_of(case, states)
        drafted = run(generator, case, speculation)
        check_alone(case, drafted)
        expected = plain if speculation.method == "ngram" else raced
        assert_same(drafted, expected)
        # Cut short at any point, and written again: from a warm cache it is the same reply.
        cut = run(
            generator,
            case,
            speculation,
            draw.choice(("stop", "stop", "fail", "close")),
            draw.randrange(0, 14),
        )
        held = case.constraint.banned_strings or case.stops.stop_strings or case.stops.stop_regex
        if not held and not cut.text.endswith("\ufffd"):
            assert expected.text.startswith(cut.text)
        warm = run(generator, case, SpeculationSettings())
        check_alone(case, warm)
        assert_same(warm, plain)


def assert_same(one: Reply, other: Reply) -> None:
    for a, b in zip(one.reported, other.reported, strict=True):
        assert a == b


@pytest.mark.slow
@pytest.mark.parametrize("states", [6, 12])
def test_combinations_of_a_model_with_states(states: int) -> None:
    for number in range(100 * states, 100 * states + 12):
        check(number, states)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("start", range(0, 60, 10))
def test_combinations(start: int) -> None:
    for number in range(start, start + 10):
        check(number)
