"""The kernels of a draw: bodies against their models, and the models against the sampler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.kernels.sampling import layout as lay
from engine.backends.cuda.kernels.sampling.draw import draw_kernel
from engine.backends.cuda.kernels.sampling.layout import NOTHING, PARTIAL_WORDS, plan_words
from engine.backends.cuda.kernels.sampling.sampling import Shape, occurrences
from engine.backends.cuda.kernels.sampling.scan import scan_kernel
from engine.backends.cuda.kernels.sampling.sort import sort_kernel
from engine.backends.decode_loop import SamplingPlan
from engine.generator.overlap import sampling_plan
from engine.sampling.passes import KEEP_NUCLEUS, KEEP_REACHING, KEEP_SQUARED, KEEP_TOP, SCALE
from engine.sampling.sampler import Sampler
from engine.sampling.tables import TokenTables
from engine.settings import SamplerSettings
from tests.simt.agree import At, both
from tests.simt.fake import FakeDevice
from tests.simt.toy import Toy

USUAL = SamplingPlan(
    0, ((SCALE, 1 / 0.7), (KEEP_TOP, 40), (KEEP_NUCLEUS, 0.95), (KEEP_REACHING, float(np.log(0.05))))
)


def scores(size: int, seed: int = 0, spread: float = 3.0) -> Any:
    return np.random.default_rng(seed).normal(0, spread, size).astype(np.float32)


def padded(array: Any, stride: int) -> Any:
    out = np.zeros(stride // 4, array.dtype)
    out[: len(array)] = array
    return out


SURVEYS = [
    (2049, 2049, 4, 1), (4093, 4000, 16, 1), (2052, 2050, 64, 0),
    pytest.param(4093, 4000, 16, 0, marks=pytest.mark.slow),
    pytest.param(2052, 2050, 64, 1, marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("size", "inside", "group", "edits"), SURVEYS)
def test_survey(size: int, inside: int, group: int, edits: int) -> None:
    shape, rng = Shape(size, -(-size // 2048), group), np.random.default_rng(size)
    logits = scores(size)
    logits[5], logits[7] = -np.inf, np.nan
    text = rng.integers(0, inside, 90)
    amounts, latest = occurrences(text, shape.stride // 4, 30, 20)
    bias = padded(rng.normal(0, 1, size).astype(np.float32), shape.stride)
    bias[11] = NOTHING
    plan = plan_words(
        replace(USUAL, vocabulary=inside, repetition=1.2, presence=0.3, frequency=0.1, reach=30, fade=20),
        False,
    )
    words = np.zeros(shape.stride // 4, np.float32)
    state, position = np.array([3], np.int32), np.array([89], np.int32)
    arrays = [
        logits, np.zeros((4, shape.stride // 4), np.float32), state, plan, position, bias, amounts, latest,
        words, np.zeros(shape.groups, np.float32), np.zeros(shape.groups, np.float32),
        np.zeros(8 * shape.parts, np.float32),
    ]  # fmt: skip
    places: list[Any] = [At(i) for i in range(12)]
    arguments = [*places[:2], shape.stride, *places[2:], size]
    found, expected = both(scan_kernel(group, bool(edits)), (shape.parts, 1, 1), arguments, arrays)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)
    assert found[11].reshape(-1, PARTIAL_WORDS)[:, lay.BAD].tolist() == [1.0] + [0.0] * (shape.parts - 1)


def sorted_by_both(values: Any, inside: int, group: int, want: int) -> list[Any]:
    shape = Shape(len(values), -(-len(values) // 2048), group)
    wide = np.full(shape.stride // 4, NOTHING, np.float32)
    wide[:inside] = values[:inside]
    groups = wide.reshape(-1, group).max(axis=1)
    plan = plan_words(replace(USUAL, vocabulary=inside), False)
    plan.view(np.int32)[lay.WANT] = want
    arguments = [At(0), At(1), At(2), lay.WANT, At(3), len(groups), group]
    return [
        r[3]
        for r in both(
            sort_kernel(), (1, 1, 1), arguments, [values, groups, plan, np.zeros(lay.LIST_WORDS, np.int32)]
        )
    ]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("size", "inside", "group", "want"),
    [(2100, 2090, 4, 40), (5000, 5000, 16, 100), (40, 39, 4, 256), (9000, 9000, 64, 3)],
)
def test_sort(size: int, inside: int, group: int, want: int) -> None:
    values = np.round(scores(size, want), 2)  # with ties
    values[:inside:7] = NOTHING
    found, expected = sorted_by_both(values, inside, group, want)
    assert found.tobytes() == expected.tobytes()
    allowed = np.flatnonzero(values[:inside] > NOTHING)
    count = int(found[lay.COUNT])
    assert count >= min(want, len(allowed))
    best = allowed[np.lexsort((allowed, -values[allowed]))]
    assert found[lay.IDS : lay.IDS + count].tolist() == best[:count].tolist()
    depth = float(found.view(np.float32)[lay.DEPTH])
    assert found[lay.WHOLE] or count == (values[best[0]] - values[allowed] < depth).sum()


@pytest.mark.slow
def test_too_many_equal_scores_are_noticed() -> None:
    found, expected = sorted_by_both(np.ones(1500, np.float32), 1500, 4, 40)
    assert found[lay.COUNT] == expected[lay.COUNT] == -1


PLANS = [
    USUAL,
    replace(USUAL, alternatives=5, top=3),
    SamplingPlan(0, greedy=True, alternatives=2, top=4),
    SamplingPlan(0, ((KEEP_REACHING, -2.5), (SCALE, 0.6)), alternatives=4, top=7),
    SamplingPlan(0, ((SCALE, 1.5), (KEEP_NUCLEUS, 0.7), (KEEP_SQUARED, 0.4)), top=3),
    SamplingPlan(0, ((KEEP_SQUARED, 0.1), (KEEP_TOP, 7)), repetition=1.3, reach=5, fade=3, alternatives=3),
    SamplingPlan(0, ((KEEP_NUCLEUS, 0.999999),)),
]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("plan", PLANS)
def test_draw(plan: SamplingPlan) -> None:
    size, text = 1500, np.random.default_rng(1).integers(0, 1500, 12)
    plan = replace(plan, vocabulary=size)
    logits = scores(size, 4)
    order = np.argsort(-logits, kind="stable")[:90]
    listed = np.zeros(lay.LIST_WORDS, np.int32)
    listed[lay.COUNT], listed.view(np.float32)[lay.DEPTH] = 90, logits[order[0]] - logits[order[-1]]
    listed[lay.IDS : lay.IDS + 90], listed.view(np.float32)[lay.SCORES : lay.SCORES + 90] = (
        order,
        logits[order],
    )
    words = plan_words(plan, True)
    partials = np.zeros((2, 8), np.float32)
    for part, values in enumerate((logits[:700].astype(float), logits[700:].astype(float))):
        depths = values - values.max()
        partials[part, :3] = values.max(), np.exp(depths).sum(), (np.exp(depths) * depths).sum()
        partials[part, 4:6] = values.max(), np.exp(depths * words.view(np.float32)[lay.WHOLE_SCALE]).sum()
    amounts, latest = occurrences(text, 2048, plan.reach, plan.fade)
    history = np.zeros(64, np.int32)
    history[:12] = text
    uniforms = np.random.default_rng(3).random(16).astype(np.float32)
    arrays = [
        listed, listed, logits, words, np.array([18], np.int32), partials, uniforms,
        np.zeros(16 * lay.RESULT_WORDS, np.int32), np.zeros(1, np.int32), np.array([11], np.int32),
        np.array([4], np.int32), amounts, latest, history,
    ]  # fmt: skip
    places = [At(i) for i in range(14)]
    found, expected = both(
        draw_kernel(), (1, 1, 1), [*places[:6], 2, *places[6:]], arrays, twice=plan is PLANS[0]
    )
    result, expected_result = found[7].reshape(16, -1)[2], expected[7].reshape(16, -1)[2]
    assert result[lay.STAMP] == 19
    assert bool(result[lay.FLAG]) == bool(expected_result[lay.FLAG])
    if not result[lay.FLAG]:
        real = np.zeros(lay.RESULT_WORDS, bool)
        real[[lay.FINAL, lay.RAW, lay.ENTROPY]] = True
        real[lay.OTHERS_AT : lay.TOPS_AT] = [False, True, True] * lay.MOST_ALTERNATIVES
        real[lay.TOPS_AT :] = [False, True] * lay.MOST_ALTERNATIVES
        assert result[~real].tolist() == expected_result[~real].tolist()
        np.testing.assert_allclose(
            result.view(np.float32)[real], expected_result.view(np.float32)[real], rtol=2e-5, atol=1e-7
        )
    for i in (4, 8, 9, 10, 11, 12, 13):
        assert found[i].tolist() == expected[i].tolist()


SETTINGS = [
    SamplerSettings(),
    SamplerSettings(temperature=0.0),
    SamplerSettings(temperature=1.0, top_k=1, top_p=1.0, min_p=0.0),
    SamplerSettings(temperature=1.3, top_k=100, top_p=0.8, min_p=0.0, top_a=0.1),
    SamplerSettings(temperature=0.9, top_k=0, top_p=0.6, min_p=0.0),
    SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.1),
    SamplerSettings(temperature=0.8, top_k=0, top_p=0.9, min_p=0.1, order=("min_p", "top_p", "temperature")),
    SamplerSettings(
        temperature=1.4, top_k=30, top_p=1.0, min_p=0.02, order=("min_p", "top_k", "temperature")
    ),
    SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, top_a=0.2),
    SamplerSettings(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2),
    SamplerSettings(
        repetition_penalty=1.3,
        repetition_range=6,
        repetition_decay=5,
        presence_penalty=0.5,
        order=("occurrence", "repetition", "temperature"),
    ),
    SamplerSettings(temperature=0.0, repetition_penalty=0.8, repetition_range=4, frequency_penalty=-0.3),
]
TABLES = [
    TokenTables(),
    TokenTables(1990, ((3, 2.0), (3, 1.0), (17, -np.inf)), None, frozenset({40})),
    TokenTables(allowed=frozenset(range(0, 2000, 3))),
]


@pytest.mark.slow_after(12)
@pytest.mark.parametrize("tables", TABLES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_like_the_sampler(settings: SamplerSettings, tables: TokenTables) -> None:
    """The same tokens as the sampler on the host, with the same probabilities."""
    size, rng = 2000, np.random.default_rng(5)
    rows = rng.normal(0, 3, (64, size)).astype(np.float32)
    rows[:, 1000:1100] -= 50
    rows[:, 30] = -np.inf
    toy = Toy(lambda token, position, page: rows[position], size)
    sampler, host = Sampler(settings, 9, tables), Sampler(settings, 9, tables)
    plan = sampling_plan(settings, tables, size, top=4, alternatives=5)
    assert plan is not None
    decode_loop = toy.decode_loops.decode_loop(plan)
    assert decode_loop is not None
    ids = rng.integers(0, 1990, 12).tolist()
    decode_loop.start(ids, np.zeros(1, np.int32), sampler.uniform)
    for turn in range(40):
        found, expected = (
            decode_loop.next(turn < 39),
            host.sample(rows[len(ids) - 1], ids, top=4, alternatives=5),
        )
        assert found is not None
        assert found.id == expected.id
        assert (found.probability, found.raw_probability) == pytest.approx(
            (expected.probability, expected.raw_probability), rel=1e-5
        )
        assert found.entropy == pytest.approx(expected.entropy, rel=1e-5)
        assert [i for i, *_ in found.alternatives] == [i for i, *_ in expected.alternatives]
        assert np.allclose(np.array(found.alternatives), np.array(expected.alternatives), rtol=1e-5)
        assert [i for i, _ in found.top] == [i for i, _ in expected.top]
        assert np.allclose(np.array(found.top), np.array(expected.top), rtol=1e-5)
        ids.append(found.id)


def test_what_the_device_cannot_know() -> None:
    """Not finite, nothing allowed, too many tokens left: the host is to draw, and gets the very logits."""
    size = 40000
    flat, bad, good = scores(size, 1, 0.01), scores(size, 2), scores(size, 3)
    bad[777] = np.nan
    rows = [flat, bad, good]
    toy = Toy(lambda token, position, page: rows[position], size)
    plan = sampling_plan(
        SamplerSettings(top_k=0, top_p=0.99, min_p=0.0, temperature=1.0), TokenTables(), size
    )
    assert plan is not None
    decode_loop = toy.decode_loops.decode_loop(plan)
    assert decode_loop is not None
    for place in range(2):
        decode_loop.start([5] * (place + 1), np.zeros(1, np.int32), lambda place: 0.5)
        assert decode_loop.next(1) is None
        assert decode_loop.logits(place + 1).tobytes() == rows[place].tobytes()
    decode_loop = toy.decode_loops.decode_loop(replace(plan, bias=np.full(size, -np.inf, np.float32)))
    assert decode_loop is not None
    decode_loop.start([5, 5, 5], np.zeros(1, np.int32), lambda place: 0.5)
    assert decode_loop.next(0) is None


@pytest.mark.parametrize(
    "size", [500, 9000, *(pytest.param(size, marks=pytest.mark.slow) for size in (17000, 140000))]
)
def test_sizes_of_vocabularies(size: int) -> None:
    """Every size of a group, with real shapes of the work."""
    rows = np.stack([scores(size, seed) for seed in range(8)])
    toy = Toy(lambda token, position, page: rows[position], size)
    settings = SamplerSettings(top_k=0, temperature=0.7, top_p=0.8)
    host, plan = Sampler(settings, 2), sampling_plan(settings, TokenTables(), size)
    assert plan is not None
    decode_loop = toy.decode_loops.decode_loop(plan)
    assert decode_loop is not None
    ids = [1]
    decode_loop.start(ids, np.zeros(1, np.int32), host.uniform)
    for turn in range(8):
        found = decode_loop.next(turn < 7)
        assert found is not None
        assert found.id == host.sample(rows[len(ids) - 1], ids).id
        ids.append(found.id)


@pytest.mark.slow
def test_all_of_it_interpreted() -> None:
    """The bodies themselves behind a decode loop, one step ahead."""
    rows = np.stack([scores(300, seed) for seed in range(4)])
    tokens = []
    settings = SamplerSettings(repetition_penalty=1.2, repetition_range=3, top_k=20)
    for interpret in (False, True):
        toy = Toy(lambda token, position, page: rows[position], 300, 512, FakeDevice(interpret=interpret))
        plan = sampling_plan(settings, TokenTables(), 300, alternatives=2)
        assert plan is not None
        decode_loop = toy.decode_loops.decode_loop(plan)
        assert decode_loop is not None
        decode_loop.start([7], np.zeros(1, np.int32), Sampler(settings, 1).uniform)
        tokens.append([sampled and sampled.id for sampled in (decode_loop.next(1), decode_loop.next(0))])
    assert tokens[0] == tokens[1]
