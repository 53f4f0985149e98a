"""Compiling kernels to machine code of a GPU, which needs no GPU: Numba-CUDA's front end, NVVM, and
nvJitLink's assembler.

Nothing here is imported where kernels are taken from the cache (`cubin_cache`). Numba-CUDA's own names that
are used (`_compile_pyfunc_with_fixup`, the dispatcher's `get_current_device`) are private to it: its version
is pinned.
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
"""Capabilities that NVVM translates for: but for the device's name, it makes one text of a kernel for all
from one to the next.
"""


class _NoDevice:
    """Stands for the GPU that Numba-CUDA would ask for its capability; kernels are compiled for several,
    here for none.
    """

    compute_capability = (7, 5)


def build(kernel: Kernel, capabilities: Sequence[int] = CAPABILITIES) -> dict[int, Built]:
    """Machine code of one kernel for each of the capabilities that it supports.

    Raises `BuildError` where it uses float64.
    """
    if getattr(cuda, "implementation", "") != "NVIDIA":
        raise BuildError(
            "Numba's own old CUDA target was found in place of numba-cuda; install the package with its "
            "gpu extra anew."
        )
    wanted = [capability for capability in capabilities if capability >= kernel.min_capability]
    if not wanted:
        return {}
    function, later = _numba_function(kernel)
    library = _front_end(kernel, function)
    texts = {
        first: _translated(kernel, library, first) for first in {_first(capability) for capability in wanted}
    }
    return {c: _assemble(kernel, _completed(kernel, texts[_first(c)], later, c), c) for c in wanted}


def _numba_function(kernel: Kernel) -> tuple[FunctionType, dict[str, Op]]:
    """The kernel as Numba takes it, and the instructions in it whose text depends on the device, by name."""
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
            return cuda.jit(value, device=True, forceinline=True, fastmath=True)
        return value

    return specialised(kernel.body, kernel.constants, leaf), later


def _front_end(kernel: Kernel, function: FunctionType) -> Any:
    _dispatcher.get_current_device = _NoDevice
    signature = types.void(*(_NUMBA[letter] for letter in kernel.parameters))
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
    """Mark every function and declaration: the compiler must not move a call into a branch, or double it,
    where threads may meet in it.

    Numba marks none, so only the instructions themselves would hold it back, and only once they are inlined.
    Source: LLVM Language Reference, "convergent": "front ends for such languages should mark all functions".
    """
    for module in library.modules:
        for function in module.functions:
            if not function.name.startswith("llvm."):  # whose own definition says it
                function.attributes.add("convergent")


def _first(capability: int) -> int:
    """The capability that NVVM translates for in the place of this one."""
    return max(first for first in _FIRSTS if first <= capability)


def _translated(kernel: Kernel, library: Any, capability: int) -> str:
    """What NVVM makes of a kernel, without Numba's own variable."""
    (ptx,) = library.get_asm_strs(cc=(capability // 10, capability % 10))
    return re.sub(r"^\.common .*NumbaEnv.*$", "", ptx.replace(library._entry_name, kernel.name), flags=re.M)


def _completed(kernel: Kernel, ptx: str, later: Mapping[str, Op], capability: int) -> str:
    """The text for one device, with the instructions that depend on it.

    Raises `BuildError` where it computes in float64.
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
"""An instruction whose text depends on the device, as it goes through the front end: its name and its
operands.
"""


def _put(text: str, operands: Sequence[str]) -> str:
    """An instruction's text, in a scope of its own, with registers for $0, $1 ...; nothing for no text."""
    return _scoped(re.sub(r"\$(\d+)", lambda place: operands[int(place[1])], text)) if text else ""


def _scoped(text: str) -> str:
    """A few instructions in one text have names of their own, which must not meet: braces make a scope."""
    return text if text.startswith("{") else "{" + text + "}"


@cache
def _instruction(op: Op) -> Any:
    """A Numba intrinsic that puts the instruction in, or a mark where its text depends on the device."""
    results = [_NUMBA[letter] for letter in op.outs]
    returned = (
        types.void
        if not results
        else results[0]
        if len(results) == 1
        else types.UniTuple(results[0], len(results))
    )
    kinds = [_LLVM[letter] for letter in op.outs]
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
            function = ir.FunctionType(returned_llvm, [_LLVM[letter] for letter in op.ins])
            assembly = ir.InlineAsm(function, text, constraints, side_effect=op.memory or op.convergent)
            result = builder.call(assembly, list(values), attrs=("convergent",) if op.convergent else ())
            if not op.outs:
                return context.get_dummy_value()
            if len(op.outs) == 1:
                return result
            return context.make_tuple(
                builder, returned, [builder.extract_value(result, i) for i in range(len(op.outs))]
            )

        return returned(*(_NUMBA[letter] for letter in op.ins)), generate

    arguments = "".join(f", a{i}" for i in range(len(op.ins)))
    names: dict[str, Any] = {"type_of": type_of}
    exec(f"def {op.name}(context{arguments}): return type_of(context{arguments})", names)
    return intrinsic(names[op.name])


def _shared(size: int) -> Any:
    """A Numba intrinsic for the address of shared memory."""

    def memory(context: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            module = builder.module
            kind = ir.ArrayType(_I8, size)
            memory = ir.GlobalVariable(module, kind, module.get_unique_name("shared"), addrspace=3)
            memory.linkage, memory.align, memory.initializer = "internal", 16, ir.Constant(kind, ir.Undefined)
            return builder.ptrtoint(memory, _I32)

        return types.int32(), generate

    return intrinsic(memory)
