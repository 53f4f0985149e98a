"""Lowering of cross-attention: the kernels of attention, over the pages of `Step.cross`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.backends.cuda.kernels.attention import attention, prefill
from engine.backends.cuda.lowering.call import Argument, Bound, Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.cuda.runtime.device import Device
from engine.backends.graph.attention import CrossAttention
from engine.backends.graph.buffers import Buffer

if TYPE_CHECKING:
    import torch

_CROSSED: dict[Argument, Argument] = {
    Runtime.POSITIONS: Runtime.CROSS_POSITIONS, Runtime.PAGES: Runtime.CROSS_PAGES,
    Runtime.RUNS: Runtime.CROSS_RUNS,
}  # fmt: skip


def _crossed(call: Call) -> Call:
    """The call as in steps over several sequences, since each row is a run of its own."""
    call = call.several or call
    return replace(call, arguments=tuple(_CROSSED.get(each, each) for each in call.arguments), several=None)


def _small(context: Context, node: CrossAttention) -> Calls:
    cache, sm_count = context.cache.crossed, context.constants.sm_count(node.device)
    packed = None if node.packed is None else (node.form, node.packed)
    calls = attention.attention_calls(
        cache.kind, cache.addresses(node.layer), node.q, node.y, packed, node.shape, 0, sm_count, node.floats
    )
    return tuple(map(_crossed, calls))


class _CrossBound:
    """A step as attention sees it whose rows see all of what they attend to: the last is at its end."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self.device: Device = bound.device
        self.rows = bound.rows

    @property
    def position(self) -> int:
        """As `Bound.position`; before the beginning where there are more rows than are seen."""
        return self.cross_length - self.rows

    @property
    def cross_length(self) -> int:
        """As `Bound.cross_length`."""
        return self._bound.cross_length

    @property
    def pages(self) -> npt.NDArray[np.int32]:
        """As `Bound.pages`, which nothing here asks for."""
        return self._bound.pages

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        """As `Bound.tensor`."""
        return self._bound.tensor(buffer)

    def address(self, argument: Argument) -> int | float:
        """As `Bound.address`."""
        return self._bound.address(_CROSSED.get(argument, argument))

    def launch(self, call: Call) -> None:
        """As `Bound.launch`."""
        self._bound.launch(_crossed(call))

    def scratch(self, size: int, place: int = 0) -> torch.Tensor:
        """As `Bound.scratch`."""
        return self._bound.scratch(size, place)


def _large(context: Context, node: CrossAttention) -> Calls:
    cache, both_ways = context.cache.crossed, replace(node.shape, bidirectional=True)
    # In pieces, since flash attention's memory for keys depends on the longest context alone.
    call = prefill.prefill_attention(
        cache.kind, cache.addresses(node.layer), node.q, node.y, both_ways, 0, False
    )
    return (replace(call, run=lambda bound: call.run(_CrossBound(bound))),)


SMALL: Table = {CrossAttention: _small}
LARGE: Table = {CrossAttention: _large}
