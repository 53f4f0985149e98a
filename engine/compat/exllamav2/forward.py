"""One pass of `ExLlamaV2.forward`: what it is given, in the terms of the cache's rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from engine.compat.exllamav2.cache import CachedModel, ExLlamaV2Cache, ExLlamaV2CacheBase
from engine.compat.exllamav2.cache_rows import Columns, padding_of
from engine.compat.exllamav2.lora import adapters_of
from engine.drain import drain
from engine.generator.adapter_slot import AdapterSlot
from engine.tensors import Floats


@contextmanager
def borrowed(
    model: CachedModel, cache: ExLlamaV2CacheBase | None, rows: int, columns: int
) -> Iterator[ExLlamaV2CacheBase]:
    """The cache, or one just for this pass.

    Raises ValueError for a cache of another model and for more rows than the cache has.
    """
    if cache is None:
        own = ExLlamaV2Cache(model, batch_size=rows, max_seq_len=columns)
        try:
            yield own
        finally:
            own.close()
        return
    if not isinstance(cache, ExLlamaV2CacheBase) or cache.model is not model:
        raise ValueError("cache must be an ExLlamaV2Cache of this model")
    if rows > cache.batch_size:
        raise ValueError(f"input_ids have {rows} rows, but the cache was made for {cache.batch_size}")
    yield cache


def run_rows(
    cache: ExLlamaV2CacheBase, ids: Columns, padding: tuple[Any, Any], loras: Any, logits: str,
    stop: threading.Event | None,
) -> Floats | None:  # fmt: skip
    """Run `ids` (rows, n) after what the cache holds; the result is that of `CacheRows.run`.

    `padding` is (input_mask, position_offsets) of `ExLlamaV2.forward`, which says what is raised.
    """
    rows, adapters, slot = cache.writing_rows(), adapters_of(loras), AdapterSlot(cache.paged)
    if not slot.holds(adapters):
        if rows.columns:
            raise ValueError("the cache was written with other loras; call cache.reset() before a change")
        rows.close()
        drain(slot.apply(adapters))
    if rows.columns and len(rows.rows) != ids.shape[0]:
        raise ValueError(
            f"input_ids have {ids.shape[0]} rows, but the cache holds {len(rows.rows)}; call cache.reset() "
            "before a change"
        )
    mask, offsets = padding
    pads = padding_of(mask, ids.shape[0], rows.columns + ids.shape[1])
    known = [row.pad for row in rows.rows] if rows.columns else None
    hidden = [] if known is None or pads is None else _newly_hidden(pads, known, rows.columns)
    pads = pads or known or [0] * ids.shape[0]
    if offsets is not None and np.asarray(offsets).reshape(-1).tolist() != [-pad for pad in pads]:
        raise ValueError("position_offsets must be minus the number of hidden columns of each row")
    for row in hidden:
        rows.hide(row, pads[row])
    return rows.run(ids, pads, logits, stop)


def _newly_hidden(pads: Sequence[int], known: Sequence[int], columns: int) -> list[int]:
    """The rows of which a mask hides all `columns` that are in the cache, though they began before.

    Raises ValueError for a row of which it hides other columns than those that were hidden when it began.
    """
    found = [row for row, (pad, old) in enumerate(zip(pads, known, strict=True)) if pad != old]
    if any(pads[row] < columns for row in found):
        raise ValueError(
            f"input_mask hides {list(pads)} columns, but the cache was begun with {list(known)}; hide all "
            "columns that a row has in the cache, or the same ones"
        )
    return found


def run_apart(
    model: CachedModel, caches: Sequence[ExLlamaV2CacheBase], ids: Columns, loras: Any, logits: str,
    stop: threading.Event | None,
) -> Floats | None:  # fmt: skip
    """Run each row of `ids` (rows, n) after what the cache in its place holds, which has one row.

    The result is that of `CacheRows.run`: None, with the caches as they were, if `stop` is set. Raises what
    `run_rows` raises, and ValueError for another number of caches than rows and for one given twice.
    """
    if len(caches) != len(ids) or len({id(cache) for cache in caches}) < len(caches):
        raise ValueError(
            f"input_ids have {len(ids)} rows, but {len(caches)} caches of their own were given; give one to "
            "each row"
        )
    before, found = [cache.current_seq_len for cache in caches], []
    for cache, row in zip(caches, ids, strict=True):
        with borrowed(model, cache, 1, len(row)) as held:
            found.append(run_rows(held, row[None], (None, None), loras, logits, stop))
    if stop is not None and stop.is_set():
        for cache, length in zip(caches, before, strict=True):
            cache.current_seq_len = min(length, cache.current_seq_len)
    known = [each for each in found if each is not None]
    return np.concatenate(known) if len(known) == len(ids) else None
