"""The interface of a packed weight layout of the CUDA engine.

A matrix (N, K) lies on the device as tiles of 16 rows (outputs), one after the other, padded with
zeros: N to whole tiles, K to whole blocks of 64 columns. A layout is data:
`kernels.linear.variants` pairs it with the kernels that read it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

ROWS = 16
"""Rows (outputs) of a tile."""


class WeightLayout(Protocol):
    """One packed layout.

    `name` is lower case without an underscore; `activations` is the form of packed
    activations that its products take.
    """

    @property
    def name(self) -> str: ...
    @property
    def types(self) -> tuple[str, ...]:
        """Names of the tensor types, as in `RawTensor.type`."""
        ...

    @property
    def activations(self) -> str:
        """Either "fp16", "bf16x2" or "fp32"."""
        ...

    def __hash__(self) -> int: ...

    def tile_bytes(self, columns: int) -> int:
        """Bytes of a tile of this many columns; a multiple of 16."""
        ...

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        """File bytes of `rows` x `columns` (rows a multiple of 16, columns of 64) to tiles, flat uint8."""
        ...
