"""Which rope a header states: the numbers of each kind of scaling, its defaults, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.headers import rope
from engine.models.headers.keys import Keys
from engine.models.headers.rope import ALPHA, STRETCH
from engine.models.layers.positions.rope import RopeConfig, llama3_divisors, yarn_divisors, yarn_magnitude
from engine.weights import FileTensor

ONES = (1.0,) * 4
FACTORS = {"short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [2, 3, 4, 5]}


def folder(scaling: dict[str, Any] | None = None, /, share: float | None = None, **config: Any) -> RopeConfig:
    """What config.json says of heads of 8 dimensions."""
    keys = Keys({"rope_scaling": scaling, **config}, "config.json")
    return rope.rope_from_hf(keys, 8, share=share)


def header(tensors: dict[str, list[float]] | None = None, /, **metadata: Any) -> RopeConfig:
    """What a GGUF header with these keys, and these tensors, says of heads of 8 dimensions."""
    table = {name: tensor(name, values) for name, values in (tensors or {}).items()}
    return rope.rope_from_gguf(Keys(metadata, "the header"), 8, table, interleaved=True)


def tensor(name: str, values: list[float]) -> FileTensor:
    return FileTensor(name, "F32", (len(values),), np.array(values, np.float32).view(np.uint8))


def test_a_folder_without_scaling() -> None:
    assert folder() == RopeConfig(10000.0, 8, False, ONES)
    assert folder(rope_theta=70.0).base == 70.0
    assert folder({"rope_theta": 60.0}, rope_theta=70.0).base == 60.0
    assert folder({"type": "mrope"}) == folder({"rope_type": "default"}) == folder()
    assert folder(share=1.0, rotary_pct=0.5).dim == 4
    assert folder(share=1.0, rotary_pct=0.5, partial_rotary_factor=0.25).dim == 2
    assert folder({"partial_rotary_factor": 0.75}, share=0.5).dim == 6
    assert folder(share=0.5).dim == 4
    assert folder(share=None, partial_rotary_factor=0.5).dim == 8
    tables = {"full_attention": {"rope_theta": 30.0}, "sliding_attention": {"rope_theta": 40.0}}
    keys = Keys({"rope_parameters": tables}, "config.json")
    kinds = ("full_attention", "sliding_attention")
    assert [rope.rope_from_hf(keys, 8, layer_type=kind).base for kind in kinds] == [30.0, 40.0]


def test_sections_of_pictures() -> None:
    """They count where they divide all pairs; texts do not need them."""
    assert folder({"rope_type": "default", "mrope_section": [2, 1, 1]}).sections == (2, 1, 1)
    assert not folder({"mrope_section": [2, 1, 1]}).sections_interleaved
    found = folder({"type": "mrope", "mrope_section": [2, 1, 1], "mrope_interleaved": True}, **{STRETCH: 2.0})
    assert (found.sections, found.sections_interleaved, found.divisors) == ((2, 1, 1), True, (2.0,) * 4)
    for wrong in ([2, 1], [2, 1, 2], [2, 1, -1], [2, 1, 0.5, 0.5], "2, 1, 1", None, [2, 1, 0, 1], []):
        assert folder({"mrope_section": wrong}) == folder()
        assert header(**{"rope.dimension_sections": wrong}) == header()
    found = header(**{"rope.dimension_sections": [2, 1, 1, 0]})
    assert (found.sections, found.sections_interleaved) == ((2, 1, 1), False)
    keys = Keys({"qwen3vl.rope.dimension_sections": [2, 1, 1, 0]}, "the header", "qwen3vl.")
    found = rope.rope_from_gguf(keys, 8, {}, interleaved=False)
    assert (found.sections, found.sections_interleaved) == ((2, 1, 1), True)


def test_an_odd_part_of_heads() -> None:
    """Of 3 dimensions, the frequencies are base^0 and base^(-2/3), and 4 dimensions rotate."""
    found = folder(share=0.375, rope_theta=1000.0)
    assert found.dim == 4
    assert found.base ** (-2 / 4) == pytest.approx(1000.0 ** (-2 / 3))
    for scaling in ({"rope_type": "linear", "factor": 2.0}, {"rope_type": "default"}):
        assert folder(scaling, share=0.375).dim == 4
    assert folder(share=0.2).dim == 2
    for share, scaling in ((0.375, {"rope_type": "dynamic", "factor": 2.0}), (0.0, None)):
        with pytest.raises(BadCheckpoint, match="an even number up to 8 was expected"):
            folder(scaling, share=share, max_position_embeddings=64)


def test_what_the_user_asks_for_counts_beyond_windows() -> None:
    """Positions divided once more, and the base of NTK-aware scaling: base * alpha^(dim / (dim - 2))."""
    found = folder({"rope_type": "longrope", **FACTORS}, max_position_embeddings=64, **{STRETCH: 3.0})
    assert found.divisors == (3.0, 4.5, 6.0, 7.5)
    assert found.long_divisors == (6.0, 9.0, 12.0, 15.0)
    assert folder(**{ALPHA: 2.0}).base == pytest.approx(10000 * 2 ** (8 / 6))
    assert folder(share=0.25, **{ALPHA: 2.0}).base == 10000.0
    assert header(**{ALPHA: 2.0}).base == pytest.approx(10000 * 2 ** (8 / 6))
    assert header(**{STRETCH: 2.0}).divisors == (2.0,) * 4
    keys = Keys({STRETCH: 3.0, ALPHA: 2.0}, "config.json")
    assert rope.rope_from_hf(keys, 8, layer_type="sliding_attention") == folder()
    assert rope.longer(keys, 100) == 600
    assert rope.longer(Keys({STRETCH: 0.001}, "config.json"), 100) == 1
    assert rope.longer(Keys({STRETCH: 1e12}, "config.json"), 100) == 1 << 30


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        (None, 100), ({"rope_type": "linear", "factor": 4.0}, 100), ({"type": "dynamic", "factor": 4.0}, 400),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 256),
        ({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 20}, 100),
        ({"rope_type": "yarn", "factor": 4.0}, 400), ({"rope_type": "yarn"}, 100),
    ],
)  # fmt: skip
def test_the_context_of_a_folder(scaling: dict[str, Any] | None, context: int) -> None:
    for name in ("rope_scaling", "rope_parameters"):
        keys = Keys({name: scaling}, "config.json")
        assert rope.extended_context(keys, 100) == context
        assert rope.extended_context(keys.replaced(STRETCH, 2.0), 100) == 2 * context


def test_linear_and_dynamic() -> None:
    assert folder({"rope_type": "linear", "factor": 4.0}).divisors == (4.0,) * 4
    found = folder({"rope_type": "dynamic", "factor": 4.0}, max_position_embeddings=64)
    assert (found.divisors, found.original_length, found.dynamic) == (ONES, 64, 4.0)
    small = folder({"rope_type": "dynamic", "factor": 4.0}, share=0.25, max_position_embeddings=64)
    assert (small.dim, small.dynamic) == (2, 0.0)
    with pytest.raises(UnsupportedModel, match="'spiral'; only default, linear, dynamic, yarn"):
        folder({"rope_type": "spiral"})


@pytest.mark.parametrize(
    ("kind", "low", "high"), [("linear", 1e-3, 1e6), ("dynamic", 1.0, 1e6), ("proportional", 1e-3, 1e6)]
)
def test_factors_have_a_range(kind: str, low: float, high: float) -> None:
    def read(factor: Any) -> RopeConfig:
        return folder({"rope_type": kind, "factor": factor}, max_position_embeddings=64)

    assert read(low) != read(high)
    for wrong in (0.99 * low, 1.01 * high, math.nan, "2"):
        with pytest.raises(BadCheckpoint, match=r"factor is .*, but a number from"):
            read(wrong)


def test_proportional() -> None:
    """The first part of the frequencies rotates, the others stand still (Gemma 4)."""
    kind = {"rope_type": "proportional"}
    still = (math.inf,) * 3
    assert folder({**kind, "partial_rotary_factor": 0.25, "factor": 2.0}).divisors == (2.0, *still)
    assert folder({**kind}, partial_rotary_factor=0.25).divisors == (1.0, *still)
    assert folder({**kind}).divisors == ONES
    assert folder({**kind}, **{ALPHA: 2.0}).base == pytest.approx(10000 * 2 ** (8 / 6))


def test_llama3() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    expected = llama3_divisors(10000.0, 8, 8.0, 1.0, 4.0, 512)
    own = {**scaling, "original_max_position_embeddings": 512}
    assert folder(own, max_position_embeddings=4096).divisors == expected
    assert folder(scaling, original_max_position_embeddings=512).divisors == expected
    assert folder(scaling, max_position_embeddings=512).divisors == expected
    for high in (1.0, 0.5):
        with pytest.raises(BadCheckpoint, match="more than low_freq_factor 1 was expected"):
            folder({**own, "high_freq_factor": high})


def test_yarn_of_folders() -> None:
    kind = {"rope_type": "yarn", "original_max_position_embeddings": 64}
    found = folder(kind, max_position_embeddings=256)
    assert found.divisors == yarn_divisors(10000.0, 8, 4.0, 64, 32.0, 1.0)
    assert found.magnitude == pytest.approx(1 + 0.1 * math.log(4))
    assert folder({**kind, "factor": 2.0}, max_position_embeddings=256).divisors == yarn_divisors(
        10000.0, 8, 2.0, 64, 32.0, 1.0
    )
    own = {"factor": 4.0, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False}
    assert folder({**kind, **own}).divisors == yarn_divisors(10000.0, 8, 4.0, 64, 8.0, 2.0, False)
    one = {**kind, "factor": 4.0, "mscale": 0.5}
    assert folder(one).magnitude == folder({**kind, "factor": 4.0, "mscale_all_dim": 0.5}).magnitude
    assert folder(one).magnitude == yarn_magnitude(4.0)
    both = yarn_magnitude(4.0, 0.5) / yarn_magnitude(4.0, 2.0)
    assert folder({**one, "mscale_all_dim": 2.0}).magnitude == both
    assert folder({**one, "mscale_all_dim": 2.0, "attention_factor": 1.25}).magnitude == 1.25


def test_longrope_of_folders() -> None:
    """The magnitude is sqrt(1 + ln(factor) / ln(original context)) (arXiv 2402.13753)."""
    kind = {"rope_type": "longrope", "original_max_position_embeddings": 16, **FACTORS}
    usual = math.sqrt(1 + math.log(4) / math.log(16))
    found = folder(kind, max_position_embeddings=64)
    assert found == RopeConfig(
        10000.0, 8, False, (1.0, 1.5, 2.0, 2.5), usual, 16, (2.0, 3.0, 4.0, 5.0), usual
    )
    assert folder({**kind, "rope_type": "su"}, max_position_embeddings=64) == found
    assert folder({**kind, "factor": 4.0}, max_position_embeddings=32) == found
    assert folder(kind, max_position_embeddings=16).magnitude == 1.0
    own = folder({**kind, "attention_factor": 1.5, "short_mscale": 1.25}, max_position_embeddings=64)
    assert (own.magnitude, own.long_magnitude) == (1.25, 1.5)
    assert folder({**kind, "long_mscale": 1.75}, max_position_embeddings=64).long_magnitude == 1.75
    for wrong in ([1.0] * 3, [1.0] * 5, [1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, "1"], 2.0, None):
        with pytest.raises(BadCheckpoint, match="long_factor of the rotary scaling is not a list of 4"):
            folder({**kind, "long_factor": wrong})


def test_a_header_without_tensors() -> None:
    assert header() == RopeConfig(10000.0, 8, True, ONES)
    found = header(**{"rope.freq_base": 70.0, "rope.dimension_count": 4})
    assert (found.base, found.dim, len(found.divisors)) == (70.0, 4, 2)
    for wrong in (3, 10):
        with pytest.raises(BadCheckpoint, match=f"rotates {wrong} dimensions"):
            header(**{"rope.dimension_count": wrong})
    assert header(**{"rope.scaling.factor": 4.0}).divisors == (4.0,) * 4
    assert header(**{"rope.scaling.factor": 4.0, "rope.scaling.type": "none"}).divisors == ONES
    assert header(**{"rope.scaling.type": "linear"}).divisors == ONES
    # A factor of 0 means none and, as in llama.cpp, takes the older key's place all the same.
    assert header(**{"rope.scale_linear": 2.0}).divisors == (2.0,) * 4
    assert header(**{"rope.scale_linear": 2.0, "rope.scaling.factor": 0.0}).divisors == ONES
    assert header(**{"rope.scaling.type": "yarn"}) == header()


def test_yarn_of_headers() -> None:
    kind = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "context_length": 64}
    found = header(**kind)
    assert found.divisors == yarn_divisors(10000.0, 8, 4.0, 64, 32.0, 1.0)
    assert found.magnitude == yarn_magnitude(4.0)
    own = header(**kind, **{"rope.scaling.yarn_beta_fast": 8.0, "rope.scaling.yarn_beta_slow": 2.0})
    assert own.divisors == yarn_divisors(10000.0, 8, 4.0, 64, 8.0, 2.0)
    scaled = header(**kind, **{"rope.scaling.attn_factor": 0.5, "rope.scaling.yarn_attn_factor": 1.5})
    assert scaled.magnitude == 0.75
    factors = header({"rope_freqs.weight": [1.0, 2.0, 3.0, 4.0]}, **kind)
    assert factors.divisors == pytest.approx(np.array(found.divisors) * [1, 2, 3, 4])


def test_factors_in_tensors() -> None:
    freqs = {"rope_freqs.weight": [1.0, 2.0, 3.0, 4.0]}
    assert header(freqs).divisors == (1.0, 2.0, 3.0, 4.0)
    assert header(freqs, **{"rope.scaling.factor": 2.0}).divisors == (2.0, 4.0, 6.0, 8.0)
    sets = {
        "rope_factors_short.weight": [1.0, 1.5, 2.0, 2.5],
        "rope_factors_long.weight": [2.0, 3.0, 4.0, 5.0],
    }
    found = header(sets, **{"rope.scaling.attn_factor": 1.25, "rope.scaling.original_context_length": 16})
    assert found == RopeConfig(10000.0, 8, True, (1.0, 1.5, 2.0, 2.5), 1.25, 16, (2.0, 3.0, 4.0, 5.0), 1.25)
    assert header({"rope_factors_long.weight": [2.0, 3.0, 4.0, 5.0]}) == header()
    longrope = {"rope.scaling.type": "longrope", "rope.scaling.factor": 4.0}
    # llama.cpp uses the factor and the magnitude whether or not there are tensors, and whatever the type is.
    assert header(**longrope).divisors == (4.0,) * 4
    for kind in ("none", "linear", "longrope"):
        scaled = header(**{"rope.scaling.type": kind, "rope.scaling.attn_factor": 1.25})
        assert (scaled.magnitude, scaled.divisors) == (1.25, ONES)
    found = header(sets, **longrope)
    assert (found.divisors, found.long_divisors) == ((4.0, 6.0, 8.0, 10.0), (8.0, 12.0, 16.0, 20.0))
    with pytest.raises(BadCheckpoint, match="4 positive numbers were expected"):
        header({"rope_freqs.weight": [1.0, 2.0, 3.0, 0.0]})


def test_the_plain_rope_of_layers_with_a_window() -> None:
    scaled = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0, ALPHA: 2.0, "rope.freq_base": 70.0}
    assert rope.gguf_unscaled_rope(Keys(scaled, "x"), 8) == RopeConfig(70.0, 8, False, ONES)
    own = scaled | {"rope.freq_base_swa": 30.0, "rope.dimension_count_swa": 4, "rope.scale_linear": 3.0}
    assert rope.gguf_unscaled_rope(Keys(own, "x"), 8) == RopeConfig(30.0, 4, False, (1.0, 1.0))


def test_learned_frequencies() -> None:
    """Each is multiplied by e^x, so that its divisor is by e^-x."""
    plain = folder({"rope_type": "longrope", "factor": 1.0, **FACTORS}, max_position_embeddings=64)
    values = [0.0, math.log(2), -math.log(2), 1.0]
    found = rope.learned_rope(plain, {"b": tensor("b", values)}, "a", "b")
    assert found.divisors == pytest.approx((1.0, 0.75, 4.0, 2.5 / math.e))
    assert found.long_divisors == pytest.approx((2.0, 1.5, 8.0, 5.0 / math.e))
    for table in ({}, {"a": tensor("a", values[:3])}, {"a": tensor("a", [0.0, 0.0, 0.0, -20.0])},
                  {"a": tensor("a", [0.0, 0.0, 0.0, math.nan])}):  # fmt: skip
        with pytest.raises(BadCheckpoint, match=r"The tensor a is missing or damaged: the shape \(4,\)"):
            rope.learned_rope(plain, table, "a", "b")
