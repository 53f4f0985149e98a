"""The fixed-width number types of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Cast:
    """A fixed-width type, used as a conversion in kernels: "int32", "uint32", "int64" or "float32"."""

    name: str

    def __call__(self, value: Any) -> Any:
        """Convert as the interpreter and plain Python do; bits beyond the width are dropped."""
        if self.name == "float32":
            return np.float32(value)
        bits = 64 if self.name == "int64" else 32
        whole = int(value) & ((1 << bits) - 1)
        return whole if self.name == "uint32" or whole < 1 << (bits - 1) else whole - (1 << bits)


int32, uint32, int64, float32 = (Cast(name) for name in ("int32", "uint32", "int64", "float32"))
