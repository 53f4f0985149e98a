"""Runs a recorded call over NumPy arrays: its body by the interpreter, and its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.graph.buffers import Buffer
from tests.simt.agree import At, both

TABLES = [(1 << 60) + i for i in range(8)]
"""Stand for addresses of weights and tables in the arguments of a call."""


def laid_out(x: Any) -> Any:
    """Rows (R, width) in the stride of a buffer; what lies past the width is no number."""
    out = np.full((len(x), Buffer(x.shape[1]).stride // 4), np.nan, np.float32)
    out[:, : x.shape[1]] = x
    return out


def empty(buffer: Buffer, rows: int) -> Any:
    """Rows of a buffer that was not written."""
    return np.full((rows, buffer.stride // 4), np.float32(-77.0))


def played(
    call: Call, arrays: Mapping[Any, Any], rows: int, *, twice: bool = True
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """`arrays` has one for each buffer, for each of `TABLES`, and for `Runtime.POSITIONS`; other runtime
    arguments are numbers.

    Gives the arrays as the interpreter and as the model leave them. `rows` counts the rows of the call's
    grid.
    """
    keys = [key for key, value in arrays.items() if isinstance(value, np.ndarray)]

    def argument(value: Any) -> Any:
        if value in keys:
            return At(keys.index(value))
        if value is Runtime.ROWS:
            return rows
        return arrays[value] if isinstance(value, Buffer | Runtime) else value

    arguments = [argument(value) for value in call.arguments]
    found, expected = both(
        call.kernel, call.blocks(rows), arguments, [arrays[key] for key in keys], twice=twice
    )
    return dict(zip(keys, found, strict=True)), dict(zip(keys, expected, strict=True))
