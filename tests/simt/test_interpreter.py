"""The interpreter refuses what it promises to: races, memory that was not written or given, and threads
that diverge.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    barrier,
    ld_u32,
    lds_u32,
    shared,
    shfl_xor_i32,
    st_u32,
    sts_u32,
    thread,
)
from engine.backends.cuda.codegen.registry import all_kernels
from engine.backends.cuda.codegen.words import int64, uint32
from tests.simt.emulation import EMULATED, OPS
from tests.simt.interpreter import KernelFault, Memory, run
from tests.simt.models import MODELS, model_name

BARRIER = 1


def written_after_reads(p: int) -> None:
    """All warps read a word that the last one then writes."""
    base, me = shared(16), thread()
    if me == 0:
        sts_u32(base, uint32(7))
    barrier()
    found = lds_u32(base)
    if BARRIER:
        barrier()
    if me == 95:
        sts_u32(base, uint32(8))
    st_u32(p + int64(4 * me), found)


def read_after_a_write(p: int) -> None:
    """One warp writes what another reads."""
    base, me = shared(16), thread()
    if me == 0:
        sts_u32(base, uint32(7))
    if BARRIER:
        barrier()
    if me >= 32:
        st_u32(p + int64(4 * me), lds_u32(base))


def unwritten(p: int) -> None:
    st_u32(p, lds_u32(shared(16)))


def beyond(p: int) -> None:
    st_u32(p + int64(4 * 96), uint32(1))


def misaligned(p: int) -> None:
    st_u32(p, ld_u32(p + int64(2)))


def diverged(p: int) -> None:
    if thread() % 2:
        st_u32(p, uint32(shfl_xor_i32(1, 1)))


def missed(p: int) -> None:
    if thread() < 32:
        barrier()


def started(body: Callable[..., None], constants: dict[str, int]) -> list[int]:
    kernel = Kernel(body.__name__, body, "l", 96, 32, constants)
    out = np.zeros(96, np.uint32)
    run(kernel, 1, [out.ctypes.data], Memory(out))
    return [int(x) for x in out]


def test_races_end_at_a_barrier() -> None:
    assert started(written_after_reads, {"BARRIER": 1}) == [7] * 96
    assert started(read_after_a_write, {"BARRIER": 1}) == [0] * 32 + [7] * 64


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (written_after_reads, "warps several and 2 touch shared memory at 0 with no barrier between"),
        (read_after_a_write, "warps 0 and 1 touch shared memory at 0 with no barrier between"),
        (unwritten, "are read, but were not written"),
        (beyond, "384 bytes into one of 384"),
        (misaligned, "not a multiple of 4"),
        (diverged, "the lanes of warp 0 diverged at an exchange"),
        (missed, "threads of a block diverged at a barrier"),
    ],
)
def test_faults(body: Callable[..., None], message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        started(body, {"BARRIER": 0})


def test_every_instruction_is_emulated() -> None:
    assert set(EMULATED) == set(OPS)


def test_every_kernel_has_a_model() -> None:
    assert {model_name(kernel) for kernel in all_kernels()} == set(MODELS)
