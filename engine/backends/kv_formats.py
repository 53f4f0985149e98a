"""The number formats of the KV cache, and the bytes of a position in each.

fp32, fp16   plain numbers.
fp8          plain e4m3 numbers (OCP 8-bit Floating Point Specification, revision 1.0), without a scale;
             larger values become 448.
q8, q4       each head's vector goes through a Walsh-Hadamard transform over groups of 32 dimensions (padded
             with zeros to a multiple of 32), and each group is stored as 8- or 4-bit codes with one fp16
             scale. The transform spreads an outlier over its group; it is orthonormal, so scores are taken
             between transformed queries and keys, and a sum of values is transformed back once. Keys are
             rounded so that their scores with queries like their token's own stay accurate.
q4           also keeps a sequence's first key and value in float32, because so much attention goes to them
             that their error matters (Xiao et al., arXiv 2309.17453). Keys after the first 16 are stored as
             differences from a mean of earlier keys. Without that, and rounded to nearest, four bits raise a
             small model's perplexity by 7 %.

`engine.backends.kv_rounding` defines the codes in plain torch. Keys and values have a format each: "q6" is
the usual name of 8-bit keys with 4-bit values. Latent attention has keys alone, in the format of keys: its
values are columns of them.
"""

from __future__ import annotations

from engine.core import PAGE_TOKENS
from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.words import _

GROUP = 32
"""Dimensions that share a Hadamard transform and a scale."""
Q4_LEVELS = tuple(c + 3 * c**3 / 512 for c in range(-8, 8))
"""The values of q4's 16 codes, in units of the scale. Transformed numbers are nearly normally distributed, so
levels are closer together near zero.
"""
SCALE_SHARES = tuple(1.05 - 0.02 * i for i in range(16))
"""Scales tried for a group of q4, as multiples of the one that maps its extreme to the lowest level."""
Q4_EXTREME = 600000.0
"""q4 clamps a group's extreme to this, so that fp16 holds its scale."""
QUERY_ERROR_WEIGHT = 64.0
"""Weight of the error of a q8 or q4 key along its token's queries, relative to other directions."""
WHOLE_KEYS = 16
"""The first positions of a sequence: their q4 keys are not differences, since there is no mean yet."""

_BITS = {"fp32": 32, "fp16": 16, "fp8": 8, "q8": 8, "q4": 4}
_PAIRS = {"q6": ("q8", "q4")}
QUANTISED = ("q8", "q4")


@dataclass(frozen=True, slots=True)
class CacheType:
    """The formats of keys and values, each "fp32", "fp16", "fp8", "q8" or "q4".

    `str` gives "q8/q4", or "fp16" if both are the same.
    """

    keys: str
    values: str

    def __str__(self) -> str:
        return self.keys if self.keys == self.values else f"{self.keys}/{self.values}"


def cache_type(dtype: str, value_dtype: str = "same", automatic: str = "fp16") -> CacheType:
    """The formats that settings ask for.

    `dtype` is "auto" (`automatic`), a format's name, "q6", or two formats as in "q8/q4"; `value_dtype`,
    unless it is "same", replaces the values' format. Raises `BadSetting` for other names.
    """
    first, _unused, second = dtype.partition("/")
    keys, values = _pair(first, automatic)
    if second and second != "same":
        values = _one(second)
    if value_dtype != "same":
        values = _one(value_dtype)
    return CacheType(keys, values)


def bytes_per_position(kind: CacheType, kv_heads: int, head_dim: int, latent: bool = False) -> int:
    """Bytes of a position's keys and values in one layer of the CPU's cache, with padding and scales; of its
    keys alone if `latent`.
    """
    values = 0 if latent else value_bytes(kind.values, head_dim)
    return kv_heads * (key_bytes(kind.keys, head_dim) + values)


def key_bytes(name: str, head_dim: int) -> int:
    """Bytes of one head's key at one position, with its share of what a page holds only once."""
    if name in QUANTISED:
        return _quantised_bytes(name, head_dim) + (
            kept_bytes(2, head_dim) // PAGE_TOKENS if name == "q4" else 0
        )
    return head_dim * _BITS[name] // 8


def value_bytes(name: str, head_dim: int) -> int:
    """Bytes of one head's value at one position, as in `key_bytes`; plain values are padded to 16."""
    if name in QUANTISED:
        return _quantised_bytes(name, head_dim) + (
            kept_bytes(1, head_dim) // PAGE_TOKENS if name == "q4" else 0
        )
    return -(-head_dim // 16) * 2 * _BITS[name]


def kept_bytes(vectors: int, head_dim: int) -> int:
    """Bytes of the transformed float32 vectors that q4 keeps for each page and head, padded together to a
    multiple of 256: two for keys (their mean and the first key), one for values (the first value).
    """
    return -(-head_dim // GROUP * GROUP * 4 * vectors // PAGE_TOKENS) * PAGE_TOKENS


def _quantised_bytes(name: str, head_dim: int) -> int:
    return -(-head_dim // GROUP) * (GROUP * _BITS[name] // 8 + 2)


def _pair(name: str, automatic: str) -> tuple[str, str]:
    if name == "auto":
        return automatic, automatic
    return _PAIRS[name] if name in _PAIRS else (_one(name), _one(name))


def _one(name: str) -> str:
    if name not in _BITS:
        raise BadSetting(
            _(
                "The cache type is {name!r}; expected one of auto, {types}, or two such as q8/q4.",
                name=name,
                types=", ".join([*_BITS, *_PAIRS]),
            )
        )
    return name
