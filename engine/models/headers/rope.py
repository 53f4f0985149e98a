"""Reads the settings of rope from config.json and from GGUF metadata.

`engine.models.headers.overrides` adds two entries of its own, `STRETCH` and `ALPHA`, which change what is
read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.headers.keys import Keys
from engine.models.headers.rope_sections import divided
from engine.models.layers.positions.rope import RopeConfig, llama3_divisors, yarn_divisors, yarn_magnitude
from engine.tensors import RawTensor
from engine.words import _

HF_KINDS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
GGUF_KINDS = ("none", "linear", "yarn", "longrope")
STRETCH, ALPHA = "inglenook.rope_stretch", "inglenook.rope_alpha"
_SECTIONS_INTERLEAVED = ("qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe")
"""The architectures of GGUF files whose sections of M-RoPE are interleaved, which the files do not say."""
_CONTEXT = "original_max_position_embeddings"
_MOST = 1 << 30
_MOST_LEARNED = 20.0


def rope_from_hf(
    keys: Keys,
    head_dim: int,
    *,
    base: float = 10000.0,
    share: float | None = None,
    interleaved: bool = False,
    layer_type: str = "",
    even: bool = False,
) -> RopeConfig:
    """Read config.json: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (4).

    `base` and `share`, the part of each head that is rotated, are the architecture's defaults; None: whole
    heads are, whatever config.json says, as in transformers' classes that have no such key. `layer_type`
    picks an entry of `rope_parameters` in models with several tables. With `even` the part cannot be odd:
    some classes of transformers cut it off first. Raises `UnsupportedModel` for an unknown scaling, and
    `BadCheckpoint`.
    """
    if layer_type == "sliding_attention":  # never looks beyond its window
        keys = keys.without(STRETCH, ALPHA)
    rope = _rope_from_hf(keys, head_dim, base, share, interleaved, layer_type, even)
    scaling = keys.table("rope_parameters") or keys.table("rope_scaling")
    if scaling is not None:
        in_turn = any(scaling.raw(name) is True for name in ("mrope_interleaved", "interleaved"))
        rope = divided(rope, scaling.raw("mrope_section"), in_turn)
    return _stretched(rope, keys)


def _rope_from_hf(
    keys: Keys, head_dim: int, base: float, share: float | None, interleaved: bool, layer_type: str,
    even: bool,
) -> RopeConfig:  # fmt: skip
    whole = scaling = keys.table("rope_parameters") or keys.table("rope_scaling")
    if scaling is not None and layer_type and isinstance(scaling.raw(layer_type), Mapping):
        scaling = scaling.table(layer_type)
    base = keys.number("rope_theta", 1.0, 1e12, base)
    part = 1.0 if share is None else _share(keys, keys.number("rotary_pct", 0.0, 1.0, share))
    if scaling is None or whole is None:
        base, dim = _rotated(base, head_dim, part, "default", even)
        base = _raised(base, dim, keys)
        return RopeConfig(base, dim, interleaved, (1.0,) * (dim // 2))
    kind = scaling.text("rope_type", scaling.raw("type") or "default")
    kind = {"su": "longrope", "mrope": "default", "xdrope": "dynamic"}.get(kind, kind)
    base = scaling.number("rope_theta", 1.0, 1e12, base)
    if kind == "proportional":
        part = _share(scaling, _share(keys, 1.0))
        return _proportional(scaling, keys, head_dim, base, part, interleaved)
    part = part if share is None else _share(scaling, part)
    base, dim = _rotated(base, head_dim, part, kind, even)
    base = _raised(base, dim, keys)
    plain = RopeConfig(base, dim, interleaved, (1.0,) * (dim // 2))
    if kind == "default":
        return plain
    if kind == "linear":
        return RopeConfig(base, dim, interleaved, (scaling.number("factor", 1e-3, 1e6),) * (dim // 2))
    if kind == "dynamic":
        length = keys.integer("max_position_embeddings", 1, _MOST)
        if dim <= 2:
            return plain
        return RopeConfig(
            base,
            dim,
            interleaved,
            plain.divisors,
            original_length=length,
            dynamic=scaling.number("factor", 1.0, 1e6),
        )
    if kind == "llama3":
        return RopeConfig(base, dim, interleaved, _llama3(scaling, keys, base, dim))
    if kind == "yarn":
        # transformers looks for this outside of the tables of layers.
        return _yarn(scaling, keys, plain, whole.flag("truncate", True))
    if kind == "longrope":
        return _longrope(scaling, keys, plain)
    known = ", ".join(HF_KINDS)
    raise UnsupportedModel(
        _(
            "The model scales its rotary positions by {kind!r}; only {known} can be run. Choose "
            "another model.",
            kind=kind,
            known=known,
        )
    )


def _share(keys: Keys, default: float) -> float:
    """The part of each head that is rotated."""
    return keys.number("partial_rotary_factor", 0.0, 1.0, default)


def _proportional(
    scaling: Keys, keys: Keys, head_dim: int, base: float, share: float, interleaved: bool
) -> RopeConfig:
    """Frequencies as if the whole head were rotated, of which all but the first `share` are 0 (Gemma 4)."""
    dim, factor = (
        _rotary_dim(head_dim, head_dim, "config.json: head_dim"),
        scaling.number("factor", 1e-3, 1e6, 1.0),
    )
    rotated = int(share * head_dim // 2)
    divisors = (factor,) * rotated + (math.inf,) * (dim // 2 - rotated)
    return RopeConfig(_raised(base, dim, keys), dim, interleaved, divisors)


def _raised(base: float, dim: int, keys: Keys) -> float:
    """The base after NTK-aware scaling."""
    alpha = keys.number(ALPHA, 0.0, 1e12, 1.0)
    return base * alpha ** (dim / (dim - 2)) if dim > 2 else base


def _stretched(rope: RopeConfig, keys: Keys) -> RopeConfig:
    """The rope with its positions divided once more."""
    stretch = keys.number(STRETCH, 0.0, 1e12, 1.0)
    if stretch == 1:
        return rope
    return replace(
        rope, divisors=tuple(stretch * value for value in rope.divisors),
        long_divisors=tuple(stretch * value for value in rope.long_divisors),
    )  # fmt: skip


def longer(keys: Keys, context: int) -> int:
    """The context length after the scaling that `engine.models.headers.overrides` asks for."""
    by = keys.number(STRETCH, 0.0, 1e12, 1.0) * keys.number(ALPHA, 0.0, 1e12, 1.0)
    return min(_MOST, max(1, int(context * by)))


def extended_context(keys: Keys, context: int) -> int:
    """The context length after scaling: yarn and dynamic go beyond `max_position_embeddings`."""
    return longer(keys, _extended(keys, context))


def _extended(keys: Keys, context: int) -> int:
    scaling = keys.table("rope_parameters") or keys.table("rope_scaling")
    if scaling is None:
        return context
    kind, factor = scaling.raw("rope_type") or scaling.raw("type"), scaling.raw("factor")
    if kind not in ("yarn", "dynamic") or not isinstance(factor, int | float):
        return context
    original = scaling.integer(_CONTEXT, 1, _MOST, context) if kind == "yarn" else context
    return max(context, int(original * scaling.number("factor", 1e-3, 1e6)))


def rope_from_gguf(
    keys: Keys, head_dim: int, tensors: Mapping[str, RawTensor], *, interleaved: bool, base: float = 10000.0,
    truncate: bool = True,
) -> RopeConfig:  # fmt: skip
    """Read GGUF metadata (keys under the architecture's prefix) and the tensors of factors, if any.

    `base` is as in `rope_from_hf`. `truncate` is that of `yarn_divisors`, which the file does
    not give. Raises `UnsupportedModel` for an unknown scaling, and `BadCheckpoint`.
    """
    rope = _rope_from_gguf(keys, head_dim, tensors, interleaved, base, truncate)
    in_turn = any(keys.has_prefix(name) for name in _SECTIONS_INTERLEAVED)
    return _stretched(divided(rope, keys.raw("rope.dimension_sections"), in_turn), keys)


def _rope_from_gguf(
    keys: Keys, head_dim: int, tensors: Mapping[str, RawTensor], interleaved: bool, base: float,
    truncate: bool,
) -> RopeConfig:  # fmt: skip
    base = keys.number("rope.freq_base", 1.0, 1e12, base)
    dim = _rotary_dim(
        keys.integer("rope.dimension_count", 1, 1 << 16, head_dim), head_dim, "rope.dimension_count"
    )
    base = _raised(base, dim, keys)
    linear = gguf_factor(keys)
    kind = keys.text("rope.scaling.type", "linear" if linear else "none")
    if kind not in GGUF_KINDS:
        raise UnsupportedModel(
            _(
                "The model scales its rotary positions by {kind!r}; only {gguf_kinds} can be run. "
                "Choose another model.",
                kind=kind,
                gguf_kinds=", ".join(GGUF_KINDS),
            )
        )
    magnitude = gguf_magnitude(keys)
    # llama.cpp divides positions by the factor whatever else the type means, beside the tensors of factors.
    divisor = linear if kind in ("linear", "longrope") and linear else 1.0
    long, short = tensors.get("rope_factors_long.weight"), tensors.get("rope_factors_short.weight")
    if long is not None and short is not None:
        sets = [tuple(divisor * value for value in _factors(tensor, dim)) for tensor in (short, long)]
        return RopeConfig(
            base, dim, interleaved, sets[0], magnitude, _first_context(keys), sets[1], magnitude
        )
    factors = tensors.get("rope_freqs.weight")
    extra = (1.0,) * (dim // 2) if factors is None else _factors(factors, dim)
    if kind == "yarn" and linear:
        fast = keys.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0)
        slow = keys.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0)
        divisors = yarn_divisors(base, dim, linear, _first_context(keys), fast, slow, truncate)
        # What the authors state takes the place of the usual magnitude, as in config.json's attention_factor.
        magnitude *= keys.number("rope.scaling.yarn_attn_factor", 1e-3, 1e3, yarn_magnitude(linear))
        return RopeConfig(
            base, dim, interleaved, tuple(a * b for a, b in zip(divisors, extra, strict=True)), magnitude
        )
    return RopeConfig(base, dim, interleaved, tuple(divisor * value for value in extra), magnitude)


def gguf_factor(keys: Keys) -> float:
    """The factor of the scaling that GGUF metadata state, under the older key where the newer one is absent;
    0: none. Raises `BadCheckpoint`.
    """
    newer = "rope.scaling.factor"
    return keys.number(newer if keys.has(newer) else "rope.scale_linear", 0.0, 1e6, 0.0)


def gguf_magnitude(keys: Keys) -> float:
    """What llama.cpp multiplies cosines and sines of all layers by, whatever the scaling. Raises
    `BadCheckpoint`.
    """
    return keys.number("rope.scaling.attn_factor", 1e-3, 1e3, 1.0)


def gguf_unscaled_rope(keys: Keys, head_dim: int) -> RopeConfig:
    """The rope of layers with a window where that of the others alone is scaled, with the base and the
    dimensions that the file states for them, else those of the others. Raises `BadCheckpoint`.
    """
    for name in ("rope.freq_base", "rope.dimension_count"):
        keys = keys.replaced(name, keys.raw(name + "_swa") or keys.raw(name))
    keys = keys.without(STRETCH, ALPHA, "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear")
    return rope_from_gguf(keys, head_dim, {}, interleaved=False)


def _first_context(keys: Keys) -> int:
    """The context that scaling begins with; the model's where the file has none of its own."""
    own = keys.integer("rope.scaling.original_context_length", 0, _MOST, 0)
    return own or gguf_context(keys)


def gguf_context(keys: Keys) -> int:
    """The context length that GGUF metadata state; 2,048, as most classes of transformers have, where they
    state none or 0. llama.cpp takes 0 for no limit. Raises `BadCheckpoint`.
    """
    return keys.integer("context_length", 0, 1 << 24, 0) or 2048


def _factors(tensor: RawTensor, dim: int) -> tuple[float, ...]:
    values = tensor.dequantise() if tensor.shape == (dim // 2,) else None
    if values is None or not np.all(np.isfinite(values) & (values > 0)):
        raise BadCheckpoint(
            _(
                "The tensor {tensor} has the shape {shape}; {dim} positive numbers were expected.",
                tensor=tensor.name,
                shape=tensor.shape,
                dim=dim // 2,
            )
        )
    return tuple(float(value) for value in values)


def learned_rope(rope: RopeConfig, tensors: Mapping[str, RawTensor], *names: str) -> RopeConfig:
    """The rope whose frequencies are multiplied by e^x, for each a number x of the tensor with one of these
    names. Raises `BadCheckpoint`.
    """
    found = next((tensors[name] for name in names if name in tensors), None)
    alike = found is not None and found.shape == (rope.dim // 2,)
    numbers = found.dequantise().astype(np.float64) if found is not None and alike else None
    if numbers is None or not np.all(np.abs(numbers) < _MOST_LEARNED):
        raise BadCheckpoint(
            _(
                "The tensor {name} is missing or damaged: the shape ({count},) and small numbers were "
                "expected. Download the model again.",
                name=names[0],
                count=rope.dim // 2,
            )
        )
    factors = np.exp(-numbers).tolist()
    return replace(
        rope, divisors=_each(rope.divisors, factors), long_divisors=_each(rope.long_divisors, factors)
    )


def _each(divisors: tuple[float, ...], factors: list[float]) -> tuple[float, ...]:
    return tuple(a * b for a, b in zip(divisors, factors, strict=False))


def _rotated(base: float, head_dim: int, share: float, kind: str, even: bool) -> tuple[float, int]:
    """The base of the frequencies and the dimensions they rotate. Of an odd part of a head, n dimensions,
    transformers makes the (n + 1) / 2 frequencies base^(-2i/n) and rotates n + 1 dimensions: the same as
    base^((n + 1) / n) in n + 1.
    """
    dim = int(head_dim * share)
    if not even and dim % 2 and dim < head_dim and kind in ("default", "linear", "llama3"):
        return base ** ((dim + 1) / dim), dim + 1
    return base, _rotary_dim(dim, head_dim, "config.json: partial_rotary_factor")


def _rotary_dim(dim: int, head_dim: int, what: str) -> int:
    if dim % 2 or not 2 <= dim <= head_dim:
        raise BadCheckpoint(
            _(
                "{what} rotates {dim} dimensions of a head, but an even number up to {head_dim} "
                "was expected.",
                what=what,
                dim=dim,
                head_dim=head_dim,
            )
        )
    return dim


def _llama3(scaling: Keys, keys: Keys, base: float, dim: int) -> tuple[float, ...]:
    factor = scaling.number("factor", 1e-3, 1e6)
    low, high = scaling.number("low_freq_factor", 1e-3, 1e6), scaling.number("high_freq_factor", 1e-3, 1e6)
    if high <= low:
        raise BadCheckpoint(
            _(
                "config.json: high_freq_factor is {high:g}, but more than low_freq_factor {low:g} "
                "was expected.",
                high=high,
                low=low,
            )
        )
    return llama3_divisors(base, dim, factor, low, high, _original(scaling, keys))


def _original(scaling: Keys, keys: Keys) -> int:
    """The context before scaling: from the entry of the scaling, else from config.json."""
    own = scaling if scaling.raw(_CONTEXT) is not None else keys
    return own.integer(_CONTEXT, 1, _MOST, keys.raw("max_position_embeddings"))


def _yarn(scaling: Keys, keys: Keys, plain: RopeConfig, truncate: bool) -> RopeConfig:
    original = _original(scaling, keys)
    whole = keys.raw("max_position_embeddings")
    factor = scaling.number("factor", 1e-3, 1e6, (whole if isinstance(whole, int) else original) / original)
    weight, all_dims = (
        scaling.number("mscale", 0.0, 1e3, 0.0),
        scaling.number("mscale_all_dim", 0.0, 1e3, 0.0),
    )
    usual = (
        yarn_magnitude(factor, weight) / yarn_magnitude(factor, all_dims)
        if weight and all_dims
        else yarn_magnitude(factor)
    )
    magnitude = scaling.number("attention_factor", 1e-3, 1e3, usual)
    fast, slow = scaling.number("beta_fast", 1e-3, 1e6, 32.0), scaling.number("beta_slow", 1e-3, 1e6, 1.0)
    divisors = yarn_divisors(plain.base, plain.dim, factor, original, fast, slow, truncate)
    return RopeConfig(plain.base, plain.dim, plain.interleaved, divisors, magnitude)


def _longrope(scaling: Keys, keys: Keys, plain: RopeConfig) -> RopeConfig:
    original = _original(scaling, keys)
    whole = keys.integer("max_position_embeddings", 1, _MOST, original)
    factor = scaling.number("factor", 1e-3, 1e6, whole / original)
    usual = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0
    magnitude = scaling.number("attention_factor", 1e-3, 1e3, usual)
    sets = []
    for name in ("short_factor", "long_factor"):
        values = scaling.raw(name)
        good = isinstance(values, list) and len(values) == plain.dim // 2
        if not good or not all(isinstance(v, int | float) and math.isfinite(v) and v > 0 for v in values):
            raise BadCheckpoint(
                _(
                    "config.json: {name} of the rotary scaling is not a list of {dim} positive numbers.",
                    name=name,
                    dim=plain.dim // 2,
                )
            )
        sets.append(tuple(float(value) for value in values))
    short, long = sets
    # Phi-3's files may have a magnitude for each set.
    of_short = scaling.number("short_mscale", 1e-3, 1e3, magnitude)
    of_long = scaling.number("long_mscale", 1e-3, 1e3, magnitude)
    return RopeConfig(plain.base, plain.dim, plain.interleaved, short, of_short, original, long, of_long)
