"""Tiny models whose matrices are packed as quantising tools pack them, written bit by bit from the formats'
descriptions.

    write_packed(folder, "gptq", bits=3, group=32, by_activation=True)     a folder, and the float32 weights
    it stands for

A packer gets codes, zeros and scales drawn at random around a matrix; nothing here is shared with the
engine's readers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.tiny import TINY, Floats, Tiny, tiny_config, tiny_weights, write_tokenizer

Ints = npt.NDArray[np.int64]
Tensors = dict[str, npt.NDArray[Any]]
SIZES = TINY.but(width=128, heads=4, head_dim=32, ffn_width=256, vocab_size=320)
"""Widths that every packing's rules allow."""


def bit_columns(codes: Ints, bits: int) -> npt.NDArray[np.int32]:
    """(R, C) codes to words (R bits / 32, C): one stream of bits down each column, lowest first."""
    rows = -(-codes.shape[0] * bits // 32)
    out = np.zeros((rows, codes.shape[1]), np.uint32)
    for c in range(codes.shape[1]):
        number = 0
        for r, code in enumerate(codes[:, c].tolist()):
            number |= code << (bits * r)
        out[:, c] = [(number >> (32 * w)) & 0xFFFFFFFF for w in range(rows)]
    return out.view(np.int32)


def bit_rows(codes: Ints, bits: int) -> npt.NDArray[np.int32]:
    """(R, C) codes to words (R, C bits / 32): along each row."""
    return np.ascontiguousarray(bit_columns(codes.T, bits).T)


def awq_words(codes: Ints) -> npt.NDArray[np.int32]:
    """(R, C) 4-bit codes to (R, C / 8) words in AutoAWQ's order of columns."""
    mixed = codes.reshape(len(codes), -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
    return bit_rows(mixed.reshape(codes.shape), 4)


class Drawn:
    """Codes (N, K), zeros and scales (N, G) near a matrix, and `groups` (K,)."""

    def __init__(
        self,
        values: Floats,
        bits: int,
        groups: Ints,
        rng: np.random.Generator,
        symmetric: bool,
        low: int,
        kind: Any,
    ) -> None:
        n, count = len(values), int(groups.max()) + 1
        self.bits, self.groups = bits, groups
        top = (1 << bits) - 1
        self.zeros = (
            np.full((n, count), 1 << (bits - 1))
            if symmetric
            else rng.integers(low, top + 1 + low, (n, count))
        )
        size = np.array([np.abs(values[:, groups == g]).max(1) for g in range(count)]).T
        self.scales = (size / (1 << (bits - 1)) * rng.uniform(0.8, 1.2, (n, count))).astype(kind)
        wide = self.scales.astype(np.float32)
        self.codes = np.clip(np.rint(values / wide[:, groups]) + self.zeros[:, groups], 0, top).astype(
            np.int64
        )
        self.values: Floats = (self.codes - self.zeros[:, groups]).astype(np.float32) * wide[:, groups]


Packer = Callable[[str, Floats, np.random.Generator], tuple[Tensors, Floats]]


def gptq(
    bits: int = 4, group: int = 32, by_activation: bool = False, symmetric: bool = False, version: int = 1,
    index: bool = True, kind: Any = np.float16,
) -> tuple[Packer, dict[str, Any]]:  # fmt: skip
    """AutoGPTQ (`version` 1) and gptq_v2 (2)."""

    def pack(stem: str, values: Floats, rng: np.random.Generator) -> tuple[Tensors, Floats]:
        columns = values.shape[1]
        groups = np.arange(columns) // (columns if group == -1 else group)
        if by_activation:
            groups = np.random.default_rng(columns).permutation(groups)
        drawn = Drawn(values, bits, groups, rng, symmetric, 1 if version == 1 else 0, kind)
        tensors = {
            "qweight": bit_columns(drawn.codes.T, bits),
            "qzeros": bit_rows(drawn.zeros.T - (version == 1), bits),
            "scales": np.ascontiguousarray(drawn.scales.T), "g_idx": groups.astype(np.int32),
        }  # fmt: skip
        if not index:
            del tensors["g_idx"]
        return {f"{stem}.{part}": tensor for part, tensor in tensors.items()}, drawn.values

    settings = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "desc_act": by_activation,
        "sym": symmetric,
    }
    return pack, settings if version == 1 else settings | {"checkpoint_format": "gptq_v2"}


def awq(version: str = "gemm", group: int = 32, kind: Any = np.float16) -> tuple[Packer, dict[str, Any]]:
    """AutoAWQ."""

    def pack(stem: str, values: Floats, rng: np.random.Generator) -> tuple[Tensors, Floats]:
        n, columns = values.shape
        size = columns if group == -1 else group
        drawn = Drawn(values, 4, np.arange(columns) // size, rng, False, 0, kind)
        if version == "gemm":
            tensors = {
                "qweight": awq_words(drawn.codes.T),
                "qzeros": awq_words(drawn.zeros.T),
                "scales": drawn.scales.T,
            }
        else:
            words = -(-(columns // size) // 8)
            step = {64: 2, 32: 4}.get(size, 1)
            width = -(-words // step) * step * 8
            zeros, scales = np.zeros((n, width), np.int64), np.zeros((n, width), kind)
            zeros[:, : drawn.zeros.shape[1]], scales[:, : drawn.scales.shape[1]] = drawn.zeros, drawn.scales
            tensors = {"qweight": bit_rows(drawn.codes, 4), "qzeros": bit_rows(zeros, 4), "scales": scales}
        return {
            f"{stem}.{part}": np.ascontiguousarray(tensor) for part, tensor in tensors.items()
        }, drawn.values

    return pack, {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group,
        "zero_point": True,
        "version": version,
    }


def exl2(
    widths: tuple[tuple[int, int], ...] = ((6, 1), (4, 0)), group: int = 32, shuffled: bool = True
) -> tuple[Packer, dict[str, Any]]:
    """ExLlamaV2: (bits, groups) from the first inputs on; the last pair covers the rest, and its last group
    may be shorter.
    """

    def pack(stem: str, values: Floats, rng: np.random.Generator) -> tuple[Tensors, Floats]:
        n, columns = values.shape
        order = np.random.default_rng(columns).permutation(columns) if shuffled else np.arange(columns)
        padded = -(-n // 32) * 32
        bits_of = [bits for bits, count in widths[:-1] for _ in range(count)]
        words: list[npt.NDArray[np.int32]] = []
        q_groups: list[int] = []
        scale_codes, most, meant = [], [], np.zeros((n, columns), np.float32)
        start = row = 0
        while start < columns:
            bits = bits_of[len(most)] if len(most) < len(bits_of) else widths[-1][0]
            own = order[start : start + group]
            middle = 1 << (bits - 1)
            needed = np.abs(values[:, own]).max(1) / middle
            most.append(np.float16(needed.max()))
            codes = np.zeros(padded, np.int64)
            codes[:n] = np.clip(np.ceil(np.sqrt(needed / np.float32(most[-1])) * 16), 1, 16).astype(np.int64)
            codes[n:] = 1
            scale_codes.append(codes - 1)
            share = np.float16(np.float32(most[-1]) / 256)
            scale = (codes.astype(np.float16) * codes.astype(np.float16) * share).astype(np.float32)[:n, None]
            q = np.full((len(own), padded), middle, np.int64)
            q[:, :n] = np.clip(np.rint(values[:, own] / scale) + middle, 0, 2 * middle - 1).T
            meant[:, own] = (q[:, :n].T - middle).astype(np.float32) * scale
            words.append(bit_columns(q, bits))
            q_groups += [bits, row]
            start, row = start + len(own), row + len(words[-1])
        inverse = np.empty(columns, np.int32)
        inverse[order] = np.arange(columns)
        tensors = {
            "q_weight": np.concatenate(words), "q_scale": bit_rows(np.array(scale_codes), 4),
            "q_scale_max": np.array(most, np.float16), "q_groups": np.array(q_groups, np.int16),
            "q_invperm": inverse,
        }  # fmt: skip
        return {f"{stem}.{part}": tensor for part, tensor in tensors.items()}, meant

    return pack, {"quant_method": "exl2", "version": "0.2.4", "bits": 4.0, "head_bits": 6}


def compressed(
    bits: int = 4,
    group: int = 32,
    symmetric: bool = True,
    by_activation: bool = False,
    packed: bool = True,
    kind: Any = np.float16,
) -> tuple[Packer, dict[str, Any]]:
    """compressed-tensors: "pack-quantized", or "int-quantized" (one byte a code) unless `packed`."""

    def pack(stem: str, values: Floats, rng: np.random.Generator) -> tuple[Tensors, Floats]:
        n, columns = values.shape
        groups = np.arange(columns) // (columns if group == -1 else group)
        if by_activation:
            groups = np.random.default_rng(columns).permutation(groups)
        drawn = Drawn(values, bits, groups, rng, symmetric, 0, kind)
        tensors: Tensors = {"weight_scale": drawn.scales}
        middle = 1 << (bits - 1)
        if packed:
            tensors |= {
                "weight_packed": bit_rows(drawn.codes, bits),
                "weight_shape": np.array([n, columns], np.int64),
            }
            if not symmetric:
                tensors["weight_zero_point"] = bit_columns(drawn.zeros, bits)
        else:
            tensors["weight"] = (drawn.codes - middle).astype(np.int8)
            if not symmetric:
                tensors["weight_zero_point"] = (drawn.zeros - middle).astype(np.int8)
        if by_activation:
            tensors["weight_g_idx"] = groups.astype(np.int32)
        return {f"{stem}.{part}": tensor for part, tensor in tensors.items()}, drawn.values

    weights = {
        "num_bits": bits,
        "type": "int",
        "symmetric": symmetric,
        "group_size": group,
        "strategy": "group",
    }
    return pack, {
        "quant_method": "compressed-tensors", "format": "pack-quantized" if packed else "int-quantized",
        "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }  # fmt: skip


def write_packed(
    folder: Path,
    packing: tuple[Packer, dict[str, Any]],
    tiny: Tiny = SIZES,
    head: bool = False,
    file: str = "model.safetensors",
) -> dict[str, Floats]:
    """Write a folder with packed linears (the head, too, with `head`), the rest in fp16; returns the float32
    weights that it stands for.
    """
    from safetensors.numpy import save_file

    pack, settings = packing
    rng = np.random.default_rng(7)
    tensors: Tensors = {}
    meant: dict[str, Floats] = {}
    for name, values in tiny_weights(tiny).items():
        if "_proj.weight" in name or (head and name == "lm_head.weight"):
            parts, meant[name] = pack(name.removesuffix(".weight"), values, rng)
            tensors |= parts
        else:
            tensors[name] = values.astype(np.float16)
            meant[name] = tensors[name].astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / file)
    (folder / "config.json").write_text(
        json.dumps(tiny_config(tiny) | {"quantization_config": settings}), "utf-8"
    )
    write_tokenizer(folder)
    return meant
