"""Long products: the kernels around them, and whole operations on the fake device against float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.linear import gemm
from engine.backends.cuda.kernels.linear.gemm import expert_product_call, product_call, product_scratch
from engine.backends.cuda.kernels.linear.gemm_rows import (
    after_kernel,
    before_kernel,
    expert_biases_kernel,
    fp16_rows_kernel,
)
from engine.backends.cuda.kernels.linear.linear import Part
from engine.backends.cuda.kernels.packed_activations import padded
from engine.backends.cuda.lowering.call import Call, Runtime, ScratchSize, TorchCall
from engine.backends.cuda.weight import CudaWeight
from engine.backends.graph.buffers import Buffer
from engine.weights.tensor import FileTensor
from tests.simt.agree import At, both
from tests.simt.fake import FakeDevice
from tests.simt.kernels.test_plain import bf16_bits
from tests.simt.linear_cases import expert_tables
from tests.simt.linear_cases import tensor as packed_tensor
from tests.simt.models import model_name


class Step:
    """A `Bound` of its own memory: what a program gives a `TorchCall`."""

    def __init__(self, device: FakeDevice, rows: int) -> None:
        self.device, self.rows, self._step_rows = device, rows, rows
        self.position, self.pages = 0, np.zeros(1, np.int32)
        self._memory: dict[Buffer, torch.Tensor] = {}
        self._scratch: dict[int, torch.Tensor] = {}
        self._scratch_sizes: Mapping[int, ScratchSize] = {}

    def _bytes(self, buffer: Buffer) -> torch.Tensor:
        if buffer not in self._memory:
            self._memory[buffer] = self.device.empty(self._step_rows * buffer.row_bytes)
        return self._memory[buffer]

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        return self._bytes(buffer).view(torch.float32).view(-1, buffer.stride // 4)[:, : buffer.width]

    def address(self, argument: Any) -> int | float:
        assert not isinstance(argument, Runtime)
        return self._bytes(argument).data_ptr() if isinstance(argument, Buffer) else argument

    def launch(self, call: Call) -> None:
        self.device.launch(call.kernel, call.blocks(self.rows), [self.address(a) for a in call.arguments])

    def scratch(self, size: int, place: int = 0) -> torch.Tensor:
        assert size <= self._scratch_sizes[place].bytes(self._step_rows, 0), "more than was said"
        if place not in self._scratch or self._scratch[place].nbytes < size:
            self._scratch[place] = self.device.empty(size)
        return self._scratch[place]

    def run(self, call: TorchCall) -> None:
        self.rows, self._scratch_sizes = self._step_rows * call.copies, call.scratch_sizes
        list(self.device.prepare(call.kernels))
        call.run(self)
        self.device.synchronize()

    def put(self, buffer: Buffer, values: Any) -> None:
        self.tensor(buffer).view(torch.int32 if values.dtype == np.int32 else torch.float32)[:] = (
            torch.from_numpy(values)
        )


def tensor(kind: str, rows: int, columns: int, seed: int) -> FileTensor:
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    raw: Any = {"BF16": bf16_bits, "F16": lambda v: v.astype(np.float16), "F32": lambda v: v}[kind](values)
    return FileTensor("w", kind, (rows, columns), np.ascontiguousarray(raw).reshape(-1).view(np.uint8))


def q8(rows: int, columns: int, seed: int) -> FileTensor:
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (rows * columns // 32, 34), np.uint8)
    blocks[:, :2] = rng.uniform(0.001, 0.01, len(blocks)).astype(np.float16)[:, None].view(np.uint8)
    return FileTensor("w", "Q8_0", (rows, columns), blocks.reshape(-1))


# What x loses against its row's largest number, as bf16 and fp16; float32 loses in its sums.
LOST = {"BF16": 2.0**-9, "F16": 2.0**-11, "F32": 2.0**-22, "Q8_0": 2.0**-11}


def make(kind: str, rows: int, columns: int, seed: int) -> FileTensor:
    return q8(rows, columns, seed) if kind == "Q8_0" else tensor(kind, rows, columns, seed)


def near(found: Any, x: Any, w: Any, plus: Any, kind: str) -> None:
    """Within twice what rounding x and w costs, were every rounding the worst one."""
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    lost = LOST[kind] + (2.0**-11 if kind == "Q8_0" else 0)
    bound = 2 * lost * np.abs(x).max(axis=1, keepdims=True) * np.abs(w).sum(axis=1) + 2.0**-20 * np.abs(plus)
    assert (np.abs(found - (exact + plus)) <= bound).all()


@pytest.mark.parametrize(
    ("kind", "rows"), [("BF16", 11), ("F16", 11), ("F32", 11), ("Q8_0", 11), ("Q8_0", 67)]
)
def test_products_of_many_rows(kind: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two matrices, one with bias and residual, rows of very different sizes; an unpacked one goes in
    pieces.
    """
    monkeypatch.setattr(gemm, "UNPACKED_BYTES", 2 * 16 * 128)
    device, columns, rng = FakeDevice(), 96 if kind == "Q8_0" else 70, np.random.default_rng(1)
    step, x = Step(device, rows), Buffer(columns)
    sizes = np.exp2(rng.integers(-30, 30, (rows, 1))).astype(np.float32)
    values = rng.standard_normal((rows, columns)).astype(np.float32) * sizes
    files = [make(kind, 37, columns, 2), make(kind, 16, columns, 3)]
    weights = [CudaWeight(device, file) for file in files]
    bias, residual = (
        rng.standard_normal(37).astype(np.float32),
        rng.standard_normal((rows, 37)).astype(np.float32) * sizes,
    )
    kept, r = device.upload(bias), Buffer(37)
    parts = [Part(weights[0], Buffer(37), kept.data_ptr(), r), Part(weights[1], Buffer(16))]
    step.put(x, values)
    step.put(r, residual)
    step.run(product_call(parts, x, device.sm_count))
    near(step.tensor(parts[0].y).numpy(), values, files[0].dequantise(), bias + residual, kind)
    near(step.tensor(parts[1].y).numpy(), values, files[1].dequantise(), np.zeros(16), kind)
    assert product_scratch(weights[0]) == (2 * 16 * 128 if kind == "Q8_0" else 0)


@pytest.mark.parametrize("tokens", [10, 150])
def test_experts_of_several_families(tokens: int) -> None:
    device, columns, rng = FakeDevice(), 64, np.random.default_rng(2)
    step, x, ids, y = Step(device, tokens), Buffer(columns, copies=2), Buffer(2), Buffer(19, copies=2)
    values = rng.standard_normal((2 * tokens, columns)).astype(np.float32) * np.exp2(
        rng.integers(-20, 20, (2 * tokens, 1))
    ).astype(np.float32)
    kinds = ["F16", "BF16", "F32", "Q8_0", "F16"]
    files = [make(kind, 19, columns, e) for e, kind in enumerate(kinds)]
    # nobody takes the last
    chosen = np.stack([rng.choice(4, 2, replace=False) for _ in range(tokens)]).astype(np.int32)
    biases = rng.standard_normal((5, 32)).astype(np.float32)
    kept = device.upload(biases)
    step.put(x, values)
    step.put(ids, chosen)
    tables = expert_tables(device, [CudaWeight(device, file) for file in files])
    assert len(tables) == 4
    for table in tables:
        step.run(expert_product_call(table, x, ids, y, device.sm_count, kept.data_ptr(), 128))
    found = step.tensor(y).numpy()
    for row, expert in enumerate(chosen.reshape(-1)):
        file = files[expert].dequantise()
        near(
            found[row : row + 1], values[row : row + 1], file, biases[expert : expert + 1, :19], kinds[expert]
        )


class Traffic:
    """Counts the bytes of a matrix that a step's launches move."""

    def __init__(self, device: FakeDevice, weight: CudaWeight, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes, self.launched = 0, list[str]()
        launch, dense = device.launch, 2 * 16 * weight.tiles * padded(weight.shape[1])

        def counted(kernel: Kernel, blocks: tuple[int, int, int], arguments: Any) -> None:
            self.launched.append(model_name(kernel))
            if self.launched[-1] == "multiply_codes.linear":
                self.bytes += weight.nbytes
            elif self.launched[-1] == "unpack_codes.unpack":  # read, written, and read by torch
                self.bytes += weight.nbytes + 2 * dense
            launch(kernel, blocks, arguments)

        monkeypatch.setattr(device, "launch", counted)


@pytest.mark.parametrize(("kind", "most"), [("Q4_0", 64), ("Q8_0", 32)])
def test_a_few_more_rows_take_several_short_passes(
    kind: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as they move fewer bytes than unpacking, and never more; what comes out is the product either
    way."""
    device, columns = FakeDevice(), 256
    rng = np.random.default_rng(4)
    weight = CudaWeight(device, packed_tensor(kind, 40, columns))
    dense = 2 * 16 * weight.tiles * padded(columns)
    values = packed_tensor(kind, 40, columns).dequantise().astype(np.float64)
    for rows in (9, 16, most, most + 1, 200):
        step, x, y = Step(device, rows), Buffer(columns), Buffer(40)
        given = rng.standard_normal((rows, columns)).astype(np.float32)
        with monkeypatch.context() as patched:
            traffic = Traffic(device, weight, patched)
            step.put(x, given)
            step.run(product_call([Part(weight, y)], x, device.sm_count))
        passes = -(-rows // 8)
        assert traffic.launched.count("multiply_codes.linear") == (passes if rows <= most else 0)
        assert traffic.launched.count("unpack_codes.unpack") == (0 if rows <= most else 1)
        assert traffic.bytes == min(passes * weight.nbytes, weight.nbytes + 2 * dense)
        exact = given @ values.T
        assert np.abs(step.tensor(y).numpy() - exact).max() < 2e-3 * np.abs(exact).max()


def test_passes_add_bias_and_residual_and_may_write_over_it() -> None:
    device, rows, columns, rng = FakeDevice(), 21, 96, np.random.default_rng(5)
    weight = CudaWeight(device, packed_tensor("Q4_0", 33, columns))
    step, x, y = Step(device, rows), Buffer(columns), Buffer(33)
    given, before = (rng.standard_normal((rows, n)).astype(np.float32) for n in (columns, 33))
    bias = rng.standard_normal(33).astype(np.float32)
    kept = device.upload(bias)
    step.put(x, given)
    step.put(y, before)
    step.run(product_call([Part(weight, y, kept.data_ptr(), y)], x, device.sm_count))
    exact = given @ packed_tensor("Q4_0", 33, columns).dequantise().T.astype(np.float64) + bias + before
    assert np.abs(step.tensor(y).numpy() - exact).max() < 1e-2


@pytest.mark.slow
def test_kernels_around_products() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6, 80)).astype(np.float32) * np.float32(
        [[1], [1e-9], [1e30], [0], [1e6], [2.0**-10]]
    )
    x[:, 70:] = np.nan
    fp16, factors = np.full((6, 128), 5, np.float16), np.zeros(6, np.float32)
    arrays = [x, fp16, factors]
    found, modelled = both(fp16_rows_kernel(), (6, 1, 1), [At(0), 320, At(1), 256, At(2), 70], arrays)
    for a, b in zip(found, modelled, strict=True):
        assert a.tobytes() == b.tobytes()
    assert found[2][0] == 1 != found[2][2]
    back = found[1][:, :70].astype(np.float64) * found[2][:, None]
    assert (np.abs(back - x[:, :70]) <= 2.0**-11 * np.abs(x[:, :70]).max(axis=1, keepdims=True)).all()
    factors = found[2]
    residual, bias = (
        rng.standard_normal((6, 40)).astype(np.float32),
        rng.standard_normal(33).astype(np.float32),
    )
    y = np.zeros((6, 48), np.float32)
    arguments = [At(0), 192, At(1), 160, At(2), At(3), 33]
    (found_y, *_), (want, *_) = both(before_kernel(), (6, 1, 1), arguments, [y, residual, bias, factors])
    np.testing.assert_allclose(found_y, want, rtol=1e-6)
    (found_y, *_), _ = both(after_kernel(), (6, 1, 1), [At(0), 192, At(1), 33], [found_y, factors])
    np.testing.assert_allclose(found_y[:, :33], residual[:, :33] + bias, rtol=1e-6)
    ids, biases = np.array([[1, 0, 7], [2, 1, 7]], np.int32), rng.standard_normal((3, 40)).astype(np.float32)
    arguments = [At(0), 192, At(1), 12, 2, At(2), 160, 33, At(3)]
    (found_y, *_), (want, *_) = both(
        expert_biases_kernel(), (4, 1, 1), arguments, [y, ids, biases, np.array([5, 6, 0])]
    )
    assert found_y.tobytes() == want.tobytes()
    np.testing.assert_array_equal(want[[0, 1, 3], :33], biases[[1, 0, 1], :33])
    assert (want[2] == 0).all()
