"""What each kernel does, said once more in NumPy: `MODELS` by the module and the name of the kernel's body.

A model is called as model(memory, blocks, constants, *arguments): the arguments of the launch, the grid, and
the kernel's constants. `memory.view(address, type, count)` is the memory at an address as a NumPy array, not
copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.backends.cuda.codegen.kernel import Kernel
from tests.simt.interpreter import Memory
from tests.simt.models import (
    attention,
    chosen,
    experts,
    fused,
    gemm_rows,
    kv_write,
    linear_codes,
    norms,
    packed_activations,
    plain,
    pointwise,
    recurrent,
    rope,
    rows,
    sampling,
)

MODELS: dict[str, Callable[..., None]] = {
    **attention.MODELS,
    **chosen.MODELS,
    **experts.MODELS,
    **fused.MODELS,
    **gemm_rows.MODELS,
    **kv_write.MODELS,
    **linear_codes.MODELS,
    **norms.MODELS,
    **plain.MODELS,
    **pointwise.MODELS,
    **packed_activations.MODELS,
    **recurrent.MODELS,
    **rope.MODELS,
    **rows.MODELS,
    **sampling.MODELS,
}


def model_name(kernel: Kernel) -> str:
    """The key of a kernel's model: `norm.sum_norm` for the body `_sum_norm` in `kernels/norm.py`."""
    module = kernel.body.__module__.rpartition(".")[2]
    return f"{module}.{kernel.body.__name__.lstrip('_')}"


def run_model(
    kernel: Kernel, blocks: tuple[int, int, int], arguments: Sequence[int | float], memory: Memory
) -> None:
    """Do a launch's work in NumPy."""
    MODELS[model_name(kernel)](memory, blocks, dict(kernel.constants), *arguments)
