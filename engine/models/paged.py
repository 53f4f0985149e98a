"""A model's cache as the generator uses it: key/value pages, their page table, and the recorded pass that fills them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.base import Floats, Step
from engine.cache.pages import Lease, PageTable
from engine.errors import BadSetting
from engine.settings import CacheSettings

if TYPE_CHECKING:
    from engine.models.base import Model
    from engine.models.config import ModelConfig

DEFAULT_CONTEXT = 8192
"""The longest context taken when none was chosen: key/value memory grows with it."""

MIN_ROWS, MAX_ROWS = 32, 512
STEP_FLOPS = 1.5e11
"""Work in one prefill step: about half a second on two cores, so that a stop is obeyed soon even with a large model."""


def prefill_rows(config: ModelConfig) -> int:
    """Rows of one prefill step: a power of two, fixed by the model's size so that results repeat exactly."""
    attention = 2 * (config.heads + config.kv_heads) * config.head_dim
    weights = config.layers * config.width * (attention + 3 * config.ffn_width)
    rows = MAX_ROWS
    while rows > MIN_ROWS and 2.0 * weights * rows > STEP_FLOPS:
        rows //= 2
    return rows


def chosen_context(settings: CacheSettings, model_length: int) -> int:
    """The context length in tokens; raises `BadSetting` for more than the model can address."""
    if settings.context_length > model_length:
        raise BadSetting(
            f"The context length is set to {settings.context_length} tokens, but this model sees at most {model_length}; "
            f"choose at most {model_length}, or 0 for automatic."
        )
    return settings.context_length or min(model_length, DEFAULT_CONTEXT)


class PagedCache:
    """Keys and values of one model for `context_length` positions. Used by one thread.

    Raises `BadSetting` for a context the model cannot address and `NotEnoughMemory` when the pages cannot be had.
    """

    def __init__(self, model: Model, settings: CacheSettings = CacheSettings()) -> None:
        self.model = model
        self.context_length = chosen_context(settings, model.config.context_length)
        self.store = model.new_cache(self.context_length, settings.dtype)
        self.table = PageTable(self.store.page_count)
        self.rows = min(prefill_rows(model.config), self.context_length)
        self.program = model.record(self.store, self.rows)

    def open(self, ids: Sequence[int]) -> Lease:
        """A lease on the longest cached prefix of `ids`, always leaving at least the last id to run."""
        return self.table.open(ids[:-1])

    def run(self, lease: Lease, ids: Sequence[int], logit_rows: int = 1) -> Floats:
        """Run at most `rows` further tokens of a lease: logits (logit_rows, V) float32 of the last rows, valid until the next run.

        Raises `ContextTooLong` when the pages are used up.
        """
        start = lease.length
        lease.reserve(start + len(ids))
        for source, target in lease.copies:
            self.store.copy_page(source, target)
        lease.copied()
        step = Step(
            token_ids=np.asarray(ids, dtype=np.int32),
            positions=np.arange(start, start + len(ids), dtype=np.int32),
            pages=np.asarray(lease.pages, dtype=np.int32),
            logit_rows=logit_rows,
        )
        logits = self.program.run(step)
        lease.extend(ids)
        return logits

    def close(self) -> None:
        """Release the program's threads and buffers; the cache cannot be used again."""
        self.program.close()
