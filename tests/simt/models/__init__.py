"""What each kernel does, said once more in NumPy: `MODELS` by `Kernel.model`.

A model is called as model(memory, blocks, constants, *arguments): the arguments of the launch, the grid, and the kernel's constants.
`memory.view(address, type, count)` is the memory at an address as a NumPy array, not copied.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simt.models import gemm_rows, plain, pointwise

MODELS: dict[str, Callable[..., None]] = {
    **gemm_rows.MODELS,
    **plain.MODELS,
    **pointwise.MODELS,
}
