"""The cases of `selftest` and of a GPU's first use: small passes over random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from engine.backends.activations import ACTIVATIONS, GATES
from engine.backends.base import Array, AttentionShape, Ops, RotaryTable, Weight
from engine.backends.kv_formats import cache_type
from engine.backends.relative import RelativeBias
from engine.backends.routing import ROOT, SCORES, Routing
from engine.models.proof.case import BATCHES, POINTWISE, STEPS, TOKENS, Case, normal, token_table
from engine.models.proof.random_tensors import BLOCKS, PACKED, Builder, file_tensor
from engine.models.proof.recurrent_cases import recurrent_cases
from engine.tensors import Floats, RawTensor

WIDTH, INNER, LONG, ROWS = 512, 256, 2048, 224
"""Columns of the embedding tables; the features between two products; a width at which devices choose other
kernels; the rows of the matrices under test.
"""
PRODUCT_STEPS = (1, 2, 5, 8, 20, 80)
"""The rows of the steps of products: 20 rows run the small-batch kernel several times."""
ATTENTION_STEPS = (1, 3, 8, 40, 200, 1, 64, 5, 2)
"""Successive steps of one sequence, one of which crosses a page boundary."""
CACHES = {"fp32": 1e-3, "fp16": 2e-3, "fp8": 0.02, "q8": 0.01, "q6": 0.03, "q4": 0.05}
"""Tolerated differences of attention by cache type, relative to the largest magnitude of the reference; a
value halfway between two codes may be rounded either way.
"""
UNPACKED = 2.0**-11
"""The same for embeddings: some types are kept in fp16, which rounds by at most 2^-11 of a value."""
PRODUCTS = {"BF16": 2.0**-8}
"""The same for products that GPUs compute in bf16 in large batches: x is rounded by at most 2^-8. Errors of
many inputs have either sign, so the sum is off by less than half of that.
"""
PRODUCT = 2.0**-10
"""The same for all other products: 2^-11 each for x in fp16 and for weights unpacked to fp16."""


def cases() -> Iterator[Case]:
    """All cases of `selftest`."""
    yield from _weight_cases()
    yield from _row_cases()
    yield from _attention_cases()
    yield from recurrent_cases()


# -- matrices


def _weight_cases() -> Iterator[Case]:
    for name, build in {**BLOCKS, **PACKED}.items():
        yield linear_case(name, build)
    for name, build in BLOCKS.items():
        yield embed_case(name, build)
    for name in ("BF16", "Q4_K", "MXFP4"):
        yield expert_case(name, BLOCKS[name], INNER)
    for name, rows, columns in (("F32", 24, 40), ("F16", 64, 128), ("BF16", 40, 64), ("Q8_0", 128, 96)):
        yield head_case(name, rows, columns)
    for scores in (*SCORES, ROOT):
        for count in (32, 64, 128, 256, 512) if scores != ROOT else (256,):
            yield _routing_case(Routing(count, 5, scores != "softmax", scores, 2.5, 8, 3, 2))
    yield _routing_case(Routing(16, 2, False, nearness=0.05))
    for count in (32, 512):
        yield _routing_case(Routing(count, 5, False, "sigmoid", by_logit=True))


def linear_case(name: str, build: Builder) -> Case:
    """Products with matrices of one type."""
    return Case(
        f"linear, {name}",
        PRODUCTS.get(name, PRODUCT),
        _linear,
        partial(_linear_tensors, build),
        PRODUCT_STEPS,
    )


def embed_case(name: str, build: Builder) -> Case:
    """Embeddings from a table of one type."""
    return Case(
        f"embed, {name}",
        UNPACKED,
        lambda ops, w: ops.last_rows(ops.embed(w[0], 1.5)),
        partial(_embedding, build),
        (1, 8, 40),
    )


_BIAS, _INNER_BIAS, _SMALL = normal(2, ROWS), normal(14, INNER), 2.0**-14
_BASE_ROWS = 64


def _linear(ops: Ops, w: Sequence[Weight]) -> Array:
    """Rows of usual size, and rows so small that fp16 needs a scale; many columns, and few."""
    x, small = (ops.last_rows(ops.embed(w[0], scale)) for scale in (1.0, _SMALL))
    y = ops.linear(small, w[1], _INNER_BIAS * np.float32(_SMALL), ops.linear(small, w[1]))
    y = ops.add(ops.linear(x, w[1]), y, 1 / _SMALL)
    return ops.linear(y, w[2], _BIAS, ops.linear(y, w[2]))


def _linear_tensors(build: Builder) -> list[RawTensor]:
    rng = np.random.default_rng(3)
    return [token_table(LONG), build(rng, INNER, LONG), build(rng, ROWS, INNER)]


def _rows_of(build: Builder, rng: np.random.Generator, rows: int, columns: int) -> RawTensor:
    """A matrix whose rows repeat a few random ones."""
    return build(rng, _BASE_ROWS, columns).take(rng.integers(0, _BASE_ROWS, rows))


def _embedding(build: Builder) -> list[RawTensor]:
    return [build(np.random.default_rng(4), TOKENS, WIDTH)]


def head_case(name: str, rows: int, columns: int) -> Case:
    """A product for each of five heads with matrices (rows, columns) of one type."""

    def forward(ops: Ops, w: Sequence[Weight]) -> Array:
        return ops.last_rows(ops.head_linear(ops.embed(w[0]), w[1:]))

    def tensors() -> list[RawTensor]:
        rng = np.random.default_rng(6)
        return [token_table(5 * columns, 50), *(BLOCKS[name](rng, rows, columns) for _ in range(5))]

    return Case(f"heads, {name}", PRODUCTS.get(name, PRODUCT), forward, tensors, PRODUCT_STEPS)


_ROUTING = Routing(6, 2)


def expert_case(name: str, build: Builder, inner: int) -> Case:
    """Products with experts of one type, with `inner` features between the two."""
    bias = normal(13, 6, inner)

    def forward(ops: Ops, w: Sequence[Weight]) -> Array:
        x = ops.last_rows(ops.embed(w[0]))
        routes = ops.route(ops.linear(x, w[1]), _ROUTING)
        up = ops.expert_linear(ops.spread(x, routes), w[2:8], routes, bias)
        return ops.gather(ops.expert_linear(ops.activate(up, "silu"), w[8:14], routes), routes, x)

    return Case(
        f"experts, {name}",
        PRODUCTS.get(name, PRODUCT),
        forward,
        partial(_expert_tensors, build, inner),
        PRODUCT_STEPS,
    )


def _expert_tensors(build: Builder, inner: int) -> list[RawTensor]:
    rng = np.random.default_rng(5)
    router = file_tensor("selftest.router", normal(6, 6, WIDTH))
    up, down = (
        [_rows_of(build, rng, rows, columns) for _ in range(6)]
        for rows, columns in ((inner, WIDTH), (WIDTH, inner))
    )
    return [token_table(WIDTH), router, *up, *down]


def _routing_case(routing: Routing) -> Case:
    """Experts that differ in their biases, chosen from groups."""
    count = routing.experts
    correction, bias = normal(15, count) * np.float32(0.1), normal(16, count, 48)

    def forward(ops: Ops, w: Sequence[Weight]) -> Array:
        logits, x = (ops.last_rows(ops.embed(table)) for table in w[:2])
        routes = ops.route(logits, routing, None if routing.nearness >= 0 else correction)
        return ops.gather(ops.expert_linear(ops.spread(x, routes), [w[2]] * count, routes, bias), routes)

    def tensors() -> list[RawTensor]:
        return [
            token_table(count, 15),
            token_table(96, 16),
            file_tensor("selftest.expert", normal(17, 48, 96)),
        ]

    how = "nearness" if routing.nearness >= 0 else "logits" if routing.by_logit else routing.scores
    return Case(f"route, {count} by {how}", PRODUCT, forward, tensors, (1, 8, 40))


# -- operations on rows


def _row_cases() -> Iterator[Case]:
    half = np.float32(0.5)
    weight, bias, part = (np.abs(normal(7, 96)) + half, normal(8, 96), np.abs(normal(9, 24)) + half)
    operations: dict[str, Callable[[Ops, Array, Array], Array]] = {
        "rms_norm": lambda ops, x, y: ops.rms_norm(x, weight, 1e-5),
        "rms_norm of heads": lambda ops, x, y: ops.rms_norm(x, part, 1e-5, 4),
        "layer_norm": lambda ops, x, y: ops.layer_norm(x, weight, bias, 1e-5),
        "layer_norm of heads": lambda ops, x, y: ops.layer_norm(x, part, None, 1e-5, 4),
        "add": lambda ops, x, y: ops.add(x, y, 0.3),
        "columns": lambda ops, x, y: ops.columns(x, 20, 41),
        "xielu": lambda ops, x, y: ops.activate_with(x, "xielu", (0.8, 0.9, 0.4)),
        "clamp": lambda ops, x, y: ops.activate_with(x, "clamp", (0.7,)),
        "sigmoid": lambda ops, x, y: ops.activate_with(x, "sigmoid", (2.0, 0.1)),
        "soft_cap": lambda ops, x, y: ops.soft_cap(x, 3.0, 2.5),
        "join": lambda ops, x, y: ops.join(x, ops.columns(y, 10, 24), 3),
        "mix": lambda ops, x, y: ops.mix([x, y, x], ops.columns(y, 5, 9), 4, y),
        "given": lambda ops, x, y: ops.add(x, ops.given(normal(23, max(STEPS), 96))),
        "keep": lambda ops, x, y: ops.keep(x, np.zeros((max(STEPS), 96), np.float32)),
        "balance": lambda ops, x, y: ops.balance(ops.columns(x, 0, 16), 4, 20, 1e-6),
        "softmax of columns": lambda ops, x, y: ops.balance(x, 32, 0, 0.0),
        "magnitude": lambda ops, x, y: ops.magnitude(x),
        "magnitude, centred": lambda ops, x, y: ops.magnitude(x, centred=True),
        **{f"gated, {name}": partial(_gated, name) for name in GATES},
        **{f"activate, {name}": partial(_activate, name) for name in ACTIVATIONS if name != "clamped_swiglu"},
    }
    for name, operation in operations.items():
        yield Case(
            name, POINTWISE, partial(_of_rows, operation), lambda: [token_table(96), token_table(96, 10)]
        )
    for interleaved in (False, True):
        for rotary in (32, 24):
            table = _rotary(rotary, interleaved)
            how = "interleaved" if interleaved else "halves"
            forward = partial(_rotated, table)
            yield Case(
                f"rope, {how}, {rotary} of 32",
                POINTWISE,
                forward,
                lambda: [token_table(96)],
                (3, 8, 40),
                follow=True,
                batches=BATCHES,
            )
    yield Case(
        "add_positions",
        POINTWISE,
        partial(_placed, normal(11, 64, 96)),
        lambda: [token_table(96)],
        (3, 8, 40),
        follow=True,
        batches=BATCHES,
    )


def layer_norm_case(width: int) -> Case:
    """The norm of rows as wide as a feed-forward part."""
    weight, bias = np.abs(normal(21, width)), normal(22, width)

    def forward(ops: Ops, x: Array, y: Array) -> Array:
        return ops.layer_norm(x, weight, bias, 1e-5)

    return Case(
        f"layer_norm of {width}",
        POINTWISE,
        partial(_of_rows, forward),
        lambda: [token_table(width)] * 2,
        (1, 9),
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


def _rotated(table: RotaryTable, ops: Ops, w: Sequence[Weight]) -> Array:
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
        "wide heads": AttentionShape(2, 1, 320, 0.06),
        "latent": AttentionShape(12, 1, 96, 0.1, latent=64),
        "ALiBi": AttentionShape(4, 2, 64, 0.125, slopes=(0.5, 0.25, 0.125, 0.0625)),
        "ALiBi, rounded": AttentionShape(2, 2, 64, 0.125, slopes=(0.5, 0.25), rounded_slopes=0.125),
        "in chunks": AttentionShape(8, 2, 64, 0.125, window=100, chunked=True),
    }
    for name, shape in shapes.items():
        yield attention_case(f"attention, {name}", shape, "fp16")
    yield attention_case("attention, sinks", usual, "fp16", normal(12, 8))
    for row_sinks, further in ((False, ""), (True, ", sinks of each row")):
        yield attention_case(
            f"attention, biases by distance{further}", usual, "fp16", None, normal(13, 4, 90), row_sinks
        )
    for kind in CACHES:
        if kind != "fp16":
            yield attention_case(f"attention, {kind} cache", usual, kind)
            yield attention_case(f"attention, latent, {kind} cache", shapes["latent"], kind)


def attention_case(
    name: str, shape: AttentionShape, cache: str, sinks: Floats | None = None,
    profiles: Floats | None = None, row_sinks: bool = False,
) -> Case:  # fmt: skip
    """Attention of one layer; `profiles` (R, extent) are those of a `RelativeBias`, which has `row_sinks`."""
    keys = shape.kv_heads * shape.head_dim
    made = 0 if profiles is None else shape.heads * len(profiles)
    widths = [shape.heads * shape.head_dim, keys] + [keys] * (not shape.latent) + [made] * (made > 0)
    widths += [shape.heads] * row_sinks

    def forward(ops: Ops, w: Sequence[Weight]) -> Array:
        q, k, *more = (ops.embed(table) for table in w)
        own = more.pop() if row_sinks else None
        bias = None if profiles is None else RelativeBias(more.pop(), profiles, own)
        v = None if shape.latent else more[0]
        return ops.last_rows(ops.attention(0, q, k, v, shape, sinks, relative=bias))

    def tensors() -> list[RawTensor]:
        return [token_table(width, 20 + i) for i, width in enumerate(widths)]

    return Case(
        name, _cache_share(cache, shape.head_dim), forward, tensors, ATTENTION_STEPS, cache, (shape,), True,
        batches=BATCHES,
    )  # fmt: skip


def _cache_share(cache: str, head_dim: int) -> float:
    """The tolerance for a cache type, whose keys and values may differ in type. In a short vector, one value
    that is rounded to the other code weighs more.
    """
    kind, known = cache_type(cache), {str(cache_type(name)): share for name, share in CACHES.items()}
    return known.get(str(kind), max(known[kind.keys], known[kind.values])) * max(1.0, 64 / head_dim)
