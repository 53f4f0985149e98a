"""Matrices of ik_llama.cpp's types in the form that backends pack."""

from __future__ import annotations

import numpy as np

from engine.backends.gguf_blocks.ik_quants import IK_BLOCKS, iq4_ks_of
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.gguf.table import IK_FORMATS
from engine.weights.packed.decoded import DecodedMatrix, PackedStack
from engine.weights.packed.grouped import Indices
from engine.weights.tensor import FileTensor

_TYPES = {
    block.name: (block, format)
    for block, format in zip(IK_BLOCKS, IK_FORMATS, strict=True)
    if block.row_bytes or block.bits == 8
}
"""Those whose rows are not packed as they are in the file."""


def as_packed(tensor: RawTensor) -> RawTensor:
    """A matrix of these types, or a stack of them, as blocks that a backend packs; other tensors unchanged.

    Blocks have the number of their row; those of many levels are `BYTES_16` or `BYTES_32`, those of IQ4_KSS
    are IQ4_KS.
    """
    if not isinstance(tensor, FileTensor) or tensor.type not in _TYPES or len(tensor.shape) not in (2, 3):
        return tensor
    if len(tensor.shape) == 3:
        return PackedStack(tensor.name, tensor.shape[0], tensor.nbytes, lambda i: as_packed(tensor.part(i)))
    block, format = _TYPES[tensor.type]

    def decode(outputs: Indices) -> Floats:
        return tensor.take(outputs).dequantise()

    def blocks(outputs: Indices) -> Bytes:
        found = format.blocks(tensor.take(outputs).data, tensor.shape[1])
        if tensor.type == "IQ4_KSS":
            found = iq4_ks_of(found)
        if block.bits < 8:
            return found.reshape(-1)
        parts = block.split(found)
        assert parts.scales is not None
        return np.concatenate([parts.d.view(np.uint8), parts.scales, parts.codes], axis=1).reshape(-1)

    shape = (tensor.shape[0], tensor.shape[1])
    return DecodedMatrix(tensor.name, tensor.type, shape, tensor.nbytes, decode, blocks)
