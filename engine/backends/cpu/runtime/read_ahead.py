"""How far ahead a single row's product prefetches packed weights on this processor."""

from __future__ import annotations

from llvmlite import binding as llvm

from engine.backends.cpu.codegen.simd import WIDE
from engine.backends.cpu.layouts.layout import READ_AHEAD

_SLOW_TO_FOLLOW = frozenset({"znver5"})
"""LLVM's names of processors with AVX-512 whose own prefetchers fall behind a single row's product. On AMD's
Zen 5 prefetching makes the decode of a model in Q4_K_M a fifth faster; on another one it cost a tenth.
"""


def read_ahead_of_one_row() -> int:
    """Bytes ahead that a single row's product prefetches weights; 0: nothing but the line that it reads.

    With vectors shorter than 16 lanes no processor keeps up by itself.
    """
    slow = not WIDE or llvm.get_host_cpu_name() in _SLOW_TO_FOLLOW
    return READ_AHEAD if slow else 0
