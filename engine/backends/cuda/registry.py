"""Every kernel in every form that models ask for: what the gate compiles and looks at, for all devices, without one.

A kernel that is not listed here can still be compiled when a model with unusual sizes asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.backends.cuda import (
    append,
    append_gather,
    attention,
    experts,
    family_plain,
    fused,
    gemm_rows,
    linear_codes,
    norms,
    pointwise,
    record_write,
    rope,
    rows,
    sampling,
)
from engine.backends.cuda.kernel import Kernel


def all_kernels() -> Iterator[Kernel]:
    """Each one once."""
    yield from append.forms()
    yield from append_gather.forms()
    yield from attention.forms()
    yield from experts.forms()
    yield from family_plain.forms()
    yield from fused.forms()
    yield from gemm_rows.forms()
    yield from linear_codes.forms()
    yield from norms.forms()
    yield from pointwise.forms()
    yield from record_write.forms()
    yield from rope.forms()
    yield from rows.forms()
    yield from sampling.forms()
