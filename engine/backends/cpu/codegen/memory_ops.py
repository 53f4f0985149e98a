"""Access to memory, atomics and pauses as intrinsics for Numba code. All addresses are int64."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from engine.backends.cpu.codegen.simd import (
    ARM64,
    F32,
    F64,
    I8,
    I32,
    I64,
    X86,
    const_f32,
    counted_loop,
    half_bits,
    intrinsic_function,
    load,
    prefetch,
    store,
)


def _loader(name: str, kind: ir.Type, result: Any) -> Any:
    return intrinsic_function(name, result, (types.int64,), lambda b, address: load(b, address, kind))


def _storer(name: str, argument: Any) -> Any:
    return intrinsic_function(
        name, types.void, (types.int64, argument), lambda b, address, value: store(b, value, address)
    )


ld_f32 = _loader("ld_f32", F32, types.float32)
ld_f64 = _loader("ld_f64", F64, types.float64)
ld_i64 = _loader("ld_i64", I64, types.int64)
ld_i32 = _loader("ld_i32", I32, types.int32)
st_f32 = _storer("st_f32", types.float32)
st_f64 = _storer("st_f64", types.float64)
ld_i8 = _loader("ld_i8", I8, types.int8)
st_i8 = _storer("st_i8", types.int8)
st_i64 = _storer("st_i64", types.int64)
st_i32 = _storer("st_i32", types.int32)


def _emit_prefetch(b: ir.IRBuilder, address: ir.Value, size: ir.Value) -> None:
    lines = b.lshr(b.add(size, ir.Constant(I64, 63)), ir.Constant(I64, 6))
    with counted_loop(b, lines) as i:
        prefetch(b, b.add(address, b.shl(i, ir.Constant(I64, 6))), 0, 2)


prefetch_bytes = intrinsic_function("prefetch_bytes", types.void, (types.int64,) * 2, _emit_prefetch)
"""prefetch_bytes(address, size): into the second-level cache; any address is harmless."""


def _emit_store_half(b: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    store(b, half_bits(b, value), address)


def _emit_store_e4m3(b: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    """Store a float32 as e4m3, rounded to nearest even and clamped to 448 in magnitude; NaN becomes 0."""
    value = b.select(b.fcmp_unordered("uno", value, value), const_f32(0.0), value)
    bits = b.bitcast(value, I32)
    sign = b.lshr(b.and_(bits, ir.Constant(I32, 0x80000000)), ir.Constant(I32, 24))
    magnitude = b.and_(bits, ir.Constant(I32, 0x7FFFFFFF))
    odd = b.and_(b.lshr(magnitude, ir.Constant(I32, 20)), ir.Constant(I32, 1))
    rounded = b.add(b.add(magnitude, ir.Constant(I32, 0x7FFFF)), odd)
    normal = b.sub(b.lshr(rounded, ir.Constant(I32, 20)), ir.Constant(I32, 120 << 3))
    # Below 2^-6 the step is 2^-9, that of float32 at 2^14.
    subnormal = b.sub(
        b.bitcast(b.fadd(b.bitcast(magnitude, F32), const_f32(2.0**14)), I32), ir.Constant(I32, 0x46800000)
    )
    small = b.icmp_unsigned("<", magnitude, ir.Constant(I32, 0x3C800000))
    big = b.icmp_unsigned(">=", magnitude, ir.Constant(I32, 0x43E00000))
    store(
        b,
        b.trunc(b.or_(b.select(small, subnormal, b.select(big, ir.Constant(I32, 0x7E), normal)), sign), I8),
        address,
    )


st_e4m3 = intrinsic_function("st_e4m3", types.void, (types.int64, types.float32), _emit_store_e4m3)
st_f16 = intrinsic_function("st_f16", types.void, (types.int64, types.float32), _emit_store_half)


# --- atomics and waiting ------------------------------------------------------------------------------------


def _word(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return b.inttoptr(address, I64.as_pointer())


def _emit_pause(b: ir.IRBuilder) -> None:
    if X86:
        b.call(
            cgutils.get_or_insert_function(
                b.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"
            ),
            [],
        )
    elif ARM64:
        hint = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(ir.VoidType(), [I32]), "llvm.aarch64.hint"
        )
        b.call(hint, [ir.Constant(I32, 1)])


def _emit_compare_exchange(b: ir.IRBuilder, address: ir.Value, expected: ir.Value, new: ir.Value) -> ir.Value:
    pair = b.cmpxchg(_word(b, address), expected, new, "seq_cst", "seq_cst")
    return b.extract_value(pair, 1)


atomic_load = intrinsic_function(
    "atomic_load", types.int64, (types.int64,), lambda b, a: b.load_atomic(_word(b, a), "acquire", 8)
)
atomic_store = intrinsic_function(
    "atomic_store",
    types.void,
    (types.int64, types.int64),
    lambda b, a, v: b.store_atomic(v, _word(b, a), "seq_cst", 8),
)
atomic_add = intrinsic_function(
    "atomic_add",
    types.int64,
    (types.int64, types.int64),
    lambda b, a, v: b.atomic_rmw("add", _word(b, a), v, "seq_cst"),
)
compare_exchange = intrinsic_function(
    "compare_exchange", types.boolean, (types.int64, types.int64, types.int64), _emit_compare_exchange
)
pause = intrinsic_function("pause", types.void, (), _emit_pause)


def _emit_call(b: ir.IRBuilder, function: ir.Value, *arguments: ir.Value) -> None:
    kind = ir.FunctionType(ir.VoidType(), [I64] * len(arguments))
    b.call(b.inttoptr(function, kind.as_pointer()), list(arguments))


call_kernel = intrinsic_function("call_kernel", types.void, (types.int64,) * 5, _emit_call)
"""call_kernel(function, arguments, step, tile, scratch): call a kernel of a program by its address."""


# --- arrays -------------------------------------------------------------------------------------------------


def _array_at(name: str, kind: Any, size: int) -> Any:
    array = types.Array(kind, 1, "C")

    def codegen(
        context: Any, builder: ir.IRBuilder, signature: Any, values: tuple[ir.Value, ir.Value]
    ) -> Any:
        from numba.np.arrayobj import make_array, populate_array  # which loads half of Numba

        address, count = values
        made, each = make_array(array)(context, builder), context.get_constant(types.intp, size)
        data = builder.inttoptr(address, context.get_data_type(kind).as_pointer())
        populate_array(made, data=data, shape=[count], strides=[each], itemsize=each, meminfo=None)
        return made._getvalue()

    def typed(context: Any, address: Any, count: Any) -> Any:
        return array(types.int64, types.int64), codegen

    typed.__name__ = name
    return intrinsic(typed)


f32_array = _array_at("f32_array", types.float32, 4)
f64_array = _array_at("f64_array", types.float64, 8)
i64_array = _array_at("i64_array", types.int64, 8)
"""x_array(address, count): a one-dimensional array of what is there, which nothing keeps alive."""
