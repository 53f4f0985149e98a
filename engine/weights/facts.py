"""Facts about a model's files: how its weights are quantised, and its licence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from engine.backends.gguf_blocks.quants import NVFP4_PAIRS
from engine.errors import BadCheckpoint, ModelNotFound
from engine.printable import one_line
from engine.weights.checkpoint import Checkpoint
from engine.weights.gguf.table import I2_S
from engine.weights.safetensors.json import read_json_object

_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
    19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
    26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0",
    37: "TQ2_0", 38: "MXFP4", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0", 135: "Q6_0", 138: "IQ2_K", 139: "IQ3_K",
    140: "IQ4_K", 141: "IQ5_K", 142: "IQ6_K", 145: "IQ4_KS", 146: "IQ3_KL", 147: "IQ2_KS", 148: "IQ4_KSS",
    150: "IQ5_KS", 151: "IQ2_KT", 152: "IQ3_KT", 153: "IQ4_KT", 154: "IQ3_KS", 155: "IQ2_KL", 156: "IQ1_KT",
}  # fmt: skip
"""`general.file_type` of a GGUF file. Source: the lists of llama.h and of ik_llama.cpp (facts only)."""

_IN_GROUPS = {"GROUPED2_128_F32": I2_S.name, "GROUPED2_128": "Q1_0", "GROUPED2_64": "Q2_0"}
"""The types of GGUF files that are read as groups."""
_FLOATS = ("F32", "F16", "BF16", "F64")
_README_BYTES = 1 << 16
_LONGEST = 100
_LICENCE_LINE = re.compile(r"^(license|license_name):[ \t]*(?:\n[ \t]*-[ \t]*)?(.*)$", re.MULTILINE)


def quantisation_name(checkpoint: Checkpoint) -> str:
    """The usual name of the weights' format: "Q4_K_M", "BF16", "FP8", "GPTQ 4-bit g128", "EXL2 4.25 bpw".

    It is "" without weights.
    """
    if checkpoint.format != "gguf":
        settings = checkpoint.metadata["config"].get("quantization_config")
        return (_settings_name(settings) if isinstance(settings, dict) else "") or _main_type(checkpoint)
    main = _main_type(checkpoint)
    main = _IN_GROUPS.get(main, main)
    if main == I2_S.name:
        return main  # bitnet.cpp's number of a file of this type is Q1_0's
    claimed = checkpoint.metadata.get("general.file_type")
    name = _FILE_TYPES.get(claimed, "") if isinstance(claimed, int) else ""
    # Tools that leave the key at its default claim F32 or F16 for a quantised file, or the reverse.
    return name if name and (name in _FLOATS) == (main in _FLOATS) else main


def licence(checkpoint: Checkpoint) -> str:
    """The licence as the files state it ("apache-2.0"), or ""."""
    if checkpoint.format == "gguf":
        keys = checkpoint.metadata
        return _licence_of(keys.get("general.license"), keys.get("general.license.name"))
    found = _front_matter(checkpoint.path / "README.md")
    return _licence_of(found.get("license"), found.get("license_name")) or _licence_of(
        checkpoint.metadata["config"].get("license"), None
    )


_POOLING_TYPES = {1: "mean", 2: "cls", 3: "last", 4: "rank"}
"""`pooling_type` of a GGUF file. Source: llama.h, `llama_pooling_type`."""
_POOLING_FLAG = "pooling_mode_"
_POOLING_NAMES = {"mean_tokens": "mean", "cls_token": "cls", "lasttoken": "last"}
"""Source: sentence-transformers, `models/Pooling.py`; later versions name the mode under "pooling_mode"."""


def pooling(checkpoint: Checkpoint) -> str:
    """How an embedding model makes one vector of those of all tokens: "mean", "cls" (the first one) or
    "last"; "" if the files do not say. Another one has the name that the files give it.
    """
    if checkpoint.format == "gguf":
        architecture = checkpoint.metadata.get("general.architecture")
        return _POOLING_TYPES.get(checkpoint.metadata.get(f"{architecture}.pooling_type", 0), "")
    try:
        settings = read_json_object(checkpoint.path / "1_Pooling" / "config.json")
    except (ModelNotFound, BadCheckpoint):
        return ""
    modes = [key for key, value in settings.items() if key.startswith(_POOLING_FLAG) and value is True]
    named = settings.get("pooling_mode")
    if not modes and isinstance(named, str):
        modes = [named]
    short = [one_line(mode.removeprefix(_POOLING_FLAG)) for mode in modes]
    return "+".join(_POOLING_NAMES.get(mode, mode) for mode in short)


def _main_type(checkpoint: Checkpoint) -> str:
    """The type of most weights in matrices."""
    counts: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        if len(tensor.shape) > 1:
            counts[tensor.type] += prod(tensor.shape)
    name = counts.most_common(1)[0][0] if counts else ""
    if name == NVFP4_PAIRS.name:
        return "NVFP4"
    return "FP8" if name.startswith("F8_") else name


def _settings_name(settings: Mapping[str, Any]) -> str:
    """The name of a folder's quantization_config; "" if its method is unknown."""
    method = settings.get("quant_method")
    if method in ("gptq", "awq", "auto-round", "intel/auto-round"):
        name = "AutoRound" if "round" in method else str(method).upper()
        return name + _bits_and_group(settings.get("bits", settings.get("w_bit")), settings.get("group_size"))
    if method in ("exl2", "exl3"):
        bits = settings.get("bits")
        return str(method).upper() + (f" {bits:g} bpw" if isinstance(bits, int | float) else "")
    if method in ("bitnet", "mxfp4", "vptq"):
        return "BitNet" if method == "bitnet" else method.upper()
    if method == "bitsandbytes":
        kind = settings.get("bnb_4bit_quant_type", "nf4") if settings.get("load_in_4bit") else "int8"
        return f"bitsandbytes {str(kind)[:10]}"
    if method == "hqq":
        own = settings.get("quant_config")
        own = own.get("weight_quant_params") if isinstance(own, dict) else None
        own = own if isinstance(own, dict) else {}
        return "HQQ" + _bits_and_group(own.get("nbits"), own.get("group_size"))
    if method in ("torchao", "quanto"):
        return str(method)
    if method == "aqlm":
        return "AQLM" + _codebooks(settings.get("num_codebooks"), settings.get("nbits_per_codebook"))
    if method in ("mlx", "metal"):
        return "MLX" + _bits_and_group(settings.get("bits"), settings.get("group_size"))
    if method == "gemma":
        return "Gemma" + _bits_and_group(settings.get("num_bits"), None)
    if method in ("modelopt", "quark"):
        return str(settings.get("quant_algo") or "").replace("_", " ")[:20]
    if method == "compressed-tensors":
        return _compressed_name(settings.get("config_groups"))
    return "MXFP8" if method == "mxfp8" else "FP8" if "fp8" in str(method) else ""


def _compressed_name(groups: Any) -> str:
    """The name of the first group of a compressed-tensors config."""
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        return "compressed-tensors"
    if weights.get("type") == "float" and weights.get("num_bits") == 8:
        return "FP8"
    if weights.get("type") == "float" and weights.get("num_bits") == 6:
        return "MXFP6"
    if weights.get("type") == "float" and weights.get("num_bits") == 4:
        return "MXFP4" if weights.get("group_size") == 32 else "NVFP4"
    return "compressed-tensors" + _bits_and_group(weights.get("num_bits"), weights.get("group_size"))


def _codebooks(count: Any, bits: Any) -> str:
    return f" {count}x{bits}" if type(count) is int and type(bits) is int else ""


def _bits_and_group(bits: Any, group: Any) -> str:
    text = f" {bits}-bit" if type(bits) is int else ""
    return text + (f" g{group}" if type(group) is int and group > 0 else "")


def _licence_of(value: Any, name: Any) -> str:
    """The licence in one line: its own name if the kind is "other" or missing."""
    if isinstance(value, list) and value:
        value = value[0]
    texts = [" ".join(each.split())[:_LONGEST] if isinstance(each, str) else "" for each in (value, name)]
    return texts[1] if texts[0] in ("", "other") and texts[1] else texts[0]


def _front_matter(path: Path) -> dict[str, str]:
    """The licence entries between the two "---" lines at the beginning of a model card."""
    try:
        if not path.is_file():
            return {}
        with path.open("rb") as file:
            text = (
                file.read(_README_BYTES)
                .decode("utf-8", "replace")
                .replace("\r\n", "\n")
                .removeprefix("\ufeff")
            )
    except (OSError, ValueError):
        return {}  # an unreadable card counts as missing
    if not text.startswith("---\n"):
        return {}
    head = text[4:].split("\n---", 1)[0]
    return {match[1]: match[2].strip().strip("'\"") for match in _LICENCE_LINE.finditer(head)}
