"""Compiling kernels once, with a cache on disk.

Every kernel has the signature void(args, step, tile, scratch): the addresses of the argument block and the
step block, the tile's number and the address of the thread's scratch memory, all int64. Each is compiled
alone, so that progress can be shown. The cache folder's name is a hash of this package's sources (and of
those outside it whose constants are compiled in), of the versions of Numba and llvmlite and of the CPU,
because Numba's own cache does not notice a change in another file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm
from numba import config, types

from engine.backends import gguf_blocks, kv_formats
from engine.backends.cpu.codegen.simd import FEATURES
from engine.backends.cpu.codegen.specialise import Jit
from engine.backends.cpu.kernels import moe, norm, pointwise, read_memory, rope, rows
from engine.backends.cpu.kernels.attention import attention
from engine.backends.cpu.kernels.kv_write import kv_write
from engine.backends.cpu.kernels.linear import integer_gemm
from engine.backends.cpu.kernels.linear.linear import linear_kernel
from engine.backends.cpu.layouts.table import WEIGHT_LAYOUTS
from engine.backends.cpu.runtime.work_stealing import pool_functions
from engine.backends.kv_formats import CacheType
from engine.core import Loading
from engine.platform import compiled
from engine.platform.folders import code_folder

SIGNATURE = types.void(types.int64, types.int64, types.int64, types.int64)
_OPTIONS: dict[str, Any] = {"error_model": "numpy"}


def cache_folder() -> Path | None:
    """The folder of compiled kernels in `code_folder`; None if no folder can be written."""
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    sources += [Path(kv_formats.__file__), Path(gguf_blocks.__file__)]
    machine = [llvm.get_host_cpu_name(), *sorted(FEATURES), str(config.CPU_NAME), str(config.CPU_FEATURES)]
    return code_folder(f"kernels-{compiled.sources_hash(sources, *machine)}")


class KernelTable:
    """Addresses of compiled kernels by name, shared by all models of the process."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}
        self.pool: dict[str, Any] = {}

    def address(self, name: str) -> int:
        """The C function's address; the kernel must have been compiled."""
        return int(self._compiled[name].address)

    def compile(self, names: list[str]) -> Iterator[Loading]:
        """Compile missing kernels, or load them from the disk cache; yields progress if there are any."""
        missing = [n for n in dict.fromkeys(names) if n not in self._compiled]
        if not missing:
            return
        before, folder = config.CACHE_DIR, cache_folder()
        kept = folder is not None

        def jit(function: Any, signature: Any) -> Any:
            return compiled.function(function, signature, {"nogil": True, **_OPTIONS}, cache=kept)

        try:
            config.CACHE_DIR = str(folder or "")
            if not self.pool:
                yield Loading("Preparing the CPU kernels", 0, len(missing))
                self.pool = pool_functions(jit)
            for done, name in enumerate(missing):
                yield Loading("Preparing the CPU kernels", done, len(missing))
                # Cached code includes its parts, which are compiled or loaded only if it is missing.
                found = compiled.cached_callback(_source(name, _plain), SIGNATURE, _OPTIONS) if kept else None
                self._compiled[name] = found or compiled.callback(
                    _source(name, jit), SIGNATURE, _OPTIONS, cache=kept
                )
        finally:
            config.CACHE_DIR = before
        yield Loading("Preparing the CPU kernels", len(missing), len(missing))


_SIMPLE: dict[str, Any] = {
    "last_rows": rows.last_rows,
    "columns": rows.columns,
    "pack_int16": integer_gemm.pack_int16,
    "pack_int8": integer_gemm.pack_int8,
    "permute": rows.permute,
    "add_positions": rows.add_positions,
    "route": moe.route,
    "sort_routes": moe.sort_routes,
    "spread": moe.spread,
    "gather": moe.gather,
    "rope": rope.rope,
    "combine": attention.combine,
    "read_memory": read_memory.read_memory,
}


def _plain(function: Any, signature: Any) -> Any:
    """A `Jit` that compiles nothing, for sources of which only the names matter."""
    return function


def _source(name: str, jit: Jit) -> Any:
    """The Python function of a kernel: `<operation>_<weight layout or cache formats>`, or a simple name.

    In linear8 and experts8, large batches take 8-bit activations.
    """
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name in pointwise.POINTWISE:
        return pointwise.pointwise_kernel(name)
    if name in ("rms_norm", "layer_norm"):
        return norm.norm_kernel(name)
    operation, *kind = name.split("_")
    if operation == "attention":
        return attention.attention_kernel(CacheType(*kind), jit)
    if operation == "write":
        return kv_write.kv_write_kernel(kind[0], kind[1], jit)
    weight_layout = next(f for f in WEIGHT_LAYOUTS if f.name == kind[0])
    if operation == "embed":
        return rows.embed_kernel(weight_layout)
    bits = 8 if operation.endswith("8") else 16
    return (moe.experts_kernel if operation.startswith("experts") else linear_kernel)(
        weight_layout, bits, jit
    )


KERNELS = KernelTable()
"""The table of this process; models share it, because compiled code has no state."""
