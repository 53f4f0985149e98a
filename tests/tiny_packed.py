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


def marlin_words(codes: Ints) -> npt.NDArray[np.int32]:
    """(K, N) 4-bit codes to (K / 16, 2 N) words in Marlin's order."""
    blocks = codes.reshape(codes.shape[0] // 16, 16, -1, 64)
    out = np.zeros((blocks.shape[0], blocks.shape[2], 128), np.uint32)
    for word in range(128):
        m, n = 2 * (word // 4 % 4), 16 * (word % 4) + word // 16
        for place in range(8):
            k = m + 8 * (place % 2) + place // 4
            code = blocks[:, k, :, n + 8 * (place // 2 % 2)]
            out[:, :, word] |= (code << 4 * place).astype(np.uint32)
    return out.reshape(blocks.shape[0], -1).view(np.int32)


def marlin(group: int = 128, old: bool = False) -> tuple[Packer, dict[str, Any]]:
    """AutoGPTQ and GPTQModel with Marlin's layout, which has no zeros; `old` AutoGPTQ says so otherwise."""

    def pack(stem: str, values: Floats, rng: np.random.Generator) -> tuple[Tensors, Floats]:
        columns = values.shape[1]
        drawn = Drawn(
            values, 4, np.arange(columns) // (columns if group == -1 else group), rng, True, 0, np.float16
        )
        scales = np.ascontiguousarray(drawn.scales.T)
        place = [8 * (n % 8) + n // 8 for n in range(64)]
        if len(scales) == 1:
            place = [32 * (n // 32) + 8 * (n // 2 % 4) + 2 * (n // 8 % 4) + n % 2 for n in range(64)]
        stored = np.empty_like(scales)
        for n in range(scales.shape[1]):
            stored[:, 64 * (n // 64) + place[n % 64]] = scales[:, n]
        return {f"{stem}.B": marlin_words(drawn.codes.T), f"{stem}.s": stored}, drawn.values

    said = {"is_marlin_format": True} if old else {"checkpoint_format": "marlin"}
    return pack, {"quant_method": "gptq", "bits": 4, "group_size": group, "sym": True} | said


def awq_fast(group: int = 64) -> tuple[Packer, dict[str, Any]]:
    """AutoAWQ's "gemv_fast", whose scaled zeros are rounded to fp16."""

    def pack(stem: str, values: Floats, rng: np.random.Generator) -> tuple[Tensors, Floats]:
        n, columns = values.shape
        groups = np.arange(columns) // group
        drawn = Drawn(values, 4, groups, rng, False, 0, np.float16)
        words = np.zeros((n // 4, columns), np.uint16)
        for k in range(columns):
            a, b, c = k % 32 // 8, k % 8 // 2, k % 2
            place = 32 * (k % 64 // 32) + 8 * b + 4 * c + a
            for row in range(4):
                word = 64 * (k // 64) + 16 * row + place // 4
                words[:, word] |= (drawn.codes[row::4, k] << 4 * (place % 4)).astype(np.uint16)
        padded = -(-drawn.scales.shape[1] // 8) * 8
        scales, zeros = np.zeros((padded, n), np.float16), np.zeros((padded, n), np.float16)
        count, wide = drawn.scales.shape[1], drawn.scales.astype(np.float32)
        scales[:count], zeros[:count] = drawn.scales.T, (-wide * drawn.zeros).astype(np.float16).T
        meant = (
            drawn.codes.astype(np.float32) * wide[:, groups] + zeros[:count].T.astype(np.float32)[:, groups]
        )
        tensors = {"qweight": words.view(np.int16), "scales": scales, "scaled_zeros": zeros}
        return {f"{stem}.{part}": tensor for part, tensor in tensors.items()}, meant

    return pack, {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemv_fast"}


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
