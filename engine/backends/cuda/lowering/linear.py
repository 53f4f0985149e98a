"""Lowering of matrix products, of experts' products, and of embeddings."""

from __future__ import annotations

from typing import Any, cast

from engine.backends.base import Weight
from engine.backends.cuda.kernels.linear import gemm, heads, linear
from engine.backends.cuda.kernels.packed_activations import packed_buffer
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.cuda.weight import WeightSpec
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.linear import HeadLinear, LinearGroup
from engine.backends.graph.moe import ExpertLinear
from engine.backends.graph.rows import Embed


def form_of(weight: Weight) -> tuple[str, int] | None:
    """The kind and width of the packed input of a product in a small batch, or None for float32."""
    form = cast(WeightSpec, weight).weight_layout.activations
    return None if form == "fp32" else (form, packed_buffer(form, Buffer(weight.shape[1])).width)


def _embed(context: Context, node: Embed) -> Calls:
    assert node.ids is None  # those with n-grams run on the CPU
    return (linear.embed_call(cast(WeightSpec, node.table), node.y, node.scale),)


def _linears(context: Context, node: LinearGroup) -> Calls:
    sm_count = context.constants.sm_count(node.device)
    return (linear.linear_call(_parts(context, node), node.parts[0].x, sm_count),)


def _parts(context: Context, node: LinearGroup) -> list[linear.Part]:
    parts = []
    for part in node.parts:
        weight, bias = cast(WeightSpec, part.weight), context.vector(part.bias, part.device)
        parts.append(linear.Part(weight, part.y, bias, part.residual))
    return parts


def _experts(context: Context, node: ExpertLinear) -> Calls:
    return (linear.expert_call(*_expert_arguments(context, node)),)


def _expert_arguments(context: Context, node: ExpertLinear) -> Any:
    constants, device = context.constants, node.device
    bias, stride = context.vector(node.bias, device), 4 * node.y.width
    table, sm_count = constants.expert_table(node), constants.sm_count(device)
    return table, node.x, node.experts, node.y, sm_count, bias, stride


def _large_linears(context: Context, node: LinearGroup) -> Calls:
    sm_count = context.constants.sm_count(node.device)
    return (gemm.product_call(_parts(context, node), node.parts[0].x, sm_count),)


def _large_experts(context: Context, node: ExpertLinear) -> Calls:
    return (gemm.expert_product_call(*_expert_arguments(context, node)),)


SMALL: Table = {Embed: _embed, LinearGroup: _linears, ExpertLinear: _experts, HeadLinear: heads.small_heads}
LARGE: Table = {LinearGroup: _large_linears, ExpertLinear: _large_experts, HeadLinear: heads.large_heads}
