"""Attention over the paged KV cache, read in place: causal, or over a whole text at once.

Layout of one layer: P pages of 256 positions, G key/value heads, head dimension D. In q8 and q4 a *group* is
32 Hadamard-transformed dimensions; there are Q = D / 32 groups, rounded up.
keys    plain (P, G, 16, D, 16): 16 neighbouring positions are the lanes, so scores need no horizontal sum;
        q8, q4 (P, G, 16, Q) blocks of 16 fp16 scales and 32 rows (q4: 16) of 16 code bytes, a position a lane
values  plain (P, G, 256, D rounded up to 16): dimensions are the lanes;
        q8, q4 (P, G, Q) blocks of 256 fp16 scales and 256 rows of 32 (q4: 16) code bytes
In q4 each page and head begins with vectors of 32 Q float32, padded together to a multiple of 256 bytes: for
keys the mean that was subtracted and the sequence's first key, for values the first value. The first key and
value are used in a sequence's first page only.

If keys are transformed, queries are transformed once; the sum of transformed values is transformed back once.
Codes become float32 in registers; plain numbers, too, or for many queries once for all of them. Softmax runs
page by page with a running maximum (FlashAttention, arXiv 2205.14135). In a small batch the pages of each run
are divided by their numbers among `SPLITS` tiles, whose partial results `combine` joins (flash-decoding), and
each row is summed in the same order whatever the other rows and runs are; a large batch, which is one run,
takes `SMALL_BATCH` rows a tile. Pages before the first row's window are skipped, and each row masks what lies
before its own window. Sinks are added to the sums at the end. One kernel multiplies pairs of int16 in large
batches (`pairs.py`).

Latent attention has one key head and no values: a page's keys are unpacked to float32 values (`latent.py`).
The query heads are divided among tiles as if there were several key heads. Keys `beside` those of the window
(`Ops.attention`) are looked at after these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_i32, ld_i64, st_i64
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.attention.arguments import (
    A_AHEAD,
    A_BESIDE,
    A_DIM,
    A_HEADS,
    A_K,
    A_KEY_PAGE,
    A_KV_HEADS,
    A_OUT_WIDTH,
    A_PARTIAL,
    A_Q_WIDTH,
    A_STEP,
    A_V,
    A_VALUE_DIM,
    A_VALUE_PAGE,
    A_WINDOW,
    EDGE,
)
from engine.backends.cpu.kernels.attention.combine import SCRATCH, SPLITS, keep_partial_template
from engine.backends.cpu.kernels.attention.ends import begin_template, write_out_template
from engine.backends.cpu.kernels.attention.latent import unpack_kernel
from engine.backends.cpu.kernels.attention.pairs import pair_functions, room_bytes
from engine.backends.cpu.kernels.attention.products import attention_products
from engine.backends.cpu.kernels.attention.tiles import FP8_FACTOR, LINE, ask_for_all
from engine.backends.cpu.kernels.attention.weigh import weigh_functions
from engine.backends.cpu.kernels.kv_write.tiles import hadamard
from engine.backends.cpu.runtime.step_block import (
    POSITIONS,
    ROWS,
    RUN_FIRST,
    RUN_PAGES,
    RUN_ROWS,
    RUN_TABLE,
    RUN_WORDS,
    RUNS,
    SMALL_BATCH,
)
from engine.backends.kv_formats import GROUP, QUANTISED, CacheType
from engine.core import PAGE_TOKENS
from engine.tensors import Floats

SPREAD = 7
"""A tile's split of the next run is so much further on: short sequences, whose pages are all in the first
splits, go to different tiles, every other one to the other half of them, where another thread begins.
"""

PREFETCHED = 16
"""Where scratch memory has the address of the keys that the thread's last page prefetched."""

HEADS_OF_TILE = 12
"""Query heads of a tile of latent attention: enough to share a page's unpacked values, and few enough that
short conversations give work to several threads.
"""

NO_WINDOW = 1 << 40
"""Further back than any position, so that layers without a window run the same code."""


def padded(dim: int, to: int = 16) -> int:
    """The head dimension rounded up to a multiple of `to`."""
    return -(-dim // to) * to


def widths(kind: CacheType, dim: int, value_dim: int) -> tuple[int, int]:
    """Float32 values of a query and of an output in scratch memory."""
    return padded(dim, GROUP) if kind.keys in QUANTISED else dim, padded(
        value_dim, GROUP if kind.values in QUANTISED else 16
    )


def scratch_bytes(heads: int, kv_heads: int, dim: int, latent: int = 0) -> int:
    """Scratch bytes of a thread: queries, a page's scores and scaled weights, outputs, maxima and sums; then,
    in one place, latent attention's values of a page, what `room_bytes` says of pairs, and strips of
    `VECTORS` vectors as float32, which take less than pairs.
    """
    queries = SMALL_BATCH * (heads // kv_heads)
    values = max(4 * PAGE_TOKENS * padded(latent, GROUP), room_bytes(queries, padded(dim), padded(dim)))
    return SCRATCH + 4 * queries * (2 * padded(dim, GROUP) + 2 * PAGE_TOKENS + 2) + 256 + values


def distance_table(distances: Floats) -> Floats:
    """`distances` (H, 2 M + 1) of `Ops.attention` as the kernel reads them, (H, 2 (M + EDGE)): number
    M + EDGE of a row is that of the query's own position.
    """
    return np.pad(distances, ((0, 0), (EDGE, EDGE - 1)), mode="edge")


def profile_table(profiles: Floats) -> Floats:
    """The `profiles` (R, extent) of a `RelativeBias` as the kernel reads them, (R, extent + 2 EDGE): from the
    furthest distance to 0, between zeros.
    """
    return np.pad(profiles[:, ::-1], ((0, 0), (EDGE, EDGE)))


def head_groups(heads: int) -> int:
    """The key heads that latent attention's tiles see: as few as leave at most `HEADS_OF_TILE` for each."""
    return next(
        groups for groups in range(1, heads + 1) if heads % groups == 0 and heads <= HEADS_OF_TILE * groups
    )


def partial_bytes(heads: int, kv_heads: int, dim: int) -> int:
    """Bytes of the partial results: (maximum, sum, output) of all rows for each split and query head."""
    return SPLITS * kv_heads * SMALL_BATCH * (heads // kv_heads) * 4 * (2 + padded(dim))


# Filled in for each cache type by `attention_kernel`.
attend: Any = None
scores_of: Any = None
mix: Any = None
seen_from: Any = None
last_seen: Any = None
begin: Any = None
keep_partial: Any = None
write_out: Any = None
unpack: Any = None
over_pages: Any = None
sees_page: Any = None
compiled_split_of: Any = None
first_page: Any = None
keys_of: Any = None
upcoming: Any = None
weigh_all: Any = None
pack_queries: Any = None
pair_scores: Any = None
pair_mix: Any = None
HADAMARD_KEYS = HADAMARD_VALUES = LATENT = PAIRS = False
KEY_FACTOR = VALUE_FACTOR = ONE = np.float32(1)


def _attention_template(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile: the query heads of one key/value head, with one split of each run's pages (small batch) or
    for `SMALL_BATCH` rows (large batch): softmax(scale q k^T) v.
    """
    step += ld_i64(args + 8 * A_STEP)
    if ld_i64(step + 8 * ROWS) > SMALL_BATCH:
        attend(args, step, tile, -1, scratch)
    else:
        for r in range(ld_i64(step + 8 * RUNS)):
            attend(args, step, tile, r, scratch)


def split_of(part: int, run: int) -> int:
    """The split of a run's pages that is part number `part` of a head's tiles: the bits in reverse order, so
    that two, four or eight threads, which begin with neighbouring tiles, have equally many pages.
    """
    n = (part + SPREAD * run) % SPLITS
    return (n & 1) << 3 | (n & 2) << 1 | (n & 4) >> 1 | n >> 3


def _first_page_template(args: int, step: int, first_row: int, split: int) -> int:
    """The first page of a split that the run of `first_row` looks at; of all pages if it is -1."""
    position = ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * first_row)
    first: int = seen_from(position, ld_i64(args + 8 * A_WINDOW)) // PAGE_TOKENS
    return first if split < 0 else first + (split - first) % SPLITS


def _keys_of(args: int, run: int, j: int, g: int) -> int:
    """Address of the keys of head `g` in a run's page j."""
    place = ld_i32(ld_i64(run + 8 * RUN_PAGES) + 4 * j) * ld_i64(args + 8 * A_KV_HEADS) + g
    address: int = ld_i64(args + 8 * A_K) + place * ld_i64(args + 8 * A_KEY_PAGE)
    return address


def _upcoming_template(args: int, step: int, tile: int, r: int) -> int:
    """Address of the first keys that follow those of run `r` of a small batch in a tile: the next run's, or
    the next tile's; 0 if it has none.
    """
    r, groups = r + 1, ld_i64(args + 8 * A_KV_HEADS)
    if r == ld_i64(step + 8 * RUNS):
        r, tile = 0, tile + 1
    if tile == groups * SPLITS:
        return 0
    run = step + 8 * (RUN_TABLE + RUN_WORDS * r)
    first_row = ld_i64(run + 8 * RUN_FIRST)
    last_row = first_row + ld_i64(run + 8 * RUN_ROWS) - 1
    first = first_page(args, step, first_row, compiled_split_of(tile // groups, r))
    if first > last_seen(step, run, last_row, ld_i64(args + 8 * A_AHEAD)) // PAGE_TOKENS:
        return 0
    address: int = keys_of(args, run, first, tile % groups)
    return address


def _attend_template(args: int, step: int, tile: int, r: int, scratch: int) -> None:
    """Attention of the query heads of a tile's key/value head: for the rows of run `r` of a small batch, over
    the pages of a split, into the partial results; for `SMALL_BATCH` rows of a large one (-1), over all.
    """
    groups, short, beside = ld_i64(args + 8 * A_KV_HEADS), r >= 0, ld_i64(args + 8 * A_BESIDE)
    g, part, run = tile % groups, tile // groups, step + 8 * (RUN_TABLE + RUN_WORDS * max(r, 0))
    first_row, here, split = ld_i64(run + 8 * RUN_FIRST), ld_i64(run + 8 * RUN_ROWS), -1
    if short:
        split = compiled_split_of(part, r)
    else:
        first_row = part * SMALL_BATCH
        here = min(SMALL_BATCH, ld_i64(step + 8 * ROWS) - first_row)
    positions = ld_i64(step + 8 * POSITIONS) + 4 * first_row
    last = last_seen(step, run, first_row + here - 1, ld_i64(args + 8 * A_AHEAD))
    first = first_page(args, step, first_row, split)
    following = (split if short else 0) if beside else last
    if min(first, following) > last // PAGE_TOKENS:
        return
    after = upcoming(args, step, tile, r) if short else keys_of(args, run, first, min(g + 1, groups - 1))
    ratio = ld_i64(args + 8 * A_HEADS) // groups
    q_width, width = ld_i64(args + 8 * A_Q_WIDTH), ld_i64(args + 8 * A_OUT_WIDTH)
    queries, q = here * ratio, scratch + SCRATCH
    out = q + 4 * SMALL_BATCH * ratio * (q_width + 2 * PAGE_TOKENS)
    state = out + 4 * SMALL_BATCH * ratio * width
    begin(args, g, first_row, queries, q, out, state)
    packed = 0
    if PAIRS and not short and ld_i64(args + 8 * A_DIM) % 16 == 0:
        packed = (state + 8 * SMALL_BATCH * ratio + LINE - 1) // LINE * LINE
        pack_queries(q, q_width, queries, ld_i64(args + 8 * A_DIM), packed)
    if HADAMARD_KEYS:
        hadamard(q, queries * (q_width // GROUP))
    jump = SPLITS if short else 1
    over_pages(args, run, g, first_row, here, first, last, jump, positions, 0, after, packed, scratch)
    if beside:
        over_pages(args, run, g, first_row, here, following, last, jump, positions, 1, after, packed, scratch)
    if HADAMARD_VALUES:
        hadamard(out, queries * (width // GROUP))
    if short:
        narrow = (ld_i64(args + 8 * A_VALUE_DIM) + 15) // 16 * 16
        place = SMALL_BATCH * (split * groups + g) + first_row
        target = ld_i64(args + 8 * A_PARTIAL) + 4 * (2 + narrow) * ratio * place
        keep_partial(queries, width, narrow, state, out, target)
    else:
        write_out(args, g, first_row, queries, state, out)


def _over_pages_template(
    args: int, run: int, g: int, first_row: int, here: int, first: int, last: int, jump: int, positions: int,
    beside: int, after: int, packed: int, scratch: int,
) -> None:  # fmt: skip
    """Add every `jump`-th page from `first` on to the outputs and sums of `attend`: of the layer's own keys,
    or of those `beside`. Each page prefetches the next one, the last one the keys at `after` (0: none).
    Queries may be `packed` in pairs (0: not).
    """
    groups, dim, pages = ld_i64(args + 8 * A_KV_HEADS), ld_i64(args + 8 * A_DIM), ld_i64(run + 8 * RUN_PAGES)
    ratio = ld_i64(args + 8 * A_HEADS) // groups
    q_width, width = ld_i64(args + 8 * A_Q_WIDTH), ld_i64(args + 8 * A_OUT_WIDTH)
    queries, q = here * ratio, scratch + SCRATCH
    scores = q + 4 * SMALL_BATCH * ratio * q_width
    spare = scores + 4 * SMALL_BATCH * ratio * PAGE_TOKENS
    out = spare + 4 * SMALL_BATCH * ratio * PAGE_TOKENS
    state = out + 4 * SMALL_BATCH * ratio * width
    panel = state + 8 * SMALL_BATCH * ratio
    room = packed + SMALL_BATCH * ratio * (2 * dim + LINE) + LINE
    keys = ld_i64(args + 8 * (A_BESIDE if beside else A_K))
    for j in range(first, last // PAGE_TOKENS + 1, jump):
        place = ld_i32(pages + 4 * j) if LATENT else ld_i32(pages + 4 * j) * groups + g
        start = j * PAGE_TOKENS
        if not sees_page(args, g, first_row, here, start, beside):
            continue
        filled = min(PAGE_TOKENS, last - start + 1)
        vectors = (filled + 15) // 16
        page = keys + place * ld_i64(args + 8 * A_KEY_PAGE)
        values = page if LATENT else ld_i64(args + 8 * A_V) + place * ld_i64(args + 8 * A_VALUE_PAGE)
        if not LATENT and page != ld_i64(scratch + PREFETCHED):
            ask_for_all(page, ld_i64(args + 8 * A_KEY_PAGE) * vectors // (16 * LINE))
        if PAIRS and packed:
            pair_scores(page, vectors, packed, queries, dim, scores, room)
        else:
            scores_of(page, j, vectors, q, q_width, queries, dim, scores, values, panel)
        weigh_all(args, g, first_row, queries, positions, last, start, beside, scores, out, state)
        if PAIRS and packed:
            pair_mix(values, filled, scores, queries, width, spare, out, room)
        elif LATENT:
            unpack(page, j, vectors, dim, q_width, width, panel)
            mix(panel, j, filled, scores, queries, width, spare, out, panel, 0)
        else:
            ahead = after if after else page
            if j + jump <= last // PAGE_TOKENS:
                ahead = keys + (ld_i32(pages + 4 * (j + jump)) * groups + g) * ld_i64(args + 8 * A_KEY_PAGE)
            st_i64(scratch + PREFETCHED, ahead)
            mix(values, j, filled, scores, queries, width, spare, out, ahead, panel)


def _last_seen(step: int, run: int, row: int, beyond: int) -> int:
    """The last position that a row of a run sees, `beyond` its own if the run has as many."""
    positions = ld_i64(step + 8 * POSITIONS)
    end = ld_i64(run + 8 * RUN_FIRST) + ld_i64(run + 8 * RUN_ROWS) - 1
    last: int = min(ld_i32(positions + 4 * row) + beyond, ld_i32(positions + 4 * end))
    return last


def attention_kernel(
    kind: CacheType, jit: Jit, latent: bool = False, relative: bool = False, pairs: bool = False
) -> Any:
    """The attention kernel for a cache type, of which `latent` attention has keys alone; if `relative`, the
    one that adds a `RelativeBias`; if `pairs`, the one that multiplies pairs of int16 in large batches.
    `jit(function, signature)` compiles its parts.
    """
    factors = [np.float32(FP8_FACTOR if name == "fp8" else 1) for name in (kind.keys, kind.values)]
    parts = {
        "last_seen": jit(_last_seen, types.int64(*(types.int64,) * 4)),
        **attention_products(CacheType(kind.keys, "fp32") if latent else kind, jit),
        "begin": jit(specialise(begin_template, f"begin_{kind.keys}", KEY_FACTOR=factors[0]), words(7)),
        **weigh_functions(jit, relative),
        "keep_partial": jit(
            specialise(keep_partial_template, f"keep_partial_{kind.values}", VALUE_FACTOR=factors[1]),
            words(6),
        ),
        "write_out": jit(
            specialise(write_out_template, f"write_out_{kind.values}", VALUE_FACTOR=factors[1]), words(6)
        ),
    }
    if pairs:
        parts |= pair_functions(jit)
    if latent:
        parts["unpack"] = jit(unpack_kernel(kind.keys), words(7))
    parts["compiled_split_of"] = jit(split_of, types.int64(types.int64, types.int64))
    parts["keys_of"] = jit(_keys_of, types.int64(*(types.int64,) * 4))
    for name, template in (("first_page", _first_page_template), ("upcoming", _upcoming_template)):
        parts[name] = jit(specialise(template, name, **parts), types.int64(*(types.int64,) * 4))
    constants = {
        "HADAMARD_KEYS": kind.keys in QUANTISED, "HADAMARD_VALUES": kind.values in QUANTISED,
        "LATENT": latent, "PAIRS": pairs,
    }  # fmt: skip
    label = f"latent_{kind.keys}" if latent else f"{kind.keys}_{kind.values}"
    label = f"relative_{label}" if relative else f"pairs_{label}" if pairs else label
    pages = specialise(_over_pages_template, f"over_pages_{label}", **parts, **constants)
    parts["over_pages"] = jit(pages, words(13))
    attend = specialise(_attend_template, f"attend_{label}", **parts, **constants)
    parts["attend"] = jit(attend, words(5))
    return specialise(_attention_template, f"attention_{label}", **parts)
