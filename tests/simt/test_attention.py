"""Attention of few rows: the kernels' bodies against their models, and these against the reference backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import AttentionShape, Step
from engine.backends.cache_rounding import turned_back
from engine.backends.cache_types import QUANTISED, CacheType
from engine.backends.cuda.attention import combine_kernel, kernel_for, splits_for
from engine.backends.cuda.kernel import Kernel
from engine.backends.cuda.store import KEYS, VALUES, Layout
from engine.backends.reference import ReferenceCache, ReferenceOps
from tests.simt.agree import At, aligned, both
from tests.simt.interpreter import Memory
from tests.simt.models import MODELS
from tests.simt.models.attention import page_numbers
from tests.simt.models.records import decoded, encoded


@dataclass
class Case:
    """A store filled with arbitrary numbers up to the last of `rows` rows from `start` on, and queries."""

    kind: CacheType
    shape: AttentionShape
    start: int
    rows: int
    splits: int
    sinks: bool = False

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.start + self.rows)
        self.length = self.start + self.rows
        pages = -(-self.length // 256)
        order = rng.permutation(pages)
        window = self.shape.window
        self.table = np.array([p if not window or 256 * (j + 1) > self.start - window + 1 else 1 << 24 for j, p in enumerate(order)], np.int32)
        self.sides = [Layout(side, name, self.shape.head_dim) for side, name in ((KEYS, self.kind.keys), (VALUES, self.kind.values))]
        self.stores = []
        for layout in self.sides:
            store = np.full((pages, self.shape.kv_heads, layout.block), 0xFF, np.uint8)  # not a number, where nothing is written
            for j, page in enumerate(order):
                for head in range(self.shape.kv_heads):
                    fill(store[page, head], layout, min(256, self.length - 256 * j), rng)
            self.stores.append(store)
        self.order = order
        width = self.shape.heads * self.shape.head_dim
        self.q = rng.standard_normal((self.rows, -(-width // 16) * 16)).astype(np.float32) * 2
        self.sink = rng.standard_normal(self.shape.heads).astype(np.float32)

    def numbers(self, side: int) -> Any:
        """(length, G, D) float32 as the store has them."""
        layout, store = self.sides[side], aligned(self.stores[side])
        memory, parts = Memory(store), []
        for j, page in enumerate(self.order):
            count = min(256, self.length - 256 * j)
            heads = [page_numbers(memory, layout, store[page, g].ctypes.data, j, count) for g in range(self.shape.kv_heads)]
            parts.append(np.stack(heads, 1))
        out = np.concatenate(parts)
        if layout.name in QUANTISED:
            out = turned_back(torch.from_numpy(out).reshape(*out.shape[:2], -1, 32), self.shape.head_dim).numpy()
        return np.ascontiguousarray(out)

    def expected(self) -> Any:
        """By the reference backend, (rows, H D)."""
        keys, values = (torch.from_numpy(self.numbers(side)) for side in range(2))
        pages = len(self.order)
        cache = ReferenceCache(1, self.shape, pages, "fp32")
        for mine, theirs in ((keys, cache.keys), (values, cache.values)):
            theirs[0].view(-1, *mine.shape[1:])[: self.start] = mine[: self.start]
        positions = np.arange(self.start, self.length, dtype=np.int32)
        ops = ReferenceOps(Step(positions, positions, np.arange(pages, dtype=np.int32)), cache)
        new = [part[self.start :].reshape(self.rows, -1) for part in (keys, values)]
        q = torch.from_numpy(self.q[:, : self.shape.heads * self.shape.head_dim].copy())
        return ops.attention(0, q, *new, self.shape, self.sink if self.sinks else None).numpy()

    def attend(self) -> tuple[Kernel, tuple[int, int, int], list[Any], list[Any]]:
        """What `both` takes; the partial results are array 5."""
        shape = self.shape
        kernel = kernel_for(self.kind, shape.head_dim)
        size = shape.heads * self.splits * (kernel.constants["DP"] + 4)
        arrays = [*self.stores, self.q, np.array([self.start], np.int32), self.table, np.zeros((self.rows, size), np.float32)]
        ratio = shape.heads // shape.kv_heads
        blocks = (self.splits, shape.kv_heads, -(-self.rows * ratio // kernel.constants["COLUMNS"]))
        scalars = [self.rows, ratio, shape.scale, shape.soft_cap, shape.window]
        return kernel, blocks, [At(0), At(1), At(2), 4 * self.q.shape[1], At(5), 4 * size, At(3), At(4), *scalars], arrays

    def combine(self, partial: Any, record: str = "") -> tuple[Kernel, tuple[int, int, int], list[Any], list[Any]]:
        """The same; rows are array 1, records 2."""
        shape, width = self.shape, self.q.shape[1]
        kernel = combine_kernel(shape.head_dim, self.kind.values in QUANTISED, True, record)
        y, room = np.zeros((self.rows, width), np.float32), np.zeros((self.rows, width + 128), np.float32)
        arrays = [partial, y, room, self.sink, np.array([self.start], np.int32)]
        sinks = At(3) if self.sinks else 0
        scalars = [shape.heads, self.splits, shape.window]
        arguments = [At(0), partial.strides[0], At(1), 4 * width, At(2), room.strides[0], sinks, At(4), *scalars]
        return kernel, (-(-shape.heads // kernel.constants["HEADS"]), self.rows, 1), arguments, arrays

    def modelled(self) -> Any:
        """(rows, H D) as both models make it."""
        partial = by_model(*self.attend())[5]
        return by_model(*self.combine(partial))[1][:, : self.shape.heads * self.shape.head_dim]


def by_model(kernel: Kernel, blocks: tuple[int, int, int], arguments: list[Any], arrays: list[Any]) -> list[Any]:
    """The arrays afterwards."""
    copies = [aligned(array) for array in arrays]
    values = [copies[a.array].ctypes.data + a.offset if isinstance(a, At) else a for a in arguments]
    MODELS[kernel.model](Memory(*copies), blocks, dict(kernel.constants), *values)
    return copies


def fill(block: Any, layout: Layout, count: int, rng: np.random.Generator) -> None:
    """Arbitrary numbers of a usual size into the first positions of one page of one head."""
    n, d = layout.groups, layout.head_dim
    if layout.name in ("fp32", "fp16"):
        kind = np.dtype(np.float32 if layout.name == "fp32" else np.float16)
        block[: count * d * kind.itemsize] = rng.standard_normal(count * d).astype(kind).view(np.uint8)
        return
    if layout.name == "fp8":
        block[: count * d] = rng.integers(0x00, 0x48, count * d, np.uint8) | rng.integers(0, 2, count * d, np.uint8) << 7
        return
    block[: count * layout.row] = rng.integers(0, 256, count * layout.row, np.uint8)
    scales = rng.uniform(0.5, 1.5, count * n) * (0.01 if layout.name == "q8" else 0.12)
    block[layout.scales : layout.scales + 2 * count * n] = scales.astype(np.float16).view(np.uint8)
    if layout.name == "q4":
        kept = rng.standard_normal((layout.block - layout.mean) // 4).astype(np.float32)
        block[layout.mean :] = kept.view(np.uint8)


def shape_of(ratio: int, kv_heads: int, dim: int, window: int = 0, cap: float = 0.0) -> AttentionShape:
    return AttentionShape(ratio * kv_heads, kv_heads, dim, 0.7 / dim**0.5, window, cap)


FEW = [
    (("fp16", "fp16"), shape_of(4, 1, 64), 300, 1, 4, False),
    (("fp8", "fp8"), shape_of(2, 2, 40), 5, 2, 2, True),
    (("q8", "q8"), shape_of(7, 1, 64, window=70), 255, 2, 2, False),
    (("q4", "q4"), shape_of(2, 1, 40), 0, 1, 4, False),
    (("q4", "q4"), shape_of(4, 1, 64, cap=5.0), 262, 2, 2, True),
    (("q8", "q4"), shape_of(1, 1, 16), 256, 3, 4, False),
    (("q4", "fp16"), shape_of(2, 1, 16), 17, 1, 1, False),
    (("fp16", "q4"), shape_of(1, 2, 40, window=9), 8, 3, 1, False),
]


@pytest.mark.parametrize(("kind", "shape", "start", "rows", "splits", "sinks"), FEW)
def test_bodies(kind: tuple[str, str], shape: AttentionShape, start: int, rows: int, splits: int, sinks: bool) -> None:
    case = Case(CacheType(*kind), shape, start, rows, splits, sinks)
    arguments = case.attend()
    (*_, found), (*_, expected) = both(*arguments, twice=False)
    records = found.reshape(-1, arguments[0].constants["DP"] + 4), expected.reshape(-1, arguments[0].constants["DP"] + 4)
    assert ((records[0][:, 1] == 0) == (records[1][:, 1] == 0)).all() or shape.window
    y, wanted = (by_model(*case.combine(partial))[1] for partial in (found, expected))
    np.testing.assert_allclose(y, wanted, atol=3e-3, rtol=2e-3)
    interpreted, modelled = both(*case.combine(expected), twice=False)
    np.testing.assert_allclose(interpreted[1], modelled[1], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(modelled[1][:, : shape.heads * shape.head_dim], case.expected(), atol=2e-4, rtol=2e-4)
