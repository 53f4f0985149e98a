"""Recurrent parts that take the place of attention, and how they are built from a file's tensors.

Shape letters as in `engine.models.layers.parts`; C channels of a convolution, K taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.backends.base import Array, Ops
from engine.backends.states import LinearAttentionShape
from engine.lazy_dataclass import dataclass
from engine.models.building.source import norm
from engine.models.config import ModelConfig
from engine.models.config.convolved import ConvolvedHeads, ConvolvedKeys, GatedValues
from engine.models.config.recurrent import (
    DeltaNet,
    GatedUnit,
    HeadedScan,
    Lightning,
    Mamba,
    MatrixLstm,
    Recurrent,
    Rwkv4,
    Rwkv6,
    Rwkv7,
    SelectiveScan,
    SeparateDelta,
    ShortConvolution,
    scan_shape,
    separate_delta_shape,
)
from engine.models.config.relative import RelativeHeads
from engine.models.layers.parts import Linear, Mixer, Norm, Order, RopeTables, bare_norm, scaled
from engine.models.layers.recurrent.gated_unit import gated_unit
from engine.models.layers.recurrent.gated_values import gated_values
from engine.models.layers.recurrent.headed_scan import headed_scan
from engine.models.layers.recurrent.lightning import lightning_mixer
from engine.models.layers.recurrent.matrix_lstm import matrix_lstm
from engine.models.layers.recurrent.parts import Convolution, Recurrence, RecurrentSource, split, unit_norms


@dataclass(frozen=True, slots=True)
class GatedConvolution:
    """output(c * convolution(b * v)), with b, c and v made by `input` (LFM2, arXiv 2511.23404)."""

    input: Linear
    convolution: Convolution
    output: Linear

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        y = self.input(ops, x)
        b, c, v = split(ops, y, [self.convolution.weight.shape[1]] * 3)
        h = self.convolution(ops, ops.gated(b, v, "identity"))
        return self.output(ops, ops.gated(c, h, "identity"), residual)


@dataclass(frozen=True, slots=True)
class DeltaMixer:
    """Gated delta net (arXiv 2412.06464): queries, keys and values are convolved, the first two normalised;
    the result is normed head by head and gated.
    """

    inputs: Linear
    gate: Linear
    decay: Linear
    beta: Linear
    convolution: Convolution
    query_norm: Norm
    key_norm: Norm
    recurrence: Recurrence
    norm: Norm
    output: Linear
    activation: str

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        shape = self.recurrence.shape
        # Products of one input next to each other, so that backends run them at once.
        mixed, gate, decay, beta = (made(ops, x) for made in (self.inputs, self.gate, self.decay, self.beta))
        mixed = ops.activate(self.convolution(ops, mixed), "silu")
        keys = shape.key_heads * shape.key_dim
        q, k, v = split(ops, mixed, [keys, keys, shape.value_heads * shape.value_dim])
        q, k = self.query_norm(ops, q), self.key_norm(ops, k)
        y = self.recurrence(ops, (q, k, v), decay, beta)
        return self.output(ops, ops.gated(gate, self.norm(ops, y), self.activation), residual)


@dataclass(frozen=True, slots=True)
class LowRank:
    """The product of two matrices."""

    down: Linear
    up: Linear

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.up(ops, self.down(ops, x))


@dataclass(frozen=True, slots=True)
class SeparateDeltaMixer:
    """The same with queries, keys and values each made and convolved alone; what is convolved of values is
    multiplied by `value_scale`.
    """

    inputs: tuple[Linear, Linear, Linear]
    convolutions: tuple[Convolution, Convolution, Convolution]
    gate: Linear | LowRank
    decay: Linear | LowRank
    beta: Linear
    query_norm: Norm
    key_norm: Norm
    recurrence: Recurrence
    norm: Norm
    output: Linear
    activation: str
    value_scale: float

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        products = [made(ops, x) for made in (*self.inputs, self.beta, self.gate, self.decay)]
        q, k, v = (
            ops.activate(convolution(ops, each), "silu")
            for each, convolution in zip(products, self.convolutions, strict=False)
        )
        beta, gate, decay = products[3:]
        q, k, v = self.query_norm(ops, q), self.key_norm(ops, k), scaled(ops, v, self.value_scale)
        y = self.recurrence(ops, (q, k, v), decay, beta)
        return self.output(ops, ops.gated(gate, self.norm(ops, y), self.activation), residual)


@dataclass(frozen=True, slots=True)
class MambaMixer:
    """Mamba-2 (arXiv 2405.21060): `input` makes gate, values, keys, queries and steps in one; the gated
    result is normed in groups, or with `norm_first` the result before it is gated. The scales multiply gate
    and steps. With `limited`, steps are at least log(1 + e^s), s being the recurrence's shift: what was
    shifted by its weights has been added to the input's bias, less s.
    """

    input: Linear
    convolution: Convolution
    recurrence: Recurrence
    norm: Norm | None
    output: Linear
    norm_first: bool = False
    gate_scale: float = 1.0
    step_scale: float = 1.0
    limited: bool = False

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        shape, channels = self.recurrence.shape, self.convolution.weight.shape[1]
        values, keys = shape.value_heads * shape.value_dim, shape.key_heads * shape.key_dim
        gate, mixed, step = split(ops, self.input(ops, x), [values, channels, shape.value_heads])
        mixed = ops.activate(self.convolution(ops, mixed), "silu")
        v, k, q = split(ops, mixed, [values, keys, keys])
        step = scaled(ops, step, self.step_scale)
        step = ops.activate(step, "relu") if self.limited else step
        y = self.recurrence(ops, (q, k, v), step, None)
        y = self.norm(ops, y) if self.norm and self.norm_first else y
        y = ops.gated(scaled(ops, gate, self.gate_scale), y, "silu")
        return self.output(ops, self.norm(ops, y) if self.norm and not self.norm_first else y, residual)


@dataclass(frozen=True, slots=True)
class ScanMixer:
    """Mamba (arXiv 2312.00752): `input` makes values and gate, `mixed` of the convolved values the steps'
    numbers, keys and queries, which `norms` may norm.
    """

    input: Linear
    convolution: Convolution
    mixed: Linear
    norms: tuple[Norm, Norm, Norm] | None
    step: Linear
    recurrence: Recurrence
    output: Linear

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        channels, keys = self.convolution.weight.shape[1], self.recurrence.shape.key_dim
        v, gate = split(ops, self.input(ops, x), [channels, channels])
        v = ops.activate(self.convolution(ops, v), "silu")
        parts = split(ops, self.mixed(ops, v), [self.step.weight.shape[1], keys, keys])
        if self.norms is not None:
            parts = [norm(ops, part) for norm, part in zip(self.norms, parts, strict=True)]
        y = self.recurrence(ops, (parts[2], parts[1], v), self.step(ops, parts[0]), None)
        return self.output(ops, ops.gated(gate, y, "silu"), residual)


# -- building


def recurrent_mixer(layer: RecurrentSource, config: ModelConfig, part: int) -> Mixer:
    """The recurrent part of one layer, whose first part of a state is number `part`."""
    match config.recurrent:
        case ShortConvolution():
            return _gated_convolution(layer, config, config.recurrent, part)
        case DeltaNet():
            return _delta(layer, config, config.recurrent, part)
        case Mamba():
            return _mamba(layer, config, config.recurrent, part)
        case SeparateDelta():
            return _separate_delta(layer, config, config.recurrent, part)
        case SelectiveScan():
            return _scan(layer, config, config.recurrent, part)
        case HeadedScan():
            return headed_scan(layer, config, config.recurrent, part)
        case GatedUnit():
            return gated_unit(layer, config, config.recurrent, part)
        case GatedValues():
            return gated_values(layer, config, config.recurrent, part)
        case MatrixLstm():
            return matrix_lstm(layer, config, config.recurrent, part)
        case Lightning():
            return lightning_mixer(layer, config, config.recurrent, part)
        case ConvolvedHeads() | ConvolvedKeys() | RelativeHeads() | Rwkv7() | Rwkv6() | Rwkv4() | None:
            raise AssertionError("the model has no such layers")


def _gated_convolution(
    layer: RecurrentSource, config: ModelConfig, kind: ShortConvolution, part: int
) -> GatedConvolution:
    names, width = layer.names, config.width
    return GatedConvolution(
        layer.linear(names.input, 3 * width, width),
        layer.convolution(part, width, kind.taps),
        layer.linear(names.output, width, width),
    )


def _delta(layer: RecurrentSource, config: ModelConfig, kind: DeltaNet, part: int) -> DeltaMixer:
    names, width = layer.names, config.width
    keys, values = kind.key_heads * kind.key_dim, kind.value_heads * kind.value_dim
    shape = LinearAttentionShape(
        kind.key_heads, kind.value_heads, kind.key_dim, kind.value_dim, True, kind.tiled
    )
    channels, heads = 2 * keys + values, kind.value_heads
    if names.fused:
        own = names.input, names.gate, names.beta, names.decay
        inputs, gate, beta, decay = layer.slices(names.fused, own, (channels, values, heads, heads), width)
    elif names.gate:
        inputs = layer.linear(names.input, channels, width)
        gate = layer.linear(names.gate, values, width)
    else:
        inputs, gate = layer.parts(names.input, fused_orders(kind)["input"], width)
    if names.decay_beta and not names.fused:
        beta, decay = layer.parts(names.decay_beta, fused_orders(kind)["decay_beta"], width)
    elif not names.fused:
        decay, beta = (layer.linear(name, heads, width, False) for name in (names.decay, names.beta))
    norms = unit_norms(kind.key_heads, kind.key_dim)
    return DeltaMixer(
        inputs, gate, decay, beta,
        layer.convolution(part, channels, kind.taps), norms[0], norms[1],
        layer.recurrence(part + 1, shape, (heads,)),
        layer.norm(heads, config.norm_eps, kind.value_dim),
        layer.linear(names.output, width, values), kind.activation,
    )  # fmt: skip


def _separate_delta(
    layer: RecurrentSource, config: ModelConfig, kind: SeparateDelta, part: int
) -> SeparateDeltaMixer:
    names, width = layer.names, config.width
    keys, values = kind.key_heads * kind.key_dim, kind.value_heads * kind.value_dim
    widths = keys, keys, values
    shape = separate_delta_shape(kind)

    def made(name: str, up: str, rows: int) -> Linear | LowRank:
        if not (kind.rank and up):
            return layer.linear(name, rows, width, False)
        return LowRank(layer.linear(name, kind.rank, width, False), layer.linear(up, rows, kind.rank, False))

    convolutions = layer.convolutions(part, widths, kind.taps)
    # With keys and values sqrt(2) times as large, a strength of 0 to 1 works as one of 0 to 2 would.
    factor = 2**0.5 if kind.doubled else 1.0
    query_norm, key_norm = unit_norms(kind.key_heads, kind.key_dim, factor)
    own = names.query, names.key, names.value
    if names.fused:
        query, key, value = layer.slices(names.fused, own, widths, width)
    else:
        query, key, value = (
            layer.linear(name, rows, width, False) for name, rows in zip(own, widths, strict=True)
        )
    heads = kind.value_heads
    rates = {1: (heads,), 2: (heads, 1), 4: (1, 1, heads, 1)}[names.rate_dims]
    return SeparateDeltaMixer(
        (query, key, value), (convolutions[0], convolutions[1], convolutions[2]),
        made(names.gate, names.gate_up, values), made(names.decay, names.decay_up, shape.steps),
        layer.linear(names.beta, heads, width, False), query_norm, key_norm,
        layer.recurrence(part + 3, shape, rates), layer.norm(heads, kind.norm_eps, kind.value_dim),
        layer.linear(names.output, width, values), kind.activation, factor,
    )  # fmt: skip


def _mamba(layer: RecurrentSource, config: ModelConfig, kind: Mamba, part: int) -> MambaMixer:
    names, width = layer.names, config.width
    values, keys = kind.heads * kind.head_dim, kind.groups * kind.state
    channels = values + 2 * keys
    shape = LinearAttentionShape(kind.groups, kind.heads, kind.state, kind.head_dim, False)
    split = (kind.norm_groups, values // kind.norm_groups) if names.gguf else (values,)
    normed = layer.source.has(layer.at + names.norm + ".weight") if kind.norm is None else kind.norm
    of_gate, of_values, of_keys, of_queries, of_steps = config.multipliers.mamba_parts
    # What is convolved is linear in its inputs: the taps take their factors.
    factors = np.repeat(np.array([of_values, of_keys, of_queries], np.float32), [values, keys, keys])
    convolution = layer.convolution(part, channels, kind.taps)
    made = layer.linear(names.input, values + channels + kind.heads, width)
    recurrence = layer.recurrence(part + 1, shape, (kind.heads, 1) if names.gguf else (kind.heads,))
    if kind.least_step:
        # softplus rises everywhere: a limit of the steps is one of what it is taken of
        limit = np.float32(np.log(np.expm1(kind.least_step)))
        bias = np.zeros(values + channels + kind.heads, np.float32) if made.bias is None else made.bias.copy()
        bias[values + channels :] += (recurrence.shift - limit) / np.float32(of_steps)
        made = replace(made, bias=bias)
        recurrence = replace(recurrence, shift=np.full_like(recurrence.shift, limit))
    return MambaMixer(
        made,
        replace(convolution, weight=convolution.weight * factors),
        recurrence,
        layer.norm(kind.norm_groups, config.norm_eps, *split) if normed else None,
        layer.linear(names.output, width, values),
        kind.norm_first,
        of_gate,
        of_steps,
        limited=kind.least_step > 0,
    )


def _scan(layer: RecurrentSource, config: ModelConfig, kind: SelectiveScan, part: int) -> ScanMixer:
    names, channels = layer.names, kind.channels
    widths = kind.rank, kind.state, kind.state
    norms = None
    if kind.norms:
        step, key, query = (
            norm(layer.source, layer.at + name, width, kind.norm_eps, layer_norm=False, bias=False)
            if kind.norms == "weights"
            else bare_norm(width, kind.norm_eps, 1)
            for name, width in zip((names.step_norm, names.key_norm, names.query_norm), widths, strict=True)
        )
        norms = step, key, query
    shape = scan_shape(kind)
    first, mixed = scan_orders(kind)
    return ScanMixer(
        layer.linear(names.input, 2 * channels, config.width, order=first),
        layer.convolution(part, channels, kind.taps),
        layer.linear(names.mixed, sum(widths), channels, False, mixed),
        norms,
        layer.linear(names.step, shape.steps, kind.rank, False),
        layer.recurrence(part + 1, shape, (kind.heads,) if kind.heads else (channels, kind.state)),
        layer.linear(names.output, config.width, channels),
    )


def scan_orders(kind: SelectiveScan) -> tuple[Order | None, Order | None]:
    """The rows of the first matrix and of the one that makes the steps' numbers, keys and queries; None: as
    they are. With heads, a file has gate and values head by head, and the steps' numbers last.
    """
    if not kind.heads:
        return None, None
    gate, values = grouped_rows(kind.heads, [kind.channels // kind.heads] * 2)
    keys = np.arange(2 * kind.state)
    return np.concatenate([values, gate]), np.concatenate([np.arange(kind.rank) + 2 * kind.state, keys])


def grouped_rows(groups: int, widths: Sequence[int]) -> list[npt.NDArray[np.int64]]:
    """The indices of each part's rows, where every group has a part of each of these widths in turn."""
    rows = np.arange(groups * sum(widths)).reshape(groups, -1)
    ends = np.cumsum(widths)
    return [rows[:, end - width : end].reshape(-1) for end, width in zip(ends, widths, strict=True)]


def fused_orders(kind: Recurrent | None) -> dict[str, tuple[Order, Order]]:
    """The rows of what a delta net may have in one matrix, by the fields of `RecurrentNames`: "input" with
    the gate after it, "decay_beta" with beta first (Qwen3-Next).
    """
    if not isinstance(kind, DeltaNet):
        return {}
    values, heads = kind.value_heads * kind.value_dim // kind.key_heads, kind.value_heads // kind.key_heads
    *inputs, gate = grouped_rows(kind.key_heads, [kind.key_dim, kind.key_dim, values, values])
    beta, decay = grouped_rows(kind.key_heads, [heads, heads])
    return {"input": (np.concatenate(inputs), gate), "decay_beta": (beta, decay)}


def tiled_orders(kind: Recurrent | None) -> dict[str, npt.NDArray[np.int64]]:
    """Where a file has the value heads in the order of all key heads again and again: the rows of a folder's
    matrices in that order, by the fields of `RecurrentNames`, and the columns of `output`.
    """
    if isinstance(kind, SelectiveScan) and kind.heads:
        first = scan_orders(kind)[0]
        return {} if first is None else {"input": first}
    if not isinstance(kind, DeltaNet) or not kind.tiled:
        return {}
    heads = np.arange(kind.value_heads).reshape(kind.key_heads, -1).T.reshape(-1)
    values = (heads[:, None] * kind.value_dim + np.arange(kind.value_dim)).reshape(-1)
    keys = 2 * kind.key_heads * kind.key_dim
    inputs = np.concatenate([np.arange(keys), keys + values])
    return {"input": inputs, "gate": values, "decay": heads, "beta": heads, "output": values}
