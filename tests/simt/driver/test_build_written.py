"""Functions that are given registers: written out where they are called, and interpreted as they are."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.codegen.build import build
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import block_x, fma, ldg_f32, registers, shared, st_f32, static, thread
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.codegen.written import written_out
from tests.simt.interpreter import Memory, run

MANY, OFFSET = 2, 1.0
KIND = "plain"


def _fill(x: Any, source: int, first: int, scale: float) -> float:
    """Numbers into x, times a scale that it changes; the last of them."""
    for i in static(range(MANY)):
        if KIND == "plain":
            x[i] = ldg_f32(source + int64(4 * (first + i))) * scale
        else:
            x[i] = float32(OFFSET)
        scale = scale + float32(OFFSET)
    return x[MANY - 1]


def _twice(x: Any, y: Any, sums: Any, source: int, at: int, scale: float) -> Any:
    """Both are filled, and added up into sums; the last of each."""
    i = int32(7)  # no concern of the caller's
    one = _fill(x, source, at, scale)
    two = _fill(y, source, at + MANY, scale)
    for k in static(range(MANY)):
        sums[k] = fma(x[k], y[k], sums[k])
    return one, two, i


def _kernel(source: int, target: int, scale: float) -> None:
    """Reads 2 MANY rounds of numbers, writes MANY sums and what else came of them. Block (thread)."""
    i = int32(thread())
    x, y = int32(1), int32(2)
    one = registers(float32(0.0), MANY)
    other = registers(float32(0.0), MANY)
    sums = registers(float32(0.0), MANY)
    last, behind, seven = float32(0.0), float32(0.0), int32(0)
    for h in static(range(2)):
        last, behind, seven = _twice(one, other, sums, source + int64(16 * MANY * i), 2 * MANY * h, scale)
    at = target + int64(4 * (MANY + 4) * i)
    for k in static(range(MANY)):
        st_f32(at + int64(4 * k), sums[k])
    st_f32(at + int64(4 * MANY), last)
    st_f32(at + int64(4 * MANY + 4), behind)
    st_f32(at + int64(4 * MANY + 8), scale * float32(x + y + i))
    st_f32(at + int64(4 * MANY + 12), float32(seven))


def _expected(source: Any, scale: float) -> Any:
    """The same, by NumPy."""
    threads, many = len(source), source.shape[1] // 4
    scales = scale + np.arange(many, dtype=np.float32)
    rounds = source.reshape(threads, 2, 2, many) * scales
    sums = (rounds[:, :, 0] * rounds[:, :, 1]).sum(1)
    own = scale * (3 + np.arange(threads))
    return np.column_stack([sums, rounds[:, 1, 0, -1], rounds[:, 1, 1, -1], own, np.full(threads, 7)]).astype(
        np.float32
    )


@pytest.mark.parametrize("many", [1, 3])
def test_written_out_or_not_it_is_the_same(many: int) -> None:
    kernel = Kernel("given", _kernel, "llf", 32, 32, {"MANY": many})
    source = np.random.default_rng(many).integers(-8, 9, (32, 4 * many)).astype(np.float32)
    target = np.zeros((32, many + 4), np.float32)
    memory = Memory()
    run(kernel, 1, (memory.add(source), memory.add(target), 2.0), memory)
    assert np.array_equal(target, _expected(source, 2.0))

    code, values, _ = written_out(_kernel, {"MANY": many})
    written: dict[int, Any] = {}
    for i in range(32):
        leaves: dict[str, Any] = {
            "thread": lambda i=i: i, "int32": int, "int64": int, "float32": np.float32, "fma": lambda a, b,
            c: np.float32(a * b + c), "ldg_f32": lambda at: source.ravel()[at // 4],
            "st_f32": written.__setitem__,
        }  # fmt: skip
        assert set(values) == set(leaves)
        FunctionType(code, leaves)(0, 0, np.float32(2.0))
    assert np.array_equal([written[4 * k] for k in range(target.size)], target.ravel())


@pytest.mark.slow
def test_it_is_compiled() -> None:
    for kind, loads in (("plain", 4 * MANY), ("none", 0)):
        built = build(Kernel(f"given_{kind}", _kernel, "llf", 32, 40, {"KIND": kind}), [80])[80]
        assert (built.ptx.count("ld.global.nc.f32"), built.stack, built.spilled) == (loads, 0, 0)


def _leaves_early(x: Any, n: int) -> int:
    if n > 0:
        return n
    x[0] = float32(1.0)
    return int32(0)


def _silent(x: Any, n: int) -> None:
    x[0] = float32(n)


def _takes_block(x: Any, n: int) -> None:
    x[0] = float32(n + block_x())


def _early(target: int) -> None:
    x = registers(float32(0.0), 1)
    st_f32(target, float32(_leaves_early(x, 1)))
    n = _leaves_early(x, 1)
    st_f32(target, float32(n))


def _nothing(target: int) -> None:
    x = registers(float32(0.0), 1)
    n = _silent(x, 1)  # type: ignore[func-returns-value]
    st_f32(target, float32(n))


def _too_few(target: int) -> None:
    x = registers(float32(0.0), 1)
    _silent(x)  # type: ignore[call-arg]
    st_f32(target, x[0])


def _shadows(target: int) -> None:
    x = registers(float32(0.0), 1)
    block_x = int32(5)
    _takes_block(x, block_x)
    st_f32(target, x[0])


def _unknown_size(target: int, n: int) -> None:
    st_f32(target, float32(shared(n)))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (_early, "_leaves_early is given registers, so it may return at its end only"),
        (_nothing, "_silent returns nothing"),
        (_too_few, "_silent takes 2 arguments"),
        (_shadows, "_takes_block is written out where block_x is something else"),
        (_unknown_size, "the size is not known"),
    ],
)
def test_what_cannot_be_written_out(body: Callable[..., None], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        written_out(body, {})  # type: ignore[arg-type]
