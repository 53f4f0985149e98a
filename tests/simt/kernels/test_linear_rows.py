"""Products with packed codes as unpacked calls: rows alike beside others, several matrices in one launch,
experts, the device's memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.kernels.linear import codes
from engine.backends.cuda.kernels.linear.linear import Part, embed_call, expert_call, linear_call
from engine.backends.cuda.kernels.packed_activations import packed_buffer
from engine.backends.cuda.layouts.table import WEIGHT_LAYOUTS, weight_layout_for
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.cuda.weight import CudaWeight, WeightSpec
from engine.backends.graph.buffers import Buffer
from tests.simt import agree
from tests.simt.agree import At, aligned, both
from tests.simt.fake import FakeDevice
from tests.simt.linear_cases import expert_tables, packed_rows, tensor, unpacked


class Step:
    """Memory for a call's buffers on a fake device, and the call itself with so many rows."""

    def __init__(self, device: FakeDevice, rows: int, tokens: int = 0) -> None:
        self.device, self.rows, self.tokens = device, rows, tokens
        self.memory: dict[int, Any] = {}

    def fill(self, buffer: Buffer, values: Any) -> None:
        rows = np.zeros((self.rows * buffer.copies, buffer.stride), np.uint8)
        raw = np.ascontiguousarray(values).view(np.uint8)
        rows[:, : raw.shape[1]] = raw
        self.memory[id(buffer)] = self.device.upload(rows)

    def read(self, buffer: Buffer) -> Any:
        return (
            self.device.read(self.memory[id(buffer)])
            .view(np.float32)
            .reshape(-1, buffer.stride // 4)[:, : buffer.width]
        )

    def value(self, argument: Any) -> Any:
        if isinstance(argument, Buffer):
            if id(argument) not in self.memory:
                self.memory[id(argument)] = self.device.zeros(self.rows * argument.row_bytes)
            return self.memory[id(argument)].data_ptr()
        return (
            {Runtime.ROWS: self.rows, Runtime.TOKENS: self.tokens}[argument]
            if isinstance(argument, Runtime)
            else argument
        )

    def run(self, call: Call) -> None:
        list(self.device.prepare([call.kernel]) or [])
        self.device.launch(
            call.kernel, call.blocks(self.rows * call.copies), [self.value(a) for a in call.arguments]
        )
        self.device.synchronize()


@pytest.mark.parametrize("type_name", ["Q4_1", "Q8_0"])
def test_a_row_is_the_same_beside_any_others(type_name: str) -> None:
    source = tensor(type_name, 18, 96)
    tiles = CudaWeight(FakeDevice(), source).data.numpy().copy()
    weight_layout: Any = weight_layout_for(type_name)
    x = np.random.default_rng(0).standard_normal((8, 96)).astype(np.float32)
    packed = packed_rows(x)
    kernel, alone = codes.kernel(weight_layout, 1, 2), []
    for first, rows in ((0, 8), (2, 1), (5, 3)):
        y = np.zeros((8, 32), np.float32)
        part = np.ascontiguousarray(packed[first : first + rows])
        arguments = [At(0), At(2), 128, 0, 0, 0, 18, *[0] * 14, At(1), part.shape[1], rows, 96]
        (_, _, found), _ = both(kernel, (2, 1, 1), arguments, [tiles, part, y], twice=rows == 1)
        assert (found[rows:] == 0).all()
        alone.append((first, rows, found))
    for first, rows, found in alone[1:]:
        assert np.array_equal(found[:rows], alone[0][2][first : first + rows])


def test_the_tail_of_k_never_meets_what_lies_behind() -> None:
    """Infinite scales in the tiles that follow, and warps without a block of their own, leave no trace."""
    source = tensor("Q4_0", 16, 64)
    tiles = CudaWeight(FakeDevice(), source).data.numpy()
    weight_layout: Any = weight_layout_for("Q4_0")
    behind = np.full(4096, 0xFF, np.uint8)
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    packed, y = packed_rows(x), np.zeros((1, 16), np.float32)
    arguments = [At(0), At(2), 64, 0, 0, 0, 16, *[0] * 14, At(1), packed.shape[1], 1, 64]
    (_, _, found), _ = both(
        codes.kernel(weight_layout, 1, 4), (1, 1, 1), arguments, [np.concatenate([tiles, behind]), packed, y]
    )
    exact = unpacked(x) @ source.dequantise().T.astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


def test_three_matrices_in_one_launch() -> None:
    device, rows = FakeDevice(), 4
    sources = [tensor("Q4_K", n, 256, n) for n in (40, 16, 33)]
    weights = [CudaWeight(device, s) for s in sources]
    x = np.random.default_rng(0).standard_normal((rows, 256)).astype(np.float32)
    packed = packed_buffer("fp16", Buffer(256))
    ys = [Buffer(s.shape[0]) for s in sources]
    step = Step(device, rows)
    step.fill(packed, packed_rows(x))
    residual = np.random.default_rng(1).standard_normal((rows, 33)).astype(np.float32)
    step.fill(ys[2], residual)
    bias = device.upload(np.arange(40, dtype=np.float32))
    parts = [
        Part(weights[0], ys[0], bias.data_ptr()),
        Part(weights[1], ys[1]),
        Part(weights[2], ys[2], residual=ys[2]),
    ]
    step.run(linear_call(parts, packed, device.sm_count))
    for y, source, more in zip(ys, sources, (np.arange(40), 0, residual), strict=True):
        np.testing.assert_allclose(
            step.read(y), unpacked(x) @ source.dequantise().T.astype(np.float64) + more, rtol=1e-5, atol=1e-4
        )


@pytest.mark.parametrize("interpret", [False, True])
def test_experts(interpret: bool) -> None:
    """Each choice's own matrix and bias; experts of another layout come in a launch of their own."""
    device, rows, used = FakeDevice(interpret=interpret), 2, 2
    sources = [tensor("MXFP4" if e != 1 else "Q4_0", 20, 64, e) for e in range(3)]
    weights = [CudaWeight(device, s) for s in sources]
    chosen = np.array([[2, 0], [1, 2]], np.int32)
    x = np.random.default_rng(0).standard_normal((rows * used, 64)).astype(np.float32)
    spread, ids, y = Buffer(64, copies=used), Buffer(used), Buffer(20, copies=used)
    packed = packed_buffer("fp16", spread)
    step = Step(device, rows)
    step.fill(packed, packed_rows(x))
    step.fill(ids, chosen)
    biases = np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32)
    tables = expert_tables(device, weights)
    assert sorted(t.first.weight_layout.name for t in tables) == ["mxfp4", "q40"]
    address = device.upload(biases)
    for table in tables:
        step.run(expert_call(table, packed, ids, y, 1 << 20, address.data_ptr(), 128))
    for r, expert in enumerate(chosen.reshape(-1)):
        exact = sources[expert].dequantise().astype(np.float64) @ unpacked(x)[r] + biases[expert, :20]
        np.testing.assert_allclose(step.read(y)[r], exact, rtol=1e-5, atol=1e-4 * np.abs(exact).max())


def test_embeddings() -> None:
    device, source = FakeDevice(), tensor("Q6_K", 50, 256)
    tokens = device.upload(np.array([49, 0, 17], np.int32))
    step, y = Step(device, 3, tokens.data_ptr()), Buffer(256)
    step.run(embed_call(CudaWeight(device, source), y, 3.0))
    np.testing.assert_allclose(step.read(y), 3 * source.dequantise()[[49, 0, 17]], rtol=1e-6, atol=1e-7)


def test_every_power_of_mxfp4() -> None:
    """The smallest and the largest scales, whose halves are multiplied one after the other."""
    source: Any = tensor("MXFP4", 16, 64, 3)
    raw = source.data.reshape(-1, 17).copy()
    raw[:, 0] = np.linspace(0, 250, len(raw)).astype(np.uint8)
    tiles = (
        CudaWeight(FakeDevice(), type(source)("w", "MXFP4", (16, 64), raw.reshape(-1))).data.numpy().copy()
    )
    values = type(source)("w", "MXFP4", (16, 64), raw.reshape(-1)).dequantise().astype(np.float64)
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    packed, y = packed_rows(x), np.zeros((1, 16), np.float32)
    weight_layout: Any = weight_layout_for("MXFP4")
    arguments = [At(0), At(2), 64, 0, 0, 0, 16, *[0] * 14, At(1), packed.shape[1], 1, 64]
    (_, _, found), _ = both(
        codes.kernel(weight_layout, 1, 2), (1, 1, 1), arguments, [tiles, packed, y], twice=False
    )
    # a device takes numbers below the smallest normal one for 0 on the way
    np.testing.assert_allclose(found, unpacked(x) @ values.T, rtol=1e-5, atol=agree.CONTRACTED * 1e-34)


def test_outlines_and_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix sent in pieces is that sent at once; its bytes are known from the header, and near the
    file's.
    """
    source = tensor("Q4_0", 70, 160)
    whole = CudaWeight(FakeDevice(), source).data.numpy().copy()
    monkeypatch.setattr("engine.backends.cuda.weight._VALUES_AT_ONCE", 160 * 32)
    assert np.array_equal(CudaWeight(FakeDevice(), source).data.numpy(), whole)
    large = tensor("Q4_K", 16, 1024)
    assert WeightSpec(large).nbytes == 16 * 1024 * 4.625 / 8
    assert len({f.name for f in WEIGHT_LAYOUTS}) == len(WEIGHT_LAYOUTS)
    assert aligned(whole).nbytes == WeightSpec(source).nbytes
