"""The usual draw in one compiled call: it tells what the steps tell, bit for bit, and takes no other
draws.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.sampling import kernels
from engine.sampling.sampler import Sampled, Sampler
from engine.sampling.tables import TokenTables
from engine.settings import SamplerSettings

SIZE = kernels.MIN_SCANNED + 37

usual = st.builds(
    SamplerSettings,
    temperature=st.sampled_from([0.0, 0.02, 0.3, 0.7, 1.0, 1.7, 10.0]),
    top_k=st.sampled_from([1, 2, 3, 40, 255, 256]),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.95, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.05, 0.5, 1.0]),
    top_a=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    # Top-k stays before the steps that look at likelihoods; where temperature stands among them is free.
    order=st.sampled_from([
        (),
        ("top_k", "temperature", "top_p", "min_p", "top_a"),
        ("top_k", "min_p", "top_a", "temperature", "top_p"),
        ("temperature", "top_k", "top_a", "top_p", "min_p"),
    ]),
)  # fmt: skip


def rows(kind: str, seed: int, spread: float) -> np.ndarray:
    """Logits of one kind: as models give them, with many ties, nearly all dropped, all equal, or far
    beyond float32's exponents.
    """
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(SIZE) * spread).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    elif kind == "few":
        logits[random.permutation(SIZE)[random.integers(1, 60) :]] = -np.inf
    elif kind == "equal":
        logits[:] = np.float32(spread)
    elif kind == "far":
        logits *= np.float32(1e36)
    return logits


def ready(settings: SamplerSettings, seed: int, tables: TokenTables = TokenTables()) -> Sampler:
    """A sampler that knows its vocabulary's size already: the first draw of each goes step by step."""
    sampler = Sampler(settings, seed, tables)
    sampler.distribution(np.zeros(max(SIZE, tables.vocabulary), np.float32), [])
    return sampler


def both(
    settings: SamplerSettings, seed: int, logits: np.ndarray, place: int, attempt: int, alternatives: int
) -> tuple[Sampled, Sampled]:
    """From one call, and step by step."""
    sampler = ready(settings, seed)
    assert sampler._pick is not None
    at_once = sampler.sample(logits, range(place), attempt=attempt, alternatives=alternatives)
    return at_once, sampler.sample_from(
        sampler.distribution(logits, range(place)), attempt=attempt, alternatives=alternatives
    )


@pytest.mark.slow
@hypothesis_settings(max_examples=150)
@given(
    usual, st.integers(0, (1 << 64) - 1), st.sampled_from(["model", "ties", "few", "equal", "far"]),
    st.floats(0.1, 12.0), st.integers(0, 1 << 40), st.integers(0, 3), st.sampled_from([0, 1, 5]),
)  # fmt: skip
def test_one_call_tells_what_the_steps_tell(
    settings: SamplerSettings,
    seed: int,
    kind: str,
    spread: float,
    place: int,
    attempt: int,
    alternatives: int,
) -> None:
    alternatives = min(alternatives, settings.top_k)
    logits = rows(kind, seed % 997, spread)
    assert len(set(both(settings, seed, logits, place, attempt, alternatives))) == 1


@pytest.mark.parametrize("seed", [0, 1, (1 << 64) - 1, 1 << 63, -5])
def test_the_random_number_is_that_of_the_place(seed: int) -> None:
    """With 256 equal tokens the draw tells the first bits of the number."""
    sampler = ready(SamplerSettings(temperature=1.0, top_k=256, top_p=1.0, min_p=0.0), seed)
    logits = np.zeros(SIZE, np.float32)
    for place in (0, 1, 77, 1 << 33):
        for attempt in (0, 1, 9):
            key = b"".join(n.to_bytes(8, "little") for n in (seed % (1 << 64), place, 0, attempt))
            number = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 56
            assert sampler.sample(logits, range(place), attempt=attempt).id == number


def test_the_likeliest_and_its_alternatives() -> None:
    logits = rows("model", 3, 3.0)
    found, slow = both(SamplerSettings(temperature=0.0), 1, logits, 4, 0, 16)
    assert found == slow
    assert found.id == int(logits.argmax())
    assert [token for token, _, _ in found.alternatives] == np.argsort(-logits, kind="stable")[:16].tolist()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, None])
def test_what_are_no_numbers_is_refused(wrong: float | None) -> None:
    logits = np.full(SIZE, -np.inf, np.float32)
    if wrong is not None:
        logits[5:] = 1.0
        logits[SIZE - 1] = wrong
    for settings in (SamplerSettings(), SamplerSettings(temperature=0.0)):
        sampler = ready(settings, 1)
        assert sampler._pick is not None
        with pytest.raises(EngineError, match="not finite"):
            sampler.sample(logits, [1])


def test_padding_is_never_drawn_and_strides_are_followed() -> None:
    wide = np.zeros((SIZE + 8, 2), np.float32)
    wide[:, 0] = np.concatenate([rows("model", 5, 3.0), np.full(8, 50, np.float32)])
    tables = TokenTables(vocabulary=SIZE)
    packed = np.ascontiguousarray(wide[:, 0])
    sampler = Sampler(SamplerSettings(), 3, tables)
    sampler.distribution(packed, [])
    assert sampler._pick is not None
    drawn = [sampler.sample(logits, [1, 2], alternatives=5) for logits in (wide[:, 0], packed)]
    assert drawn[0] == drawn[1] == ready(SamplerSettings(), 3).sample(packed[:SIZE], [1, 2], alternatives=5)
    assert drawn[0].id < SIZE


@pytest.mark.parametrize(
    "tables",
    [
        TokenTables(banned=frozenset({1})),
        TokenTables(bias=((2, 1.0),)),
        TokenTables(allowed=frozenset({3, 4})),
    ],
)
def test_restrictions_take_the_steps(tables: TokenTables) -> None:
    logits, sampler = rows("model", 8, 3.0), ready(SamplerSettings(), 1, tables)
    assert sampler._pick is None
    logits[1] = 20
    drawn = {sampler.sample(logits, range(place)).id for place in range(30)}
    assert drawn.isdisjoint(tables.banned)
    assert tables.allowed is None or drawn <= tables.allowed


@pytest.mark.parametrize(
    "changed",
    [
        {"top_k": 0},
        {"top_k": 300},
        {"mirostat": True},
        {"skew": 0.5},
        {"repetition_penalty": 1.2},
        {"xtc_probability": 0.5},
    ],
)
def test_other_settings_take_the_steps(changed: dict[str, Any]) -> None:
    assert ready(SamplerSettings(**changed), 1)._pick is None


def test_more_alternatives_than_surveyed_take_the_steps() -> None:
    sampler, logits = ready(SamplerSettings(top_k=3), 1), rows("model", 9, 3.0)
    assert sampler._pick is not None
    found = sampler.sample(logits, [1, 2], alternatives=7)
    assert [token for token, _, _ in found.alternatives] == np.argsort(-logits, kind="stable")[:7].tolist()
