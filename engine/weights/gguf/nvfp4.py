"""NVFP4 matrices of GGUF files, with the numbers beside them, as the type that backends pack.

X.weight may have X.scale (some tools write X.weight.scale), one float32 for the matrix or one for each expert
of a stack, by which it is multiplied; X.input_scale is for kernels with 4-bit activations alone. Source:
llama.cpp's pull requests 19769 and 23563 (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.backends.gguf_blocks.quants import NVFP4_PAIRS, QUANTS
from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.decoded import DecodedMatrix, PackedStack
from engine.weights.packed.grouped import Indices
from engine.weights.tensor import FileTensor
from engine.words import _

_NVFP4 = next(block for block in QUANTS if block.name == "NVFP4")
_ENDS = (".scale", ".weight.scale")
_WITHOUT_USE = (".input_scale", ".weight.input_scale")


def with_scales(tensors: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    """The tensors of a file, each NVFP4 matrix or stack as one tensor with its scales; others unchanged.

    The architecture multiplies by the scales of Gemma 4's experts itself. Raises `BadCheckpoint`.
    """
    out, own = dict(tensors), set[str]()
    for name, tensor in tensors.items():
        if not isinstance(tensor, FileTensor) or tensor.type != "NVFP4" or len(tensor.shape) not in (2, 3):
            continue
        stem = name.removesuffix(".weight")
        own.update(stem + end for end in _WITHOUT_USE)
        found = next((stem + end for end in _ENDS if stem + end in tensors), None)
        if found is None or (
            stem.endswith(".ffn_down_exps")
            and stem.removesuffix("ffn_down_exps") + "ffn_gate_inp.scale" in tensors
        ):
            out[name] = _packed(tensor, np.ones(1, np.float32))
        else:
            out[name] = _packed(tensor, _factors(tensor, tensors[found]))
            own.add(found)
    return {name: tensor for name, tensor in out.items() if name not in own}


def _factors(matrix: FileTensor, scale: RawTensor) -> Floats:
    """One number, or one for each matrix of a stack. Raises `BadCheckpoint`."""
    counts = {1, matrix.shape[0]} if len(matrix.shape) == 3 else {1}
    factors = scale.dequantise().reshape(-1) if len(scale.shape) == 1 else np.empty(0, np.float32)
    if factors.size not in counts:
        raise BadCheckpoint(
            _(
                "The tensor {scale} has the shape {shape}; one number for {matrix} of shape {shape_2} was "
                "expected. Download the model again.",
                scale=scale.name,
                shape=scale.shape,
                matrix=matrix.name,
                shape_2=matrix.shape,
            )
        )
    return factors


def _packed(tensor: FileTensor, factors: Floats) -> RawTensor:
    """The matrix, or the stack, times its factor or factors."""
    if len(tensor.shape) == 3:
        each = np.broadcast_to(factors, tensor.shape[:1])
        return PackedStack(
            tensor.name, tensor.shape[0], tensor.nbytes, lambda i: _packed(tensor.part(i), each[i : i + 1])
        )

    def decode(outputs: Indices) -> Floats:
        return tensor.take(outputs).dequantise() * factors

    def blocks(outputs: Indices) -> Bytes:
        raw = tensor.take(outputs).data.reshape(-1, _NVFP4.nbytes)
        codes, scales = _NVFP4.split(raw).codes, raw[:, :4]
        out = np.empty((len(raw), NVFP4_PAIRS.nbytes), np.uint8)
        out[:, :4] = (factors / 2).astype(np.float32).view(np.uint8)
        out[:, 4:8] = np.where(scales == 127, 0, scales & 127)  # 127 is 0 and the top bit ignored, as in ggml
        out[:, 8:] = codes[:, ::2] | codes[:, 1::2] << np.uint8(4)
        return out.reshape(-1)

    shape = (tensor.shape[0], tensor.shape[1])
    return DecodedMatrix(tensor.name, NVFP4_PAIRS.name, shape, tensor.nbytes, decode, blocks)
