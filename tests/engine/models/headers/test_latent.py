"""The settings of latent attention in config.json and in GGUF metadata."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import BadCheckpoint
from engine.models.config.hyper import Cycles, Loops
from engine.models.config.latent import LatentAttention
from engine.models.headers.keys import Keys
from engine.models.headers.latent import cache_shape, gguf_latent, gguf_scale, hf_latent_decoder
from engine.models.headers.rope import rope_from_gguf

FOLDER = {
    "architectures": ["X"], "hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 2,
    "intermediate_size": 100, "vocab_size": 50, "max_position_embeddings": 64,
}  # fmt: skip


def folder(
    stated: dict[str, Any] | None = None, dims: tuple[int, int, int] = (24, 8, 20), *, rotated: bool = True
) -> dict[str, Any]:
    keys = Keys({**FOLDER, **(stated or {})}, "config.json")
    return hf_latent_decoder(keys, (48, 32), dims, rotated=rotated)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, LatentAttention(48, 24, 8, 20, 32)),
        ({"q_lora_rank": None}, LatentAttention(48, 24, 8, 20)),
        ({"q_lora_rank": 40, "kv_lora_rank": 56}, LatentAttention(56, 24, 8, 20, 40)),
        ({"qk_nope_head_dim": 12, "qk_rope_head_dim": 4, "v_head_dim": 10},
         LatentAttention(48, 12, 4, 10, 32)),
    ],
)  # fmt: skip
def test_sizes_of_a_folder(stated: dict[str, Any], expected: LatentAttention) -> None:
    found = folder(stated)
    assert found["latent"] == expected
    assert (found["kv_heads"], found["head_dim"]) == (1, expected.rank + expected.rope_dim)
    assert found["rope"].dim == expected.rope_dim
    assert found["rope"].interleaved
    assert found["attention_scale"] == pytest.approx((expected.nope_dim + expected.rope_dim) ** -0.5)
    assert (found["attention_bias"], found["output_bias"], found["mlp_bias"]) == (False, False, False)


def test_what_a_folder_may_leave_out() -> None:
    assert folder(dims=(24, 8, 0))["latent"].value_dim == 96 // 6
    plain = folder(rotated=False, dims=(24, 0, 20))
    assert (plain["rope"], plain["latent"].rope_dim, plain["head_dim"]) == (None, 0, 48)
    biased = folder({"attention_bias": True})
    assert (biased["attention_bias"], biased["output_bias"]) == (True, True)


@pytest.mark.parametrize("place", ["rope_parameters", "rope_scaling"])
def test_scores_are_scaled_with_the_rope_of_a_folder(place: str) -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    usual = folder()["attention_scale"]
    assert folder({place: yarn})["attention_scale"] == usual
    scaled = folder({place: yarn | {"mscale": 1.0, "mscale_all_dim": 0.5}})["attention_scale"]
    assert scaled == pytest.approx(usual * (0.05 * math.log(4) + 1) ** 2)
    same = {"rope_type": "default", "mscale_all_dim": 0.5, "factor": 4.0}
    assert folder({place: same})["attention_scale"] == usual


def test_keys_that_are_too_wide_for_the_cache() -> None:
    assert cache_shape(LatentAttention(4000, 8, 96, 8))["head_dim"] == 4096
    with pytest.raises(BadCheckpoint, match="keys of 4097 numbers, but at most 4096"):
        cache_shape(LatentAttention(4001, 8, 96, 8))


def metadata(**values: Any) -> Keys:
    return Keys({name.replace("__", "."): value for name, value in values.items()}, "the file")


GGUF = {"rope__dimension_count": 8, "attention__kv_lora_rank": 48, "attention__q_lora_rank": 32}


@pytest.mark.parametrize(
    ("sizes", "rank"),
    [
        ({"attention__key_length": 32, "attention__value_length": 20}, 32),
        ({"attention__key_length_mla": 32, "attention__value_length_mla": 20, "attention__key_length": 56,
          "attention__value_length": 48}, 32),
        ({"attention__key_length": 32, "attention__value_length": 20, "attention__q_lora_rank": 0}, 0),
    ],
)  # fmt: skip
def test_sizes_of_a_gguf_file(sizes: dict[str, int], rank: int) -> None:
    keys, kind = gguf_latent(metadata(**{**GGUF, **sizes}))
    assert kind == LatentAttention(48, 24, 8, 20, rank)
    assert [keys.raw(f"attention.{name}") for name in ("key_length", "value_length", "head_count_kv")] == [
        56, 56, 1,
    ]  # fmt: skip


def test_keys_of_a_gguf_file_without_rope() -> None:
    plain = metadata(
        **{**GGUF, "rope__dimension_count": 0}, attention__key_length=24, attention__value_length=20
    )
    keys, kind = gguf_latent(plain, rotated=False)
    assert (kind, keys.raw("attention.key_length")) == (LatentAttention(48, 24, 0, 20, 32), 48)
    with pytest.raises(BadCheckpoint, match=r"rope\.dimension_count is 0, but a whole number from 2"):
        gguf_latent(plain)
    least = metadata(
        rope__dimension_count=2, attention__key_length=3, attention__kv_lora_rank=1, attention__value_length=1
    )
    assert gguf_latent(least)[1] == LatentAttention(1, 1, 2, 1)


def test_a_length_of_values_that_a_gguf_file_leaves_out() -> None:
    short = metadata(**GGUF, attention__key_length=32)
    assert gguf_latent(short, 20)[1].value_dim == 20
    with pytest.raises(BadCheckpoint, match=r"has no attention\.value_length"):
        gguf_latent(short)
    whole = metadata(attention__kv_lora_rank=48, attention__key_length=8, rope__dimension_count=8)
    with pytest.raises(BadCheckpoint, match=r"attention\.key_length is 8, but a whole number from 9"):
        gguf_latent(whole, 20)


def test_scores_are_scaled_with_the_rope_of_a_gguf_file() -> None:
    scaling: dict[str, Any] = {
        "rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "context_length": 64,
        "rope__scaling__yarn_log_multiplier": 0.05,
    }  # fmt: skip
    rope = rope_from_gguf(metadata(**scaling), 8, {}, interleaved=True)
    assert rope.magnitude != 1.0
    found, scale = gguf_scale(metadata(**scaling), rope)
    assert found.magnitude == 1.0
    assert scale == pytest.approx((0.05 * math.log(4) + 1) ** 2)
    for kind in ("linear", "longrope"):
        assert gguf_scale(metadata(**{**scaling, "rope__scaling__type": kind}), rope) == (rope, scale)
    for other in ({"rope__scaling__type": "none"}, {"rope__scaling__yarn_log_multiplier": 0.0}):
        assert gguf_scale(metadata(**{**scaling, **other}), rope) == (rope, 1.0)


def test_stacks_of_layers_that_run_several_times() -> None:
    cycles = Cycles(2, slow=2, fast=3)
    assert (cycles.first, cycles.order(5)) == (2, (0, 1, 0, 1, 0, 1, 2, 3, 4) * 2)
    assert cycles.of(6) == Cycles(3, 2, 3)
    loops = Loops(3, normed=True)
    assert (loops.first, loops.order(2), loops.of(9)) == (0, (0, 1) * 3, loops)
    stretch = replace(loops, before=2, after=1)
    assert stretch.order(5) == (0, 1, 2, 3, 2, 3, 2, 3, 4)
    assert stretch.of(9) == loops
