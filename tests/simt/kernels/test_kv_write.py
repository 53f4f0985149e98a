"""The kernels that write the store: body against twin, and the twin against the definition of the formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.kernels.kv_write.kv_write import kv_write_kernel
from engine.backends.cuda.kernels.kv_write.mean import key_mean_call
from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout, side_bytes
from engine.backends.kv_formats import QUANTISED
from engine.core import PAGE_TOKENS
from tests.simt import agree
from tests.simt.agree import At, both


def step(rng: Any, rows: int, heads: int, ratio: int, dim: int) -> list[Any]:
    """q, k and v of a step, rows padded as buffers are."""
    widths = (heads * ratio * dim, heads * dim, heads * dim)
    offset = rng.standard_normal((1, widths[1])) * 2
    out = []
    for i, width in enumerate(widths):
        x = rng.standard_normal((rows, width)) + (offset if i == 1 else 0)
        x[:, :: max(1, dim // 3)] *= 6
        out.append(np.pad(x, ((0, 0), (0, -width % 16))).astype(np.float32))
    return out


def launch_arguments(arrays: list[Any], ratio: int, dim: int) -> list[Any]:
    q, k, v = arrays[:3]
    strides = [x.strides[0] for x in (q, k, v)]
    return [
        At(0),
        strides[0],
        At(1),
        strides[1],
        At(2),
        strides[2],
        At(3),
        At(4),
        At(5),
        At(6),
        0,
        ratio,
        -(-dim // 32),
        0,
        1,
    ]


def stores(rng: Any, kinds: tuple[str, str], heads: int, dim: int, pages: int) -> list[Any]:
    """Stores of keys and values filled with what was there before: small numbers."""
    return [
        rng.integers(0, 0x38, pages * heads * side_bytes(side, name, dim), dtype=np.uint8)
        for side, name in zip((KEYS, VALUES), kinds, strict=True)
    ]


CASES = [
    (("fp32", "fp16"), 40, 255),
    (("fp16", "fp8"), 9, 0),
    (("q8", "q8"), 40, 255),
    (("q8", "q4"), 8, 0),
    (("q4", "fp16"), 8, 15),
]
REGISTERED = [
    (("fp16", "fp16"), 64, 255), (("fp16", "fp16"), 128, 255), (("fp8", "fp8"), 128, 0),
    (("q8", "q8"), 128, 255), (("q8", "q4"), 128, 255), (("q4", "q4"), 128, 255),
]  # fmt: skip
MORE = [
    *REGISTERED,
    (("fp8", "fp32"), 40, 0), (("q8", "q8"), 8, 0), (("q8", "q4"), 64, 255), (("q4", "q4"), 40, 0),
    (("q4", "q4"), 64, 255),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kinds", "dim", "position"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)]
)
def test_body_and_twin_write_the_same_bytes(kinds: tuple[str, str], dim: int, position: int) -> None:
    rng = np.random.default_rng(dim)
    rows, heads, ratio = 2, 1 if kinds[0] == "q4" else 2, 3
    arrays = [*step(rng, rows, heads, ratio, dim), *stores(rng, kinds, heads, dim, 3)]
    arrays += [np.arange(position, position + rows, dtype=np.int32), np.array([2, 0], np.int32)]
    kernel = kv_write_kernel(*kinds, dim)
    found, expected = both(kernel, (heads, rows, 2), launch_arguments(arrays, ratio, dim), arrays)
    for side, layout in ((3, Layout(KEYS, kinds[0], dim)), (4, Layout(VALUES, kinds[1], dim))):
        assert (found[side] != arrays[side]).any()
        assert same(layout, found[side], expected[side])


def same(layout: Layout, found: Any, expected: Any) -> bool:
    """Whether two stores have the same bytes; on a device codes and scales may be one step off, and kept
    numbers by their rounding."""
    if not agree.CONTRACTED or layout.name not in QUANTISED:
        return bool((found == expected).all())
    one, other = (x.reshape(-1, layout.block).astype(np.int64) for x in (found, expected))
    codes, scales = (
        slice(0, layout.scales),
        slice(layout.scales, layout.scales + 2 * PAGE_TOKENS * layout.groups),
    )
    if layout.name == "q8":
        steps = [(x[:, codes] + 128) % 256 for x in (one, other)]
    else:
        steps = [np.concatenate([x[:, codes] & 15, x[:, codes] >> 4], axis=1) for x in (one, other)]
    words = [
        np.ascontiguousarray(x.reshape(-1, layout.block)[:, scales]).view(np.uint16).astype(np.int64)
        for x in (found, expected)
    ]
    kept = [
        np.ascontiguousarray(x.reshape(-1, layout.block)[:, scales.stop :]).view(np.float32)
        for x in (found, expected)
    ]
    near = all(bool((np.abs(a - b) <= 1).all()) for a, b in (steps, words))
    return near and bool(np.allclose(*kept, rtol=1e-5, atol=1e-5))


@pytest.mark.parametrize("name", ["q8", "q4"])
def test_a_device_may_be_one_step_off_and_no_more(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(KEYS, name, 64)
    store = np.full(2 * layout.block, 0x55, np.uint8)
    for at in (0, layout.scales, layout.block + 7):
        moved = [store.copy() for _ in range(2)]
        for steps, copy in enumerate(moved, 1):
            copy[at] += steps
        with monkeypatch.context() as patched:
            patched.setattr(agree, "CONTRACTED", False)
            assert not same(layout, moved[0], store)
        with monkeypatch.context() as patched:
            patched.setattr(agree, "CONTRACTED", True)
            assert same(layout, moved[0], store)
            assert not same(layout, moved[1], store)


@pytest.mark.parametrize("dim", [40, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", [0, 1, 2])
def test_means_of_keys(dim: int, page: int) -> None:
    """The mean that q4 keys are differences from: of the first positions, of the first page, of a later
    one."""
    rng, heads, layout = np.random.default_rng(page), 2, Layout(KEYS, "q4", dim)
    store = rng.integers(0, 256, (3, heads, layout.block), dtype=np.uint8)
    count = 2 * PAGE_TOKENS * layout.groups
    scales = rng.uniform(0.01, 0.1, (3, heads, count // 2)).astype(np.float16)
    store[..., layout.scales : layout.scales + count] = scales.view(np.uint8)
    kept = rng.standard_normal((3, heads, (layout.block - layout.scales - count) // 4)).astype(np.float32)
    store[..., layout.scales + count :] = kept.view(np.uint8)
    call = key_mean_call((0, 0), heads, dim, page)
    (found, _), (expected, _) = both(
        call.kernel, call.blocks(1), [At(0), At(1), page], [store, np.array([2, 0, 1], np.int32)]
    )
    mean = slice(layout.mean, layout.mean + 4 * 32 * layout.groups)
    numbers = [np.ascontiguousarray(x[..., mean]).view(np.float32) for x in (found, expected)]
    np.testing.assert_allclose(*numbers, rtol=1e-5, atol=1e-5)
    for x in (found, expected):
        x[..., mean] = store[..., mean]
        np.testing.assert_array_equal(x, store)
    assert (numbers[0] != np.ascontiguousarray(store[..., mean]).view(np.float32)).any()
