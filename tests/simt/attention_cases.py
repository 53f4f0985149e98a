"""Cases of attention: a store of keys and values of any format, queries, and what the reference backend makes
of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from engine.backends.base import AttentionShape, Step
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.attention.attention import combine_kernel, form_of, kernel_for, slope_pairs
from engine.backends.cuda.kernels.attention.relative import biases_call
from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import QUANTISED, CacheType
from engine.backends.kv_rounding import inverse_hadamard
from engine.backends.reference.backend import ReferenceOps
from engine.backends.reference.kv_cache import ReferenceCache
from engine.backends.relative import RelativeBias
from tests.simt.agree import At, aligned
from tests.simt.interpreter import Memory
from tests.simt.models import run_model
from tests.simt.models.attention import page_numbers
from tests.simt.played import laid_out


@dataclass
class Case:
    """A store filled with arbitrary numbers up to the last of `rows` rows from `start` on, and queries."""

    kind: CacheType
    shape: AttentionShape
    start: int
    rows: int
    splits: int
    sinks: bool = False
    profiles: tuple[int, int] = (0, 0)
    """How many there are of a `RelativeBias`, and its extent."""
    row_sinks: bool = False
    """Whether each row has its own, beside such a bias."""

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.start + self.rows)
        self.length = self.start + self.rows
        pages = -(-self.length // 256)
        order = rng.permutation(pages)
        window = self.shape.window
        first = 0 if not window else self.start - (self.start % window if self.shape.chunked else window - 1)
        self.table = np.array(
            [p if 256 * (j + 1) > first else 1 << 24 for j, p in enumerate(order)], np.int32
        )
        self.sides = [
            Layout(side, name, self.shape.head_dim)
            for side, name in ((KEYS, self.kind.keys), (VALUES, self.kind.values))
        ][: 1 if self.shape.latent else 2]
        self.stores = []
        for layout in self.sides:
            # not a number, where nothing is written
            store = np.full((pages, self.shape.kv_heads, layout.block), 0xFF, np.uint8)
            for j, page in enumerate(order):
                for head in range(self.shape.kv_heads):
                    fill(store[page, head], layout, min(256, self.length - 256 * j), rng)
            self.stores.append(store)
        self.order = order
        self.positions = np.arange(self.start, self.length, dtype=np.int32)
        width = self.shape.heads * self.shape.head_dim
        self.q = rng.standard_normal((self.rows, -(-width // 16) * 16)).astype(np.float32) * 2
        self.sink = rng.standard_normal(self.shape.heads).astype(np.float32)
        if self.row_sinks:
            own = np.random.default_rng(self.start).standard_normal((self.rows, self.shape.heads))
            self.sink = laid_out((own * 2 + 3).astype(np.float32))
        count, self.extent = self.profiles
        self.weights = rng.standard_normal((self.rows, self.shape.heads * count)).astype(np.float32) * 2
        self.of_distance = np.random.default_rng(count).standard_normal(self.profiles).astype(np.float32)

    def numbers(self, side: int) -> Any:
        """(length, G, D) float32 as the store has them."""
        layout, store = self.sides[side], aligned(self.stores[side])
        memory, parts = Memory(store), []
        for j, page in enumerate(self.order):
            count = min(256, self.length - 256 * j)
            heads = [
                page_numbers(memory, layout, store[page, g].ctypes.data, j, count)
                for g in range(self.shape.kv_heads)
            ]
            parts.append(np.stack(heads, 1))
        out = np.concatenate(parts)
        if layout.name in QUANTISED:
            out = inverse_hadamard(
                torch.from_numpy(out).reshape(*out.shape[:2], -1, 32), self.shape.head_dim
            ).numpy()
        return np.ascontiguousarray(out)

    def expected(self) -> Any:
        """By the reference backend, (rows, H Dv)."""
        sides = [torch.from_numpy(self.numbers(side)) for side in range(len(self.sides))]
        pages = len(self.order)
        cache = ReferenceCache([self.shape], pages, "fp32")
        for mine, theirs in zip(sides, (cache.keys, cache.values), strict=False):
            theirs[0].view(-1, *mine.shape[1:])[: self.start] = mine[: self.start]
        ops = ReferenceOps(Step(self.positions, self.positions, np.arange(pages, dtype=np.int32)), cache)
        new: list[Any] = [part[self.start :].reshape(self.rows, -1) for part in sides]
        q = torch.from_numpy(self.q[:, : self.shape.heads * self.shape.head_dim].copy())
        own = torch.from_numpy(self.sink[:, : self.shape.heads].copy()) if self.row_sinks else None
        bias = RelativeBias(torch.from_numpy(self.weights), self.of_distance, own) if self.extent else None
        sinks = self.sink if self.sinks and not self.row_sinks else None
        return ops.attention(0, q, *(*new, None)[:2], self.shape, sinks, relative=bias).numpy()

    def biases(self) -> Any:
        """What `relative.biases_kernel` makes, as its model does; elsewhere numbers that are none."""
        weights, y = Buffer(self.weights.shape[1]), Buffer(self.shape.heads * self.extent)
        call = biases_call(weights, 0, y, self.shape.heads, self.extent)
        arrays = [self.weights, self.of_distance, np.full((self.rows, y.stride // 4), np.nan, np.float32)]
        arguments = [
            At(0), 4 * weights.width, At(1), At(2), y.stride, At(3), *call.arguments[6:],
        ]  # fmt: skip
        return by_model(call.kernel, call.blocks(self.rows), arguments, [*arrays, self.positions])[2]

    def attend(self) -> tuple[Kernel, tuple[int, int, int], list[Any], list[Any]]:
        """What `both` takes; the partial results are array 5."""
        shape = self.shape
        kernel = kernel_for(self.kind, form_of(shape, self.extent))
        size = shape.heads * self.splits * (-(-shape.value_dim // 32) * 32 + 4)
        pairs = self.biases() if self.extent else slope_pairs(shape)
        arrays = [
            self.stores[0], self.stores[-1], self.q, self.positions, self.table,
            np.zeros((self.rows, size), np.float32), np.zeros((1, 2), np.float32) if pairs is None else pairs,
        ]  # fmt: skip
        ratio = shape.heads // shape.kv_heads
        blocks = (self.splits, shape.kv_heads, -(-self.rows * ratio // kernel.constants["COLUMNS"]))
        scalars = [0, At(6), self.rows, ratio, shape.scale, shape.soft_cap, shape.window, 0]
        return (
            kernel,
            blocks,
            [At(0), At(1), At(2), 4 * self.q.shape[1], At(5), 4 * size, At(3), At(4), *scalars],
            arrays,
        )

    def combine(
        self, partial: Any, form: str = "", floats: bool = True
    ) -> tuple[Kernel, tuple[int, int, int], list[Any], list[Any]]:
        """The same; rows are array 1, packed activations 2."""
        shape = self.shape
        width = -(-shape.heads * shape.value_dim // 16) * 16
        transformed = (self.kind.keys if shape.latent else self.kind.values) in QUANTISED
        kernel = combine_kernel(
            shape.value_dim, transformed, floats, form, shape.chunked, row_sinks=self.row_sinks
        )
        y, room = np.zeros((self.rows, width), np.float32), np.zeros((self.rows, width + 128), np.float32)
        arrays = [partial, y, room, self.sink, self.positions]
        sinks = At(3) if self.sinks or self.row_sinks else 0
        scalars = [shape.heads, self.splits, shape.window]
        arguments = [
            At(0),
            partial.strides[0],
            At(1),
            4 * width,
            At(2),
            room.strides[0],
            sinks,
            At(4),
            *scalars,
        ]
        return kernel, (-(-shape.heads // kernel.constants["HEADS"]), self.rows, 1), arguments, arrays

    def attended(self) -> Any:
        """Partial results as the model makes them."""
        return by_model(*self.attend())[5]

    def modelled(self) -> Any:
        """(rows, H Dv) as both models make it."""
        return by_model(*self.combine(self.attended()))[1][:, : self.shape.heads * self.shape.value_dim]


def by_model(
    kernel: Kernel, blocks: tuple[int, int, int], arguments: list[Any], arrays: list[Any]
) -> list[Any]:
    """The arrays afterwards."""
    copies = [aligned(array) for array in arrays]
    values = [copies[a.array].ctypes.data + a.offset if isinstance(a, At) else a for a in arguments]
    run_model(kernel, blocks, values, Memory(*copies))
    return copies


def fill(block: Any, layout: Layout, count: int, rng: np.random.Generator) -> None:
    """Arbitrary numbers of a usual size into the first positions of one page of one head."""
    n, d = layout.groups, layout.head_dim
    if layout.name in ("fp32", "fp16"):
        kind = np.dtype(np.float32 if layout.name == "fp32" else np.float16)
        block[: count * d * kind.itemsize] = rng.standard_normal(count * d).astype(kind).view(np.uint8)
        return
    if layout.name == "fp8":
        block[: count * d] = (
            rng.integers(0x00, 0x48, count * d, np.uint8) | rng.integers(0, 2, count * d, np.uint8) << 7
        )
        return
    block[: count * layout.row] = rng.integers(0, 256, count * layout.row, np.uint8)
    scales = rng.uniform(0.5, 1.5, count * n) * (0.01 if layout.name == "q8" else 0.12)
    block[layout.scales : layout.scales + 2 * count * n] = scales.astype(np.float16).view(np.uint8)
    if layout.name == "q4":
        kept = rng.standard_normal((layout.block - layout.mean) // 4).astype(np.float32)
        block[layout.mean :] = kept.view(np.uint8)


def shape_of(ratio: int, kv_heads: int, dim: int, window: int = 0, cap: float = 0.0) -> AttentionShape:
    return AttentionShape(ratio * kv_heads, kv_heads, dim, 0.7 / dim**0.5, window, cap)


def special(
    ratio: int, kv_heads: int, dim: int, latent: int = 0, window: int = 0, alibi: int = 0
) -> AttentionShape:
    """Latent attention, windows that begin anew, slopes (2: rounded)."""
    slopes = tuple(0.5 ** (i + 1) for i in range(ratio * kv_heads)) if alibi else ()
    rounded = 0.3 if alibi == 2 else 0.0
    scale = 0.7 / dim**0.5
    return AttentionShape(
        ratio * kv_heads, kv_heads, dim, scale, window, 0.0, latent, slopes, rounded, window > 0
    )
