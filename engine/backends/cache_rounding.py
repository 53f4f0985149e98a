"""What each cache format makes of numbers, in plain torch: the oracle of the store kernels."""

from __future__ import annotations

import math

import torch

from engine.backends.cache_types import GROUP

_E4M3_LARGEST = 448.0
_FP16_LARGEST = 65504.0
_LEVELS = {"q8": 128, "q4": 8}


def rounded(x: torch.Tensor, name: str) -> torch.Tensor:
    """x (..., D) float32 as format `name` gives it back: float32, or float16 for "fp16". See `engine.backends.cache_types`.

    fp8, q8 and q4 read NaN as 0; q8 and q4 limit numbers to fp16's range before the transform.
    """
    if name == "fp32":
        return x
    if name == "fp16":
        return x.to(torch.float16)
    if name == "fp8":
        limited = torch.nan_to_num(x, 0.0, _E4M3_LARGEST, -_E4M3_LARGEST).clamp(-_E4M3_LARGEST, _E4M3_LARGEST)
        return limited.to(torch.float8_e4m3fn).float()
    codes, scales = quantised(x, name)
    turned = (codes * scales[..., None]) @ hadamard()  # the transform is its own inverse
    return turned.flatten(-2)[..., : x.shape[-1]]


def quantised(x: torch.Tensor, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes (..., groups, 32), whole numbers in -L .. L - 1, and scales (..., groups), both float32; L is 128 for q8, 8 for q4.

    With r the turned group and e its entry of largest magnitude (of two, the positive one): scale = fp16(-e / L), so that e itself
    is the code -L, and code = round half to even(r / scale). After exllamav2's cache (scale = max |r| / L), but signed: there
    the code of a positive e would be L, which does not exist, and e the entry with the largest error.
    """
    levels = _LEVELS[name]
    limited = torch.nan_to_num(x, 0.0, _FP16_LARGEST, -_FP16_LARGEST).clamp(-_FP16_LARGEST, _FP16_LARGEST)
    padded = torch.nn.functional.pad(limited, (0, -x.shape[-1] % GROUP))
    r = padded.reshape(*x.shape[:-1], -1, GROUP) @ hadamard()
    top, bottom = r.amax(-1, keepdim=True), r.amin(-1, keepdim=True)
    scales = (torch.where(top >= -bottom, top, bottom) / -levels).to(torch.float16).float()
    codes = torch.where(scales == 0, 0.0, r / scales)
    return codes.round().clamp(-levels, levels - 1), scales[..., 0]


def hadamard() -> torch.Tensor:
    """The orthonormal Walsh-Hadamard matrix (32, 32) of Sylvester's construction: H(2 n) = [[H, H], [H, -H]] / sqrt 2."""
    h = torch.ones(1, 1)
    while len(h) < GROUP:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h / math.sqrt(GROUP)
