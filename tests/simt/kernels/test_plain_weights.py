"""Matrices on the fake device: what becomes of each type, and the parts of permuted ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.kernels.linear.linear import Part, embed_call, linear_call
from engine.backends.cuda.weight import CudaWeight, WeightSpec
from engine.backends.graph.buffers import Buffer
from engine.backends.packing.composite import Composite
from engine.weights.packed.fp8 import wrap_fp8
from engine.weights.tensor import FileTensor
from tests.simt.fake import FakeDevice
from tests.simt.kernels.test_gemm import tensor
from tests.simt.kernels.test_plain import packed_rows


def product(device: FakeDevice, weight: CudaWeight, x: Any) -> Any:
    """x times the matrix by the kernels for few rows, as the fake device runs them."""
    features, columns = weight.shape
    rows = packed_rows(weight.weight_layout.activations, x)
    held, y = device.upload(rows), device.zeros(4 * 64 * len(x))
    buffer, source = Buffer(features), Buffer(rows.shape[1] // 4)
    call = linear_call([Part(weight, buffer)], source, device.sm_count)
    values = {buffer: y.data_ptr(), source: held.data_ptr()}
    arguments: list[Any] = [values[a] if isinstance(a, Buffer) else a for a in call.arguments]
    list(device.prepare([call.kernel]))
    # Rows and strides are those of this test.
    arguments[1:3] = [y.data_ptr(), 256]
    arguments[-4:] = [held.data_ptr(), rows.shape[1], len(x), columns]
    device.launch(call.kernel, call.blocks(len(x)), arguments)
    return device.read(y).view(np.float32).reshape(len(x), 64)[:, :features]


def fp8(rows: int, columns: int, scale: Any) -> Any:
    numbers = np.random.default_rng(1).integers(0, 0x7F, rows * columns).astype(np.uint8)
    files = {"w.weight": FileTensor("w.weight", "F8_E4M3", (rows, columns), numbers)}
    files["w.weight_scale"] = FileTensor(
        "w.weight_scale", "F32", scale.shape, scale.reshape(-1).view(np.uint8)
    )
    return wrap_fp8(files, {})["w.weight"]


@pytest.mark.parametrize(
    ("kind", "capability", "weight_layout"),
    [("BF16", 90, "bf16"), ("BF16", 75, "fp16"), ("F16", 75, "fp16"), ("F32", 75, "fp32")],
)
def test_what_plain_types_become(kind: str, capability: int, weight_layout: str) -> None:
    device, source = FakeDevice(capability=capability), tensor(kind, 20, 70, 1)
    weight = CudaWeight(device, source)
    assert weight.weight_layout.name == weight_layout == WeightSpec(source, capability).weight_layout.name
    assert weight.nbytes == WeightSpec(source, capability).nbytes == 32 * 128 * (4 if kind == "F32" else 2)
    x = np.random.default_rng(2).standard_normal((3, 70)).astype(np.float32)
    np.testing.assert_allclose(product(device, weight, x), x @ source.dequantise().T, atol=2.0**-11 * 64)


@pytest.mark.parametrize(("columns", "weight_layout"), [(256, "fp8u128"), (96, "fp8u32"), (40, "fp16")])
def test_8_bit_floats_of_a_folder(columns: int, weight_layout: str) -> None:
    """A scale a row; columns that make no whole block become fp16."""
    device = FakeDevice()
    source = fp8(20, columns, np.linspace(0.001, 0.002, 20, dtype=np.float32).reshape(20, 1))
    weight = CudaWeight(device, source)
    assert weight.weight_layout.name == weight_layout == WeightSpec(source).weight_layout.name
    x = np.random.default_rng(2).standard_normal((2, columns)).astype(np.float32)
    exact = source.dequantise()
    np.testing.assert_allclose(
        product(device, weight, x), x @ exact.T, atol=2.0**-10 * np.abs(exact).sum(axis=1).max() * 4
    )


def test_rows_by_number_on_a_device() -> None:
    device, source, y = FakeDevice(), tensor("BF16", 20, 70, 1), Buffer(70)
    call = embed_call(CudaWeight(device, source), y, 2.0)
    ids, out = device.upload(np.array([19, 0], np.int32)), device.zeros(2 * y.stride)
    arguments: list[Any] = list(call.arguments)
    arguments[1:3] = [ids.data_ptr(), out.data_ptr()]
    list(device.prepare([call.kernel]))
    device.launch(call.kernel, call.blocks(2), arguments)
    found = device.read(out).view(np.float32).reshape(2, -1)[:, :70]
    np.testing.assert_array_equal(found, 2 * source.dequantise()[[19, 0]])


class Permuted:
    """A `PermutedTensor` of two plain parts."""

    name, type = "layers.0.weight", "PERMUTED+F16"

    def __init__(self, values: Any, order: Any) -> None:
        self.shape, self.order, self._values = values.shape, order, values.astype(np.float16)

    def pieces(self) -> list[FileTensor]:
        kept = self._values[:, self.order]
        parts = [np.ascontiguousarray(each) for each in (kept[:, :64], kept[:, 64:])]
        return [FileTensor(self.name, "F16", each.shape, each.reshape(-1).view(np.uint8)) for each in parts]


def test_permuted_matrices_are_the_sums_of_their_parts() -> None:
    rng = np.random.default_rng(3)
    values, order = rng.standard_normal((20, 75)).astype(np.float32), rng.permutation(75)
    source: Any = Permuted(values, order)
    device = FakeDevice()
    weight = Composite(source, lambda piece: CudaWeight(device, piece))
    spec = Composite(source, lambda piece: WeightSpec(piece, device.capability))
    assert (
        [part.shape for part in weight.parts] == [(20, 64), (20, 11)] == [part.shape for part in spec.parts]
    )
    assert weight.nbytes == spec.nbytes
    x = rng.standard_normal((2, 75)).astype(np.float32)
    total = np.zeros((2, 20))
    for part, columns in zip(weight.parts, weight.orders, strict=True):
        assert isinstance(part, CudaWeight)
        assert columns.dtype == np.int32
        total += product(device, part, np.ascontiguousarray(x[:, columns]))
    np.testing.assert_allclose(total, x @ values.T, atol=2.0**-10 * 75)
