"""Recording: `Ops` for the CPU, which writes operations down instead of running them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.base import AttentionShape, Floats, RotaryTable, Routing, Weight
from engine.backends.composite import Composite
from engine.backends.cpu.kernels import moe, packed_activations, pointwise, rows
from engine.backends.cpu.kernels.attention import attention
from engine.backends.cpu.kernels.linear import linear
from engine.backends.cpu.kv_cache import CpuCache
from engine.backends.cpu.lowering.stages import Operation
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.cpu.runtime.step_block import SMALL_BATCH
from engine.backends.cpu.weight import WeightSpec
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import QUANTISED, CacheType, key_bytes, value_bytes
from engine.core import PAGE_TOKENS

_TILE_TARGET = 24 << 10
"""Weight bytes of one ticket: about 2 microseconds of reading, so that taking tickets costs little."""


@dataclass(frozen=True)
class RecordedRoutes:
    """Which experts the rows go to: the rows' `weights` and `places` (T, used), and the table that
    `experts.table_words` describes.
    """

    routing: Routing
    weights: Buffer
    places: Buffer
    table: int


@dataclass(frozen=True)
class CacheOutline:
    """Stands for a cache that is not there yet, where only the names of the kernels matter."""

    kind: CacheType

    def addresses(self, layer: int) -> tuple[int, int]:
        """None."""
        return 0, 0


@dataclass
class Recorder:
    """`Ops` for the CPU: writes down operations instead of running them."""

    cache: CpuCache | CacheOutline
    prompt_bits: int = 16
    """Of activations in steps of many rows."""
    operations: list[Operation] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    scratch: int = linear.scratch_bytes(0)
    partial: np.ndarray[Any, Any] | None = None
    positions: int = 1 << 31
    """How many positions the shortest table of positions has."""
    expert_tags: int = 0
    """Experts of all products so far."""
    _tables: dict[int, tuple[Floats, Floats]] = field(default_factory=dict)
    _orders: dict[tuple[Buffer, bytes], Buffer] = field(default_factory=dict)
    _inputs: int = 0
    _records: dict[Buffer, Buffer] = field(default_factory=dict)

    def _keep(self, values: Floats) -> int:
        """Address of a float32 vector padded with zeros to whole vectors; it lives as long as the tape."""
        copy = aligned((values.size + 15) // 16 * 64).view(np.float32)
        copy[: values.size] = values.reshape(-1)
        self.constants.append(copy)
        return int(copy.ctypes.data)

    def _add(
        self,
        kernel: str,
        arguments: list[int | float | Buffer],
        reads: list[object],
        writes: list[object],
        **more: Any,
    ) -> None:
        more.setdefault("tiles", (1, 1, 1, 1))
        self.operations.append(Operation(kernel, arguments, reads, writes, **more))

    def _each_row(
        self,
        kernel: str,
        arguments: list[int | float | Buffer],
        reads: list[object],
        y: Buffer,
        chunks: int = 1,
    ) -> None:
        """A kernel with `chunks` tiles for each row of y."""
        tiles = (chunks * y.copies, 1, chunks * y.copies, 1)
        self._add(kernel, arguments, reads, [y], tiles=tiles, on_logit_rows=y.on_logit_rows)

    @staticmethod
    def _like(x: Buffer) -> Buffer:
        return Buffer(x.width, x.on_logit_rows, x.copies)

    def embed(self, table: Weight, scale: float = 1.0) -> Buffer:
        """See `Ops.embed`."""
        assert isinstance(table, WeightSpec)
        self.constants.append(table)
        y = Buffer(table.shape[1])
        arguments: list[int | float | Buffer] = [
            table.address,
            table.tile_bytes,
            table.blocks,
            table.shape[1],
            y,
            y.stride,
            float(scale),
        ]
        more = {"bytes": table.nbytes, "row_bytes": table.nbytes // table.shape[0], "shape": table.shape}
        self._add(f"embed_{table.weight_layout.name}", arguments, [], [y], **more)
        return y

    def rms_norm(self, x: Buffer, weight: Floats, eps: float, heads: int = 1) -> Buffer:
        """See `Ops.rms_norm`."""
        return self._norm("rms_norm", x, weight, None, eps, heads)

    def layer_norm(
        self, x: Buffer, weight: Floats, bias: Floats | None, eps: float, heads: int = 1
    ) -> Buffer:
        """See `Ops.layer_norm`."""
        return self._norm("layer_norm", x, weight, bias, eps, heads)

    def _norm(
        self, kernel: str, x: Buffer, weight: Floats, bias: Floats | None, eps: float, heads: int
    ) -> Buffer:
        width = x.width // heads
        assert width * heads == x.width
        assert weight.size in (width, x.width)
        added = np.zeros(weight.shape, np.float32) if bias is None else bias
        if added.size != weight.size:
            weight, added = (np.tile(a, x.width // a.size) for a in (weight.reshape(-1), added.reshape(-1)))
        y = self._like(x)
        jump = 0 if weight.size == width else 4 * width
        self._each_row(
            kernel,
            [x, x.stride, y, y.stride, self._keep(weight), self._keep(added), heads, width, jump, float(eps)],
            [x],
            y,
        )
        return y

    def linear(
        self, x: Buffer, weight: Weight, bias: Floats | None = None, residual: Buffer | None = None
    ) -> Buffer:
        """See `Ops.linear`."""
        if isinstance(weight, Composite):
            return self._composite(x, weight, bias, residual)
        assert isinstance(weight, WeightSpec)
        self.constants.append(weight)
        y = Buffer(weight.shape[0], x.on_logit_rows)
        many_rows = self._in_whole_numbers(x, weight)
        group = max(2, _TILE_TARGET // weight.tile_bytes // 2 * 2)
        self.scratch = max(self.scratch, linear.scratch_bytes(weight.blocks * weight.weight_layout.unit))
        arguments: list[int | float | Buffer] = [
            weight.address, weight.tile_bytes, weight.tiles, weight.blocks, x, x.stride, y, y.stride,
            0 if bias is None else self._keep(bias), 0 if residual is None else residual, group,
            int(x.on_logit_rows), weight.shape[1], self._input_number(x), *many_rows,
        ]  # fmt: skip
        tickets, many = -(-weight.tiles // group), -(-weight.tiles // linear.MANY_TILES)
        reads: list[object] = [x, *many_rows[:1]] if residual is None else [x, *many_rows[:1], residual]
        tiles = (tickets, SMALL_BATCH, many, linear.MANY_ROWS)
        more = {"bytes": weight.nbytes, "shape": weight.shape}
        kernel = linear.product_name("linear", weight.weight_layout, self.prompt_bits)
        self._add(kernel, arguments, reads, [y], tiles=tiles, on_logit_rows=x.on_logit_rows, **more)
        return y

    def _input_number(self, x: Buffer) -> int:
        """What tells this input of products from the others of a step.

        Only neighbours share one: other kernels use the scratch memory.
        """
        before = self.operations[-1] if self.operations else None
        if before is None or not before.kernel.startswith("linear") or x not in before.reads[:1]:
            self._inputs += 1
        return self._inputs

    def _in_whole_numbers(self, x: Buffer, weight: WeightSpec) -> tuple[Buffer | int, int]:
        """x as records of whole numbers, for steps of many rows, and their stride; shared by all products
        that want them.
        """
        cells = linear.cells_of(weight.weight_layout, self.prompt_bits)
        if cells is None:
            return 0, 0
        if x not in self._records:
            blocks = weight.blocks * weight.weight_layout.unit // packed_activations.FEATURES
            y = Buffer(blocks * cells.record // 4, x.on_logit_rows, x.copies)
            arguments: list[int | float | Buffer] = [x, x.stride, y, y.stride, blocks]
            kernel = "pair_rows" if cells.bits == 16 else "byte_rows"
            self._add(kernel, arguments, [x], [y], tiles=(0, 1, x.copies, 1), on_logit_rows=x.on_logit_rows)
            self._records[x] = y
        return self._records[x], self._records[x].stride

    def _composite(
        self, x: Buffer, weight: Composite[WeightSpec], bias: Floats | None, residual: Buffer | None
    ) -> Buffer:
        """The sum of the parts' products; each begins where the one before ended."""
        y = residual
        for part, order in zip(weight.parts, weight.orders, strict=True):
            y = self.linear(self._permuted(x, order), part, bias, y)
            bias = None
        assert y is not None
        return y

    def _permuted(self, x: Buffer, order: npt.NDArray[np.int32]) -> Buffer:
        """Columns `order` of x; matrices with the same order share them."""
        key = (x, order.tobytes())
        if key not in self._orders:
            self.constants.append(order)
            y, chunks = Buffer(order.size, x.on_logit_rows, x.copies), -(-order.size // rows.PERMUTED_AT_ONCE)
            self._each_row(
                "permute",
                [x, x.stride, y, y.stride, int(order.ctypes.data), order.size, chunks],
                [x],
                y,
                chunks,
            )
            self._orders[key] = y
        return self._orders[key]

    def rope(self, x: Buffer, table: RotaryTable, heads: int) -> Buffer:
        """See `Ops.rope`."""
        cos, sin = self._keep_table(table.cos), self._keep_table(table.sin)
        assert not x.on_logit_rows
        y, half = self._like(x), table.cos.shape[1]
        self._each_row(
            "rope", [x, x.stride, y, cos, sin, half, heads, x.width // heads, int(table.interleaved)], [x], y
        )
        return y

    def add_positions(self, x: Buffer, table: Floats) -> Buffer:
        """See `Ops.add_positions`."""
        assert table.shape[1] == x.width
        assert not x.on_logit_rows
        y = self._like(x)
        self._each_row("add_positions", [x, x.stride, y, self._keep_table(table), x.width], [x], y)
        return y

    def _keep_table(self, table: Floats) -> int:
        """Address of a table with a row for each position; one that many layers use is kept once."""
        assert table.ndim == 2
        if id(table) not in self._tables:
            # The original is kept beside its copy: its id must not come to mean another.
            self._tables[id(table)] = (table, np.ascontiguousarray(table, np.float32))
            self.constants.append(self._tables[id(table)])
        self.positions = min(self.positions, len(table))
        return int(self._tables[id(table)][1].ctypes.data)

    def attention(
        self, layer: int, q: Buffer, k: Buffer, v: Buffer, shape: AttentionShape, sinks: Floats | None = None
    ) -> Buffer:
        """See `Ops.attention`."""
        keys, values = self.cache.addresses(layer)
        kind, heads, groups, dim = self.cache.kind, shape.heads, shape.kv_heads, shape.head_dim
        key_page, value_page = (
            PAGE_TOKENS * key_bytes(kind.keys, dim),
            PAGE_TOKENS * value_bytes(kind.values, dim),
        )
        self.scratch = max(self.scratch, attention.scratch_bytes(heads, groups, dim))
        size = attention.partial_bytes(heads, groups, dim)
        if self.partial is None or self.partial.size < size:
            self.partial = aligned(size)
            self.constants.append(self.partial)
        partial = int(self.partial.ctypes.data)
        arguments: list[int | float | Buffer] = [k, k.stride, keys, groups, dim, key_page]
        if kind.keys in QUANTISED:
            more: dict[str, Any] = (
                {"tiles": (groups, SMALL_BATCH, groups, 1 << 40)} if kind.keys == "q4" else {}
            )
            self._add(
                f"store_keys_{kind.keys}", [*arguments, q, q.stride, heads], [k, q], [("keys", layer)], **more
            )
        else:
            self._add(f"store_keys_{kind.keys}", arguments, [k], [("keys", layer)])
        self._add(
            f"store_values_{kind.values}",
            [v, v.stride, values, groups, dim, value_page],
            [v],
            [("values", layer)],
        )
        y = Buffer(heads * dim)
        window, sink_address = shape.window or attention.NO_WINDOW, 0 if sinks is None else self._keep(sinks)
        arguments = [
            q, q.stride, keys, values, y, y.stride, heads, groups, dim, float(shape.scale), partial,
            key_page, value_page, *attention.widths(kind, dim), window, float(shape.soft_cap), sink_address,
        ]  # fmt: skip
        reads: list[object] = [q, ("keys", layer), ("values", layer)]
        tiles = (groups * attention.SPLITS, SMALL_BATCH, groups, SMALL_BATCH)
        more = {
            "position_bytes": groups * (key_page + value_page) // PAGE_TOKENS,
            "window": window,
            "shape": (heads, groups, dim),
        }
        self._add(
            f"attention_{kind.keys}_{kind.values}", arguments, reads, [y, "partial"], tiles=tiles, **more
        )
        arguments = [partial, y, y.stride, heads, groups, dim, window, sink_address]
        self._add("combine", arguments, ["partial"], [y], tiles=(heads, SMALL_BATCH, 0, SMALL_BATCH))
        return y

    def gated(self, gate: Buffer, up: Buffer, activation: str) -> Buffer:
        """See `Ops.gated`."""
        return self._pointwise(f"gated_{activation}", gate, up)

    def activate(self, x: Buffer, activation: str) -> Buffer:
        """See `Ops.activate`."""
        return self._pointwise(f"activate_{activation}", x, x)

    def add(self, x: Buffer, y: Buffer, scale: float = 1.0) -> Buffer:
        """See `Ops.add`."""
        return self._pointwise("add", x, y, scale)

    def soft_cap(self, x: Buffer, scale: float, cap: float) -> Buffer:
        """See `Ops.soft_cap`."""
        return (
            self._pointwise("soft_cap", x, x, scale / cap, cap)
            if cap
            else self._pointwise("times", x, x, scale)
        )

    def _pointwise(
        self, kernel: str, x: Buffer, other: Buffer, first: float = 0.0, second: float = 0.0
    ) -> Buffer:
        assert (x.width, x.copies, x.on_logit_rows) == (other.width, other.copies, other.on_logit_rows)
        y = self._like(x)
        chunks = -(-(y.stride // 64) // pointwise.CHUNK_VECTORS)
        self._each_row(
            kernel, [x, other, y, y.stride, chunks, float(first), float(second)], [x, other], y, chunks
        )
        return y

    def columns(self, x: Buffer, start: int, width: int) -> Buffer:
        """See `Ops.columns`."""
        assert 0 <= start <= start + width <= x.width
        y = Buffer(width, x.on_logit_rows, x.copies)
        self._each_row("columns", [x, x.stride, y, y.stride, start, width], [x], y)
        return y

    def route(self, logits: Buffer, routing: Routing) -> RecordedRoutes:
        """See `Ops.route`."""
        count, used = routing.experts, routing.used
        assert logits.width == count <= moe.MOST_EXPERTS
        assert 0 < used <= count
        table = aligned(4 * moe.table_words(count))
        self.constants.append(table)
        chosen, weights, places = (Buffer(used, logits.on_logit_rows) for _ in range(3))
        routes = RecordedRoutes(routing, weights, places, int(table.ctypes.data))
        arguments: list[int | float | Buffer] = [
            logits,
            logits.stride,
            chosen,
            weights,
            chosen.stride,
            count,
            used,
            int(routing.normalise),
        ]
        self._add(
            "route",
            arguments,
            [logits],
            [chosen, weights],
            tiles=(1, 1, 1, 1),
            on_logit_rows=logits.on_logit_rows,
        )
        arguments = [chosen, chosen.stride, count, used, places, routes.table, int(logits.on_logit_rows)]
        self._add(
            "sort_routes",
            arguments,
            [chosen],
            [places, ("routes", routes.table)],
            tiles=(1, 1 << 40, 1, 1 << 40),
        )
        return routes

    def spread(self, x: Buffer, routes: RecordedRoutes) -> Buffer:
        """See `Ops.spread`."""
        used, places = routes.routing.used, routes.places
        assert (x.copies, x.on_logit_rows) == (1, places.on_logit_rows)
        y = Buffer(x.width, x.on_logit_rows, used)
        arguments: list[int | float | Buffer] = [x, x.stride, places, places.stride, used, y]
        self._add("spread", arguments, [x, places], [y], on_logit_rows=x.on_logit_rows)
        return y

    def expert_linear(
        self, x: Buffer, weights: Sequence[Weight], routes: RecordedRoutes, bias: Floats | None = None
    ) -> Buffer:
        """See `Ops.expert_linear`. Experts of several layouts take a kernel call for each."""
        packed = [w for w in weights if isinstance(w, WeightSpec)]
        assert len(packed) == len(weights) == routes.routing.experts
        assert all(w.shape == (packed[0].shape[0], x.width) for w in packed)
        assert (x.copies, x.on_logit_rows) == (routes.routing.used, routes.places.on_logit_rows)
        y = Buffer(packed[0].shape[0], x.on_logit_rows, x.copies)
        biases = 0 if bias is None else self._keep(np.pad(bias, ((0, 0), (0, y.stride // 4 - y.width))))
        self.constants += packed
        for weight_layout in dict.fromkeys(w.weight_layout for w in packed):
            first = next(w for w in packed if w.weight_layout is weight_layout)
            self._experts_of(
                first,
                [w.address if w.weight_layout is weight_layout else 0 for w in packed],
                x,
                y,
                routes,
                biases,
            )
        return y

    def _experts_of(
        self,
        first: WeightSpec,
        addresses: list[int],
        x: Buffer,
        y: Buffer,
        routes: RecordedRoutes,
        biases: int,
    ) -> None:
        """The products of those experts that have an address; `first` is one of them."""
        table, routing = np.array(addresses, np.int64), routes.routing
        self.constants.append(table)
        group = max(2, _TILE_TARGET // first.tile_bytes // 2 * 2)
        tickets, many_rows = -(-first.tiles // group), self._in_whole_numbers(x, first)
        self.scratch = max(self.scratch, moe.scratch_bytes(first.blocks * first.weight_layout.unit))
        arguments: list[int | float | Buffer] = [
            int(table.ctypes.data), first.tile_bytes, first.tiles, first.blocks, x, x.stride, y, y.stride,
            biases, 0, group, 0, first.shape[1], 0, *many_rows,
            routes.table, routing.experts, y.stride, self.expert_tags, tickets,
        ]  # fmt: skip
        self.expert_tags += routing.experts
        assert self.expert_tags < 1 << moe.TAG_BITS
        # In a short step each choice may be an expert of its own; in a long one each expert may have rows.
        tiles = (routing.used * tickets, 1, routing.experts * tickets, 1 << 40)
        more = {
            "bytes": len([a for a in addresses if a]) * first.nbytes,
            "row_bytes": routing.used * first.nbytes,
            "shape": first.shape,
        }
        reads: list[object] = [x, *many_rows[:1], ("routes", routes.table)]
        kernel = linear.product_name("experts", first.weight_layout, self.prompt_bits)
        self._add(kernel, arguments, reads, [y], tiles=tiles, on_logit_rows=x.on_logit_rows, **more)

    def gather(self, x: Buffer, routes: RecordedRoutes, residual: Buffer) -> Buffer:
        """See `Ops.gather`."""
        used, places = routes.routing.used, routes.places
        assert (x.width, x.copies, x.on_logit_rows) == (residual.width, used, residual.on_logit_rows)
        y = self._like(residual)
        self._each_row(
            "gather",
            [x, x.stride, places, places.stride, used, y, routes.weights, residual],
            [x, places, routes.weights, residual],
            y,
        )
        return y

    def last_rows(self, x: Buffer) -> Buffer:
        """See `Ops.last_rows`."""
        y = Buffer(x.width, on_logit_rows=True)
        self._add("last_rows", [x, y, x.stride], [x], [y], on_logit_rows=True)
        return y
