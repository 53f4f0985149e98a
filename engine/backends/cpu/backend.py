"""The CPU backend: it records a model's pass as calls of Numba kernels and replays them for each step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial

from engine.backends.base import AttentionShape, Forward, KVCache, Program, Weight
from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.backends.cpu.kv_cache import CpuCache
from engine.backends.cpu.lowering.constants import CountedConstants
from engine.backends.cpu.lowering.estimate import work_space
from engine.backends.cpu.lowering.lower import LoweredPass
from engine.backends.cpu.program import CpuProgram
from engine.backends.cpu.runtime.cores import default_threads
from engine.backends.cpu.runtime.weight_memory import WeightMemory
from engine.backends.cpu.weight import CpuWeight
from engine.backends.cpu.weight_spec import WeightSpec
from engine.backends.graph.cache import CacheSpec
from engine.backends.kv_formats import CacheType, cache_type
from engine.backends.main_memory import free_memory
from engine.backends.packing.blocked import in_blocks
from engine.backends.packing.composite import Composite, is_composite
from engine.backends.states import NO_STATES, States
from engine.backends.trim import give_memory_back
from engine.core import Loading
from engine.tensors import RawTensor

__all__ = ["CpuBackend", "default_threads"]


class CpuBackend:
    """A `Backend` on the processor. `threads` 0 means one for each physical core that this process may use.

    Large batches take activations of `prompt_bits` bits, 16 or 8, if the weights are integer codes.
    """

    name = "cpu"
    where = ""

    def __init__(self, threads: int = 0, prompt_bits: int = 16, *, in_turns: bool = False) -> None:
        """`threads` 0 is one for each core, `prompt_bits` as `LoadSettings.prompt_bits`. With `in_turns`, its
        programs share their threads: no two of them run at the same time, and all are closed together.
        """
        self.threads = threads or default_threads()
        self.prompt_bits = prompt_bits
        self._in_turns = in_turns
        self._beside: CpuProgram | None = None
        self._weights = WeightMemory()

    @property
    def offloaded(self) -> int:
        """Bytes of the loaded weights that lie on the disk."""
        return self._weights.on_disk

    def offload(self, limit: int, beyond: int) -> None:
        """Keep `limit` bytes of the weights that will be loaded in memory, and those `beyond` on the disk.

        Raises `NotEnoughMemory` if the disk has no room for them.
        """
        self._weights = WeightMemory(limit)
        self._weights.check_disk(beyond)

    def free_memory(self) -> int:
        return free_memory()

    def trim(self) -> None:
        give_memory_back()

    def prepare(self, forward: Forward, cache_dtype: str) -> Iterator[Loading]:
        """Compile the kernels that `forward` calls, or read them from the disk cache."""
        yield from self._prepare(forward, cache_dtype)

    def prepare_early(
        self, forward: Forward, cache_dtype: str, beside: Callable[[], object]
    ) -> Generator[Loading, None, None]:
        """`prepare` for a pass whose weights are not loaded yet; see `KernelTable.compile`."""
        yield from self._prepare(forward, cache_dtype, beside)

    def _prepare(
        self, forward: Forward, cache_dtype: str, beside: Callable[[], object] | None = None
    ) -> Generator[Loading, None, None]:
        lowered = LoweredPass(
            forward, CacheSpec(_cache_type(cache_dtype)), self.prompt_bits, CountedConstants()
        )
        yield from KERNELS.compile(lowered.kernels, beside)

    def weight_spec(self, tensor: RawTensor) -> Weight:
        return Composite(tensor, WeightSpec) if is_composite(tensor) else WeightSpec(in_blocks(tensor))

    def work_space(self, forward: Forward) -> tuple[int, int, int]:
        """Memory of the arena, the constants and the scratch memory."""
        row, fixed = work_space(forward, _cache_type("auto"), self.prompt_bits, self.threads)
        return row, 0, fixed

    def load_weight(self, tensor: RawTensor) -> Weight:
        """Pack a matrix into tiles of 16 rows."""
        pack = partial(CpuWeight, memory=self._weights)
        return Composite(tensor, pack) if is_composite(tensor) else pack(in_blocks(tensor))

    def new_cache(
        self, shapes: Sequence[AttentionShape], page_count: int, dtype: str, states: States = NO_STATES,
        numbers: Sequence[int] = (),
    ) -> KVCache:  # fmt: skip
        return CpuCache(shapes, page_count, _cache_type(dtype), states)

    def record(self, forward: Forward, cache: KVCache, max_rows: int) -> Program:
        assert isinstance(cache, CpuCache)
        made = CpuProgram(forward, cache, max_rows, self.threads, self.prompt_bits, self._beside)
        self._beside = made if self._in_turns else None
        return made


def _cache_type(dtype: str) -> CacheType:
    """The cache type for `dtype`; "auto" is fp16."""
    return cache_type(dtype, automatic="fp16")
