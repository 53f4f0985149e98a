"""What mlx-lm changes of a folder's tensors besides their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.names.tensors import TensorNames
from engine.tensors import RawTensor

MLX_TAPS = -3
"""`RecurrentNames.tap_dims` of its convolutions."""


def has_mlx_taps(tensors: Mapping[str, RawTensor], end: str) -> bool:
    """Whether convolutions whose names end so are (C, K, 1)."""
    shapes = (tensor.shape for name, tensor in tensors.items() if name.endswith(end + ".weight"))
    return any(len(shape) == 3 and shape[2] == 1 < shape[1] for shape in shapes)


def with_mlx_taps(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The same names, with convolutions of that shape if the file has them."""
    own = names.recurrent
    assert own is not None
    ends = own.convolutions or (own.convolution,)
    if not any(has_mlx_taps(tensors, end) for end in ends):
        return names
    return replace(names, recurrent=replace(own, tap_dims=MLX_TAPS))
