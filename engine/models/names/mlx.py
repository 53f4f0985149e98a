"""What mlx-lm changes of a folder's tensors besides their names."""

from __future__ import annotations

from collections.abc import Mapping

from engine.tensors import RawTensor


def has_mlx_taps(tensors: Mapping[str, RawTensor], end: str) -> bool:
    """Whether convolutions whose names end so are (C, K, 1)."""
    shapes = (tensor.shape for name, tensor in tensors.items() if name.endswith(end + ".weight"))
    return any(len(shape) == 3 and shape[2] == 1 < shape[1] for shape in shapes)
