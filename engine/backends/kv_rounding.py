"""How each cache format rounds numbers, in plain torch: the reference for the kernels that write the cache.

q8 follows exllamav2's cache (codes of groups after a Hadamard transform, scale = extreme / 128), but with a
signed scale: the extreme always becomes the code -128, while a positive one would otherwise need the code
128, which does not exist. q4 has 16 levels that are closer together near zero, and tries several scales. Both
use query-aware rounding for keys; see `rounded_keys`.
"""

from __future__ import annotations

import math

import torch

from engine.backends.kv_formats import GROUP, Q4_EXTREME, Q4_LEVELS, QUERY_ERROR_WEIGHT, SCALE_SHARES

_E4M3_LARGEST = 448.0
_FP16_LARGEST = 65504.0
_LEVELS = torch.tensor(Q4_LEVELS)
_BORDERS = (_LEVELS[1:] + _LEVELS[:-1]) / 2


def rounded(x: torch.Tensor, name: str) -> torch.Tensor:
    """x (..., D) float32 as format `name` reads it back: float32, or float16 for "fp16".

    fp8, q8 and q4 read NaN as 0; q8 and q4 clamp numbers to fp16's range before the transform. For keys in q8
    and q4 see `rounded_keys`.
    """
    if name == "fp32":
        return x
    if name == "fp16":
        return x.to(torch.float16)
    if name == "fp8":
        return limited(x, _E4M3_LARGEST).to(torch.float8_e4m3fn).float()
    r = hadamard_transform(limited(x))
    return inverse_hadamard((_q8 if name == "q8" else _q4)(r, torch.zeros_like(r)), x.shape[-1])


def rounded_keys(k: torch.Tensor, q: torch.Tensor, mean: torch.Tensor, name: str) -> torch.Tensor:
    """Query-aware rounding: keys k (T, G, D) as "q8" or "q4" reads them back, stored as differences from
    `mean` (G, D), which is zero for q8.

    q (T, G, R, D) are the queries of the same rows. Two things make four bits enough. Adding one vector to
    all keys changes no softmax, so only the differences from a mean of earlier keys need precision, and they
    are far smaller than the keys. And the queries of a head have much in common, so an error along a token's
    own queries is an error in nearly all later scores: entry by entry, the error so far along that direction
    is compensated by the entries that follow, as in GPTQ (arXiv 2210.17323), for the metric I +
    QUERY_ERROR_WEIGHT a a^T, where a is the unit vector along the sum of the R unit queries. q8 uses only the
    second.
    """
    unit = q / q.norm(dim=-1, keepdim=True)
    direction = hadamard_transform(limited(torch.where(q.norm(dim=-1, keepdim=True) > 0, unit, 0.0).sum(-2)))
    length = direction.flatten(-2).norm(dim=-1)[..., None, None]
    direction = torch.where(length > 0, direction / length, 0.0)
    differences = hadamard_transform(limited(k)) - hadamard_transform(mean)
    return inverse_hadamard((_q8 if name == "q8" else _q4)(differences, direction), k.shape[-1]) + mean


def _q8(r: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Groups (..., n, 32): scale = fp16(-extreme / 128), codes in -128 .. 127, rounded entry by entry."""
    scale = (_extreme(r) / -128).to(torch.float16).float()
    inverse = torch.where(scale == 0, 0.0, 1 / scale)
    gain, _ = _feedback(direction)
    error = torch.zeros(r.shape[:-2])
    out = torch.empty_like(r)
    for g in range(r.shape[-2]):
        for d in range(GROUP):
            target = (r[..., g, d] - gain[..., g, d] * error) * inverse[..., g, 0]
            out[..., g, d] = target.round().clamp(-128, 127) * scale[..., g, 0]
            error = error + direction[..., g, d] * (out[..., g, d] - r[..., g, d])
    return out


def _q4(r: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Groups (..., n, 32), rounded entry by entry with each scale; the scale of lowest cost wins."""
    gain, tail = _feedback(direction)
    scales = _extreme(r).clamp(-Q4_EXTREME, Q4_EXTREME) / _LEVELS[0] * torch.tensor(SCALE_SHARES)
    scales = scales.to(torch.float16).float()  # (..., n, S)
    inverse = torch.where(scales == 0, 0.0, 1 / scales)
    before = torch.zeros(r.shape[:-2])
    out = torch.empty_like(r)
    for g in range(r.shape[-2]):
        scale, tried = scales[..., g, :], []
        error, cost = before[..., None].expand(scale.shape), torch.zeros_like(scale)
        for d in range(GROUP):
            target = (r[..., g, d, None] - gain[..., g, d, None] * error) * inverse[..., g, :]
            tried.append(_LEVELS[torch.bucketize(target.contiguous(), _BORDERS)] * scale)
            miss = tried[-1] - r[..., g, d, None]
            error, cost = error + direction[..., g, d, None] * miss, cost + miss**2
        best = (cost + error**2 / tail[..., g, -1, None]).argmin(-1, keepdim=True)
        out[..., g, :] = torch.stack(tried, -1).gather(-2, best[..., None].expand(*best.shape, GROUP))[
            ..., 0, :
        ]
        before = error.gather(-1, best)[..., 0]
    return out


def _feedback(direction: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The share of the error so far along `direction` (..., n, 32) that each entry compensates, and its tail.

    The tail is 1 / QUERY_ERROR_WEIGHT plus the sum of squares of the direction's later entries: an error e
    that is left to them costs e^2 / tail.
    """
    squares = direction.flatten(-2) ** 2
    tail = (1 / QUERY_ERROR_WEIGHT + squares.flip(-1).cumsum(-1).flip(-1) - squares).reshape(direction.shape)
    return direction / (tail + direction**2), tail


def _extreme(r: torch.Tensor) -> torch.Tensor:
    """The entry of largest magnitude (..., 1); of two equal ones, the positive one."""
    top, bottom = r.amax(-1, keepdim=True), r.amin(-1, keepdim=True)
    return torch.where(top >= -bottom, top, bottom)


def limited(x: torch.Tensor, largest: float = _FP16_LARGEST) -> torch.Tensor:
    """x with NaN as 0, clamped to -largest .. largest."""
    return torch.nan_to_num(x, 0.0, largest, -largest).clamp(-largest, largest)


def hadamard_transform(x: torch.Tensor) -> torch.Tensor:
    """(..., D), padded with zeros to whole groups, as (..., n, 32) after the Walsh-Hadamard transform."""
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % GROUP))
    return padded.reshape(*x.shape[:-1], -1, GROUP) @ hadamard_matrix()


def inverse_hadamard(r: torch.Tensor, dim: int) -> torch.Tensor:
    """(..., n, 32) to (..., dim): the transform is its own inverse."""
    return (r @ hadamard_matrix()).flatten(-2)[..., :dim]


def hadamard_matrix() -> torch.Tensor:
    """The orthonormal Walsh-Hadamard matrix (32, 32) of Sylvester's construction: H(2 n) = [[H, H], [H,
    -H]] / sqrt 2.
    """
    h = torch.ones(1, 1)
    while len(h) < GROUP:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h / math.sqrt(GROUP)
