"""Codes of 8 bits in the blocks of `layouts.blocks`: signed bytes, read as `codes` reads fewer bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from engine.backends.cpu.codegen.simd import I64, LANES
from engine.backends.cpu.codegen.simd_bytes import BIAS
from engine.backends.cpu.kernels.linear.panel_format import UnpackedWeights
from engine.backends.cpu.layouts.codes import QUADS
from engine.backends.cpu.layouts.q8 import byte_numbers, byte_operand, byte_vector

_TOP_BITS = np.uint32(0x80808080)


class ByteCodes:
    """As `Codes`: code q means q - 128. Word j of a group has the codes of quad j."""

    left, zero, largest, magnitude = 0, BIAS, 0, 128
    group_bytes = 8 * LANES * 4

    def pack_quads(self, codes: npt.NDArray[np.uint32]) -> list[npt.NDArray[np.uint32]]:
        """The words of quads (8, ...), with the first code of each in the lowest byte."""
        return [codes[q] ^ _TOP_BITS for q in range(QUADS)]

    def reader(self, b: ir.IRBuilder, address: ir.Value, offset: int) -> ByteReader:
        return ByteReader(b, address, offset)


class ByteReader:
    """As `CodeReader`, for the group at `address` + `offset` bytes."""

    def __init__(self, b: ir.IRBuilder, address: ir.Value, offset: int) -> None:
        self._b, self._group = b, b.add(address, ir.Constant(I64, offset))

    def operand(self, q: int) -> ir.Value:
        return byte_operand(self._b, self._group, q)

    def numbers(self, q: int, form: UnpackedWeights) -> tuple[ir.Value, ...]:
        return byte_numbers(self._b, self._group, q, form)

    def vector(self, k: int) -> ir.Value:
        return byte_vector(self._b, self._group, k)
