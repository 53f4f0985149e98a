"""Packed codes: every type's numbers, products of one to eight rows, experts, unpacking; kernels' bodies
and their twins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.kernels.linear import codes
from engine.backends.cuda.kernels.linear.interface import UNPACK_COLUMNS
from engine.backends.cuda.kernels.linear.unpack_codes import embed_kernel, unpack_kernel
from engine.backends.cuda.layouts.table import weight_layout_for
from engine.backends.cuda.weight import CudaWeight
from tests.simt import agree
from tests.simt.agree import At, Table, both
from tests.simt.fake import FakeDevice
from tests.simt.linear_cases import (
    AFFINE,
    BLOCKS_OF_32,
    BLOCKS_OF_256,
    GROUPED,
    IK,
    NVFP4,
    columns_of,
    packed_rows,
    tensor,
    unpacked,
)

ALL = (*BLOCKS_OF_32, *BLOCKS_OF_256, NVFP4, "Q6_0", *IK, *GROUPED, *AFFINE)
QUICK = {
    "Q4_0", "Q4_K", "Q6_K", "Q8_0", "IQ4_XS", "IQ3_S", "IQ2_S", "MXFP4", NVFP4, "IQ4_K", "IQ4_KS", "IQ3_KT",
    "GROUPED3_64", "AFFINE5_64_BF16",
}  # fmt: skip
EVERY = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in ALL]
PAD = 32


def packed(type_name: str, rows: int, columns: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """The tensor's numbers, its tiles as bytes, its weight layout."""
    source = tensor(type_name, rows, columns, seed)
    weight = CudaWeight(FakeDevice(), source)
    weight_layout = weight_layout_for(type_name)
    assert weight_layout is weight.weight_layout
    assert weight.nbytes == weight.data.numel() == -(-rows // 16) * weight_layout.tile_bytes(columns)
    return source.dequantise(), weight.data.numpy().copy(), weight_layout


@pytest.mark.parametrize("type_name", EVERY)
def test_products(type_name: str) -> None:
    """Three rows, 35 outputs in two kinds of tiles: the body is its twin but for sums in float32, and both
    are the matrix's product.
    """
    weight_layout: Any = weight_layout_for(type_name)
    products(type_name, 2, max(2, weight_layout.span))


REGISTERED = {
    "Q4_0": ((1, 8), (1, 14), (2, 4)), "Q4_K": ((1, 8), (1, 14)), "Q2_K": ((1, 8), (1, 14)),
    "Q6_K": ((1, 8), (1, 16)), "Q8_0": ((1, 8),), "MXFP4": ((1, 8), (1, 16)),
    NVFP4: ((1, 8),), "GROUPED4_128": ((1, 8), (1, 16)), "GROUPED8_32_F32": ((1, 8),),
    "IQ3_S": ((1, 8),), "IQ2_S": ((1, 8),), "IQ4_KS": ((1, 8),),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("type_name", "tiles", "warps"),
    [(name, *sizes) for name, variants in REGISTERED.items() for sizes in variants],
)
def test_products_as_models_ask_for_them(type_name: str, tiles: int, warps: int) -> None:
    products(type_name, tiles, warps)


def test_all_registered_products_are_among_these() -> None:
    """`tests/simt/driver` runs them all to find one that no test launches; this takes no time."""
    asked = {
        codes.kernel(weight_layout_for(name), *sizes).name
        for name, variants in REGISTERED.items()
        for sizes in variants
    }
    assert asked == {kernel.name for kernel in codes.variants() if kernel.name.startswith("linear_")}


def products(type_name: str, each: int, warps: int) -> None:
    """Of a form: `each` tiles a warp, so many warps."""
    outputs, rows, columns = 35, 3, columns_of(type_name)
    values, tiles, weight_layout = packed(type_name, outputs, columns)
    x = np.random.default_rng(5).standard_normal((rows, columns)).astype(np.float32)
    x[:, ::7] *= 100
    packed_x = packed_rows(x)
    y, bias = (
        np.zeros((rows, 48), np.float32),
        np.random.default_rng(6).standard_normal(outputs).astype(np.float32),
    )
    residual = np.random.default_rng(7).standard_normal((rows, 48)).astype(np.float32)
    kernel = codes.kernel(weight_layout, each, warps)
    none = [0] * 7
    arguments = [
        At(0),
        At(2),
        192,
        At(3),
        At(4),
        192,
        outputs,
        *none,
        *none,
        At(1),
        packed_x.shape[1],
        rows,
        columns,
    ]
    blocks = -(-outputs // (16 * each))
    found, expected = both(
        kernel, (blocks, 1, 1), arguments, [tiles, packed_x, y, bias, residual], twice=False
    )
    exact = unpacked(x) @ values.T.astype(np.float64)
    bound = np.abs(unpacked(x)) @ np.abs(values).T
    required = exact + bias + residual[:, :outputs]
    assert (np.abs(expected[2][:, :outputs] - required) <= 1e-6 * bound + 1e-5).all()
    # Codes and sums of x are exact, but a zero is taken off their sums: float32's rounding of what is there
    # before. Tensor cores cut sums off instead of rounding them (Fasi et al., Numerical behavior of NVIDIA
    # tensor cores, 2021), so that errors do not cancel.
    many = np.abs(unpacked(x)).sum(1)[:, None] * np.abs(values).max(1) * 8
    share = 1.2e-6 if agree.CONTRACTED else 3e-7
    assert (np.abs(found[2][:, :outputs] - required) <= share * (bound + many) + 1e-6).all()
    assert (found[2][:, outputs:] == 0).all()


@pytest.mark.parametrize(
    ("type_name", "warps"),
    [("Q4_0", 2), *(pytest.param(name, 8, marks=pytest.mark.slow) for name in ("MXFP4", NVFP4, "IQ2_S"))],
)
def test_experts(type_name: str, warps: int) -> None:
    """Each row's own matrix and bias; rows of an expert of another layout are left alone."""
    outputs, columns, used = 20, 256 if type_name in BLOCKS_OF_256 else 64, 2
    matrices = [packed(type_name, outputs, columns, seed) for seed in range(2)]
    x = np.random.default_rng(2).standard_normal((4, columns)).astype(np.float32)
    packed_x, ids = packed_rows(x), np.array([[1, 2, 0], [0, 1, 0]], np.int32)
    biases = np.random.default_rng(3).standard_normal((3, 24)).astype(np.float32)
    arrays = [
        packed_x,
        ids,
        biases,
        np.full((4, 24), 7, np.float32),
        Table(5, 6, None),
        *(tiles for _, tiles, _ in matrices),
    ]
    kernel = codes.kernel(matrices[0][2], 1, warps, experts=True)
    arguments = [At(4), outputs, At(3), 96, At(2), 96, At(1), 12, used, At(0), packed_x.shape[1], columns]
    for out in both(kernel, (2, 4, 1), arguments, arrays, twice=False):
        for row, expert in ((0, 1), (2, 0), (3, 1)):
            values = matrices[expert][0].astype(np.float64)
            bound = np.abs(unpacked(x)[row]).sum() * np.abs(values).max() * 8
            required = values @ unpacked(x)[row] + biases[expert, :outputs]
            assert (np.abs(out[3][row, :outputs] - required) <= 1e-6 * bound + 1e-5).all()
        assert (out[3][1] == 7).all()
        assert (out[3][:, outputs:] == 7).all()


@pytest.mark.parametrize("type_name", EVERY)
def test_unpacking(type_name: str) -> None:
    """fp16 rows are the tensor's numbers rounded once, and zero in the padding; single rows are them in
    float32.
    """
    outputs, columns = 21, columns_of(type_name)
    values, tiles, weight_layout = packed(type_name, outputs, columns, 1)
    wide = -(-columns // 64) * 64
    target = np.full((16, wide + PAD), 7, np.float16)
    grid = (-(-wide // UNPACK_COLUMNS), 1, 1)
    found, expected = both(
        unpack_kernel(weight_layout),
        grid,
        [At(0), 1, At(1), target.strides[0], columns],
        [tiles, target],
        twice=False,
    )
    for out in (found[1], expected[1]):
        assert (out[:, wide:] == 7).all()
        assert (out[5:, :wide] == 0).all()
        assert (out[:5, columns:wide] == 0).all()
        near = (
            np.spacing(np.abs(values[16:]).astype(np.float16))
            if weight_layout.mins in ("half", "float", "sub")
            else np.float16(0)
        )
        assert (np.abs(out[:5, :columns] - values[16:].astype(np.float16)) <= near).all()
    stride = -(-columns // 16) * 16
    y = np.zeros((3, stride), np.float32)
    tokens = np.array([20, 3, 8], np.int32)
    arguments = [At(0), At(1), At(2), 4 * stride, 2.0, columns]
    found, expected = both(embed_kernel(weight_layout), (1, 3, 1), arguments, [tiles, tokens, y], twice=False)
    for out in (found[2], expected[2]):
        np.testing.assert_allclose(
            out[:, :columns], 2 * values[tokens], rtol=3e-7, atol=1e-7 * np.abs(values).max()
        )
        assert (out[:, columns:] == 0).all()


@pytest.mark.parametrize(
    ("type_name", "outputs", "columns", "sm_count", "chosen"),
    [
        ("GROUPED4_128", 4096, 4096, 132, "1x16"),  # 256 tiles: all blocks run at once, two a multiprocessor
        ("GROUPED4_128", 4096, 4096, 127, "1x8"),  # 254 would
        ("GROUPED4_128", 4096, 1984, 132, "1x8"),  # a warp would have nothing to do
        ("Q4_K", 4096, 14336, 132, "1x14"),
        ("Q8_0", 4096, 14336, 132, "1x8"),
        ("Q4_0", 28672, 4096, 132, "1x8"),  # two rounds of ten tiles, the second of which is a third full
        ("Q4_0", 55296, 5120, 132, "2x4"),
        ("Q4_0", 16384, 2048, 132, "2x4"),
        ("Q4_K", 55296, 5120, 132, "1x8"),
    ],
)
def test_the_form_of_a_product(
    type_name: str, outputs: int, columns: int, sm_count: int, chosen: str
) -> None:
    weight_layout: Any = weight_layout_for(type_name)
    found = codes.variant(weight_layout, outputs // 16, columns, sm_count)
    assert found.kernel.name == f"linear_{weight_layout.name}_{chosen}"
    assert found.tiles == int(chosen[0])


def test_experts_get_no_more_warps() -> None:
    """Some of their kernels would spill."""
    weight_layout: Any = weight_layout_for("Q6_K")
    found = codes.variant(weight_layout, 64, 4096, 132, experts=True)
    assert found.kernel.name == "experts_q6k_1x8"
