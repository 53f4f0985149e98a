"""How much memory keys and values take: one calculation for the cache that is made and for the window that
asks before.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.kv_formats import bytes_per_position, cache_type
from engine.backends.main_memory import free_memory
from engine.core import PAGE_TOKENS, ModelInfo
from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.settings import CacheSettings
from engine.units import size_text
from engine.words import _, paragraph

DEFAULT_CONTEXT = 8192
"""The longest context taken when none was chosen: key/value memory grows with it."""
SPARE_PAGES = 2
"""Pages a cache has beyond the tokens asked for: copies for conversations that fork within a page."""
LEAST_STATES = 6
"""States of recurrent layers that any cache has: for two sequences at once."""
FURTHER_CONTEXTS, FREE_SHARE = 3, 8
"""The automatic room for conversations beyond one context: this many contexts at most, and this part of the
free memory (1/8).
"""
PICTURE_ROOM = 2
"""How many times the pictures that are looked at first a cache of what is seen of them has room for."""


@dataclass(frozen=True, slots=True)
class CacheEstimate:
    """What a model's cache will take.

    `context_bytes` is one context's share of the `total_bytes` that all conversations have; both count what
    layers of their own see of a picture.

    `free_bytes` are free now; the cache `fits` when that is enough. `sentence` says all this for display.
    Bytes are reserved, but taken by the system only as conversations fill them.
    """

    context_length: int
    bytes_per_token: float
    context_bytes: int
    total_bytes: int
    free_bytes: int
    fits: bool
    sentence: str


def chosen_context(settings: CacheSettings, model_length: int, advised: int = 0) -> int:
    """The context length in tokens: by default at most `advised`, where the model gets worse beyond.

    Raises `BadSetting` for more than the model can address.
    """
    if settings.context_length > model_length:
        raise BadSetting(
            _(
                "The context length is set to {context_length:,} tokens, but this model supports at "
                "most {model_length:,}; choose at most {model_length:,}, or 0 for automatic.",
                context_length=settings.context_length,
                model_length=model_length,
            )
        )
    return settings.context_length or min(model_length, advised or model_length, DEFAULT_CONTEXT)


def context_pages(tokens: int) -> int:
    """Pages of a cache for one context of `tokens`."""
    return -(-tokens // PAGE_TOKENS) + SPARE_PAGES


def further_pages(tokens: int, page_bytes: int, memory: int, free: int) -> int:
    """Pages beyond one context of `tokens`: what `memory` MiB hold, or for 0 a share of the `free` bytes."""
    needed = context_pages(tokens)
    most = FURTHER_CONTEXTS * (needed - SPARE_PAGES)
    if not page_bytes:  # a model without attention has pages for its tokens alone
        return most
    if memory:
        return max(0, memory * 2**20 // page_bytes - needed)
    return max(0, min(most, free // FREE_SHARE // page_bytes, free // page_bytes - needed))


def state_count(pages: int, state_bytes: int, free: int) -> int:
    """States of recurrent layers in a cache of this many pages: they are kept at ends of pages, so more pages
    are worth more of them, within a share of the `free` bytes.
    """
    if not state_bytes:
        return 0
    return max(LEAST_STATES, min(16 + pages // 16, free // FREE_SHARE // state_bytes))


def cache_bytes(
    info: ModelInfo,
    settings: CacheSettings,
    backend: str = "cpu",
    *,
    busy: int = 0,
    free: int | None = None,
    where: str = "",
) -> CacheEstimate:
    """What the cache of this model will take with these settings, as `PagedCache` will reserve it on a
    backend of this name.

    `free` bytes can be had (None: what the machine's memory has) `where` `Backend.where` says; `busy` of them
    are spoken for, as by weights still to be loaded. Raises `BadSetting` as `chosen_context`.
    """
    tokens = chosen_context(settings, info.context_length, info.advised_context)
    each = page_bytes(info.kv_shapes, cache_dtype(settings), backend, info.keys_alone)
    free = max(0, (free_memory() if free is None else free) - busy)
    needed = context_pages(tokens)
    pages = needed + further_pages(tokens, each, settings.memory, free)
    states = state_count(pages, info.state_bytes, free)
    beside = _picture_bytes(info, backend)
    alone = needed * each + min(states, LEAST_STATES) * info.state_bytes + beside
    total = pages * each + states * info.state_bytes + beside
    fits = total <= free
    text = _cache_words(tokens, alone, total, free_words(free, where))
    if not fits:
        advice = _(
            "That is not enough: choose a shorter context, a smaller cache type, or less memory for chats."
        )
        text = paragraph(text, advice)
    return CacheEstimate(tokens, each / PAGE_TOKENS, alone, total, free, fits, text)


def picture_pages(pages: int) -> int:
    """Pages of a cache of what layers see of pictures, when the first ones take this many: room for others,
    and the page of zeros that rows without a picture see.
    """
    return PICTURE_ROOM * pages + 1


def _picture_bytes(info: ModelInfo, backend: str) -> int:
    """What layers that look at pictures see of one of the largest, as `CrossCache` will reserve it."""
    if not info.picture_shapes:
        return 0
    pages = -(-info.picture_rows // PAGE_TOKENS)
    return picture_pages(pages) * page_bytes(info.picture_shapes, "auto", backend)


def _cache_words(tokens: int, alone: int, total: int, available: str) -> str:
    if total <= alone:
        return _(
            "A context of {tokens:,} tokens needs {size}; {available}.",
            tokens=tokens,
            size=size_text(alone),
            available=available,
        )
    return _(
        "A context of {tokens:,} tokens needs {size}, and up to {size_2} with the caches of other "
        "chats; {available}.",
        tokens=tokens,
        size=size_text(alone),
        size_2=size_text(total),
        available=available,
    )


def cache_dtype(settings: CacheSettings) -> str:
    """The cache type in one word, as backends understand it: "q8", or "q8/q4" for keys and values."""
    return settings.dtype if settings.value_dtype == "same" else f"{settings.dtype}/{settings.value_dtype}"


def page_bytes(shapes: Sequence[tuple[int, int]], dtype: str, backend: str, keys_alone: int = 0) -> int:
    """Bytes of one page of `PAGE_TOKENS` positions for a `cache_dtype`, in layers with these key/value heads
    and head dimensions: keys and values, of the last `keys_alone` layers keys.
    """
    both = len(shapes) - keys_alone
    parts = (shapes[:both], False), (shapes[both:], True)
    return sum(_page_bytes(each, dtype, backend, alone) for each, alone in parts)


def _page_bytes(shapes: Sequence[tuple[int, int]], dtype: str, backend: str, latent: bool) -> int:
    """The same in layers that all have keys alone, if `latent`, or none."""
    if backend == "reference":  # its keys and values are rounded to the type, but lie in whole numbers
        kind = cache_type(dtype, automatic="fp32")
        kinds = (kind.keys,) if latent else (kind.keys, kind.values)
        each = sum(2 if name == "fp16" else 4 for name in kinds)
        return PAGE_TOKENS * each * sum(heads * dim for heads, dim in shapes)
    kind = cache_type(dtype, automatic="fp16")
    if backend == "torch":  # see `engine.backends.cuda.proof.torch_program`
        each = 4 if (kind.keys, kind.values) == ("fp32", "fp32") else 2
        each *= 1 if latent else 2
        return PAGE_TOKENS * each * sum(heads * dim for heads, dim in shapes)
    if backend == "cuda":
        from engine.backends.cuda import kv_cache

        return sum(kv_cache.page_bytes(kind, *shape, latent) for shape in shapes)
    return PAGE_TOKENS * sum(bytes_per_position(kind, *shape, latent) for shape in shapes)


def free_words(free: int, where: str) -> str:
    """For example "2.5 GB of memory are free", or where that is not the machine's own "139 GB are free on
    NVIDIA H200".
    """
    return (
        _("{size} are free on {where}", size=size_text(free), where=where)
        if where
        else _("{size} of memory are free", size=size_text(free))
    )
