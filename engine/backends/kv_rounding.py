"""What each cache format makes of numbers, in plain torch: the definition, and the oracle of the store
kernels.

q8 follows exllamav2's cache (codes of turned groups, scale = extreme / 128), with a signed scale: the extreme
itself is then the code -128, where an unsigned one would need the code 128, which does not exist. q4 does the
same with sixteen levels that are closer at zero, and tries several scales. Both treat keys with more care;
see `steered`.
"""

from __future__ import annotations

import math

import torch

from engine.backends.kv_formats import GROUP, Q4_EXTREME, Q4_LEVELS, SCALE_SHARES, STEERING

_E4M3_LARGEST = 448.0
_FP16_LARGEST = 65504.0
_LEVELS = torch.tensor(Q4_LEVELS)
_BORDERS = (_LEVELS[1:] + _LEVELS[:-1]) / 2


def rounded(x: torch.Tensor, name: str) -> torch.Tensor:
    """x (..., D) float32 as format `name` gives it back: float32, or float16 for "fp16".

    Keys as q8 and q4 are another matter: `steered`.

    fp8, q8 and q4 read NaN as 0; q8 and q4 limit numbers to fp16's range before the transform.
    """
    if name == "fp32":
        return x
    if name == "fp16":
        return x.to(torch.float16)
    if name == "fp8":
        return limited(x, _E4M3_LARGEST).to(torch.float8_e4m3fn).float()
    r = turned(limited(x))
    return turned_back((_q8 if name == "q8" else _q4)(r, torch.zeros_like(r)), x.shape[-1])


def steered(k: torch.Tensor, q: torch.Tensor, mean: torch.Tensor, name: str) -> torch.Tensor:
    """Keys k (T, G, D) as "q8" or "q4" gives them back when they are differences from `mean` (G, D), which q8
    takes as zero.

    q (T, G, R, D) are the rows' own queries. Two things make four bits enough. Adding one vector to all keys
    changes no softmax, so only differences from a mean (of earlier keys, which attention adds again) need be
    exact, and they are far smaller than keys. And queries of one head have much in common, so an error along
    a token's own queries is an error in nearly all scores to come: entry by entry, what rounding has done
    along that direction is made up for by the entries to come, as GPTQ does (arXiv 2210.17323) for the metric
    I + STEERING a a^T, a being the unit vector along the sum of the R unit queries. q8 needs only the second.
    """
    unit = q / q.norm(dim=-1, keepdim=True)
    aim = turned(limited(torch.where(q.norm(dim=-1, keepdim=True) > 0, unit, 0.0).sum(-2)))
    length = aim.flatten(-2).norm(dim=-1)[..., None, None]
    differences, aim = turned(limited(k)) - turned(mean), torch.where(length > 0, aim / length, 0.0)
    return turned_back((_q8 if name == "q8" else _q4)(differences, aim), k.shape[-1]) + mean


def _q8(r: torch.Tensor, aim: torch.Tensor) -> torch.Tensor:
    """Turned groups (..., n, 32): scale = fp16(-extreme / 128), codes in -128 .. 127, rounded one entry
    after the other.
    """
    scale = (_extreme(r) / -128).to(torch.float16).float()
    inverse = torch.where(scale == 0, 0.0, 1 / scale)
    gain, _ = _feedback(aim)
    error = torch.zeros(r.shape[:-2])
    out = torch.empty_like(r)
    for g in range(r.shape[-2]):
        for d in range(GROUP):
            wanted = (r[..., g, d] - gain[..., g, d] * error) * inverse[..., g, 0]
            out[..., g, d] = wanted.round().clamp(-128, 127) * scale[..., g, 0]
            error = error + aim[..., g, d] * (out[..., g, d] - r[..., g, d])
    return out


def _q4(r: torch.Tensor, aim: torch.Tensor) -> torch.Tensor:
    """Turned groups (..., n, 32), rounded one entry after the other for each scale; the scale of lowest
    cost is taken.
    """
    gain, tail = _feedback(aim)
    scales = _extreme(r).clamp(-Q4_EXTREME, Q4_EXTREME) / _LEVELS[0] * torch.tensor(SCALE_SHARES)
    scales = scales.to(torch.float16).float()  # (..., n, S)
    inverse = torch.where(scales == 0, 0.0, 1 / scales)
    before = torch.zeros(r.shape[:-2])
    out = torch.empty_like(r)
    for g in range(r.shape[-2]):
        scale, tried = scales[..., g, :], []
        error, cost = before[..., None].expand(scale.shape), torch.zeros_like(scale)
        for d in range(GROUP):
            wanted = (r[..., g, d, None] - gain[..., g, d, None] * error) * inverse[..., g, :]
            tried.append(_LEVELS[torch.bucketize(wanted.contiguous(), _BORDERS)] * scale)
            miss = tried[-1] - r[..., g, d, None]
            error, cost = error + aim[..., g, d, None] * miss, cost + miss**2
        best = (cost + error**2 / tail[..., g, -1, None]).argmin(-1, keepdim=True)
        out[..., g, :] = torch.stack(tried, -1).gather(-2, best[..., None].expand(*best.shape, GROUP))[
            ..., 0, :
        ]
        before = error.gather(-1, best)[..., 0]
    return out


def _feedback(aim: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What share of the error so far along `aim` (..., n, 32) each entry makes up for, and its `tail`.

    That is 1 / STEERING + the sum of squares of the aim's later entries: an error e along the aim that is
    left to them costs e^2 / tail.
    """
    squares = aim.flatten(-2) ** 2
    tail = (1 / STEERING + squares.flip(-1).cumsum(-1).flip(-1) - squares).reshape(aim.shape)
    return aim / (tail + aim**2), tail


def _extreme(r: torch.Tensor) -> torch.Tensor:
    """The entry of largest magnitude (..., 1); of two, the positive one."""
    top, bottom = r.amax(-1, keepdim=True), r.amin(-1, keepdim=True)
    return torch.where(top >= -bottom, top, bottom)


def limited(x: torch.Tensor, largest: float = _FP16_LARGEST) -> torch.Tensor:
    """NaN becomes 0, and what lies beyond `largest` becomes that."""
    return torch.nan_to_num(x, 0.0, largest, -largest).clamp(-largest, largest)


def turned(x: torch.Tensor) -> torch.Tensor:
    """(..., D) padded with zeros to whole groups and transformed: (..., n, 32)."""
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % GROUP))
    return padded.reshape(*x.shape[:-1], -1, GROUP) @ hadamard()


def turned_back(r: torch.Tensor, dim: int) -> torch.Tensor:
    """(..., n, 32) to (..., dim): the transform is its own inverse."""
    return (r @ hadamard()).flatten(-2)[..., :dim]


def hadamard() -> torch.Tensor:
    """The orthonormal Walsh-Hadamard matrix (32, 32) of Sylvester's construction: H(2 n) = [[H, H], [H,
    -H]] / sqrt 2.
    """
    h = torch.ones(1, 1)
    while len(h) < GROUP:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h / math.sqrt(GROUP)
