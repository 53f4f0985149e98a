"""Vectors that rows are multiplied by, or that stand for rows, made of the operations that there are."""

from __future__ import annotations

import numpy as np

from engine.backends.base import Array, Ops
from engine.tensors import Floats

TINY = 1e-30
"""The epsilon of a norm that is to leave no trace of one."""


def by_number(ops: Ops, x: Array, factors: Floats, residual: Array | None = None) -> Array:
    """x (T, N) times `factors` (N,), one by one, plus `residual`: the norm of a row times its length."""
    return ops.mix([ops.rms_norm(x, factors, TINY)], ops.magnitude(x), 0, residual)


def same_rows(ops: Ops, like: Array, row: Floats) -> Array:
    """As many rows as `like` (T, N) has, each of them `row` (N,)."""
    return ops.layer_norm(like, np.zeros_like(row), row, 1.0)
