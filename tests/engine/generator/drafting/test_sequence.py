"""Drafting changes the number of passes and nothing else: ids, probabilities, logits and statistics stay
what they are.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from engine.core import Done, Running, Text
from engine.errors import BadSetting
from engine.generator.drafting.sequence import Drafting
from engine.generator.params import GenerationParams
from engine.generator.streaming import StreamingGenerator
from engine.models.paged import PagedCache
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from engine.speculation.draft_length import DraftLengthController
from engine.speculation.ngram import NgramDrafter
from engine.text.stops.conditions import StopRules
from tests.engine.generator.fakes import (
    FakeModel,
    Scripted,
    all_steps,
    make,
    random_logits,
    stepping,
    stream,
    tokenizer,
)

GREEDY = SamplerSettings(temperature=0.0)
WARM = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
PROMPT = tokenizer().encode("the cat and the dog and the cat and the dog and the ") * 3
NGRAM = SpeculationSettings(method="ngram", adaptive=False)
MODEL = SpeculationSettings(method="model", adaptive=False)


def repetitive(sequence):
    """Mostly goes on as the text did after the last two tokens: easy to guess, but not always."""
    logits = random_logits(sequence).copy()
    for at in range(len(sequence) - 3, 0, -1):
        if sequence[at - 1 : at + 1] == sequence[-2:]:
            logits[sequence[at + 1]] += 6.0
            break
    return logits


def nearly(sequence):
    """What a smaller model would say: `repetitive`, a bit off."""
    noise = np.random.default_rng(len(sequence)).normal(scale=1.2, size=tokenizer().vocab_size)
    return (repetitive(sequence) + noise).astype(np.float32)


def with_drafts(answering=repetitive, drafting=nearly, context=1024):
    generator, model = make(answering, context=context)
    draft = FakeModel(drafting)
    cache = PagedCache(draft, CacheSettings(context_length=context))
    generator.drafters.set_model(draft, cache)
    return generator, model


def reply(generator, sampler=GREEDY, count=60, **more):
    events = list(stream(generator, PROMPT, sampler, StopSettings(max_tokens=count), **more))
    assert isinstance(events[-1], Done)
    tokens = [token for event in events if isinstance(event, Text) for token in event.tokens]
    return tokens, events[-1].stats


@pytest.mark.parametrize(
    "speculation", [NGRAM, MODEL, SpeculationSettings(method="ngram"), SpeculationSettings(method="model")]
)
@pytest.mark.parametrize(
    "constraint",
    [
        ConstraintSettings(),
        ConstraintSettings(format="regex", pattern="[a-z ]{20,60}"),
        ConstraintSettings(begin_with="and so on, the "),
        ConstraintSettings(banned_strings=("a", "the", "og")),
        ConstraintSettings(format="json", banned_strings=("1", "2", "3")),
    ],
)
def test_greedy_ids_and_probabilities_are_those_without_drafting(speculation, constraint):
    plain, _ = reply(with_drafts()[0], constraint=constraint)
    drafted, stats = reply(with_drafts()[0], constraint=constraint, speculation=speculation)
    assert [token.id for token in drafted] == [token.id for token in plain]
    assert "".join(token.text for token in drafted) == "".join(token.text for token in plain)
    for one, other in zip(drafted, plain, strict=True):
        assert (one.raw_probability, one.probability, one.alternatives) == (
            other.raw_probability,
            other.probability,
            other.alternatives,
        )
    assert sum(token.drafted for token in drafted) <= stats.accepted_tokens <= stats.drafted_tokens


@pytest.mark.parametrize("speculation", [NGRAM, MODEL])
def test_fewer_passes_and_right_counts(speculation):
    generator, model = with_drafts()
    tokens, stats = reply(generator, speculation=speculation)
    assert stats.new_tokens == 60
    assert stats.passes < 55
    assert sum(token.drafted for token in tokens) == stats.accepted_tokens > 5
    # the prompt's two runs: all but its last token, and that one
    assert stats.passes == len(model.program.ran) - 2
    assert stats.tokens_per_pass == pytest.approx(59 / stats.passes)
    assert stats.acceptance_rate == pytest.approx(stats.accepted_tokens / stats.drafted_tokens)
    assert max(model.program.ran[2:]) <= 6


@pytest.mark.parametrize(
    "constraint", [ConstraintSettings(), ConstraintSettings(format="regex", pattern="[a-z ]{90,}")]
)
def test_ngram_drafts_keep_a_sampled_reply_too(constraint):
    cool, accepted = SamplerSettings(temperature=0.5, top_k=0, top_p=1.0, min_p=0.0), 0
    for seed in range(5):
        plain, _ = reply(with_drafts()[0], cool, seed=seed, constraint=constraint)
        drafted, stats = reply(with_drafts()[0], cool, seed=seed, constraint=constraint, speculation=NGRAM)
        assert [token.id for token in drafted] == [token.id for token in plain]
        accepted += stats.accepted_tokens
    assert accepted > 5


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_sampled_reply_does_not_depend_on_what_a_draft_model_guesses(adaptive):
    """Not on how well it guesses, how much, and whether it has pages."""
    settings, accepted = SpeculationSettings(method="model", adaptive=adaptive), []
    cool = SamplerSettings(temperature=0.5, top_k=0, top_p=1.0, min_p=0.0)
    for seed in range(3):
        found = []
        for drafting in (nearly, repetitive, random_logits, None):
            generator, _ = with_drafts(drafting=drafting or nearly)
            cache = generator.drafters._draft_cache
            other = cache.table.open((), key="other")
            if drafting is None:
                other.reserve(cache.table.page_count * 256)
            tokens, stats = reply(generator, cool, seed=seed, speculation=settings)
            found.append([token.id for token in tokens])
            accepted.append(stats.accepted_tokens)
        assert found == [found[0]] * 4
    nearly_right, right, _, none = np.reshape(accepted, (3, 4)).sum(0).tolist()
    assert right > 5
    assert nearly_right > 0 == none


def test_the_first_pass_of_a_seeded_reply_drafts():
    generator, model = with_drafts()
    generator.drafters.threshold = 0.0
    reply(generator, WARM, seed=3, count=20, speculation=SpeculationSettings(method="model"))
    assert model.program.ran[2] > 1  # after the prompt's two runs


def test_the_draft_length_learns_of_every_token(monkeypatch):
    reported = []
    record = DraftLengthController.record
    monkeypatch.setattr(
        DraftLengthController, "record", lambda self, *what: reported.append(what) or record(self, *what)
    )
    _, stats = reply(with_drafts()[0], speculation=NGRAM)
    assert sum(drafted for drafted, *_ in reported) <= stats.drafted_tokens
    assert all(new == accepted + 1 for _, accepted, new, _ in reported)
    # but for the last pass
    assert stats.new_tokens - 8 <= 1 + sum(new for _, _, new, _ in reported) <= stats.new_tokens


def test_a_guess_is_supposed_to_cost_what_the_draft_model_reads():
    lengths = []
    for share in (0.01, 3.0):
        generator, model = with_drafts(drafting=repetitive)
        generator.drafters.threshold = 0.0
        generator.drafters._draft_cache.model.weight_bytes_per_token = share * model.weight_bytes_per_token
        reply(generator, WARM, seed=3, count=40, speculation=SpeculationSettings(method="model"))
        lengths.append(model.program.ran[2])
    assert lengths == [6, 3], "the best length, 5 or 1, or the one beside it, which is to be measured"


@pytest.mark.slow
@pytest.mark.parametrize("speculation", [NGRAM, MODEL])
def test_the_sampled_distribution_is_the_targets(speculation):
    """Chi-squared over pairs of tokens of a vocabulary narrowed to three: the second one comes from a
    draft's row.
    """
    narrow = ConstraintSettings(allowed_tokens=(60, 61, 62))
    seen: Counter[tuple[int, int]] = Counter()
    generator, _ = with_drafts()
    draws = 600
    for seed in range(draws):
        tokens, _ = reply(generator, WARM, count=3, seed=seed, constraint=narrow, speculation=speculation)
        seen[tokens[1].id, tokens[2].id] += 1
    expected = {}
    for first in (60, 61, 62):
        p0 = softmax3(PROMPT)[first]
        for second, p1 in softmax3([*PROMPT, first]).items():
            for third, p2 in softmax3([*PROMPT, first, second]).items():
                expected[second, third] = expected.get((second, third), 0.0) + p0 * p1 * p2
    distance = sum((seen[pair] - share * draws) ** 2 / (share * draws) for pair, share in expected.items())
    assert distance < 26.1  # the 0.999 quantile of chi-squared with 8 degrees of freedom


def softmax3(sequence):
    logits = repetitive(list(sequence)).astype(np.float64)
    weights = {token: np.exp(logits[token]) for token in (60, 61, 62)}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def test_drafts_near_the_end_of_the_context():
    for speculation in (NGRAM, MODEL):
        generator, _ = with_drafts(context=len(PROMPT) + 20)
        events = list(stream(generator, PROMPT, GREEDY, StopSettings(max_tokens=0), speculation=speculation))
        plain = list(
            stream(with_drafts(context=len(PROMPT) + 20)[0], PROMPT, GREEDY, StopSettings(max_tokens=0))
        )
        ids, required = (
            [t.id for e in run if isinstance(e, Text) for t in e.tokens] for run in (events, plain)
        )
        assert ids == required
        assert events[-1].reason == "context_full"
        assert events[-1].stats.accepted_tokens > 0
        generator.cache.table.check()


def test_no_more_is_drafted_than_may_be_written():
    """The prompt gives the first token and each pass one beside its drafts, which are all right here."""
    for count in (1, 2, 4, 6):
        generator, _ = with_drafts(drafting=repetitive)
        generator.drafters.threshold = 0.0
        _, stats = reply(generator, count=count, speculation=MODEL)
        assert stats.new_tokens == count
        assert stats.drafted_tokens == stats.accepted_tokens == max(0, count - 2)


def test_switching_between_drafters_keeps_the_cache_right():
    generator, _ = with_drafts()
    required = [token.id for token in reply(with_drafts()[0])[0]]
    for speculation in (NGRAM, MODEL, SpeculationSettings(), MODEL, NGRAM):
        assert [token.id for token in reply(generator, speculation=speculation)[0]] == required
        generator.cache.table.check()
    table = generator.cache.table
    assert table.free + table.idle == table.page_count


def test_settings_that_cannot_be():
    generator, _ = make()
    with pytest.raises(BadSetting, match="no draft model is loaded"):
        stream(generator, PROMPT, speculation=MODEL)
    with pytest.raises(BadSetting, match="shortest match"):
        stream(generator, PROMPT, speculation=SpeculationSettings(method="ngram", ngram_min=4, ngram_max=2))


def test_a_preloaded_text_is_guessed_from():
    lines = tokenizer().encode(
        "completely other words that no prompt has, one after the other, and then some more of them"
    )
    drafted = []
    for preload in (False, True):
        generator, _ = make(Scripted(12, lines[12:] * 2))
        if preload:
            generator.drafters.preload(lines)
        more = {"speculation": SpeculationSettings(method="ngram", draft_tokens=5)}
        stops = StopSettings(max_tokens=len(lines) - 12)
        drafted.append(list(stream(generator, lines[:12], GREEDY, stops, **more))[-1].stats.accepted_tokens)
    assert drafted[0] < drafted[1]


def test_figures_arrive_while_it_runs(monkeypatch):
    monkeypatch.setattr("engine.generator.decode.RUNNING_SECONDS", 0.0)
    generator, _ = with_drafts()
    events = list(stream(generator, PROMPT, GREEDY, StopSettings(max_tokens=30), speculation=NGRAM))
    running = [event.stats for event in events if isinstance(event, Running)]
    assert len(running) > 20
    assert [s.new_tokens for s in running] == sorted(s.new_tokens for s in running)
    assert running[-1].accepted_tokens > 0


def test_what_was_measured_goes_on_in_the_next_sequence():
    generator, _ = with_drafts()
    params = GenerationParams(WARM, 3, StopRules(frozenset()))

    def paces(method, adaptive=True, **more):
        settings = SpeculationSettings(method=method, adaptive=adaptive, **more)
        return [generator.drafters.drafting(settings, params, None)._draft_length for _ in range(2)]

    for method in ("ngram", "model"):
        one, other = paces(method)
        assert one is other
        assert (one.adaptive, one.free) == (True, method == "ngram")
        longer, _ = paces(method, draft_tokens=one.longest + 1)
        assert longer is not one
        one, other = paces(method, adaptive=False)
        assert one is not other
        assert not one.adaptive
    before, _ = paces("model")
    generator.drafters.set_model(FakeModel(nearly))  # which drops the one before
    assert paces("model")[0] is not before, "another draft model has other costs"


def test_the_speedup_is_reported_once_there_were_passes(monkeypatch):
    monkeypatch.setattr(DraftLengthController, "speedup", 1.5)
    assert [reply(with_drafts()[0], count=count, speculation=NGRAM)[1].speedup for count in (1, 2, 9)] == [
        0.0,
        1.5,
        1.5,
    ]
    assert reply(with_drafts()[0], count=9)[1].speedup == 0.0


def test_statistics_of_a_draft_model_step_by_step():
    target, draft = FakeModel(repetitive), FakeModel(nearly)
    caches = [PagedCache(model, CacheSettings(context_length=1024)) for model in (target, draft)]
    generator = StreamingGenerator(target, caches[0], tokenizer())
    generator.drafters.set_model(draft, caches[1])
    speculation = SpeculationSettings(method="model", draft_tokens=4, adaptive=False)
    steps = stepping(generator, PROMPT, GREEDY, speculation=speculation, max_new_tokens=40)
    results = all_steps(steps)
    ids = [token for result in results for token in result["chunk_token_ids"][0].tolist()]
    assert ids == [token.id for token in reply(with_drafts()[0], count=40)[0]]
    efficiency, accuracy, tokens, drafted, accepted = steps.draft_stats()
    assert (tokens, efficiency, accuracy) == (40, accepted / 40, accepted / drafted)
    stats = results[-1]["stats"]
    assert (drafted, accepted) == (stats.drafted_tokens, stats.accepted_tokens)
    steps.reset_draft_stats()
    assert steps.draft_stats() == (0.0, 0.0, 0, 0, 0)
    with pytest.raises(ValueError, match="another model"):
        generator.drafters.set_model(draft, caches[0])
    with pytest.raises(ValueError, match="another model"):
        StreamingGenerator(draft, caches[0], tokenizer())


def test_the_time_of_a_pass_is_that_of_the_model_too():
    sequence = SimpleNamespace(
        ids=PROMPT, new_tokens=0, params=GenerationParams(GREEDY, 0, StopRules(frozenset()))
    )
    lengths = mock.Mock(wraps=DraftLengthController(4))
    drafting = Drafting(NgramDrafter(), lengths)
    drafting.begin(PROMPT)
    drafted = len(drafting.propose(sequence, 100))
    drafting.spent(5.0)
    drafting.spent(2.0)
    drafting.passed(2)
    ((guessed, right, new, seconds),) = [call.args for call in lengths.record.mock_calls]
    assert (guessed, right, new) == (drafted, 1, 2)
    assert 7.0 <= seconds < 8.0
