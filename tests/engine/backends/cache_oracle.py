"""Reads a page of the CPU's key/value store by its documented layout: plain numpy, float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.kv_formats import key_bytes, value_bytes

Array = np.ndarray[Any, Any]
NUMBERS = {"fp32": np.float32, "fp16": np.float16}


def plain_numbers(raw: Array, name: str) -> Array:
    """Bytes of fp32, fp16 or fp8 to float64, flat."""
    if name in NUMBERS:
        return raw.view(NUMBERS[name]).astype(np.float64)
    sign = np.where(raw & 0x80, -1.0, 1.0)
    exponent, mantissa = (raw >> 3 & 15).astype(int), (raw & 7).astype(float)
    return np.asarray(
        sign * np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    )


def codes_of(raw: Array, name: str) -> Array:
    """(..., bytes of a group) to (..., 32) multiples of the scale."""
    if name == "q8":
        return raw.view(np.int8).astype(np.float64)
    c = np.concatenate([raw & 15, raw >> 4], axis=-1).astype(np.float64) - 8
    return np.asarray(c + 3 / 512 * c**3)


def untransformed(groups: Array, dim: int) -> Array:
    """(..., groups, 32) to (..., dim): by the matrix whose entry (i, j) is the parity of the bits that i
    and j share.
    """
    i = np.arange(32)
    shared = i[:, None] & i[None, :]
    parity = sum((shared >> bit) & 1 for bit in range(5)) % 2
    h = np.where(parity, -1.0, 1.0) / np.sqrt(32)
    return np.asarray((groups @ h).reshape(*groups.shape[:-2], -1)[..., :dim])


def stored(cache: Any, layer: int, shape: Any, first_page: int) -> tuple[Array, Array]:
    """Keys and values (P, 256, G, D) of a layer as the store holds them; one sequence, beginning in
    `first_page`.
    """
    groups, dim, pages = shape.kv_heads, shape.head_dim, cache.page_count
    kind = cache.kind
    values = cache._values[layer].reshape(pages, groups, -1)
    assert values.shape[-1] == 256 * value_bytes(kind.values, dim)
    return (
        stored_keys(cache, layer, shape, first_page),
        _with_kept_vectors(values, dim, 1, _values, first_page)
        if kind.values == "q4"
        else _values(values, kind.values, dim),
    )


def stored_keys(cache: Any, layer: int, shape: Any, first_page: int) -> Array:
    """The keys alone, as in `stored`."""
    dim, name = shape.head_dim, cache.kind.keys
    keys = cache._keys[layer].reshape(cache.page_count, shape.kv_heads, -1)
    assert keys.shape[-1] == 256 * key_bytes(name, dim)
    return _with_kept_vectors(keys, dim, 2, _keys, first_page) if name == "q4" else _keys(keys, name, dim)


def _with_kept_vectors(raw: Array, dim: int, count: int, read: Any, first_page: int) -> Array:
    """q4: each head begins with the mean (for keys) and the first vector."""
    width = -(-dim // 32) * 32
    size = 4 * width * count
    kept = untransformed(
        raw[..., :size].copy().view(np.float32).astype(np.float64).reshape(*raw.shape[:2], count, -1, 32), dim
    )
    x = read(raw[..., -(-size // 256) * 256 :], "q4", dim)
    if count == 2:
        whole = x[first_page, :16].copy()
        x += kept[:, None, :, 0]
        x[first_page, :16] = whole
    x[first_page, 0] = kept[first_page, :, count - 1]
    return np.asarray(x)


def _keys(raw: Array, name: str, dim: int) -> Array:
    pages, groups = raw.shape[:2]
    raw = np.ascontiguousarray(raw).reshape(pages, groups, 16, -1)
    if not name.startswith("q"):
        k = plain_numbers(raw.reshape(-1), name).reshape(pages, groups, 16, dim, 16)
        return k.transpose(0, 2, 4, 1, 3).reshape(pages, 256, groups, dim)
    parts = raw.reshape(pages, groups, 16, -(-dim // 32), -1)
    scales = parts[..., :32].copy().view(np.float16).astype(np.float64)  # (P, G, 16, Q, 16)
    # (P, G, 16, Q, 16, 32)
    codes = codes_of(np.moveaxis(parts[..., 32:].reshape(*parts.shape[:4], -1, 16), -1, -2).copy(), name)
    k = codes * scales[..., None]
    return untransformed(k.transpose(0, 2, 4, 1, 3, 5).reshape(pages, 256, groups, -1, 32), dim)


def _values(raw: Array, name: str, dim: int) -> Array:
    pages, groups = raw.shape[:2]
    if not name.startswith("q"):
        v = plain_numbers(raw.reshape(-1), name).reshape(pages, groups, 256, -1)
        return v.transpose(0, 2, 1, 3)[..., :dim]
    parts = raw.reshape(pages, groups, -(-dim // 32), -1)
    scales = parts[..., :512].copy().view(np.float16).astype(np.float64)  # (P, G, Q, 256)
    codes = codes_of(parts[..., 512:].reshape(*scales.shape, -1).copy(), name)
    return untransformed((codes * scales[..., None]).transpose(0, 3, 1, 2, 4), dim)
