"""Small-batch attention: which kernels compute it, and their calls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from engine.backends.base import AttentionShape
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.attention import combine as attention_combine
from engine.backends.cuda.kernels.attention import mma, relative, stage, wide
from engine.backends.cuda.kernels.attention import plain as attention_plain
from engine.backends.cuda.kernels.attention.kv_read import OCTET_BYTES, reading
from engine.backends.cuda.kernels.attention.parts import HEAD
from engine.backends.cuda.kernels.common import hadamard
from engine.backends.cuda.kernels.packed_activations import COLUMNS
from engine.backends.cuda.kernels.packed_activations_write import output_arguments
from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout, touched
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import GROUP, QUANTISED, CacheType
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats

MOST_SPLITS = 64
PARAMETERS = "llllllllll" + "ii" + "ff" + "ii"
"""The signature of all forms of the first kernel."""
WIDE = 256
"""The largest head dimension of `mma`."""


def splits_for(kv_heads: int, sm_count: int) -> int:
    """Blocks for the positions of a key/value head: a power of two, about two blocks a multiprocessor."""
    most, splits = 2 * sm_count // kv_heads, 1
    while 2 * splits <= min(most, MOST_SPLITS):
        splits *= 2
    return splits


@dataclass(frozen=True)
class Form:
    """What kernels of one head dimension differ in: `latent`, `alibi` (see `parts`), `chunked`, and the
    `extent` of a `RelativeBias`, 0 for none.
    """

    head_dim: int
    latent: int = 0
    alibi: int = 0
    chunked: bool = False
    extent: int = 0

    @property
    def value_dim(self) -> int:
        """Columns of a value."""
        return self.latent or self.head_dim

    @property
    def suffix(self) -> str:
        """The end of kernels' names."""
        latent = f"_latent_{self.latent}" if self.latent else ""
        relative = f"_relative_{self.extent}" if self.extent else ""
        alibi = ("", "_alibi", "_alibi_rounded")[self.alibi]
        return f"{latent}{alibi}{'_chunked' * self.chunked}{relative}"

    def sides(self, kind: CacheType) -> tuple[Layout, Layout]:
        """The layouts of keys and values, which are the same in latent attention."""
        keys = Layout(KEYS, kind.keys, self.head_dim)
        return keys, keys if self.latent else Layout(VALUES, kind.values, self.head_dim)

    def constants(self, kind: CacheType, several: bool) -> dict[str, Any]:
        """Those that all kernels have."""
        keys, values = self.sides(kind)
        added = {"slope_of": relative.biases_of, "leaning": relative.added, "EXTENT": self.extent}
        return {
            "D": self.head_dim,
            "GROUPS": keys.groups,
            "HADAMARD": int(keys.name in QUANTISED),
            "SEVERAL": int(several),
            "ALIBI": self.alibi,
            "CHUNKED": int(self.chunked),
            "KEYS": keys.name,
            "VALUES": values.name,
            "LATENT": self.latent,
            **reading(keys, "K_"),
            **reading(values, "V_"),
            **(added if self.extent else {}),
        }


def form_of(shape: AttentionShape, extent: int = 0) -> Form:
    """The form of a layer's attention; `extent` is that of its `RelativeBias`."""
    assert not (shape.slopes and (shape.soft_cap or extent))
    assert not (shape.latent and extent)
    alibi = 0 if not shape.slopes else 2 if shape.rounded_slopes else 1
    return Form(shape.head_dim, shape.latent, alibi, shape.chunked, extent)


def takes_mma(kind: CacheType, head_dim: int) -> bool:
    """Whether tensor cores read these formats: each octet must be aligned for one load."""
    plain = any(name not in QUANTISED for name in (kind.keys, kind.values))
    return kind.keys in OCTET_BYTES and kind.values in OCTET_BYTES and (not plain or head_dim % 8 == 0)


@cache
def kernel_for(kind: CacheType, form: Form, several: bool = False) -> Kernel:
    """The first of the two kernels, `mma._attend`, `wide._attend_wide` or `plain._attend_plain`.

    `several` is for steps over several sequences, where a block first has to find its run: the registers that
    this takes would be missed in steps over one.
    """
    if form.latent:
        kind = CacheType(kind.keys, kind.keys)
    is_wide = bool(form.latent) or form.head_dim > WIDE
    if not takes_mma(kind, form.head_dim) or (is_wide and (form.alibi or form.extent)):
        return _plain_kernel(kind, form, several)
    if is_wide:
        return _wide_kernel(kind, form, several)
    groups = -(-form.head_dim // GROUP)
    blocks = -(-groups // 2)
    outputs = 4 * 8 * 64 * blocks
    constants = {
        **form.constants(kind, several),
        "DP": GROUP * groups,
        "COLUMNS": stage.COLUMNS,
        "KEPT_FIRST": int("q4" in (kind.keys, kind.values)),
        "VBLOCKS": blocks,
        "KP": -(-groups // (-(-groups // 4))),  # octets of a position in registers at once
        "VP": -(-blocks // (-(-blocks // 2))),
        "FRAGMENTS": outputs,
        "STATE": outputs + 1024 * groups,
        "SHARED": outputs + 1024 * groups + 64 * stage.WARPS,
    }
    name = f"attend_{kind.keys}_{kind.values}_{form.head_dim}{form.suffix}{'_runs' * several}"
    few = form.head_dim <= 64
    registers = 168 if few else 255 if form.head_dim > 128 else 216 if form.extent else 208
    return Kernel(name, mma._attend, PARAMETERS, stage.THREADS, registers, constants, blocks=3 if few else 2)


def _wide_kernel(kind: CacheType, form: Form, several: bool) -> Kernel:
    groups, value_groups = -(-form.head_dim // GROUP), -(-form.value_dim // GROUP)
    own, blocks = -(-groups // stage.WARPS), -(-value_groups // 2)
    exchange = max(4 * stage.COLUMNS * GROUP * groups, 2 * wide.HALF)
    state = exchange + 1024 * stage.WARPS * own
    constants = {
        **form.constants(kind, several),
        "DP": GROUP * groups,
        "VDP": GROUP * value_groups,
        "COLUMNS": stage.COLUMNS,
        "KEPT_FIRST": int("q4" in (kind.keys, kind.values)),
        "VALUE_MEANS": int(form.latent > 0 and kind.keys == "q4"),
        "OWN_GROUPS": own,
        "OWN_BLOCKS": -(-blocks // stage.WARPS),
        "FRAGMENTS": exchange,
        "STATE": state,
        "SHARED": state + 64,
    }
    name = f"attend_wide_{kind.keys}_{kind.values}_{form.head_dim}{form.suffix}{'_runs' * several}"
    return Kernel(name, wide._attend_wide, PARAMETERS, stage.THREADS, 255, constants, blocks=2)


def _plain_kernel(kind: CacheType, form: Form, several: bool) -> Kernel:
    groups, value_groups = -(-form.head_dim // GROUP), -(-form.value_dim // GROUP)
    constants = {
        **form.constants(kind, several),
        "DP": GROUP * value_groups,
        "VGROUPS": value_groups,
        "COLUMNS": attention_plain.COLUMNS if form.head_dim <= WIDE else 1,
        "AT_ONCE": max(1, 16 // groups) if groups > 4 else 4,
        "Q_transform": hadamard if kind.keys in QUANTISED else attention_plain.no_transform,
    }
    name = f"attend_plain_{kind.keys}_{kind.values}_{form.head_dim}{form.suffix}{'_runs' * several}"
    return Kernel(name, attention_plain._attend_plain, PARAMETERS, attention_plain.THREADS, 255, constants)


@cache
def combine_kernel(
    value_dim: int, transformed: bool, floats: bool, form: str, chunked: bool = False, whole: bool = False,
    row_sinks: bool = False,
) -> Kernel:  # fmt: skip
    """The kernel `combine._combine`. `form` is the form of packed activations, or "" for none."""
    groups = -(-value_dim // GROUP)
    # Whole blocks of packed activations, or whole vectors, for any head dimension.
    heads = math.lcm(value_dim, COLUMNS if form else 4) // value_dim
    constants = {
        "D": value_dim,
        "GROUPS": groups,
        "DP": GROUP * groups,
        "HEADS": heads,
        "ITEMS": heads * groups,
        "WIDTH": heads * value_dim,
        "HADAMARD": int(transformed),
        "FLOATS": int(floats),
        "FORM": form,
        "CHUNKED": int(chunked),
        "WHOLE": int(whole),
        "ROW_SINKS": int(row_sinks),
    }
    name = (
        f"combine_{value_dim}{'_hadamard' * transformed}{'_floats' * floats}{'_' * bool(form)}{form}"
        f"{'_chunked' * chunked}{'_whole' * whole}{'_row_sinks' * row_sinks}"
    )
    min_capability = 80 if form == "bf16x2" else 75
    return Kernel(
        name,
        attention_combine._combine,
        "llllllll" + "iii",
        attention_combine.THREADS,
        80 if value_dim <= WIDE else 96,
        constants,
        min_capability=min_capability,
    )


def attention_calls(
    kind: CacheType,
    addresses: tuple[int, int],
    q: Buffer,
    y: Buffer,
    packed: tuple[str, Buffer] | None,
    shape: AttentionShape,
    sinks: int | Buffer,
    sm_count: int,
    floats: bool = True,
    slopes: int = 0,
    biases: tuple[Buffer, int] | None = None,
) -> tuple[Call, Call]:
    """Attention of q (T, H * D), at most `SMALL_BATCH` rows, over a layer's keys and values at `addresses`.

    The rows' own keys and values must be written. The result goes to y (T, H * D) float32 with `floats`, and
    to `packed`, a kind of packed activations and its buffer. `sinks` is the address of H float32, or 0, or
    those of each row (T, H); `slopes` is the address of `slope_pairs`; `biases` is what
    `relative.biases_call` makes, and its extent. `sm_count` is the device's number of multiprocessors. The
    buffer between the two calls has `partial_numbers` float32 a row.
    """
    added, extent = biases if biases is not None else (None, 0)
    groups, form = shape.kv_heads, form_of(shape, extent)
    ratio, splits = shape.heads // groups, splits_for(groups, sm_count)
    partial = Buffer(partial_numbers(shape, sm_count), q.on_logit_rows, q.copies)
    columns = kernel_for(kind, form).constants["COLUMNS"]
    row_shift = (-(-ratio // columns) - 1).bit_length()

    def attend(several: bool) -> Call:
        def blocks(rows: int) -> tuple[int, int, int]:
            return splits, groups, rows << row_shift if several else -(-rows * ratio // columns)

        lean = slopes if added is None else added
        given = (Runtime.POSITIONS, Runtime.PAGES, Runtime.RUNS, lean, Runtime.ROWS)
        numbers = (ratio, shape.scale, shape.soft_cap, shape.window, row_shift)
        return Call(
            kernel_for(kind, form, several),
            blocks,
            (*addresses, q, q.stride, partial, partial.stride, *given, *numbers),
            (q, *touched(addresses), *(() if added is None else (added,))),
            (partial,),
        )

    combined = combine_call(kind, partial, y if floats else None, packed, shape, sinks, splits)
    return replace(attend(False), several=attend(True)), combined


def combine_call(
    kind: CacheType, partial: Buffer, y: Buffer | None, packed: tuple[str, Buffer] | None,
    shape: AttentionShape, sinks: int | Buffer, splits: int, whole: bool = False,
) -> Call:  # fmt: skip
    """The second call, over the results of the first; `whole` as `combine.WHOLE`."""
    own = (sinks,) if isinstance(sinks, Buffer) else ()
    transformed = (kind.keys if shape.latent else kind.values) in QUANTISED
    name, target = packed if packed is not None else ("none", None)
    combine = combine_kernel(
        shape.value_dim, transformed, y is not None, "" if packed is None else name, shape.chunked, whole,
        bool(own),
    )  # fmt: skip
    blocks = -(-shape.heads // combine.constants["HEADS"])
    targets, written = output_arguments(name, y, target)
    last = (sinks, Runtime.POSITIONS, shape.heads, splits, shape.window)
    arguments = (partial, partial.stride, *targets, *last)
    return Call(combine, lambda rows: (blocks, rows, 1), arguments, (partial, *own), written)


@cache
def slope_pairs(shape: AttentionShape) -> Floats | None:
    """float32 (H, 2), as `parts.slope_of` reads them; None without ALiBi."""
    if not shape.slopes:
        return None
    return np.array([(slope, shape.rounded_slopes) for slope in shape.slopes], np.float32)


def partial_numbers(shape: AttentionShape, sm_count: int) -> int:
    """float32 numbers of a row's partial results: an output of each head in each split."""
    return split_numbers(shape, splits_for(shape.kv_heads, sm_count))


def split_numbers(shape: AttentionShape, splits: int) -> int:
    """The same of this many splits."""
    return shape.heads * splits * (-(-shape.value_dim // GROUP) * GROUP + HEAD)


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    for keys, values, dim in (
        ("fp16", "fp16", 64),
        ("fp16", "fp16", 128),
        ("fp16", "fp16", 256),
        ("q8", "q8", 128),
        ("q8", "q4", 128),
        ("q4", "q4", 128),
        ("fp8", "fp8", 80),
        ("fp32", "fp32", 128),
    ):
        for several in (False, True):
            yield kernel_for(CacheType(keys, values), Form(dim), several)
    for form in (Form(512), Form(576, 512)):  # Gemma 4, DeepSeek
        yield kernel_for(CacheType("fp16", "fp16"), form)
    for extent in (512, 1024):  # Inkling
        for several in (False, True):
            yield kernel_for(CacheType("fp16", "fp16"), Form(128, extent=extent), several)
    for dim, transformed, floats, packed in (
        (64, False, True, ""),
        (128, False, False, "fp16"),
        (80, False, True, "bf16x2"),
        (128, True, True, "fp16"),
        (512, False, True, ""),
    ):
        yield combine_kernel(dim, transformed, floats, packed)
    yield combine_kernel(128, False, True, "", row_sinks=True)  # Inkling 2
