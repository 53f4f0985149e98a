"""What a packed layout of weights is to the CUDA engine, and the arguments that its kernels take.

A matrix (N, K) lies on the device as tiles of 16 rows (outputs), one after the other; N is padded to tiles
and K to whole blocks of 64 columns, with zeros. The kernels of every weight layout take the same arguments:

linear   PARTS times (weight l, y l, bytes from row to row of y l, bias l or 0, residual l or 0, bytes of its
         rows l, N i; 0 for a part that is not there), x records l, their row bytes l, rows i (1 .. 8), K i. A
         block of threads takes `Form.tiles` tiles of one part, those of the first part come first.
experts  table of int64 addresses of the experts' weights l (0: not of this layout, its rows are left alone),
         N i, y l, its row bytes l, biases l or 0, their row bytes l, int32 ids l, their row bytes l, experts
         a row uses i, x records l, row bytes l, K i.
         Block (tiles, row of x): row r has the choice r % used of the ids' row r / used.
unpack   weight l, first tile i, target l, bytes from row to row l, K i: fp16 rows (16 tiles, K padded to 64),
         row 0 is the first of `first tile`. Block (columns of `UNPACK_COLUMNS`, tile - first tile).
embed    weight l, int32 token ids l, y l, its row bytes l, scale f, K i: fp32 y = scale * row of the matrix.
Block (1, row).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from engine.backends.cuda.codegen.kernel import Kernel

Bytes = npt.NDArray[np.uint8]

ROWS = 16
"""Rows (outputs) of a tile."""
PARTS = 3
"""Matrices that one launch of a linear kernel multiplies with the same rows."""
UNPACK_COLUMNS = 512
"""Columns that a block of threads of an unpacking kernel takes."""
LINEAR = "lllllli" * PARTS + "llii"
EXPERTS = "lillllllilli"
UNPACK = "lilli"
EMBED = "llllfi"


@dataclass(frozen=True)
class Form:
    """A kernel, and the tiles that one of its blocks of threads takes."""

    kernel: Kernel
    tiles: int


class WeightLayout(Protocol):
    """One packed layout.

    `name` is lower case without an underscore; `record` is the kind of `records` that its products take.
    """

    @property
    def name(self) -> str: ...
    @property
    def types(self) -> tuple[str, ...]:
        """Names of the tensor types, as `RawTensor.type` has them."""
        ...

    @property
    def record(self) -> str:
        """ "halves", "pairs" or "floats"."""
        ...

    def tile_bytes(self, columns: int) -> int:
        """Bytes of a tile of so many columns; a multiple of 16."""
        ...

    def pack(self, type_name: str, raw: Bytes, rows: int, columns: int) -> Bytes:
        """File bytes of `rows` x `columns` (rows a multiple of 16, columns of 64) to tiles, flat uint8."""
        ...

    def linear(self, tiles: int, columns: int, processors: int) -> Form:
        """The form for one to eight rows of x and so many tiles in all parts together."""
        ...

    def experts(self, tiles: int, columns: int, processors: int) -> Form:
        """The form for rows of x that have a matrix each; `tiles` of all rows of a short step together."""
        ...

    def embed(self) -> Kernel:
        """Rows by number."""
        ...


@runtime_checkable
class Packed(WeightLayout, Protocol):
    """A weight layout that torch cannot multiply with as it lies: all but those of plain numbers."""

    def unpack(self) -> Kernel:
        """To fp16 rows."""
        ...
