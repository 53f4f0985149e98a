"""`ExLlamaV2Cache` and its quantised variants: the KV cache of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.compat.exllamav2.step_by_step import StepByStep
from engine.models.memory.estimate import context_pages
from engine.models.paged import PagedCache
from engine.settings import CacheSettings

if TYPE_CHECKING:
    from engine.compat.exllamav2.model import ExLlamaV2


class ExLlamaV2Cache:
    """An FP16 KV cache, at most as long as the context; `ExLlamaV2.load_autosplit` allocates a `lazy` one.

    `batch_size` 2 makes room for both rows of guidance. Raises ValueError for sizes other than 1 and 2.
    """

    dtype = "fp16"

    def __init__(
        self, model: ExLlamaV2, batch_size: int = 1, max_seq_len: int = -1, lazy: bool = False
    ) -> None:
        if batch_size not in (1, 2):
            raise ValueError(
                f"batch_size is {batch_size}, but a streaming generator writes one sequence: it must be 1, "
                "or 2 for guidance"
            )
        self.model = model
        self.batch_size = batch_size
        requested = max_seq_len if max_seq_len > 0 else model.config.max_seq_len
        info = model.config.info
        self.max_seq_len = min(requested, info.context_length) if info is not None else requested
        self._paged: PagedCache | None = None
        self._writer: StepByStep | None = None
        if not lazy:
            self.allocate()

    @property
    def paged(self) -> PagedCache:
        """The cache itself, allocated on first use."""
        self.allocate()
        assert self._paged is not None
        return self._paged

    @property
    def current_seq_len(self) -> int:
        """Tokens of the latest sequence in the cache.

        Setting it to 0 clears the cache; any other value raises ValueError.
        """
        return max(0, len(self._writer.sequence) - 1) if self._writer is not None else 0

    @current_seq_len.setter
    def current_seq_len(self, length: int) -> None:
        if length:
            raise ValueError(
                f"current_seq_len can only be set to 0, not to {length}: a generator begins where its "
                "prompt differs"
            )
        self.taken_by(None)
        if self._paged is not None:
            self._paged.table.forget()

    def taken_by(self, generator: StepByStep | None) -> None:
        """Make this generator the writer; a sequence that another generator has open is closed."""
        if self._writer is not None and self._writer is not generator:
            self._writer.close()
        self._writer = generator

    def allocate(self) -> None:
        """Allocate the memory. Raises `NotEnoughMemory`, or `BadSetting` for a length beyond the context."""
        if self._paged is None:
            model = self.model.model
            dtype = self.dtype if model.backend.name != "reference" or self.dtype != "fp16" else "auto"
            rows = self.batch_size * context_pages(self.max_seq_len) * model.page_bytes(dtype)
            memory = -(-rows // 2**20) if self.batch_size > 1 else 0
            self._paged = PagedCache(
                model, CacheSettings(context_length=self.max_seq_len, dtype=dtype, memory=memory)
            )

    def close(self) -> None:
        """Release the memory."""
        self.taken_by(None)
        if self._paged is not None:
            self._paged.close()
        self._paged = None


class ExLlamaV2Cache_8bit(ExLlamaV2Cache):
    """FP8 keys and values."""

    dtype = "fp8"


class ExLlamaV2Cache_Q8(ExLlamaV2Cache):
    """8-bit keys and values."""

    dtype = "q8"


class ExLlamaV2Cache_Q6(ExLlamaV2Cache):
    """8-bit keys, 4-bit values."""

    dtype = "q6"


class ExLlamaV2Cache_Q4(ExLlamaV2Cache):
    """4-bit keys and values."""

    dtype = "q4"
