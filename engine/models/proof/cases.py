"""Small passes over random numbers, run on a device and on the reference: the cases of `selftest`, and of
a GPU's first use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from engine.backends.base import (
    ACTIVATIONS,
    Array,
    AttentionShape,
    Backend,
    Floats,
    Ops,
    RawTensor,
    RotaryTable,
    Routing,
    Step,
    Weight,
)
from engine.backends.kv_formats import cache_type
from engine.core import PAGE_TOKENS
from engine.models.proof.random_tensors import BLOCKS, PACKED, Make, file_tensor

Pass = Callable[[Ops, Sequence[Weight]], Array]
Tensors = Callable[[], list[RawTensor]]

TOKENS, WIDTH, INNER, LONG, ROWS = 96, 512, 256, 2048, 224
"""Rows of the tables that tokens embed to, their columns, those between two products, so many columns that
devices take other kernels, and the rows of the matrices under test.
"""
STEPS = (1, 2, 5, 8, 9, 64, 80)
"""Rows of the steps of most cases: few ones have kernels of their own, more are products of panels."""
PRODUCT_STEPS = (1, 2, 5, 8, 20, 80)
"""The same of products: 20 rows go by the kernels of few, several times over."""
ATTENTION_STEPS = (1, 3, 8, 40, 200, 1, 64, 5, 2)
"""These follow each other in one sequence, which goes over a border of pages in the middle of a step."""
POINTWISE, CACHES = 1e-4, {"fp32": 1e-3, "fp16": 2e-3, "fp8": 0.02, "q8": 0.01, "q6": 0.03, "q4": 0.05}
"""The largest difference that counts as equal, over the largest magnitude of the reference's answer: of what
is computed in float32, and of attention over caches of a type, where a number that lies between two codes may
be rounded to either.
"""
UNPACKED = 2.0**-11
"""The same of embeddings: some types are kept in fp16, whose rounding moves a number by 2^-11 of itself at
most.
"""
PRODUCTS = {"BF16": 2.0**-8}
"""The same of products with weights that devices multiply in bf16 (GPUs do in steps of many rows): x is
rounded by 2^-8 of itself at most. Errors of many inputs are of either sign, so the sum is off by less than
half of that.
"""
PRODUCT = 2.0**-10
"""Of products with all other weights: x in fp16 and, where they are unpacked, weights in fp16: 2^-11 each."""
_LITTLE = AttentionShape(1, 1, 16, 1.0)


@dataclass(frozen=True)
class Case:
    """One small pass: `forward` over the weights made of `tensors`; `steps` are rows, from position 0
    where they `follow` each other.
    """

    name: str
    tolerance: float
    forward: Pass
    tensors: Tensors
    steps: tuple[int, ...] = STEPS
    cache: str = "fp32"
    shape: AttentionShape = _LITTLE
    follow: bool = False
    layers: int = 1


def run_case(case: Case, backend: Backend, tensors: Sequence[RawTensor] | None = None) -> Floats:
    """The case's answers on a backend, all steps' rows one after the other: (rows, width) float32;
    `tensors` where they were made.
    """
    weights = [backend.load_weight(tensor) for tensor in (case.tensors() if tensors is None else tensors)]
    pages = -(-sum(case.steps) // PAGE_TOKENS) if case.follow else 1
    cache = backend.new_cache(case.layers, case.shape, pages + 1, case.cache)
    table = np.arange(pages, 0, -1, dtype=np.int32)  # backwards, so that a page's number is not its place
    found: list[Floats] = []
    try:
        with closing(
            backend.record(lambda ops: case.forward(ops, weights), cache, max(case.steps))
        ) as program:
            start = 0
            for rows in case.steps:
                ids = (np.arange(start, start + rows) * 7 % TOKENS).astype(np.int32)
                positions = np.arange(start, start + rows, dtype=np.int32)
                found.append(program.run(Step(ids, positions, table, rows)).copy())
                start += rows if case.follow else 0
    finally:
        cache.close()
    return np.concatenate(found)


def difference(actual: Floats, expected: Floats) -> float:
    """The largest difference over the largest expected magnitude; infinite where one of the two is no
    number and the other is.
    """
    if actual.shape != expected.shape or not np.array_equal(np.isfinite(actual), np.isfinite(expected)):
        return float("inf")
    there = np.isfinite(expected)
    gap = np.abs(actual[there] - expected[there]).max(initial=0.0)
    return float(gap / max(np.abs(expected[there]).max(initial=0.0), 1e-30))


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _weight_cases()
    yield from _row_cases()
    yield from _attention_cases()


def _random(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _table(width: int, seed: int = 1) -> RawTensor:
    return file_tensor("selftest.table", _random(seed, TOKENS, width))


# -- matrices


def _weight_cases() -> Iterator[Case]:
    for name, make in {**BLOCKS, **PACKED}.items():
        yield linear_case(name, make)
    for name, make in BLOCKS.items():
        yield embed_case(name, make)
    for name in ("BF16", "Q4_K", "MXFP4"):
        yield expert_case(name, BLOCKS[name], INNER)


def linear_case(name: str, make: Make) -> Case:
    """Products with matrices of one kind."""
    return Case(
        f"linear, {name}", PRODUCTS.get(name, PRODUCT), _linear, partial(_linear_tensors, make), PRODUCT_STEPS
    )


def embed_case(name: str, make: Make) -> Case:
    """Rows of a table of one kind."""
    return Case(
        f"embed, {name}",
        UNPACKED,
        lambda ops, w: ops.last_rows(ops.embed(w[0], 1.5)),
        partial(_embedding, make),
        (1, 8, 40),
    )


_BIAS, _INNER_BIAS, _SMALL = _random(2, ROWS), _random(14, INNER), 2.0**-14
_BASE_ROWS = 64


def _linear(ops: Ops, w: Sequence[Weight]) -> Array:
    """Rows of usual size, and rows so small that fp16 holds them only times a factor; many columns, and
    few.
    """
    x, small = (ops.last_rows(ops.embed(w[0], scale)) for scale in (1.0, _SMALL))
    y = ops.linear(small, w[1], _INNER_BIAS * np.float32(_SMALL), ops.linear(small, w[1]))
    y = ops.add(ops.linear(x, w[1]), y, 1 / _SMALL)
    return ops.linear(y, w[2], _BIAS, ops.linear(y, w[2]))


def _linear_tensors(make: Make) -> list[RawTensor]:
    rng = np.random.default_rng(3)
    return [_table(LONG), make(rng, INNER, LONG), make(rng, ROWS, INNER)]


def _rows_of(make: Make, rng: np.random.Generator, rows: int, columns: int) -> RawTensor:
    """Many rows, of few that are random."""
    return make(rng, _BASE_ROWS, columns).take(rng.integers(0, _BASE_ROWS, rows))


def _embedding(make: Make) -> list[RawTensor]:
    return [make(np.random.default_rng(4), TOKENS, WIDTH)]


_ROUTING = Routing(6, 2)


def expert_case(name: str, make: Make, inner: int) -> Case:
    """Products with experts of one kind, with so many numbers between the two."""
    bias = _random(13, 6, inner)

    def forward(ops: Ops, w: Sequence[Weight]) -> Array:
        x = ops.last_rows(ops.embed(w[0]))
        routes = ops.route(ops.linear(x, w[1]), _ROUTING)
        up = ops.expert_linear(ops.spread(x, routes), w[2:8], routes, bias)
        return ops.gather(ops.expert_linear(ops.activate(up, "silu"), w[8:14], routes), routes, x)

    return Case(
        f"experts, {name}",
        PRODUCTS.get(name, PRODUCT),
        forward,
        partial(_expert_tensors, make, inner),
        PRODUCT_STEPS,
    )


def _expert_tensors(make: Make, inner: int) -> list[RawTensor]:
    rng = np.random.default_rng(5)
    router = file_tensor("selftest.router", _random(6, 6, WIDTH))
    up, down = (
        [_rows_of(make, rng, rows, columns) for _ in range(6)]
        for rows, columns in ((inner, WIDTH), (WIDTH, inner))
    )
    return [_table(WIDTH), router, *up, *down]


# -- what works on rows


def _row_cases() -> Iterator[Case]:
    half = np.float32(0.5)
    weight, bias, part = np.abs(_random(7, 96)) + half, _random(8, 96), np.abs(_random(9, 24)) + half
    forms: dict[str, Callable[[Ops, Array, Array], Array]] = {
        "rms_norm": lambda ops, x, y: ops.rms_norm(x, weight, 1e-5),
        "rms_norm of heads": lambda ops, x, y: ops.rms_norm(x, part, 1e-5, 4),
        "layer_norm": lambda ops, x, y: ops.layer_norm(x, weight, bias, 1e-5),
        "layer_norm of heads": lambda ops, x, y: ops.layer_norm(x, part, None, 1e-5, 4),
        "add": lambda ops, x, y: ops.add(x, y, 0.3),
        "columns": lambda ops, x, y: ops.columns(x, 20, 41),
        "soft_cap": lambda ops, x, y: ops.soft_cap(x, 3.0, 2.5),
        **{f"gated, {name}": partial(_gated, name) for name in ACTIVATIONS},
        **{f"activate, {name}": partial(_activate, name) for name in ACTIVATIONS if name != "clamped_swiglu"},
    }
    for name, form in forms.items():
        yield Case(name, POINTWISE, partial(_of_rows, form), lambda: [_table(96), _table(96, 10)])
    for interleaved in (False, True):
        for rotary in (32, 24):
            table = _rotary(rotary, interleaved)
            how = "pairs of neighbours" if interleaved else "halves"
            forward = partial(_turned, table)
            yield Case(
                f"rope, {how}, {rotary} of 32",
                POINTWISE,
                forward,
                lambda: [_table(96)],
                (3, 8, 40),
                follow=True,
            )
    yield Case(
        "add_positions",
        POINTWISE,
        partial(_placed, _random(11, 64, 96)),
        lambda: [_table(96)],
        (3, 8, 40),
        follow=True,
    )


def _of_rows(form: Callable[[Ops, Array, Array], Array], ops: Ops, w: Sequence[Weight]) -> Array:
    return ops.last_rows(form(ops, ops.embed(w[0]), ops.embed(w[1])))


def _gated(name: str, ops: Ops, x: Array, y: Array) -> Array:
    return ops.gated(x, y, name)


def _activate(name: str, ops: Ops, x: Array, _y: Array) -> Array:
    return ops.activate(x, name)


def _rotary(rotary: int, interleaved: bool) -> RotaryTable:
    angles = np.arange(64)[:, None] / 10000 ** (np.arange(rotary // 2) * 2 / rotary)
    return RotaryTable(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), interleaved)


def _turned(table: RotaryTable, ops: Ops, w: Sequence[Weight]) -> Array:
    return ops.last_rows(ops.rope(ops.embed(w[0]), table, 3))


def _placed(table: Floats, ops: Ops, w: Sequence[Weight]) -> Array:
    return ops.last_rows(ops.add_positions(ops.embed(w[0]), table))


# -- attention


def _attention_cases() -> Iterator[Case]:
    usual = AttentionShape(8, 2, 64, 0.125)
    shapes = {
        "8 heads, 2 of keys": usual,
        "odd head dimension": AttentionShape(3, 1, 80, 0.1),
        "window of 100": AttentionShape(8, 2, 64, 0.125, window=100),
        "soft cap": AttentionShape(4, 4, 128, 0.09, soft_cap=20.0),
    }
    for name, shape in shapes.items():
        yield attention_case(f"attention, {name}", shape, "fp16")
    yield attention_case("attention, sinks", usual, "fp16", _random(12, 8))
    for kind in CACHES:
        if kind != "fp16":
            yield attention_case(f"attention, {kind} cache", usual, kind)


def attention_case(name: str, shape: AttentionShape, cache: str, sinks: Floats | None = None) -> Case:
    widths = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.kv_heads * shape.head_dim)

    def forward(ops: Ops, w: Sequence[Weight]) -> Array:
        q, k, v = (ops.embed(table) for table in w)
        return ops.last_rows(ops.attention(0, q, k, v, shape, sinks))

    def tensors() -> list[RawTensor]:
        return [_table(width, 20 + i) for i, width in enumerate(widths)]

    return Case(
        name, _cache_share(cache, shape.head_dim), forward, tensors, ATTENTION_STEPS, cache, shape, True
    )


def _cache_share(cache: str, head_dim: int) -> float:
    """The largest difference that counts as equal, over caches of a type, which may be another one for
    values. Of a short vector a number that is rounded to the other of two codes is a larger part.
    """
    kind, known = cache_type(cache), {str(cache_type(name)): share for name, share in CACHES.items()}
    return known.get(str(kind), max(known[kind.keys], known[kind.values])) * max(1.0, 64 / head_dim)


Outcome = dict[str, Any]
"""One line of a table of checks: "name", "difference" (None: no number), "tolerance", "passed", perhaps
"error" and "kernels".
"""


def checked(case: Case, backend: Backend, reference: Backend) -> Outcome:
    """One line of the table: the case's difference from the reference, and whether it is small enough."""
    return outcome(case.name, difference(run_case(case, backend), run_case(case, reference)), case.tolerance)


def outcome(name: str, difference: float, tolerance: float) -> Outcome:
    """One line of the table; a difference that is no number is shown as None, and has not passed."""
    known = math.isfinite(difference)
    return {
        "name": name,
        "difference": difference if known else None,
        "tolerance": tolerance,
        "passed": known and difference <= tolerance,
    }
