"""The arguments of kernels on packed matrices, which are the same for every weight layout.

"l" is an int64 address or offset, "i" int32, "f" float32. A row of x is packed activations of the layout's
kind (`kernels.packed_activations`). Strides are in bytes.

  linear   `PARTS` times (weight l, y l, y's row stride l, bias l or 0, residual l or 0, its row stride l,
           outputs N i; all 0 for an unused part), x l, x's row stride l, rows i (1 .. 8), columns K i.
           y = x W^T + bias + residual. Grid (blocks): a block takes `Variant.tiles` tiles of one part; those
           of the first part come first.
  experts  table of int64 addresses of the experts' weights l (0: another layout, its rows are not written),
           N i, y l, its row stride l, biases l or 0, their row stride l, int32 ids l, their row stride l,
           experts per row i, x l, its row stride l, K i. Grid (tiles, row of x): row r of x takes the expert
           ids[r / used, r % used].
  unpack   weight l, first tile i, target l, its row stride l, K i. Writes fp16 rows, 16 for each tile, K
           padded to 64; row 0 is the first row of `first tile`. Grid (chunks of `UNPACK_COLUMNS`, tile).
  embed    weight l, int32 token ids l, y l, its row stride l, scale f, K i: row r of y, float32, is scale
           times row ids[r] of the matrix. Grid (1, r).
"""

from __future__ import annotations

from engine.backends.cuda.codegen.kernel import Kernel
from engine.lazy_dataclass import dataclass

PARTS = 3
"""Matrices that one launch of a linear kernel multiplies with the same rows."""
UNPACK_COLUMNS = 512
"""Columns per block of an unpacking kernel."""
LINEAR = "lllllli" * PARTS + "llii"
EXPERTS = "lillllllilli"
UNPACK = "lilli"
EMBED = "llllfi"


@dataclass(frozen=True)
class Variant:
    """A kernel, and the number of tiles that one of its blocks computes."""

    kernel: Kernel
    tiles: int
