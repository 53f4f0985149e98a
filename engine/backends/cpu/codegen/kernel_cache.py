"""Compiling kernels once, with a cache on disk.

Every kernel has the signature void(args, step, tile, scratch): the addresses of the argument block and the
step block, the tile's number and the address of the thread's scratch memory, all int64. Each is compiled
alone, so that progress can be shown, and several at once in worker processes. The cache folder's name is a
hash of this package's sources (and of those outside it whose constants are compiled in), of the versions of
Numba and llvmlite and of the CPU, because Numba's own cache does not notice a change in another file. A
packaged program brings such a folder for some CPUs (`engine.platform.levels`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Generator, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm
from numba import config, types

from engine.backends import gguf_blocks, kv_formats
from engine.backends.cpu.codegen.simd import FEATURES
from engine.backends.cpu.codegen.specialise import Jit
from engine.backends.cpu.kernels import (
    balance,
    moe,
    ngrams,
    norm,
    pointwise,
    pool,
    read_memory,
    recurrent,
    repack,
    rope,
    rows,
    sample,
    weighted_mean,
)
from engine.backends.cpu.kernels.attention import attention, combine, indexer
from engine.backends.cpu.kernels.generalised_delta import generalised_delta_kernel
from engine.backends.cpu.kernels.kv_write import kv_write
from engine.backends.cpu.kernels.linear import amx, integer_gemm
from engine.backends.cpu.kernels.linear.heads import heads_kernel
from engine.backends.cpu.kernels.linear.linear import linear_kernel
from engine.backends.cpu.kernels.look_up import look_up_kernel, look_up_name
from engine.backends.cpu.kernels.selective import selective_kernel
from engine.backends.cpu.layouts.table import WEIGHT_LAYOUTS
from engine.backends.cpu.runtime.cores import usable_cpus
from engine.backends.cpu.runtime.work_stealing import pool_functions
from engine.backends.gguf_blocks.table import PACKED_BLOCKS
from engine.backends.kv_formats import CacheType
from engine.core import Loading
from engine.platform import compiled, levels
from engine.platform.folders import code_folder
from engine.platform.garbage import gc_paused
from engine.platform.worker_pool import WorkerPool
from engine.sampling import kernels as sampling_kernels
from engine.sampling import passes

SIGNATURE = types.void(types.int64, types.int64, types.int64, types.int64)
_OPTIONS: dict[str, Any] = {"error_model": "numpy"}
_CALLED_OPTIONS: dict[str, Any] = {"nogil": True, **_OPTIONS}


@cache
def folder_name() -> str:
    """The name of a folder of compiled kernels: a hash of all that they depend on."""
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    outside = (kv_formats, sampling_kernels, passes)
    sources += [Path(module.__file__ or "") for module in outside]
    sources += sorted(Path(gguf_blocks.__file__).parent.glob("*.py"))
    host = llvm.get_host_cpu_name() if config.CPU_NAME is None else ""
    machine = [host, *sorted(FEATURES), str(config.CPU_NAME), str(config.CPU_FEATURES)]
    return f"kernels-{compiled.sources_hash(sources, *machine)}"


def cache_folder() -> Path | None:
    """The folder of compiled kernels in `code_folder`; None if no folder can be written."""
    return code_folder(folder_name())


class KernelTable:
    """Addresses of compiled kernels by name, shared by all models of the process."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}
        self.pool: dict[str, Any] = {}

    def address(self, name: str) -> int:
        """The C function's address; the kernel must have been compiled."""
        return int(self._compiled[name].address)

    def function(self, name: str) -> Callable[[int, int, int, int], None]:
        """The C function for calls from Python, which then let other threads run."""
        function: Callable[[int, int, int, int], None] = self._compiled[name].ctypes
        return function

    def compile(
        self, names: list[str], beside: Callable[[], object] | None = None
    ) -> Generator[Loading, None, None]:
        """Compile missing kernels, or load them from the disk cache; yields progress if there are any.

        The first event comes once worker processes have been started, if they are worth it. One of them calls
        `beside`, which must be picklable and fill a cache on disk, or this process does if there are some.
        """
        missing = [n for n in dict.fromkeys(names) if n not in self._compiled]
        if not missing:
            return
        self._load(missing, levels.prebuilt(folder_name()))
        left = [name for name in missing if name not in self._compiled]
        if left or not self.pool:
            yield from self._complete(left, len(missing), beside)
        else:
            yield Loading(_STAGE, 0, len(missing))
        yield Loading(_STAGE, len(missing), len(missing))

    def _load(self, names: list[str], folder: Path | None) -> None:
        """Load the kernels and the thread pool's functions that a folder has."""
        if folder is None:
            return
        # Cached code includes its parts, which are compiled only if it is missing.
        found = {name: _load(name, folder) for name in names if name not in self._compiled}
        self._compiled.update((name, code) for name, code in found.items() if code is not None)
        if not self.pool:
            with compiled.cached_in(folder):
                pool = pool_functions(_load_function, _plain)
            if None not in pool.values():
                self.pool = pool

    def _complete(
        self, names: list[str], total: int, beside: Callable[[], object] | None
    ) -> Generator[Loading, None, None]:
        """Load the rest from the user's cache, or compile it; yields progress of `total` kernels."""
        kept = cache_folder()
        self._load(names, kept)
        left = sorted((name for name in names if name not in self._compiled), key=_is_small)
        count = _count(left, kept)
        groups = _groups(left, beside if count else None)
        jobs = [(names, pickle.dumps(partial(keep, kept, names, first))) for names, first in groups.items()]
        workers = WorkerPool(_WORKER, jobs, count)
        try:
            yield Loading(_STAGE, 0, total)
            if not self.pool:
                with gc_paused(), compiled.cached_in(kept):
                    self.pool = pool_functions(_function(kept), compiled.numpy_part)
            for name, code in _compile(groups, kept, workers):
                self._compiled[name] = code
                left.remove(name)
                yield Loading(_STAGE, total - len(left), total)
        finally:
            workers.close()


_Names = tuple[str, ...]


def keep(folder: Path | None, names: _Names, first: Callable[[], object] | None = None) -> bool:
    """In a worker process: call `first`, then compile kernels into the cache folder. Returns True."""
    if first is not None:
        first()
    for name in names:
        _compile_here(name, folder)
    return True


_STAGE, _WORKER = "Preparing the CPU kernels", "engine.backends.cpu.codegen.compile_worker"
_MOST_WORKERS = 3
_FOR_EACH_WORKER = 6
"""Kernels that are worth the start of a worker, which takes as long as compiling one or two."""


def _count(left: list[str], folder: Path | None) -> int:
    """Workers beside this process; their code comes back through the cache folder."""
    return 0 if folder is None else min(_MOST_WORKERS, usable_cpus() - 1, len(left) // _FOR_EACH_WORKER)


def _is_small(name: str) -> bool:
    """Whether a kernel compiles fast: the others begin first."""
    return not name.startswith(("attention", "indexer", "linear", "experts", "heads"))


_Groups = dict[_Names, Callable[[], object] | None]


def _groups(names: list[str], beside: Callable[[], object] | None) -> _Groups:
    """Kernels that one process compiles, and what it calls before. Those that sample are together, after
    `beside`: they share their parts, also with the sampler's functions that `beside` may compile.
    """
    together = tuple(name for name in names if name in sample.SAMPLE)
    groups: _Groups = {together: beside} if together or beside is not None else {}
    return groups | dict.fromkeys((name,) for name in names if name not in together)


def _compile(groups: _Groups, folder: Path | None, workers: WorkerPool[_Names]) -> Iterator[tuple[str, Any]]:
    """Compile kernels here while the workers compile others; yields each with its code."""
    elsewhere = len(groups)
    while (names := workers.take()) is not None:
        elsewhere -= 1
        if (first := groups[names]) is not None:
            first()
        for name in names:
            yield name, _compile_here(name, folder)
    for _ in range(elsewhere):
        names, done = workers.outcomes.get()
        for name in names:
            yield name, (_load(name, folder) if done else None) or _compile_here(name, folder)


def _load(name: str, folder: Path | None) -> Any | None:
    """A kernel from the cache; None if it has none."""
    with compiled.cached_in(folder):
        return compiled.cached_callback(_source(name, _plain), SIGNATURE, _OPTIONS)


def _compile_here(name: str, folder: Path | None) -> Any:
    with gc_paused(), compiled.cached_in(folder):  # as in workers: see `worker_pool.serve`
        return compiled.callback(
            _source(name, compiled.numpy_part), SIGNATURE, _OPTIONS, cache=folder is not None
        )


def _function(folder: Path | None) -> Jit:
    """A `Jit` for functions that Python calls."""

    def jit(function: Any, signature: Any) -> Any:
        return compiled.function(function, signature, _CALLED_OPTIONS, cache=folder is not None)

    return jit


def _load_function(function: Any, signature: Any) -> Any | None:
    """A function that Python calls, from the cache; None if it has none."""
    return compiled.cached_function(function, signature, _CALLED_OPTIONS)


_SIMPLE: dict[str, Any] = {
    "last_rows": rows.last_rows,
    "columns": rows.columns,
    "pack_int16": integer_gemm.pack_int16,
    "pack_int8": integer_gemm.pack_int8,
    "join": rows.join,
    "permute": rows.permute,
    "mix": rows.mix,
    "balance": balance.balance,
    "pool": pool.pool,
    "magnitude": norm.magnitude,
    "add_positions": rows.add_positions,
    "keep": rows.keep,
    "given": rows.given,
    "token_numbers": ngrams.token_numbers,
    "ngram_rows": ngrams.ngram_rows,
    "route": moe.route,
    "sort_routes": moe.sort_routes,
    "spread": moe.spread,
    "gather": moe.gather,
    "rope": rope.rope,
    "convolve": recurrent.convolve,
    "linear_attention": recurrent.linear_attention,
    "weighted_mean": weighted_mean.weighted_mean,
    "combine": combine.combine,
    "read_memory": read_memory.read_memory,
    "repack": repack.repack,
    "repack_words": repack.repack_words,
}


def _plain(function: Any, signature: Any, flags: Collection[str] = ()) -> Any:
    """A `Jit` that compiles nothing, for sources of which only the names matter."""
    return function


def _source(name: str, jit: Jit) -> Any:
    """The Python function of a kernel: `<operation>_<weight layout or cache formats>`, or a simple name.

    In linear8 and experts8, large batches take 8-bit activations.
    """
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name in amx.FORMATS:
        return amx.pack_kernel(name)
    if name in pointwise.POINTWISE:
        return pointwise.pointwise_kernel(name)
    if name == "route_scored":
        return moe.route_kernel(jit)
    if name.startswith("selective_"):
        return selective_kernel(name, jit)
    if name.startswith("generalised_"):
        return generalised_delta_kernel(name.removeprefix("generalised_"), jit)
    if name in sample.SAMPLE:
        return sample.sample_kernel(name, jit)
    if name in ("rms_norm", "layer_norm"):
        return norm.norm_kernel(name)
    if name.startswith("look_up_"):
        return look_up_kernel(next(each for each in PACKED_BLOCKS if look_up_name(each) == name))
    operation, *kind = name.split("_")
    if operation == "attention" and kind[0] == "latent":
        return attention.attention_kernel(CacheType(kind[1], kind[1]), jit, latent=True)
    if operation == "attention" and kind[0] == "relative":
        return attention.attention_kernel(CacheType(*kind[1:]), jit, relative=True)
    if operation == "attention" and kind[0] == "pairs":
        return attention.attention_kernel(CacheType(*kind[1:]), jit, pairs=True)
    if operation == "attention":
        return attention.attention_kernel(CacheType(*kind), jit)
    if operation == "indexer":
        return indexer.indexer_kernel(kind[0], jit)
    if operation == "write":
        return kv_write.kv_write_kernel(kind[0], kind[1], jit)
    weight_layout = next(f for f in WEIGHT_LAYOUTS if f.name == kind[0])
    if operation == "embed":
        return rows.embed_kernel(weight_layout)
    if operation == "heads":
        return heads_kernel(weight_layout, jit)
    bits = 8 if operation.endswith("8") else 16
    return (moe.experts_kernel if operation.startswith("experts") else linear_kernel)(
        weight_layout, bits, jit
    )


KERNELS = KernelTable()
"""The table of this process; models share it, because compiled code has no state."""
