"""Plain keys and values out of the store: body against twin.

What they hold is tested in `test_kv_write_formats`.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cuda.kernels.kv_write.gather import THREADS, gather_kernel
from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout
from tests.simt import agree
from tests.simt.agree import At, both

CASES = [
    (KEYS, "q4", 40, True, 0), (KEYS, "q4", 64, True, 254), (VALUES, "q4", 32, False, 0),
    (KEYS, "q8", 80, True, 255), (VALUES, "q8", 12, False, 3), (KEYS, "fp16", 64, True, 250),
    (VALUES, "fp16", 10, True, 0), (KEYS, "fp8", 16, True, 255), (KEYS, "fp8", 9, False, 0),
    (VALUES, "fp32", 24, False, 254), (VALUES, "fp32", 13, True, 0),
]  # fmt: skip
REGISTERED = [
    (side, name, 128, fp16, 250)
    for fp16 in (True, False)
    for side, name in ((KEYS, "fp16"), (KEYS, "q8"), (KEYS, "q4"), (VALUES, "q8"), (VALUES, "q4"))
]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in REGISTERED]


@pytest.mark.parametrize(("side", "name", "dim", "fp16", "first"), [*CASES, *SLOW])
def test_body_and_twin_give_the_same_numbers(side: str, name: str, dim: int, fp16: bool, first: int) -> None:
    rng = np.random.default_rng(dim)
    layout, heads, count = Layout(side, name, dim), 2, 18
    # as fp16 and as float32 small and finite
    store = rng.integers(0, 0x38, (3, heads, layout.block), dtype=np.uint8)
    if name in ("q8", "q4"):
        store[..., : layout.scales] = rng.integers(0, 256, store[..., : layout.scales].shape)
    if name == "fp8":
        store = rng.integers(0, 256, store.shape, dtype=np.uint8)
        store[store & 127 == 127] = 0
    target = np.full((count, heads, dim), 7, np.float16 if fp16 else np.float32)
    kernel = gather_kernel(side, name, dim, fp16)
    blocks = (-(-count * int(kernel.constants["CHUNKS"]) // THREADS), heads, 1)
    (*_, found), (*_, expected) = both(
        kernel, blocks, [At(0), At(1), At(2), first, count], [store, np.array([2, 0], np.int32), target]
    )
    if agree.CONTRACTED:
        size = np.abs(expected.astype(np.float64)).max(axis=2, keepdims=True)
        assert (np.abs(found.astype(np.float64) - expected) <= size * (2.0**-10 if fp16 else 2.0**-20)).all()
    else:
        np.testing.assert_array_equal(found, expected)
    assert (found != 7).any(axis=(1, 2)).all()
