"""`ExLlamaV2Cache` and its variants: the KV cache of one model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from engine.compat.exllamav2.attributes import Declared, refuse
from engine.compat.exllamav2.cache_rows import CacheRows, Row, copied_lease, lease_on
from engine.errors import NotSupportedYet
from engine.models.memory.estimate import context_pages
from engine.models.paged import PagedCache
from engine.settings import CacheSettings

if TYPE_CHECKING:
    from engine.compat.exllamav2.config import ExLlamaV2Config
    from engine.models.base import Model

_TENSORS = dict.fromkeys(
    ("key_states", "value_states", "key_scales", "value_scales", "temp_tensors", "shape_basic", "shape_wk",
     "shape_wv", "shape_s", "q_block", "all_tensors", "get_kv_state", "store_kv_state", "touch_device",
     "create_state_tensors", "update_cache_tensors", "wbits", "has_scales", "caches", "fixed_device",
     "weights_per_element_k", "weights_per_element_v", "head_dim", "num_hidden_layers",
     "num_key_value_heads"),
    "keys and values lie in pages of the backend, not in tensors; use copy_states or clone",
)  # fmt: skip


class CachedModel(Protocol):
    """What a cache asks of its `ExLlamaV2`."""

    config: ExLlamaV2Config
    loaded: bool

    @property
    def model(self) -> Model:
        """The loaded model."""
        ...

    def context_length(self) -> int:
        """The longest sequence."""
        ...


class Writer(Protocol):
    """What has sequences open in a cache: a generator, or the rows of `ExLlamaV2.forward`."""

    @property
    def cached_length(self) -> int:
        """Tokens, or columns, that are in the cache."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class ExLlamaV2CacheBase(Declared):
    """Keys and values of `batch_size` rows of `max_seq_len` tokens, -1 for the configuration's length.

    A row is no longer than the model's context; a `max_seq_len` beyond that makes room for several sequences
    of the dynamic generator. A `lazy` cache is allocated by `ExLlamaV2.load_autosplit`, or on first use, and
    so is one of a model that is not loaded yet. `copy_from` is a cache of the same class whose content is
    taken over.
    """

    missing: ClassVar[Any] = _TENSORS | {
        "roll_left": "keys are rotated for their positions, so tokens cannot move; run the shorter text again"
    }
    dtype: str = ""
    model: CachedModel
    batch_size: int
    max_seq_len: int

    def __init__(
        self,
        model: CachedModel,
        batch_size: int = 1,
        max_seq_len: int = -1,
        copy_from: ExLlamaV2CacheBase | None = None,
        lazy: bool = False,
        num_key_value_heads: int | None = None,
        fixed_device: int | None = None,
    ) -> None:
        refuse("num_key_value_heads", num_key_value_heads, None, "the model gives it")
        refuse("fixed_device", fixed_device, None, "pages lie where their layers are")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, but a cache has at least 1 row")
        self.model, self.batch_size = model, batch_size
        longest = model.context_length()
        self.max_seq_len = max_seq_len if max_seq_len > 0 else min(model.config.max_seq_len, longest)
        self._paged: PagedCache | None = None
        self._writer: Writer | None = None
        if (model.loaded and not lazy) or copy_from is not None:
            self.allocate()
        if copy_from is not None:
            self._take_over(copy_from)

    @property
    def paged(self) -> PagedCache:
        """The cache itself, allocated on first use."""
        self.allocate()
        assert self._paged is not None
        return self._paged

    @property
    def current_seq_len(self) -> int:
        """Tokens of the latest sequence in the cache, or columns of its rows.

        Can be set to any smaller number, and after `copy_states` to what was copied; ValueError otherwise. 0
        clears the cache.
        """
        return self._writer.cached_length if self._writer is not None else 0

    @current_seq_len.setter
    def current_seq_len(self, length: int) -> None:
        if not length:
            self.taken_by(None)
            if self._paged is not None:
                self._paged.table.forget()
        elif length != self.current_seq_len:
            rows = self.writing_rows()
            most = min((row.end for row in rows.rows), default=0)
            if not 0 <= length <= most:
                raise ValueError(f"current_seq_len is set to {length}, but the cache holds {most} tokens")
            rows.columns = length

    def reset(self) -> None:
        """Clear the cache."""
        self.current_seq_len = 0

    def taken_by(self, writer: Writer | None) -> None:
        """Make this the writer; what another writer has open is closed."""
        if self._writer is not None and self._writer is not writer:
            self._writer.close()
        self._writer = writer

    def writing_rows(self) -> CacheRows:
        """The rows as the writer. A generator's open sequence is closed and becomes the only row."""
        writer, paged = self._writer, self.paged
        if isinstance(writer, CacheRows):
            return writer
        ids = list(getattr(writer, "sequence", ()))[: self.current_seq_len]
        self.taken_by(None)
        rows = CacheRows(paged, [Row(0, lease_on(paged, ids))] if ids else [], len(ids))
        self.taken_by(rows)
        return rows

    def clone(self) -> Self:
        """Another cache with the same content."""
        return self._like(copy_from=self)

    def copy_states(
        self, target: ExLlamaV2CacheBase, from_column: int, from_columns: int, to_column: int,
        to_columns: int, from_row: int, from_rows: int, to_row: int, to_rows: int,
    ) -> None:  # fmt: skip
        """Copy columns of one row to the same columns of rows of `target`, a cache of the same class or this
        one.

        `target.current_seq_len` stays; it can be set to what was copied. Raises ValueError where rows or
        columns are not there, and `NotSupportedYet` for a move to other columns: keys are rotated for theirs.
        """
        if from_rows != 1 or from_columns != to_columns or min(from_column, from_row, to_row, to_rows) < 0:
            raise ValueError(
                "copy_states copies one row, and as many columns as it writes: from_rows must be 1 and "
                "to_columns equal to from_columns"
            )
        if from_column != to_column:
            raise NotSupportedYet(
                f"Column {from_column} cannot be copied to column {to_column}: keys are rotated for their "
                "positions; copy to the same column."
            )
        if type(target) is not type(self) or target.dtype != self.dtype or target.model is not self.model:
            raise ValueError("copy_states needs two caches of one class and one model")
        rows, end = self.writing_rows().rows, from_column + from_columns
        if from_row >= len(rows) or end > rows[from_row].end or to_row + to_rows > target.batch_size:
            raise ValueError(
                f"columns {from_column} to {end} of row {from_row}, or {to_rows} rows from {to_row} on, are "
                "not there"
            )
        row = rows[from_row]
        ids = row.lease.ids[: max(0, end - row.pad)]
        target._put(self.paged, to_row, to_rows, Row(row.pad, row.lease), ids, from_column)

    def _put(
        self, source: PagedCache, to_row: int, to_rows: int, row: Row, ids: Sequence[int], column: int
    ) -> None:
        """Make rows with `ids` after the padding of `row`; what is before `column` must be there."""
        rows, known = self.writing_rows(), max(0, column - row.pad)
        for place in range(to_row, to_row + to_rows):
            there = rows.rows[place] if place < len(rows.rows) else None
            same = there is not None and (there.pad, there.lease.ids[:known]) == (row.pad, list(ids[:known]))
            if there is not None and there.lease is row.lease:
                continue
            if place > len(rows.rows) or (known and not same):
                raise ValueError(
                    f"row {place} of the target does not hold the {column} columns that come before those to "
                    "copy; copy from column 0"
                )
            paged = self.paged
            lease = lease_on(paged, ids) if paged is source else copied_lease(source, paged, ids)
            if there is None:
                rows.rows.append(Row(row.pad, lease))
            else:
                there.lease.close()
                rows.rows[place] = Row(row.pad, lease)

    def _take_over(self, other: ExLlamaV2CacheBase) -> None:
        rows = other.writing_rows()
        for place, row in enumerate(rows.rows):
            if row.end:
                other.copy_states(self, 0, row.end, 0, row.end, place, 1, place, 1)
        self.writing_rows().columns = rows.columns

    def _like(self, copy_from: ExLlamaV2CacheBase) -> Self:
        return type(self)(self.model, self.batch_size, self.max_seq_len, copy_from)

    def allocate(self) -> None:
        """Allocate the memory. Raises `NotEnoughMemory`, or `BadSetting` for a length beyond the context."""
        if self._paged is not None:
            return
        model, config = self.model.model, self.model.config
        dtype = self.dtype if model.backend.name != "reference" or self.dtype != "fp16" else "auto"
        row = min(self.max_seq_len, model.config.context_length)
        pages = self.batch_size * context_pages(self.max_seq_len)
        memory = -(-pages * model.page_bytes(dtype) // 2**20) if pages > context_pages(row) else 0
        self._paged = PagedCache(model, CacheSettings(context_length=row, dtype=dtype, memory=memory))
        self._paged.rows = max(1, min(self._paged.rows, config.max_input_len))

    def footprint(self) -> list[int]:
        """The bytes of the pages."""
        return [self.paged.store.nbytes]

    def close(self) -> None:
        """Release the memory."""
        self.taken_by(None)
        if self._paged is not None:
            self._paged.close()
        self._paged = None


class ExLlamaV2Cache(ExLlamaV2CacheBase):
    """FP16 keys and values."""

    dtype = "fp16"


class ExLlamaV2Cache_8bit(ExLlamaV2CacheBase):
    """FP8 keys and values."""

    dtype = "fp8"


class ExLlamaV2Cache_Q8(ExLlamaV2CacheBase):
    """8-bit keys and values."""

    dtype = "q8"


class ExLlamaV2Cache_Q6(ExLlamaV2CacheBase):
    """8-bit keys, 4-bit values."""

    dtype = "q6"


class ExLlamaV2Cache_Q4(ExLlamaV2CacheBase):
    """4-bit keys and values."""

    dtype = "q4"


class ExLlamaV2Cache_TP(ExLlamaV2CacheBase):
    """A cache of the type of `base`. Its pages lie where the layers are, as those of every cache here."""

    def __init__(
        self,
        model: CachedModel,
        base: type[ExLlamaV2CacheBase] = ExLlamaV2Cache,
        batch_size: int = 1,
        max_seq_len: int = -1,
        copy_from: ExLlamaV2CacheBase | None = None,
    ) -> None:
        self.dtype = base.dtype
        self._base = base
        super().__init__(model, batch_size, max_seq_len, copy_from)

    def _like(self, copy_from: ExLlamaV2CacheBase) -> Self:
        return type(self)(self.model, self._base, self.batch_size, self.max_seq_len, copy_from)
