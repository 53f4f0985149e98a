"""Matrices of ik_llama.cpp's types in the form that backends pack."""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.gguf_blocks.block_type import BlockType
from engine.backends.gguf_blocks.ik_quants import IK_BLOCKS, iq4_ks_of
from engine.backends.gguf_blocks.interleaved import INTERLEAVED, Interleaved
from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.gguf.table import IK_FORMATS
from engine.weights.packed.decoded import DecodedMatrix, PackedStack
from engine.weights.packed.grouped import Indices
from engine.weights.tensor import FileTensor
from engine.words import _

_TYPES = {
    block.name: (block, format)
    for block, format in zip(IK_BLOCKS, IK_FORMATS, strict=True)
    if block.row_bytes or block.bits == 8
}
"""Those whose rows are not packed as they are in the file."""
_INTERLEAVED = {each.name: each for each in INTERLEAVED}


def as_packed(tensor: RawTensor) -> RawTensor:
    """A matrix of these types, or a stack of them, as blocks that a backend packs; other tensors unchanged.

    Blocks have the number of their row; those of many levels are `BYTES_16` or `BYTES_32`, those of IQ4_KSS
    are IQ4_KS, and rows in turn become single ones. Raises `BadCheckpoint` if there are no whole turns.
    """
    if not isinstance(tensor, FileTensor):
        return tensor
    interleaved = _INTERLEAVED.get(tensor.type)
    if interleaved is not None:
        _check(tensor, interleaved)
    elif tensor.type not in _TYPES or len(tensor.shape) not in (2, 3):
        return tensor
    if len(tensor.shape) == 3:
        return PackedStack(tensor.name, tensor.shape[0], tensor.nbytes, lambda i: as_packed(tensor.part(i)))
    shape = (tensor.shape[0], tensor.shape[1])
    if interleaved is not None:
        read, block = partial(_rows_of_turns, tensor, interleaved), interleaved.block
    else:
        read, block = partial(_rows, tensor), _TYPES[tensor.type][0]

    def decode(outputs: Indices) -> Floats:
        return block.decode(read(outputs)).reshape(len(outputs), -1)

    def blocks(outputs: Indices) -> Bytes:
        return _packed(block, read(outputs)).reshape(-1)

    return DecodedMatrix(tensor.name, block.name, shape, tensor.nbytes, decode, blocks)


def _rows(tensor: FileTensor, outputs: Indices) -> Bytes:
    """The blocks of some rows, (blocks, bytes)."""
    return _TYPES[tensor.type][1].blocks(tensor.take(outputs).data, tensor.shape[1])


def _rows_of_turns(tensor: FileTensor, kind: Interleaved, outputs: Indices) -> Bytes:
    """The plain blocks of some rows of a matrix with rows in turn."""
    (rows, columns), each = tensor.shape, kind.rows
    raw = tensor.retyped(tensor.name, "U8", (rows // each, each * (tensor.nbytes // rows)))
    turns, place = np.unique(outputs // each, return_inverse=True)
    read = raw.take(turns).data.reshape(len(turns), -1)
    heads, body = np.split(read, [each * kind.row_bytes], axis=1)
    count = columns // kind.block.values
    parts = [np.repeat(heads, count, axis=0), body.reshape(len(turns) * count, -1)]
    plain = kind.plain(np.concatenate(parts, axis=1)).reshape(len(turns), count, each, -1)
    return plain[place, :, outputs % each].reshape(-1, kind.block.nbytes)


def _packed(block: BlockType, found: Bytes) -> Bytes:
    """Blocks of a type as a backend packs them."""
    if block.name == "IQ4_KSS":
        return iq4_ks_of(found)
    if block.name not in _TYPES or block.bits < 8:
        return found
    parts = block.split(found)
    assert parts.scales is not None
    return np.concatenate([parts.d.view(np.uint8), parts.scales, parts.codes], axis=1)


def _check(tensor: FileTensor, kind: Interleaved) -> None:
    if len(tensor.shape) not in (2, 3) or tensor.shape[-2] % kind.rows:
        raise BadCheckpoint(
            _(
                "The tensor {tensor} of the type {type} has the shape {shape}, a matrix with a multiple of "
                "{rows} rows was expected. Download the model again.",
                tensor=tensor.name,
                type=kind.name,
                shape=tensor.shape,
                rows=kind.rows,
            )
        )
