"""What `ExLlamaV2.forward` writes into a cache: rows of tokens, each on a lease of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.core import PAGE_TOKENS
from engine.errors import ContextTooLong
from engine.kv_cache.lease import Lease
from engine.lazy_dataclass import dataclass
from engine.models.paged import PagedCache
from engine.tensors import Floats

Columns = npt.NDArray[np.int64]


@dataclass(slots=True)
class Row:
    """One row: its tokens begin at column `pad`."""

    pad: int
    lease: Lease

    @property
    def end(self) -> int:
        """The column after the last one whose keys and values are there."""
        return self.pad + self.lease.length


class CacheRows:
    """Rows of equally many `columns` in one cache. The columns on the left of a row may be padding."""

    def __init__(self, cache: PagedCache, rows: Sequence[Row] = (), columns: int = 0) -> None:
        self._cache = cache
        self.rows = list(rows)
        self.columns = columns

    @property
    def cached_length(self) -> int:
        """The number of columns."""
        return self.columns

    def hide(self, row: int, columns: int) -> None:
        """Let a row start over at a column that comes after all those that are there."""
        self.rows[row].lease.close()
        table = self._cache.table
        self.rows[row] = Row(columns, table.open([], key=self._cache.key))

    def close(self) -> None:
        """Release the pages; their content can be found again."""
        for row in self.rows:
            row.lease.close()
        self.rows, self.columns = [], 0

    def run(
        self, ids: Columns, pads: Sequence[int], logits: str, stop: threading.Event | None = None
    ) -> Floats | None:
        """Append `ids` (rows, n), of which the first `pads` columns of each row are padding.

        `pads` count only while the cache is empty. Returns logits (rows, n, V) float32, with zeros for
        padding, if `logits` is "all", (rows, 1, V) if it is "last", and None if it is "none" or `stop` is
        set. Raises `ContextTooLong`, with the rows as before, where they do not fit.
        """
        if not self.columns:
            self._begin(ids, pads, leave={"all": ids.shape[1], "last": 1, "none": 0}[logits])
        else:
            for row in self.rows:
                if row.end > self.columns:
                    self._cache.rewind(row.lease, max(0, self.columns - row.pad))
        longest = max(self.columns + ids.shape[1] - row.pad for row in self.rows)
        before = self.columns
        try:
            if longest > self._cache.context_length:
                raise ContextTooLong(
                    f"The cache would hold {longest} tokens in a row, but has room for "
                    f"{self._cache.context_length}; make it longer, or pass fewer tokens."
                )
            parts = [self._extend(row, ids[place], logits, stop) for place, row in enumerate(self.rows)]
        except BaseException:
            self._back_to(before)
            raise
        if stop is not None and stop.is_set():
            self._back_to(before)
            return None
        self.columns += ids.shape[1]
        return None if logits == "none" else np.stack(parts)

    def _begin(self, ids: Columns, pads: Sequence[int], leave: int) -> None:
        """Take up what is cached of each row, less what is to be run for its logits."""
        self.close()
        cache = self._cache
        for row, pad in zip(ids, pads, strict=True):
            tokens = row[pad:].tolist()
            lease = cache.table.open(tokens, key=cache.key, leave=min(leave, len(tokens)))
            self.rows.append(Row(pad, lease))
            cache.settle(lease)

    def _extend(self, row: Row, ids: Columns, logits: str, stop: threading.Event | None) -> Floats:
        """Run what a row lacks, in passes of at most `PagedCache.rows` tokens."""
        cache, vocabulary = self._cache, self._cache.model.config.vocab_size
        out = np.zeros((len(ids) if logits == "all" else 1, vocabulary), np.float32)
        at = row.end - self.columns
        while at < len(ids) and not (stop is not None and stop.is_set()):
            part = ids[at : at + cache.rows].tolist()
            found = cache.run(row.lease, part, len(part) if logits == "all" else 1)
            if logits == "all":
                out[at : at + len(part)] = found
            elif logits == "last":
                out[:] = found
            at += len(part)
        return out

    def _back_to(self, columns: int) -> None:
        if not columns:
            self.close()
        for row in self.rows:
            self._cache.rewind(row.lease, min(row.lease.length, max(0, columns - row.pad)))


def lease_on(cache: PagedCache, ids: Sequence[int]) -> Lease:
    """A lease that holds all of `ids`; what is not in the cache is run."""
    lease = cache.table.open(ids, key=cache.key)
    try:
        cache.settle(lease)
        while lease.length < len(ids):
            cache.run(lease, ids[lease.length : lease.length + cache.rows])
    except BaseException:
        lease.close()
        raise
    return lease


def copied_lease(source: PagedCache, target: PagedCache, ids: Sequence[int]) -> Lease:
    """A lease in `target` on all of `ids`, whose pages are copied from `source`, a cache of the same model
    and type.
    """
    if target.recurrent:  # its states are not among the pages
        return lease_on(target, ids)
    with lease_on(source, ids) as held:
        lease = target.table.open(ids, key=target.key)
        try:
            lease.reserve(len(ids))
            target.settle(lease)
            first = lease.length // PAGE_TOKENS
            if lease.length < len(ids):
                for own, other in zip(lease.pages[first:], held.pages[first:], strict=True):
                    target.store.write_page(own, source.store.read_page(other))
                lease.extend(ids[lease.length :])
        except BaseException:
            lease.close()
            raise
    return lease


def seen_columns(mask: Any) -> npt.NDArray[np.bool_]:
    """What a mask does not hide: it is false there, or a number below 0 that is added to scores."""
    array = np.asarray(mask)
    return np.asarray(array >= 0 if array.dtype.kind == "f" else array.astype(bool))


def padding_of(mask: Any, rows: int, columns: int) -> list[int] | None:
    """How many columns on the left of each row a mask hides; None without a mask.

    `mask` is (rows, any number of columns): false or below 0 where a column is hidden. Columns after those of
    the mask are seen. Raises ValueError for other shapes and for hidden columns elsewhere.
    """
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.ndim != 2 or array.shape[0] != rows:
        raise ValueError(
            f"input_mask has the shape {array.shape}, but it must be a padding mask of {rows} rows, as "
            "tokenizer.padding_mask returns it"
        )
    seen = seen_columns(array)
    if (np.diff(seen.astype(np.int8), axis=1) < 0).any():
        raise ValueError("input_mask can only hide columns on the left of a row, where it is padded")
    pads = (~seen).sum(axis=1)
    if (pads > columns).any():
        raise ValueError(f"input_mask hides more than the {columns} columns that are there")
    return [int(pad) for pad in pads]
