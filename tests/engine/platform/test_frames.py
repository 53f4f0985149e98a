"""Calls at any depth take no memory from the system each."""

from __future__ import annotations

import pytest

from engine.platform.frames import in_one_piece

resource = pytest.importorskip("resource")
CALLS, DEPTHS = 500, 300


def large() -> None:
    """A frame that is larger than those of `new_pages`: at some depth it begins another piece."""
    a = b = c = d = e = f = g = h = i = j = k = m = n = o = p = q = r = s = t = u = v = w = x = y = z = None
    del a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x, y, z


def new_pages(depth: int) -> int:
    """Pages that the system gave to this process during calls within so many others."""
    if depth:
        return new_pages(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        large()
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def most() -> int:
    return max([new_pages(depth) for depth in range(DEPTHS)])


def test_frames_of_nested_calls_share_a_piece_of_memory() -> None:
    assert in_one_piece(most)() < CALLS / 5
