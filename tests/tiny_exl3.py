"""EXL3 matrices written bit by bit: any stream of bits is a legal one, so that tiles are drawn at random.

    tensors, values = exl3("model.layers.0.mlp.up_proj", rows, columns, rng, bits=3)

Nothing here is shared with the engine's reader: streams are texts of binary digits, H is written out.
"""

from __future__ import annotations

import functools
from struct import pack, unpack
from typing import Any

import numpy as np
import numpy.typing as npt

Tensors = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float32]
CODEBOOKS = {"3inst": (89226354, 64248484), "mcg": (0xCBAC1FED, 0), "mul1": (0x83DCD12D, 0)}
H = np.array([[(-1) ** (i & j).bit_count() for i in range(128)] for j in range(128)], np.float64)


@functools.cache
def value(window: int, codebook: str) -> float:
    """The value of 16 bits in a codebook, with one rounding to fp16."""
    multiplier, addend = CODEBOOKS[codebook]
    x = (window * multiplier + addend) % 2**32
    if codebook == "mul1":
        step, start = unpack("<2e", bytes.fromhex("ee1e31c9"))
        exact = (1024 + sum(x.to_bytes(4, "little"))) * step + start
    else:
        exact = sum(unpack("<2e", ((x & 0x8FFF8FFF) ^ 0x3B603B60).to_bytes(4, "little")))
    return float(unpack("<e", pack("<e", exact))[0])


def tile(words: npt.NDArray[np.uint32], codebook: str) -> npt.NDArray[np.float64]:
    """The values (16 inputs, 16 outputs) of one tile."""
    stream = "".join(f"{word:032b}" for word in words.tolist())
    bits, out = len(stream) // 256, np.zeros((16, 16))
    stream = stream[-16:] + stream
    for t in range(256):
        window = int(stream[(t + 1) * bits : (t + 1) * bits + 16], 2)
        thread, j = divmod(t, 8)
        out[thread % 4 * 2 + (0, 1, 8, 9)[j % 4], thread // 4 + 8 * (j // 4)] = value(window, codebook)
    return out


def exl3(
    stem: str,
    rows: int,
    columns: int,
    rng: np.random.Generator,
    bits: int = 3,
    codebook: str = "mcg",
    signs: bool = False,
    scale: float = 0.1,
) -> tuple[Tensors, Floats]:
    """The tensors of a matrix (rows, columns), padded to multiples of 128, and its float32 values; with
    `signs` the scales are bits, as in the first files.
    """
    n, k = -(-rows // 128) * 128, -(-columns // 128) * 128
    words = rng.integers(0, 2**32, (k // 16, n // 16, 8 * bits), dtype=np.uint32)
    inner = np.block([[tile(each, codebook) for each in row] for row in words])
    inputs = (rng.choice([-1, 1], k) * rng.uniform(0.5, 1.5, k) * scale).astype(np.float16)
    outputs = (rng.choice([-1, 1], n) * rng.uniform(0.5, 1.5, n) * scale).astype(np.float16)
    tensors: Tensors = {"trellis": words.view(np.int16), "suh": inputs, "svh": outputs}
    if signs:
        inputs, outputs = np.sign(inputs), np.sign(outputs)
        tensors = {"trellis": tensors["trellis"]} | {
            part: np.packbits(each < 0, bitorder="little").view(np.int16)
            for part, each in (("su", inputs), ("sv", outputs))
        }
    if codebook != "3inst":
        tensors[codebook] = np.array(CODEBOOKS[codebook][0], np.uint32).view(np.int32)
    left = H @ inner.reshape(k // 128, 128, n)
    rotated = (left.reshape(k, n // 128, 128) @ H).reshape(k, n) / 128
    values = (rotated * inputs.astype(np.float64)[:, None] * outputs.astype(np.float64)).T
    named = {f"{stem}.{part}": each for part, each in tensors.items()}
    return named, np.ascontiguousarray(values[:rows, :columns], np.float32)
