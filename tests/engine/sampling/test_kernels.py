"""The compiled passes, against NumPy in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import config, types

from engine.sampling import kernels, passes
from engine.sampling.raw import RawDistribution
from engine.sampling.sampler import Sampler
from engine.sampling.selection import column_maxima
from engine.settings import SamplerSettings

SIZES = [65_536, 65_537, 100_003, 256_000]


def logits_of(size: int) -> np.ndarray:
    random = np.random.default_rng(size)
    logits = (random.standard_normal(size) * 4).astype(np.float32)
    logits[random.integers(0, size, 9)] += 15
    logits[random.integers(0, size, 50)] = -np.inf
    logits.setflags(write=False)
    return logits


@pytest.mark.parametrize("size", SIZES)
def test_softmax_sums(size: int) -> None:
    logits = logits_of(size)
    depths = logits.astype(np.float64) - float(logits.max())
    weights = np.exp(depths)
    finite = depths > -np.inf
    total, inner = kernels.softmax_sums(logits, logits.max())
    assert total == pytest.approx(weights.sum(), rel=5e-7)
    assert inner == pytest.approx((weights[finite] * depths[finite]).sum(), rel=2e-6)


def test_weights_of_every_depth_are_right() -> None:
    # One token at the top and one more in each other block, all of these at one depth: the sum tells the
    # weight of that depth, and blocks are added in float64, so that no sum of many float32 numbers is in it.
    blocks = kernels.MIN_COMPILED // passes.BLOCK
    for depth in np.linspace(-60, 0, 241).astype(np.float32):
        logits = np.full(kernels.MIN_COMPILED + 1, -np.inf, np.float32)
        logits[: kernels.MIN_COMPILED : passes.BLOCK] = 3 + depth
        logits[-1] = 3
        weight = np.exp(float(logits[0]) - 3.0)
        total = kernels.softmax_sums(logits, logits.max())[0]
        assert total - 1 == pytest.approx(blocks * weight, rel=2e-7, abs=blocks * 2.0**-53)


def test_each_compiler_adds_up_in_one_order() -> None:
    """The order is written down, so the sums have the same bits whatever they are compiled into."""
    size = 2 * passes.BLOCK + 3 * passes.SUM_LANES + 37
    logits = (np.random.default_rng(4).standard_normal(size) * 2).astype(np.float32)
    largest = logits.max()
    # beside a weight of 1 in another lane, a float64 sum tells the bits of each
    alone = (kernels.softmax_sums(np.array([largest, each]), largest)[0] - 1 for each in logits)
    weights, total = np.fromiter(alone, np.float32), 0.0
    for start in range(0, size, passes.BLOCK):
        lanes = np.zeros(passes.SUM_LANES, np.float32)
        for at in range(start, min(start + passes.BLOCK, size), passes.SUM_LANES):
            some = weights[at : at + passes.SUM_LANES]
            lanes[: len(some)] += some
        for lane in lanes.tolist():
            total += lane
    assert kernels.softmax_sums(logits, largest)[0] == total


@pytest.mark.parametrize("size", SIZES)
def test_moments(size: int) -> None:
    logits = logits_of(size)
    finite = logits[logits > -np.inf].astype(np.float64)
    for pivot in (0.0, 12.5):
        count, total, squares, maxima = kernels.moments(logits, pivot)
        assert count == len(finite)
        assert total == pytest.approx((finite - pivot).sum(), abs=1e-6 * np.abs(finite - pivot).sum())
        assert squares == pytest.approx(((finite - pivot) ** 2).sum(), rel=1e-6)
        assert np.array_equal(maxima, column_maxima(logits))


@pytest.mark.parametrize("size", SIZES)
def test_allow(size: int) -> None:
    logits, random = logits_of(size), np.random.default_rng(1)
    words = random.integers(0, 1 << 32, -(-size // 32), dtype=np.uint32)
    allowed = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")[:size].astype(bool)
    out = np.empty_like(logits)
    maxima = kernels.allow(logits, words, out)
    assert np.array_equal(out, np.where(allowed, logits, -np.inf).astype(np.float32))
    assert np.array_equal(maxima, column_maxima(out))


@pytest.mark.parametrize("size", [3, 65_535, 65_536])
def test_the_models_own_distribution_with_and_without_kernels(size: int) -> None:
    logits = np.resize(np.log(np.asarray([0.5, 0.3, 0.2], np.float64)), size).astype(np.float32)
    logits[3:] = -np.inf
    raw = RawDistribution(logits, column_maxima(logits))
    assert raw.entropy == pytest.approx(
        -(0.5 * np.log(0.5) + 0.3 * np.log(0.3) + 0.2 * np.log(0.2)), rel=1e-6
    )
    assert raw.likeliest(9) == [0, 1, 2]
    assert [raw.probability(token) for token in (0, 1, 2, size, -1)] == pytest.approx(
        [0.5, 0.3, 0.2, 0.0, 0.0], rel=1e-6
    )
    assert raw.probability(size - 1) == pytest.approx(0.2 if size == 3 else 0.0, rel=1e-6)


SURVEYED = [kernels.MIN_SCANNED, kernels.MIN_SCANNED + 1, 49_152, 100_003]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("size", SURVEYED)
def test_a_scan_finds_what_sorting_finds(size: int) -> None:
    room = kernels.ScanBuffers()
    for coarse in (False, True):
        logits = logits_of(size).copy()
        if coarse:  # many equal ones: the lowest ids come first
            logits = np.round(logits)
        order = np.lexsort((np.arange(size), -logits))
        depths = logits.astype(np.float64) - float(logits.max())
        for count in (0, 1, 7, 40, kernels.LONGEST_HEAD):
            found = kernels.top_k_scan(logits, count, room)
            assert found is not None
            assert found.ids.tolist() == order[:count].tolist()
            assert np.array_equal(found.scores, logits[order[:count]].astype(np.float64))
            assert not found.complete
            assert found.largest == float(logits.max())
            assert found.total == pytest.approx(np.exp(depths).sum(), rel=5e-7)
            assert (found.total, found.inner) == kernels.softmax_sums(logits, logits.max())
            assert np.array_equal(found.maxima, column_maxima(logits))


def test_the_bound_of_a_scan_leaves_little_to_look_at() -> None:
    kernel = numba.njit(kernels._with_names(passes._bound, {"_reaching": numba.njit(passes._reaching)}))
    for count in (1, 7, 40, 256):
        for spread in (0.01, 1.0, 1000.0):
            maxima = np.random.default_rng(count).normal(5.0, spread, passes.BLOCK).astype(np.float32)
            bound = kernel(maxima, maxima.max(), count)
            assert count <= np.count_nonzero(maxima >= bound) <= count + 8
            maxima[count - 1 :] = -np.inf
            assert kernel(maxima, np.float32(maxima.max(initial=0.0)), count) == -np.inf


def test_a_scan_of_few_tokens_is_complete() -> None:
    logits = np.full(kernels.MIN_SCANNED + 5, -np.inf, np.float32)
    logits[[9, 16_385, 4_105]] = (1.0, 2.0, 2.0)  # columns 9, 1 and 9
    found = kernels.top_k_scan(logits, 5, kernels.ScanBuffers())
    assert found is not None
    assert found.complete
    assert found.ids.tolist() == [4_105, 16_385, 9]
    equal = kernels.top_k_scan(np.full(20_000, 3.0, np.float32), 40, kernels.ScanBuffers())
    assert equal is not None
    assert equal.ids.tolist() == list(range(40))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, None])
@pytest.mark.parametrize("place", [0, 4_096, 16_388])
def test_a_scan_refuses_what_are_no_numbers(wrong: float | None, place: int) -> None:
    logits = np.full(kernels.MIN_SCANNED + 5, -np.inf, np.float32)
    if wrong is not None:
        logits[:] = 1.0
        logits[place] = wrong
    assert kernels.top_k_scan(logits, 40, kernels.ScanBuffers()) is None


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "settings",
    [{}, {"top_k": 0}, {"top_k": 0, "min_p": 0.0}, {"temperature": 0.0}, {"top_k": 300, "top_p": 0.99}],
)
def test_draws_are_the_same_with_and_without_a_survey(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the scan found is what looking anew finds: equal ids and final probabilities, bit for bit."""
    random = np.random.default_rng(5)
    rows = [(random.standard_normal(20_000) * 3).astype(np.float32) for _ in range(12)]
    rows[3] = np.round(rows[3])
    rows[4][random.integers(0, 20_000, 10_000)] = -np.inf

    def drawn() -> list[tuple[object, ...]]:
        sampler = Sampler(SamplerSettings(**settings), 11)
        return [(s.id, s.probability, s.top, [(i, p) for i, _, p in s.alternatives])
                for i, row in enumerate(rows)
                for s in [sampler.sample(row, [1, 2], top=3, alternatives=5,
                blocked=(7, 8) if i % 3 == 0 else ())]]  # fmt: skip

    scanned = drawn()
    monkeypatch.setattr(kernels, "MIN_SCANNED", 1 << 30)
    assert drawn() == scanned


@pytest.mark.parametrize("writable", [True, False])
def test_code_is_kept_where_it_is_asked_for_or_not_at_all(
    writable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never in Numba's own places, which others may be able to write to."""
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setattr(config, "CACHE_DIR", str(elsewhere))
    monkeypatch.setattr(kernels, "code_folder", lambda name: folder if writable else None)
    signature = types.int64(types.float32[::1], types.float32)
    for _ in range(2):
        kernel = kernels._compiled(passes._reaching, signature, ())
        assert kernel(np.arange(passes.BLOCK, dtype=np.float32), np.float32(passes.BLOCK - 3)) == 3
        assert str(elsewhere) == config.CACHE_DIR
        assert not elsewhere.exists()
        assert bool(list(folder.rglob("*.nbc"))) == writable


def test_parts_are_made_when_something_needs_them() -> None:
    made: list[str] = []

    def jit(function: Any, signature: Any, flags: tuple[str, ...]) -> Any:
        made.append(function.__name__)
        return function

    parts = kernels.Parts(jit)
    assert parts["_column_maxima"] is parts["_column_maxima"]
    assert made == ["_column_maxima"]
    parts["_survey_pick"]
    assert sorted(made) == sorted(
        {*made, "_pick", "_finish_scan", "_likeliest", "_add_lanes", "_weigh"} - {"_scan", "_softmax_lanes"}
    )
    with pytest.raises(KeyError):
        parts["_no_such_part"]


def test_a_scan_and_a_pick_are_one_compiled_function(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    compiled = kernels._compiled

    def noted(function: Any, *rest: Any) -> Any:
        made.append(function)
        return compiled(function, *rest)

    monkeypatch.setattr(kernels, "_compiled", noted)
    kernels._pick_entry.cache_clear()
    kernels.prepare(kernels.MIN_SCANNED)
    logits, room = np.arange(kernels.MIN_SCANNED, dtype=np.float32), kernels.ScanBuffers()
    pick = kernels.Pick(room, 2, None)
    scan = kernels.top_k_scan(logits, 3, room)
    assert scan is not None
    assert scan.ids.tolist() == [logits.size - n for n in (1, 2, 3)]
    assert pick(logits, 0.0, 2)[4][::3] == [logits.size - 1, logits.size - 2]
    assert made == [passes._pick]
