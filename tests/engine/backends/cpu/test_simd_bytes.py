"""Dot products of bytes by every instruction: those this CPU has are run, those of ARM are compiled for
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvmlite import binding as llvm
from llvmlite import ir
from numba import njit, types

from engine.backends.cpu.codegen import simd_bytes
from engine.backends.cpu.codegen.simd import FEATURES, I64, VI32, WIDE, X86, intrinsic_function, load, store
from engine.backends.cpu.kernels.linear.panel_format import V32I16, pair_products
from tests.engine.backends.cpu.test_weight_types import compiled

NEEDS = {"vnni": {"avx512vnni"}, "avx2": {"avx2"}, "sse2": set[str](), "plain": set[str]()}
RUNNABLE = [kind for kind, needed in NEEDS.items() if needed <= FEATURES and (X86 or kind == "plain")]


def emit(b: ir.IRBuilder, total: Any, weights: Any, x: Any, signed: bool) -> Any:
    vector = load(b, weights, simd_bytes.V64I8)
    return simd_bytes.byte_products(b, load(b, total, VI32), vector, load(b, x, simd_bytes.V64I8), signed)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kind", RUNNABLE)
def test_sums_are_exact(kind: str, signed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simd_bytes, "KIND", kind)

    def to_memory(b: ir.IRBuilder, total: Any, weights: Any, x: Any) -> None:
        store(b, emit(b, total, weights, x, signed), total)

    call = compiled(
        intrinsic_function(f"products_{kind}_{signed}", types.void, (types.int64,) * 3, to_memory), 3
    )
    rng = np.random.default_rng(1)
    for _ in range(20):
        # VNNI's weights have no sign: signed ones come raised by 128. The lowest activation has one only
        # where the base is 256.
        weights = rng.integers(-128, 128, (16, 4)) if signed else rng.integers(0, 64, (16, 4))
        weights[0], weights[1] = (-128, 127) if signed else (63, 0)
        given = weights + 128 if signed and kind == "vnni" else weights
        x = rng.integers(-127 if kind == "avx2" else -128, 128, (16, 4))
        x[:2] = -127
        total = rng.integers(-(2**20), 2**20, 16)
        out, w, v = total.astype(np.int32), given.astype(np.uint8), x.astype(np.int8)
        call(out.ctypes.data, w.ctypes.data, v.ctypes.data)
        assert np.array_equal(out, total + (given * x).sum(1))


@pytest.mark.skipif("vnni" not in RUNNABLE, reason="the CPU has no such instruction")
def test_a_product_of_pairs_is_one_instruction() -> None:
    def to_memory(b: ir.IRBuilder, total: Any, weights: Any, x: Any) -> None:
        w, v = (load(b, each, V32I16) for each in (weights, x))
        store(b, pair_products(b, load(b, total, VI32), w, v), total)

    product = intrinsic_function("product_of_pairs", types.void, (types.int64,) * 3, to_memory)

    @njit(types.void(types.int64, types.int64, types.int64))
    def call(total: int, weights: int, x: int) -> None:
        product(total, weights, x)

    (text,) = call.inspect_asm().values()
    assert text.count("vpdpwssd") == (1 if WIDE else 2)
    assert "vpmaddwd" not in text


@pytest.mark.slow_after(5)
@pytest.mark.parametrize("largest", [3, 7, 15, 31, 63])
@pytest.mark.parametrize("kind", RUNNABLE)
def test_sums_of_several_quads_are_exact(kind: str, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many quads as may be added in 16 bits, with the largest weights and activations of both signs."""
    monkeypatch.setattr(simd_bytes, "KIND", kind)
    count = simd_bytes.products_in_int16(largest)
    assert count == ({3: 43, 7: 18, 15: 8, 31: 4, 63: 2}[largest] if kind == "avx2" else 1)

    def to_memory(b: ir.IRBuilder, total: Any, weights: Any, x: Any) -> None:
        quads = [
            [simd_bytes.spread_word(b, x, 8 * i), simd_bytes.spread_word(b, x, 8 * i + 4)]
            for i in range(count)
        ]
        vectors = [load(b, weights, simd_bytes.V64I8, 64 * i) for i in range(count)]
        totals = [load(b, total, VI32, at) for at in (0, 64)]
        sums = simd_bytes.byte_sums(b, totals, zip(vectors, quads, strict=True), False, count > 1)
        for i, each in enumerate(sums):
            store(b, each, total, 64 * i)

    call = compiled(
        intrinsic_function(f"sums_{kind}_{largest}", types.void, (types.int64,) * 3, to_memory), 3
    )
    rng = np.random.default_rng(2)
    for extreme in (127, -127, 0):
        weights = rng.integers(0, largest + 1, (count, 16, 4))
        x = rng.integers(-127, 128, (count, 2, 4))
        if extreme:
            weights[:, :8], x[:, 0] = largest, extreme
        total = rng.integers(-(2**20), 2**20, (2, 16))
        out, w, v = total.astype(np.int32), weights.astype(np.uint8), x.astype(np.int8)
        call(out.ctypes.data, w.ctypes.data, v.ctypes.data)
        assert np.array_equal(out, total + np.einsum("qlk,qtk->tl", weights, x))


def test_arm_s_instruction_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The door gives ARM's `sdot` four times for a vector, as LLVM compiles it for such a CPU."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this llvmlite cannot compile for ARM")
    monkeypatch.setattr(simd_bytes, "KIND", "neon")
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 3), "products")
    builder = ir.IRBuilder(function.append_basic_block())
    total, weights, x = function.args
    store(builder, emit(builder, total, weights, x, True), total)
    builder.ret_void()
    machine = target.create_target_machine(cpu="generic", features="+neon,+dotprod", opt=3)
    parsed = llvm.parse_assembly(str(module))
    parsed.triple = "aarch64-unknown-linux-gnu"
    parsed.verify()
    text = machine.emit_assembly(parsed)
    assert text.count("sdot") == 4
    assert text.count("ldr") + text.count("ldp") + text.count("ld1") < 16  # no byte is taken apart


def test_this_cpu_s_instruction_is_the_best_it_has() -> None:
    expected = (
        "vnni"
        if ("avx512vnni" in FEATURES and WIDE) or "avxvnni" in FEATURES
        else "avx2"
        if "avx2" in FEATURES
        else None
    )
    if expected:
        assert expected == simd_bytes.KIND
    assert (128 if simd_bytes.KIND == "vnni" else 0) == simd_bytes.BIAS
    assert simd_bytes.LIMIT < 2**15
