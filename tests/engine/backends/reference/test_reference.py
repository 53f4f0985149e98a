"""The reference backend against the same formulas in another form: torch's own functions, complex numbers,
dense caches.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.backends.base import AttentionShape, Forward, Ops, RotaryTable, Step
from engine.backends.reference.backend import ReferenceBackend
from engine.backends.reference.kv_cache import ReferenceCache
from engine.weights.tensor import FileTensor

RNG = np.random.default_rng(3)


def matrix(rows: int, columns: int) -> FileTensor:
    values = RNG.standard_normal((rows, columns)).astype(np.float32)
    return FileTensor("w", "F32", (rows, columns), values.reshape(-1).view(np.uint8))


def step(first: int, rows: int, pages: list[int], logit_rows: int | None = None) -> Step:
    ids = np.arange(rows, dtype=np.int32)
    return Step(
        ids,
        np.arange(first, first + rows, dtype=np.int32),
        np.array(pages, np.int32),
        rows if logit_rows is None else logit_rows,
    )


def run(forward: Forward, at: Step, cache: ReferenceCache | None = None) -> np.ndarray:
    backend = ReferenceBackend()
    cache = cache or ReferenceCache([AttentionShape(1, 1, 2, 1.0)], 1, "fp32")
    return backend.record(forward, cache, 1024).run(at)


def test_linear_embed_and_last_rows() -> None:
    backend = ReferenceBackend()
    table, weight = matrix(11, 7), matrix(5, 7)
    bias, kept, w = (
        RNG.standard_normal(5).astype(np.float32),
        backend.load_weight(table),
        backend.load_weight(weight),
    )

    def forward(ops: Ops) -> object:
        x = ops.embed(kept, scale=2.0)
        y = ops.linear(x, w, bias)
        return ops.last_rows(ops.linear(x, w, residual=y))

    found = run(forward, step(0, 6, [0], logit_rows=2))
    x = 2 * table.dequantise()[:6]
    expected = 2 * x @ weight.dequantise().T + bias
    np.testing.assert_allclose(found, expected[-2:], atol=1e-5)
    assert backend.weight_spec(table).nbytes == kept.nbytes == 11 * 7 * 4


def test_rms_norm_and_silu_mul() -> None:
    x, up = torch.randn(3, 33), torch.randn(3, 33)
    weight = torch.randn(33)
    found = run(lambda ops: ops.rms_norm(x, weight.numpy(), 1e-5), step(0, 3, [0]))
    np.testing.assert_allclose(found, torch.nn.functional.rms_norm(x, (33,), weight, 1e-5), atol=1e-6)
    found = run(lambda ops: ops.gated(x, up, "silu"), step(0, 3, [0]))
    np.testing.assert_allclose(found, torch.nn.functional.silu(x) * up, atol=1e-6)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("rotary", [6, 10])
def test_rope_is_a_rotation_of_complex_numbers(interleaved: bool, rotary: int) -> None:
    heads, dim, first, rows = 3, 10, 4, 5
    angles = np.outer(np.arange(16), 0.3 ** np.arange(rotary // 2))
    table = RotaryTable(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), interleaved)
    x = RNG.standard_normal((rows, heads * dim)).astype(np.float32)
    found = run(lambda ops: ops.rope(torch.from_numpy(x), table, heads), step(first, rows, [0])).reshape(
        rows, heads, dim
    )

    parts = x.reshape(rows, heads, dim)
    real, imaginary = (
        (parts[..., 0:rotary:2], parts[..., 1:rotary:2])
        if interleaved
        else np.split(parts[..., :rotary], 2, axis=-1)
    )
    rotated = (real + 1j * imaginary) * np.exp(1j * angles[first : first + rows])[:, None, :]
    expected = parts.copy()
    if interleaved:
        expected[..., 0:rotary:2], expected[..., 1:rotary:2] = rotated.real, rotated.imag
    else:
        expected[..., :rotary] = np.concatenate([rotated.real, rotated.imag], axis=-1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["auto", "fp16", "fp32"])
def test_attention_over_scattered_pages(dtype: str) -> None:
    """Steps of odd sizes over three pages in mixed order, against torch's attention over all keys at once."""
    shape = AttentionShape(6, 2, 10, 0.37)
    total, pages = 600, [3, 0, 2]
    q, k, v = torch.randn(total, 60), torch.randn(total, 20), torch.randn(total, 20)
    backend = ReferenceBackend()
    cache = backend.new_cache([shape] * 2, 4, dtype)
    assert isinstance(cache, ReferenceCache)
    assert cache.nbytes == 2 * 2 * 4 * 256 * 2 * 10 * (2 if dtype == "fp16" else 4)
    found, start = [], 0
    for rows in (1, 2, 250, 7, 253, 87):
        part = slice(start, start + rows)
        forward = lambda ops, part=part: ops.attention(1, q[part], k[part], v[part], shape)  # noqa: E731
        found.append(run(forward, step(start, rows, pages[: -(-(start + rows) // 256)]), cache).copy())
        start += rows
    assert start == total

    def by_head(x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.reshape(total, heads, 10).transpose(0, 1).repeat_interleave(6 // heads, dim=0)

    expected = torch.nn.functional.scaled_dot_product_attention(
        by_head(q, 6), by_head(k, 2), by_head(v, 2), is_causal=True, scale=0.37
    )
    expected = expected.transpose(0, 1).reshape(total, 60)
    np.testing.assert_allclose(np.concatenate(found), expected, atol=4e-3 if dtype == "fp16" else 1e-5)
    assert not cache.keys[0].any()
    assert not any(keys[1].any() for keys in cache.keys)


def test_copy_page_copies_every_layer() -> None:
    shapes = [AttentionShape(2, 2, 4, 1.0), AttentionShape(6, 3, 5, 1.0)]
    cache = ReferenceBackend().new_cache(shapes, 3, "fp32")
    assert isinstance(cache, ReferenceCache)
    parts = [*cache.keys, *cache.values]
    for part in parts:
        part[1] = torch.randn(part[1].shape)
    cache.copy_page(1, 2)
    for part in parts:
        assert torch.equal(part[2], part[1])
        assert not part[0].any()
        assert part[1].any()


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_layers_of_other_shapes_keep_their_pages(dtype: str) -> None:
    shapes = [AttentionShape(2, 2, 4, 1.0), AttentionShape(6, 3, 5, 1.0)]
    one, other = (ReferenceBackend().new_cache(shapes, 3, dtype) for _ in range(2))
    assert isinstance(one, ReferenceCache)
    assert isinstance(other, ReferenceCache)
    for part in (*one.keys, *one.values):
        part[1] = torch.randn(part[1].shape)
    assert (
        one.page_bytes == len(one.read_page(1)) == 2 * 256 * (2 * 4 + 3 * 5) * (4 if dtype == "fp32" else 2)
    )
    other.write_page(2, one.read_page(1))
    for mine, theirs in zip((*one.keys, *one.values), (*other.keys, *other.values), strict=True):
        assert torch.equal(mine[1], theirs[2])
        assert not theirs[1].any()
