"""The paged store on the fake device: its layout, copies of pages, and steps that may be cut anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape
from engine.backends.cuda.kernels.kv_write.kv_write import kv_write_kernel, segments
from engine.backends.cuda.kv_cache import KEYS, VALUES, CudaCache, Layout, page_bytes, side_bytes
from engine.backends.kv_formats import cache_type, key_bytes
from engine.core import PAGE_TOKENS
from engine.errors import NotEnoughMemory
from tests.simt.agree import aligned
from tests.simt.fake import FakeDevice
from tests.simt.interpreter import Memory, run
from tests.simt.kernels.test_kv_write import step, stores
from tests.simt.kv_write_steps import KvWriteSteps, sequence

FORMATS = ("fp32", "fp16", "fp8", "q8", "q4")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dim", [8, 9, 40, 64, 80, 128, 512])
def test_parts_of_a_block_are_aligned_and_do_not_meet(name: str, dim: int) -> None:
    for side, vectors in ((KEYS, 2), (VALUES, 1)):
        layout = Layout(side, name, dim)
        parts = [layout.scales, layout.mean, layout.first] if name in ("q8", "q4") else [layout.scales]
        assert all(part % 16 == 0 for part in parts)
        assert layout.block % 256 == 0
        assert PAGE_TOKENS * layout.row <= layout.scales <= layout.block
        if name == "q4":
            assert layout.block - layout.mean >= vectors * 128 * layout.groups
            assert layout.first - layout.mean == (vectors - 1) * 128 * layout.groups
    assert side_bytes(KEYS, name, dim) == PAGE_TOKENS * key_bytes(name, dim)


@pytest.mark.parametrize("kind", ["fp16", "q8/q4", "q4"])
def test_pages_are_copied_read_and_written_in_all_layers_and_devices(kind: str) -> None:
    shape = AttentionShape(2, 2, 40, 1.0)
    devices = [FakeDevice(index=0), FakeDevice(index=1)]
    cache = CudaCache([devices[0], devices[1], devices[0]], [shape] * 3, 3, cache_type(kind))
    assert cache.page_bytes == 3 * page_bytes(cache_type(kind), 2, 40)
    assert cache.nbytes == 3 * cache.page_bytes == sum(device.taken for device in devices)
    assert not cache.read_page(1).any()
    data = np.random.default_rng(0).integers(0, 256, (2, cache.page_bytes), dtype=np.uint8)
    held = data.copy()
    for page in (1, 2):
        cache.write_page(page, held[page - 1])
        held[page - 1] = 0
    cache.copy_page(2, 0)
    cache.copy_page(1, 1)
    cache.write_page(2, data[0])
    np.testing.assert_array_equal(cache.read_page(0), data[1])
    np.testing.assert_array_equal(cache.read_page(1), data[0])
    np.testing.assert_array_equal(cache.read_page(2), data[0])
    assert len({cache.addresses(layer) for layer in range(3)}) == 3
    assert all(address % 256 == 0 for layer in range(3) for address in cache.addresses(layer))
    cache.close()


def test_a_layer_lies_where_addresses_say() -> None:
    device, shape = FakeDevice(), AttentionShape(2, 2, 16, 1.0)
    cache = CudaCache([device, device], [shape] * 2, 2, cache_type("q8/fp16"))
    data = np.arange(cache.page_bytes, dtype=np.int64).astype(np.uint8)
    cache.write_page(1, data)
    device.synchronize()
    keys, values = 2 * side_bytes(KEYS, "q8", 16), 2 * side_bytes(VALUES, "fp16", 16)
    at = 0
    for layer in range(2):
        for address, size in zip(cache.addresses(layer), (keys, values), strict=True):
            np.testing.assert_array_equal(
                device.memory.view(address + size, np.uint8, size), data[at : at + size]
            )
            at += size


def test_layers_of_other_shapes_keep_their_pages() -> None:
    kind, shapes = cache_type("q8/fp16"), [AttentionShape(2, 2, 16, 1.0), AttentionShape(3, 1, 40, 1.0)]
    devices = [FakeDevice(index=0), FakeDevice(index=1)]
    cache = CudaCache(devices, shapes, 3, kind)
    assert cache.page_bytes == page_bytes(kind, 2, 16) + page_bytes(kind, 1, 40)
    data = np.random.default_rng(1).integers(0, 256, cache.page_bytes, dtype=np.uint8)
    cache.write_page(1, data)
    cache.copy_page(1, 2)
    np.testing.assert_array_equal(cache.read_page(2), data)
    assert not cache.read_page(0).any()
    cache.close()


def test_no_room_is_said() -> None:
    with pytest.raises(NotEnoughMemory):
        CudaCache(
            [FakeDevice(total_memory=1 << 20)] * 4,
            [AttentionShape(8, 8, 128, 1.0)] * 4,
            4,
            cache_type("fp16"),
        )


@pytest.mark.parametrize("kind", ["q8/q4", "q4", "fp8"])
@pytest.mark.parametrize("start", [14, 254, 510])
def test_steps_may_be_cut_anywhere(kind: str, start: int) -> None:
    """Rows together, one by one, and by the way of long steps give the same bytes."""
    shape, pages = AttentionShape(4, 2, 32, 1.0), [1, 2, 0]
    length = start + 5
    rows = sequence(start, length, shape)
    results: list[Any] = []
    for cuts, many in (
        ([start, length], False),
        ([*range(start, length + 1)], False),
        ([start, length], True),
    ):
        steps = KvWriteSteps(kind, shape, pages)
        for begin, end in zip([0, *cuts[:-1]], cuts, strict=True):
            steps.write(begin, (rows[0][begin:end], rows[1][begin:end], rows[2][begin:end]), many=many)
        results.append(steps.bytes())
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in ((14, 4), (254, 3))]


@pytest.mark.parametrize(("position", "rows"), [(15, 2), *SLOW])
def test_bodies_write_rows_together_as_one_by_one(position: int, rows: int) -> None:
    rng = np.random.default_rng(position)
    x = step(rng, rows, 1, 2, 8)
    before = stores(rng, ("q4", "q4"), 1, 8, 3)
    kernel, outcomes = kv_write_kernel("q4", "q4", 8), []
    for count in (rows, 1):
        kept = [aligned(array) for array in before]
        for first in range(0, rows, count):
            place = np.arange(position + first, position + first + count, dtype=np.int32)
            table = np.array([2, 0], np.int32)
            arrays = [*(aligned(array[first : first + count]) for array in x), place, table]
            memory = Memory(*arrays, *kept)
            q, k, v, *given = (array.ctypes.data for array in arrays)
            strides = [array.strides[0] for array in arrays[:3]]
            addresses = (
                q,
                strides[0],
                k,
                strides[1],
                v,
                strides[2],
                *(array.ctypes.data for array in kept),
                *given,
            )
            run(kernel, (1, count, 2), (*addresses, 0, 2, 1, 0, 1), memory)
        outcomes.append(kept)
    for one, other, start in zip(*outcomes, before, strict=True):
        np.testing.assert_array_equal(one, other)
        assert (one != start).any()


def test_segments_cover_rows_and_begin_with_their_mean() -> None:
    assert list(segments(0, 600)) == [(0, 16, -1), (16, 240, 0), (256, 256, 1), (512, 88, 2)]
    assert list(segments(16, 3)) == [(0, 3, 0)]
    assert list(segments(17, 3)) == [(0, 3, -1)]
    assert list(segments(255, 3)) == [(0, 1, -1), (1, 2, 1)]
    assert list(segments(512, 1)) == [(0, 1, 2)]
