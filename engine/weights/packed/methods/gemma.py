"""Folders of Gemma that Google has quantised: integers of 2, 4 or 8 bits with a scale for each row.

`X.weight` int8 (N, K), or uint8 of 4 or 2 neighbours a byte, lowest bits first, codes plus 2^(bits - 1);
`X.weight_scale` (N, 1). The table of an embedding `X` is the same under `X.embedding_quantized`, and
`X.embedding_scale` (N, G) may have several scales for a row. The config states the bits, by regular
expressions for modules. `X.input_activation_scale`, `X.output_activation_scale` and the scales of the cache
are not used, since activations are not rounded. Source: transformers, `integrations/gemma_quant.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine.errors import UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.packed.grouped import Recent
from engine.weights.packed.methods.compressed_tensors import packed_matrix, wrap_compressed
from engine.weights.packed.packed_tensors import Matrix
from engine.weights.patterns import is_quick
from engine.weights.tensor import FileTensor
from engine.words import _

_TABLES = {"embedding_quantized": "weight", "embedding_scale": "weight_scale"}
_UNUSED = ("input_activation_scale", "output_activation_scale", "k_cache_scale", "v_cache_scale")
_DEFAULT_BITS = 4


def wrap_gemma(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    `settings` is the quantization_config. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    named, packed = dict[str, FileTensor](), list[str]()
    for name, tensor in tensors.items():
        stem, _dot, part = name.rpartition(".")
        if part not in _UNUSED:
            named[f"{stem}.{_TABLES[part]}" if part in _TABLES else name] = tensor
    for name, tensor in named.items():
        stem = name.removesuffix(".weight")
        if tensor.type == "U8" and stem != name and stem + ".weight_scale" in named:
            packed.append(stem)
    own = {f"{stem}.{part}" for stem in packed for part in ("weight", "weight_scale")}
    out = wrap_compressed({name: tensor for name, tensor in named.items() if name not in own}, {})
    recent = Recent()
    for stem in packed:
        out[stem + ".weight"] = _packed(stem, named, _bits(stem, settings), recent)
    return out


def _packed(stem: str, tensors: Mapping[str, FileTensor], bits: int, recent: Recent) -> RawTensor:
    codes = Matrix(stem, tensors, recent).get("weight", ("U8",), 2)
    (rows, packed), columns = codes.shape, codes.shape[1] * 8 // bits
    if packed % 4:
        raise Matrix(stem, tensors, recent).wrong("weight", _("whole words of {bits}-bit codes", bits=bits))
    words = codes.retyped(f"{stem}.weight_packed", "I32", (rows, packed // 4))
    return packed_matrix(
        Matrix(stem, {words.name: words, f"{stem}.weight_scale": tensors[stem + ".weight_scale"]}, recent),
        rows, columns,
    )  # fmt: skip


def _bits(module: str, settings: Mapping[str, Any]) -> int:
    """The width of a packed module's codes: of the patterns, the one that is found first in the name counts.

    Raises `UnsupportedModel` for a pattern that is not valid, or whose search could take very long, and for
    another width.
    """
    patterns = settings.get("module_quant_configs") or {}
    found = [
        (at, number, own)
        for number, (pattern, own) in enumerate(patterns.items() if isinstance(patterns, dict) else ())
        if (at := _found(pattern, module)) >= 0
    ]
    own = min(found, key=lambda each: each[:2])[2] if found else None
    bits = settings.get("num_bits", _DEFAULT_BITS)
    bits = own.get("num_bits", bits) if isinstance(own, dict) else bits
    if bits not in (2, 4):
        raise _unread(module, bits)
    return int(bits)


def _found(pattern: str, module: str) -> int:
    """Where the pattern is found in the name; -1: nowhere."""
    try:
        if not is_quick(pattern):
            raise re.error("")
        match = re.search(pattern, module)
    except (re.error, OverflowError, RecursionError) as error:  # too large a count, too many parentheses
        raise _unread(module, pattern) from error
    return match.start() if match else -1


def _unread(module: str, found: object) -> UnsupportedModel:
    return UnsupportedModel(
        _(
            "config.json states the bits of {module} by {found!r}, which cannot be read; 2 and 4 can. Choose "
            "another variant of this model, or a GGUF file.",
            module=module,
            found=found if type(found) is int else str(found)[:40],
        )
    )
