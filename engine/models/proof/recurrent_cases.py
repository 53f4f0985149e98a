"""The cases of recurrent layers: small passes that advance states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.backends.states import ConvolutionShape, DeltaWeights, LinearAttentionShape, MeanShape
from engine.models.proof.case import BATCHES, POINTWISE, Case, normal, token_table
from engine.tensors import RawTensor


def recurrent_cases() -> Iterator[Case]:
    """Convolutions, linear attention and RWKV's recurrences."""
    for taps in (3, 4):
        yield convolution_case(taps, taps == 4)
    yield linear_attention_case("gated delta rule", LinearAttentionShape(2, 4, 128, 64, True))
    for key_dim in (128, 256):
        shape = LinearAttentionShape(1, 3, key_dim, 40, False)
        yield linear_attention_case(f"Mamba-2, states of {key_dim}", shape)
    bonus = normal(26, 4, 64)
    for name, stored in (
        ("RWKV-7", (normal(24, 4, 64), normal(25, 4, 64), bonus)), ("RWKV-6", (None, None, bonus)),
        ("gated linear attention", (None, None, None)),
    ):  # fmt: skip
        groups = 2 if stored[2] is None else 4
        shape = LinearAttentionShape(groups, 4, 64, 64, stored[0] is not None, decays="key")
        yield generalised_delta_case(name, DeltaWeights(shape, *stored))
    yield weighted_mean_case(96)


def convolution_case(taps: int, bias: bool) -> Case:
    """A causal convolution of 96 channels."""
    weight, added = normal(16, taps, 96), normal(17, 96) if bias else None
    return Case(
        f"convolve, {taps} taps", POINTWISE,
        lambda ops, w: ops.last_rows(ops.convolve(0, ops.embed(w[0]), weight, added)),
        lambda: [token_table(96)], (1, 2, 8, 80), follow=True, batches=BATCHES,
        states=(ConvolutionShape(96, taps),),
    )  # fmt: skip


def linear_attention_case(name: str, shape: LinearAttentionShape) -> Case:
    """Linear attention, with keys of length 1 or so, as models normalise them."""
    heads, keys = shape.value_heads, shape.key_heads * shape.key_dim
    widths = keys, keys, heads * shape.value_dim, heads, *([heads] if shape.delta else [])
    rate, shift, skip = (-np.exp(normal(18, heads)), normal(19, heads), normal(20, heads))

    def forward(ops: Ops, w: Sequence[Weight]) -> Array:
        q, k = (ops.embed(table, shape.key_dim**-0.5) for table in w[:2])
        v, decay, *beta = (ops.embed(table) for table in w[2:])
        y = ops.linear_attention(
            0, (q, k, v), decay, beta[0] if beta else None, rate, shift, shape, None if beta else skip
        )
        return ops.last_rows(y)

    def tensors() -> list[RawTensor]:
        return [token_table(width, 30 + i) for i, width in enumerate(widths)]

    return Case(
        f"linear attention, {name}", POINTWISE, forward, tensors, (1, 2, 8, 40), follow=True, batches=BATCHES,
        states=(shape,),
    )  # fmt: skip


def generalised_delta_case(name: str, weights: DeltaWeights) -> Case:
    """The recurrence of RWKV-7, or one of those without the delta rule."""
    shape = weights.shape
    heads, groups = shape.value_heads * shape.key_dim, shape.key_heads * shape.key_dim
    widths = heads, groups, shape.key_heads * shape.value_dim, heads, heads

    def forward(ops: Ops, w: Sequence[Weight]) -> Array:
        r = ops.embed(w[0], shape.key_dim**-0.5)
        k, v, decay, rate = (ops.embed(table) for table in w[1:])
        return ops.last_rows(ops.generalised_delta(0, (r, k, v), decay, rate, weights))

    def tensors() -> list[RawTensor]:
        return [token_table(width, 40 + i) for i, width in enumerate(widths)]

    return Case(
        name, POINTWISE, forward, tensors, (1, 2, 8, 40), follow=True, batches=BATCHES, states=(shape,)
    )


def weighted_mean_case(channels: int) -> Case:
    """The recurrence of RWKV-4."""
    decay, first = -np.exp(normal(27, channels)), normal(28, channels)
    return Case(
        "RWKV-4", POINTWISE,
        lambda ops, w: ops.last_rows(ops.weighted_mean(0, ops.embed(w[0]), ops.embed(w[1]), decay, first)),
        lambda: [token_table(channels, seed) for seed in (48, 49)], (1, 2, 8, 40), follow=True,
        batches=BATCHES, states=(MeanShape(channels),),
    )  # fmt: skip
