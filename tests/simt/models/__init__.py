"""What each kernel does, said once more in NumPy: `MODELS` by `Kernel.model`.

A model is called as model(memory, blocks, constants, *arguments): the arguments of the launch, the grid, and
the kernel's constants. `memory.view(address, type, count)` is the memory at an address as a NumPy array, not
copied.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simt.models import (
    attention,
    experts,
    fused,
    gemm_rows,
    kv_write,
    linear_codes,
    norms,
    plain,
    pointwise,
    records,
    rope,
    rows,
    sampling,
)

MODELS: dict[str, Callable[..., None]] = {
    **attention.MODELS,
    **experts.MODELS,
    **fused.MODELS,
    **gemm_rows.MODELS,
    **kv_write.MODELS,
    **linear_codes.MODELS,
    **norms.MODELS,
    **plain.MODELS,
    **pointwise.MODELS,
    **records.MODELS,
    **rope.MODELS,
    **rows.MODELS,
    **sampling.MODELS,
}
