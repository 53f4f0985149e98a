"""Every kernel variant that models use, to compile and check them for all devices without a GPU.

A kernel that is not listed is compiled when a model with unusual sizes needs it.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels import (
    balance,
    generalised_delta,
    magnitude,
    moe,
    norm,
    packed_activations_write,
    pointwise,
    pool,
    qk_norm,
    recurrent,
    rope,
    routes,
    rows,
    shaped,
    weighted_mean,
)
from engine.backends.cuda.kernels.attention import attention, beside, chosen, indexer, relative
from engine.backends.cuda.kernels.kv_write import gather, kv_write
from engine.backends.cuda.kernels.linear import gemm_rows, heads, variants
from engine.backends.cuda.kernels.sampling import sampling


def all_kernels() -> Iterator[Kernel]:
    """Each kernel variant once."""
    yield from kv_write.variants()
    yield from gather.variants()
    yield from attention.variants()
    yield from relative.variants()
    yield from indexer.variants()
    yield from chosen.variants()
    yield from beside.variants()
    yield from moe.variants()
    yield from routes.variants()
    yield from gemm_rows.variants()
    yield from variants.variants()
    yield from heads.variants()
    yield from norm.variants()
    yield from qk_norm.variants()
    yield from magnitude.variants()
    yield from pointwise.variants()
    yield from shaped.variants()
    yield from packed_activations_write.variants()
    yield from rope.variants()
    yield from rows.variants()
    yield from recurrent.variants()
    yield from generalised_delta.variants()
    yield from weighted_mean.variants()
    yield from pool.variants()
    yield from balance.variants()
    yield from sampling.variants()
