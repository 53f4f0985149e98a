"""`ExLlamaV2Sampler.Settings` as the settings of the engine: every field has its place."""

from __future__ import annotations

import math
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.compat.exllamav2.generator import ExLlamaV2Sampler
from engine.errors import BadSetting, NotSupportedYet
from engine.settings import SAMPLER_STEP_NAMES, SamplerSettings

Settings = ExLlamaV2Sampler.Settings


def frozen(**values: Any) -> SamplerSettings:
    return Settings(**values).frozen()


def test_the_defaults_are_exllamav2s() -> None:
    found = frozen()
    assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.8, 50, 0.8, 0.0)
    assert (found.repetition_penalty, found.repetition_range, found.repetition_decay) == (1.025, -1, 0)
    assert (found.presence_penalty, found.frequency_penalty, found.tail_free, found.typical) == (0, 0, 1, 1)
    assert (found.dry_multiplier, found.dry_base, found.dry_allowed_length, found.dry_range) == (
        0,
        1.75,
        2,
        0,
    )
    assert (found.xtc_probability, found.xtc_threshold, found.mirostat) == (0.0, 0.1, False)
    assert (found.mirostat_tau, found.mirostat_eta, found.skew, found.top_a) == (1.5, 0.1, 0.0, 0.0)
    assert (found.min_temperature, found.max_temperature, found.temperature_exponent) == (0.0, 0.0, 1.0)
    assert found.smoothing_factor == 0.0


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("token_repetition_penalty", "repetition_penalty", 1.5), ("temperature", "temperature", 0.3),
        ("token_repetition_range", "repetition_range", 7), ("top_k", "top_k", 9), ("top_p", "top_p", 0.5),
        ("token_repetition_decay", "repetition_decay", 3), ("top_a", "top_a", 0.2), ("min_p", "min_p", 0.1),
        ("token_frequency_penalty", "frequency_penalty", 0.4), ("tfs", "tail_free", 0.9),
        ("token_presence_penalty", "presence_penalty", 0.6), ("typical", "typical", 0.7),
        ("min_temp", "min_temperature", 0.2), ("max_temp", "max_temperature", 1.2), ("skew", "skew", 0.5),
        ("temp_exponent", "temperature_exponent", 2.0), ("smoothing_factor", "smoothing_factor", 0.3),
        ("mirostat", "mirostat", True), ("mirostat_tau", "mirostat_tau", 2.5),
        ("mirostat_eta", "mirostat_eta", 0.2), ("dry_multiplier", "dry_multiplier", 0.8),
        ("dry_base", "dry_base", 2.0), ("dry_allowed_length", "dry_allowed_length", 4),
        ("dry_range", "dry_range", 64), ("xtc_probability", "xtc_probability", 0.5),
        ("xtc_threshold", "xtc_threshold", 0.2),
    ],
)  # fmt: skip
def test_each_field_has_its_place(name: str, field: str, value: Any) -> None:
    found, usual = asdict(frozen(**{name: value})), asdict(frozen())
    assert found == usual | {field: value}
    assert usual[field] != value


@pytest.mark.parametrize("name", ["top_p", "tfs", "typical"])
def test_shares_are_off_at_0_and_from_1_on(name: str) -> None:
    field = {"tfs": "tail_free"}.get(name, name)
    assert [getattr(frozen(**{name: value}), field) for value in (-1.0, 0.0, 0.5, 1.0, 2.0)] == [
        1,
        1,
        0.5,
        1,
        1,
    ]


def test_values_beyond_the_range_mean_the_nearest() -> None:
    most = 1 << 20
    found = frozen(
        temperature=-1.0, top_k=-1, min_p=1.0, token_repetition_range=-9, token_repetition_decay=-1,
        dry_multiplier=-1.0, dry_range=-1, min_temp=-1.0, max_temp=-1.0, smoothing_factor=-1.0, skew=-99.0,
        top_a=-1.0, xtc_probability=-1.0, xtc_threshold=-1.0,
    )  # fmt: skip
    assert (found.temperature, found.top_k, found.min_p, found.repetition_range) == (0.0, 0, 0.0, -1)
    assert (found.repetition_decay, found.dry_multiplier, found.dry_range, found.skew) == (0, 0.0, 0, -50.0)
    assert (found.min_temperature, found.max_temperature, found.smoothing_factor) == (0.0, 0.0, 0.0)
    assert (found.top_a, found.xtc_probability, found.xtc_threshold) == (0.0, 0.0, 0.0)
    found = frozen(
        top_k=1 << 40, token_repetition_range=1 << 40, token_repetition_decay=1 << 40, dry_range=1 << 40,
        skew=99.0, xtc_probability=2.0, min_p=0.0,
    )  # fmt: skip
    assert (found.top_k, found.repetition_range, found.repetition_decay, found.dry_range) == (most,) * 4
    assert (found.skew, found.xtc_probability, found.min_p) == (50.0, 1.0, 0.0)


def test_xtc_above_a_half_can_remove_nothing() -> None:
    at, above = (frozen(xtc_probability=1.0, xtc_threshold=value) for value in (0.5, 0.51))
    assert (at.xtc_probability, at.xtc_threshold) == (1.0, 0.5)
    assert (above.xtc_probability, above.xtc_threshold) == (0.0, 0.5)


def test_the_temperature_may_come_last() -> None:
    usual = tuple(name for name, _ in SAMPLER_STEP_NAMES)
    assert frozen().order == usual
    last = frozen(temperature_last=True).order
    assert sorted(last) == sorted(usual)
    assert last.index("temperature") + 1 == last.index("dynamic_temperature")
    assert [name for name in last if name != "temperature"] == [
        name for name in usual if name != "temperature"
    ]


def test_greedy() -> None:
    found = Settings.greedy(top_p=0.5)
    assert (found.temperature, found.top_k, found.token_repetition_penalty) == (1.0, 1, 1.0)
    assert found.top_p == 0.5
    assert Settings.greedy().frozen().top_p == 1.0


def test_what_is_not_done_is_refused() -> None:
    with pytest.raises(NotSupportedYet, match="post_sampling_hooks"):
        frozen(post_sampling_hooks=[print])
    with pytest.raises(NotSupportedYet, match="dry_max_ngram"):
        frozen(dry_multiplier=0.5, dry_max_ngram=5)
    assert frozen(dry_max_ngram=5).dry_multiplier == 0.0
    with pytest.raises(NotSupportedYet, match="mirostat_mu"):
        frozen(mirostat_mu=3.0)
    with pytest.raises(BadSetting):
        frozen(token_repetition_penalty=-1.0)


def table(size: int = 6, **values: Any) -> Any:
    tokenizer: Any = SimpleNamespace(vocab_size=size)
    return Settings(**values).tables(tokenizer)


def test_a_bias_of_tokens() -> None:
    found = table(token_bias=torch.tensor([0.0, 1.5, -math.inf, -2.0, 0.0, 0.0, 9.0, 9.0]))
    assert (found.vocabulary, found.bias) == (6, ((1, 1.5), (3, -2.0)))
    assert (found.allowed, found.banned) == (None, {2})
    assert table(token_bias=[3.0]).bias == ((0, 3.0),)
    plain = table()
    assert (plain.bias, plain.allowed, plain.banned, plain.dry_breakers) == (
        (),
        None,
        frozenset(),
        frozenset(),
    )


def test_few_tokens_that_are_left_are_listed() -> None:
    half, most = torch.zeros(6), torch.zeros(6)
    half[:3], most[:4] = -math.inf, -math.inf
    assert (table(token_bias=half).allowed, table(token_bias=half).banned) == (None, {0, 1, 2})
    assert (table(token_bias=most).allowed, table(token_bias=most).banned) == ({4, 5}, frozenset())


def test_ids_that_dry_and_xtc_leave_alone_are_taken_where_they_are_on() -> None:
    given = {"dry_sequence_breakers": {1, 2}, "xtc_ignore_tokens": frozenset({3})}
    found = table(dry_multiplier=1.0, xtc_probability=0.5, **given)
    assert (found.dry_breakers, found.xtc_protected) == ({1, 2}, {3})
    off = table(**given)
    assert (off.dry_breakers, off.xtc_protected) == (frozenset(), frozenset())


def test_clones_share_nothing_but_the_filters() -> None:
    one = Settings(token_bias=[1.0], filters=[object()])
    two = one.clone()
    two.token_bias[0] = 2.0
    assert one.token_bias == [1.0]
    assert two.filters[0] is one.filters[0]
    assert two.filters is not one.filters
