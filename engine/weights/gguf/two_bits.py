"""Matrices of GGUF's Q1_0 and Q2_0, as codes of two bits with a scale for each group, which backends pack."""

from __future__ import annotations

import numpy as np

from engine.backends.gguf_blocks.block_type import Parts
from engine.backends.gguf_blocks.quants import TWO_BIT_BLOCKS
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.decoded import PackedStack
from engine.weights.packed.grouped import GroupedTensor, Indices, Layout, Run, Zeros
from engine.weights.tensor import FileTensor

_BLOCKS = {block.name: block for block in TWO_BIT_BLOCKS}


class _Source:
    """A `Source`: the blocks of a matrix (N, K)."""

    def __init__(self, tensor: FileTensor) -> None:
        self._tensor, self._block = tensor, _BLOCKS[tensor.type]

    def _parts(self, outputs: Indices) -> Parts:
        return self._block.split(self._tensor.take(outputs).data.reshape(-1, self._block.nbytes))

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        return self._parts(outputs).codes.reshape(outputs.size, -1)[:, start:stop]

    def scales(self, outputs: Indices) -> Floats:
        return self._parts(outputs).d.view(np.float16).astype(np.float32).reshape(outputs.size, -1)

    def zeros(self, outputs: Indices) -> Zeros:
        return np.full(
            (outputs.size, self._tensor.shape[1] // self._block.values), np.int16(self._block.zero)
        )


def in_groups(tensor: FileTensor) -> RawTensor:
    """A matrix of these types, or a stack of them, in groups; other tensors unchanged."""
    block = _BLOCKS.get(tensor.type)
    if block is None or len(tensor.shape) not in (2, 3):
        return tensor
    if len(tensor.shape) == 3:
        return PackedStack(tensor.name, tensor.shape[0], tensor.nbytes, lambda i: in_groups(tensor.part(i)))
    rows, columns = tensor.shape
    runs = [
        Run(start, block.values, block.bits, start // block.values)
        for start in range(0, columns, block.values)
    ]
    return GroupedTensor(tensor.name, Layout(columns, runs, None, True, tensor.nbytes, rows), _Source(tensor))
