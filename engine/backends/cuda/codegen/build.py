"""Compiles kernels to GPU machine code with Numba-CUDA's front end, NVVM and nvJitLink. No GPU is needed.

This module is imported only when a kernel is missing from the cache (`cubin_cache`). It uses
private names of Numba-CUDA (`_compile_pyfunc_with_fixup`, the dispatcher's
`get_current_device`), so the version of Numba-CUDA is pinned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any

import numba.cuda.dispatcher as _dispatcher
from cuda.core import Linker, LinkerOptions, ObjectCode
from llvmlite import ir
from numba import cuda, types
from numba.cuda import compiler as _compiler
from numba.cuda.extending import intrinsic

from engine.backends.cuda.codegen.kernel import Kernel, specialised
from engine.backends.cuda.codegen.ptx import Op, SharedMemory
from engine.backends.cuda.codegen.targets import CAPABILITIES, BuildError, Built
from engine.backends.cuda.codegen.words import Cast

_I8, _I32, _I64, _F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_LLVM = {"i": _I32, "r": _I32, "l": _I64, "f": _F32}
_NUMBA = {"i": types.int32, "r": types.uint32, "l": types.int64, "f": types.float32}


_FIRSTS = (75, 100)
"""The capabilities that NVVM translates for; up to the next one, the PTX differs only in the `.target`."""


class _NoDevice:
    """Replaces the GPU whose capability Numba-CUDA asks for while it compiles."""

    compute_capability = (7, 5)


def build(kernel: Kernel, capabilities: Sequence[int] = CAPABILITIES) -> dict[int, Built]:
    """Compile one kernel for each of the given capabilities that it supports.

    Raises `BuildError` if the kernel computes in float64, if the linker reports no resource usage, or if
    Numba's old CUDA target is installed instead of numba-cuda.
    """
    if getattr(cuda, "implementation", "") != "NVIDIA":
        raise BuildError(
            "Numba's own old CUDA target was found in place of numba-cuda; install the package with its "
            "gpu extra again."
        )
    supported = [capability for capability in capabilities if capability >= kernel.min_capability]
    if not supported:
        return {}
    function, later = _numba_function(kernel)
    library = _front_end(kernel, function)
    texts = {
        first: _translated(kernel, library, first)
        for first in {_first(capability) for capability in supported}
    }
    return {c: _assemble(kernel, _completed(kernel, texts[_first(c)], later, c), c) for c in supported}


def _numba_function(kernel: Kernel) -> tuple[FunctionType, dict[str, Op]]:
    """The kernel as a function that Numba accepts, and its device-dependent instructions by name."""
    later: dict[str, Op] = {}

    def leaf(name: str, value: Any) -> Any:
        if isinstance(value, Op):
            if value.since:
                later[value.name] = value
            return _instruction(value)
        if isinstance(value, Cast):
            return getattr(types, value.name)
        if isinstance(value, SharedMemory):
            return _shared(value.size)
        if isinstance(value, FunctionType):
            return _device_function(value)
        return value

    return specialised(kernel.body, kernel.constants, leaf), later


_device_functions: dict[Any, Any] = {}
"""What Numba makes of the functions that kernels call, by all that their code depends on."""


def _device_function(function: FunctionType) -> Any:
    """A function for kernels to call. Kernels share many with the same code and constants: each is compiled
    once in this process, because Numba's front end takes most of the time of a kernel.
    """
    values = function.__globals__
    used = tuple((name, values[name]) for name in sorted(values) if name != "__builtins__")
    key = function.__code__, _identity(function.__defaults__), _identity(used)
    if key not in _device_functions:
        _device_functions[key] = cuda.jit(function, device=True, forceinline=True, fastmath=True)
    return _device_functions[key]


def _identity(value: Any) -> Any:
    """What equals only that of a value which compiles to the same code: 1, 1.0 and True are three."""
    if isinstance(value, tuple):
        return tuple(map(_identity, value))
    return (type(value), repr(value)) if isinstance(value, (bool, int, float, complex)) else value


def _front_end(kernel: Kernel, function: FunctionType) -> Any:
    _dispatcher.get_current_device = _NoDevice
    signature = types.void(*(_NUMBA[code] for code in kernel.parameters))
    library, _ = _compiler._compile_pyfunc_with_fixup(
        function,
        signature,
        device=False,
        abi="numba",
        cc=(7, 5),
        fastmath=True,
        launch_bounds=(kernel.threads, kernel.blocks),
    )
    _converge(library)
    return library


def _converge(library: Any) -> None:
    """Mark every function and declaration as convergent, so that the compiler neither moves a call into a
    branch nor duplicates it where threads synchronise.

    Numba marks none. The inline instructions are marked, but they only protect a function once it is inlined.
    Source: LLVM Language Reference, "convergent": "front ends for such languages should mark all functions".
    """
    for module in library.modules:
        for function in module.functions:
            if not function.name.startswith("llvm."):  # intrinsics declare their own attributes
                function.attributes.add("convergent")


def _first(capability: int) -> int:
    """The entry of `_FIRSTS` that NVVM translates for when this capability is the target."""
    return max(first for first in _FIRSTS if first <= capability)


def _translated(kernel: Kernel, library: Any, capability: int) -> str:
    """The PTX that NVVM generates for a kernel, without Numba's own environment variable."""
    (ptx,) = library.get_asm_strs(cc=(capability // 10, capability % 10))
    return re.sub(r"^\.common .*NumbaEnv.*$", "", ptx.replace(library._entry_name, kernel.name), flags=re.M)


def _completed(kernel: Kernel, ptx: str, later: Mapping[str, Op], capability: int) -> str:
    """The PTX for one capability, with the device-dependent instructions filled in.

    Raises `BuildError` if it computes in float64.
    """
    ptx = re.sub(r"^\.target sm_\d+", f".target sm_{capability}", ptx, count=1, flags=re.M)
    ptx = _MARK.sub(lambda mark: _put(later[mark[1]].text_for(capability), mark[2].split(", ")), ptx)
    wide = re.search(r"^.*\.f64.*$", ptx, flags=re.M)
    if wide:
        raise BuildError(f"The kernel {kernel.name} computes in float64: {wide[0].strip()}")
    return ptx


def _assemble(kernel: Kernel, ptx: str, capability: int) -> Built:
    options = LinkerOptions(arch=f"sm_{capability}", ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=options)
    cubin = linker.link("cubin").code
    log = linker.get_info_log()
    registers = int(_found(r"Used (\d+) registers", log, kernel)[1])
    stack, stores, loads = (
        int(_found(rf"(\d+) bytes {what}", log, kernel)[1])
        for what in ("stack frame", "spill stores", "spill loads")
    )
    memory = re.search(r"(\d+) bytes smem", log)
    return Built(bytes(cubin), ptx, registers, stack, stores + loads, int(memory[1]) if memory else 0)


def _found(pattern: str, log: str, kernel: Kernel) -> re.Match[str]:
    found = re.search(pattern, log)
    if found is None:
        raise BuildError(
            f"The assembler said nothing of {pattern!r} for the kernel {kernel.name}: {log.strip()[:200]}"
        )
    return found


_MARK = re.compile(r"\{@(\w+) ([^}]*)\}")
"""A device-dependent instruction as it passes through the front end: its name and its operands."""


def _put(text: str, operands: Sequence[str]) -> str:
    """An instruction's text in its own scope, with registers for $0, $1 ...; an empty text stays empty."""
    return _scoped(re.sub(r"\$(\d+)", lambda place: operands[int(place[1])], text)) if text else ""


def _scoped(text: str) -> str:
    """Put the text in braces, which make a scope, so that register names of instructions cannot clash."""
    return text if text.startswith("{") else "{" + text + "}"


@cache
def _instruction(op: Op) -> Any:
    """A Numba intrinsic that inserts the instruction, or a mark if its text depends on the device."""
    results = [_NUMBA[code] for code in op.outs]
    returned = (
        types.void
        if not results
        else results[0]
        if len(results) == 1
        else types.UniTuple(results[0], len(results))
    )
    kinds = [_LLVM[code] for code in op.outs]
    returned_llvm = (
        ir.VoidType() if not kinds else kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
    )
    signature = {"i": "r", "r": "r", "l": "l", "f": "f"}
    constraints = ",".join(
        [f"={signature[o]}" for o in op.outs] + [signature[i] for i in op.ins] + ["~{memory}"] * op.memory
    )
    operands = ", ".join(f"${i}" for i in range(len(op.outs) + len(op.ins)))
    text = f"{{@{op.name} {operands}}}" if op.since else _scoped(op.text)

    def type_of(context: Any, *arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            function = ir.FunctionType(returned_llvm, [_LLVM[code] for code in op.ins])
            assembly = ir.InlineAsm(function, text, constraints, side_effect=op.memory or op.convergent)
            result = builder.call(assembly, list(values), attrs=("convergent",) if op.convergent else ())
            if not op.outs:
                return context.get_dummy_value()
            if len(op.outs) == 1:
                return result
            return context.make_tuple(
                builder, returned, [builder.extract_value(result, i) for i in range(len(op.outs))]
            )

        return returned(*(_NUMBA[code] for code in op.ins)), generate

    arguments = "".join(f", a{i}" for i in range(len(op.ins)))
    names: dict[str, Any] = {"type_of": type_of}
    exec(f"def {op.name}(context{arguments}): return type_of(context{arguments})", names)
    return intrinsic(names[op.name])


@cache
def _shared(size: int) -> Any:
    """A Numba intrinsic that returns the 32-bit address of `size` bytes of shared memory."""

    def memory(context: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            module = builder.module
            kind = ir.ArrayType(_I8, size)
            memory = ir.GlobalVariable(module, kind, module.get_unique_name("shared"), addrspace=3)
            memory.linkage, memory.align, memory.initializer = "internal", 16, ir.Constant(kind, ir.Undefined)
            return builder.ptrtoint(memory, _I32)

        return types.int32(), generate

    return intrinsic(memory)
