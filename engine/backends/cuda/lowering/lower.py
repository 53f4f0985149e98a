"""From a model's forward function to the calls of small batches, and to those of large ones.

In small batches, rows that only products read are written packed, never as float32; up to three products of
one input are one call, and so are the rotations of queries and keys. Large batches leave products to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.backends.base import Forward, Weight
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels import (
    balance,
    generalised_delta,
    magnitude,
    moe,
    norm,
    packed_activations_write,
    pointwise,
    pool,
    recurrent,
    rope,
    routes,
    rows,
    shaped,
    weighted_mean,
)
from engine.backends.cuda.lowering import attention, cross_attention, linear
from engine.backends.cuda.lowering.call import Call, ScratchSize, TorchCall
from engine.backends.cuda.lowering.constants import Constants
from engine.backends.cuda.lowering.context import Context, Table
from engine.backends.graph.attention import Attention, CrossAttention
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.cache import StateAddresses
from engine.backends.graph.fusion import add_norm, columns_rope, fuse, group_linears, group_ropes, norm_rope
from engine.backends.graph.nodes import Node, PeerCopy
from engine.backends.graph.packing import pack_inputs, pack_where_made
from engine.backends.graph.recorder import Recorder

PATTERNS = (norm_rope, columns_rope, add_norm(norm.MOST_KEPT))
"""Patterns with fused kernels: between two launches a GPU idles for about a microsecond."""
MOST_PARTS = 3
"""Maximum number of products in one call of a small batch."""

Step = tuple[int, Call | TorchCall | PeerCopy]
"""The index of a device, and what runs there."""


class LoweredPass:
    """A whole pass as calls, for `small` batches and for `large` ones.

    `positions` is the length of its shortest table, or that of the cache, `rope_positions` that of the
    shortest rotary table; `kept` holds the arrays and weights whose addresses calls take; `keeps` and `gives`
    are the rows that steps leave to the host and read of it, `given_tables` the rotary tables that they read.
    """

    def __init__(
        self,
        forward: Forward,
        cache: StateAddresses,
        constants: Constants,
        layer_devices: Sequence[int] = (),
        device_of: Callable[[Weight], int] = lambda _unused: 0,
        part_devices: Sequence[int] = (),
        positions: int = 1 << 31,
        cross_devices: Sequence[int] = (),
    ) -> None:
        recorder = Recorder(layer_devices, device_of, part_devices, cross_devices)
        self.logits: Buffer = forward(recorder)
        self.positions = min(recorder.positions, positions)
        self.rope_positions = recorder.rope_positions
        context, graph = (
            Context(cache, constants, self.positions),
            fuse(recorder.nodes, self.logits, PATTERNS),
        )
        packed = pack_where_made(pack_inputs(graph, linear.form_of, keep_floats=False), self.logits)
        self.whole_only = any(
            isinstance(node, Attention) and node.shape.bidirectional for node in recorder.nodes
        )
        """Whether rows see later ones of their step, which the kernels of small batches do not know."""
        self.crosses = any(isinstance(node, CrossAttention) for node in recorder.nodes)
        """Whether rows attend to what `Step.cross` says."""
        self.small: list[Step] = []
        if not self.whole_only:
            self.small = _steps(context, group_ropes(group_linears(packed, MOST_PARTS)), SMALL)
        self.large = _steps(context, group_ropes(group_linears(graph, any_layout=True)), LARGE)
        self.kept: list[Any] = [constants.kept, recorder.nodes]
        self.keeps, self.gives, self.given_tables = constants.keeps, constants.gives, constants.given_tables

    def kernels(self, device: int) -> list[Kernel]:
        """All kernels that may run on a device, each once."""
        found: dict[Kernel, None] = {}
        for at, step in [*self.small, *self.large]:
            if at != device or isinstance(step, PeerCopy):
                continue
            if isinstance(step, TorchCall):
                found |= dict.fromkeys(step.kernels)
            else:
                found |= dict.fromkeys(call.kernel for call in (step, step.several) if call is not None)
        return list(found)

    def scratch_sizes(self, device: int) -> dict[int, list[ScratchSize]]:
        """The scratch memory that calls need on a device, by place."""
        found: dict[int, set[ScratchSize]] = {}
        for at, step in self.large:
            if at == device and isinstance(step, TorchCall):
                for place, size in step.scratch_sizes.items():
                    found.setdefault(place, set()).add(size)
        return {place: list(sizes) for place, sizes in found.items()}


def _steps(context: Context, graph: Iterable[Node], table: Table) -> list[Step]:
    steps: list[Step] = []
    for node in graph:
        if isinstance(node, PeerCopy):
            steps.append((node.device, node))
        else:
            steps += [(node.device, call) for call in table[type(node)](context, node)]
    return steps


SMALL: Table = {
    **norm.LOWER,
    **magnitude.LOWER,
    **pointwise.LOWER,
    **shaped.LOWER,
    **rows.LOWER,
    **rope.LOWER,
    **moe.LOWER,
    **routes.LOWER,
    **recurrent.LOWER,
    **generalised_delta.LOWER,
    **weighted_mean.LOWER,
    **balance.LOWER,
    **pool.LOWER,
    **packed_activations_write.LOWER,
    **linear.SMALL,
    **attention.SMALL,
    **cross_attention.SMALL,
}
"""Lowers each type of node to its calls in small batches."""
LARGE: Table = {**SMALL, **linear.LARGE, **attention.LARGE, **cross_attention.LARGE}
"""Lowers each type of node to its calls in large batches."""
