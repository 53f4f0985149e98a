"""`ExLlamaV2Cache` and its quantised kinds: the key/value cache of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.models.paged import PagedCache
from engine.settings import CacheSettings

if TYPE_CHECKING:
    from engine.exllamav2.model import ExLlamaV2


class ExLlamaV2Cache:
    """An FP16 cache; with `lazy` it is made by `ExLlamaV2.load_autosplit`. Raises ValueError for a batch other than 1."""

    dtype = "fp16"

    def __init__(self, model: ExLlamaV2, batch_size: int = 1, max_seq_len: int = -1, lazy: bool = False) -> None:
        if batch_size != 1:
            raise ValueError(f"batch_size is {batch_size}, but a streaming generator writes one sequence: it must be 1")
        self.model = model
        self.batch_size = batch_size
        self.max_seq_len = max_seq_len if max_seq_len > 0 else model.config.max_seq_len
        self._paged: PagedCache | None = None
        if not lazy:
            self.allocate()

    @property
    def paged(self) -> PagedCache:
        """The cache itself, made when first asked for."""
        self.allocate()
        assert self._paged is not None
        return self._paged

    def allocate(self) -> None:
        """Take the memory. Raises `NotEnoughMemory`, `BadSetting` for a length the model cannot address."""
        if self._paged is None:
            model = self.model.model
            dtype = self.dtype if model.backend.name != "reference" or self.dtype != "fp16" else "auto"
            self._paged = PagedCache(model, CacheSettings(context_length=self.max_seq_len, dtype=dtype))

    def close(self) -> None:
        """Release the memory."""
        if self._paged is not None:
            self._paged.close()
        self._paged = None


class ExLlamaV2Cache_8bit(ExLlamaV2Cache):
    """FP8."""

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
