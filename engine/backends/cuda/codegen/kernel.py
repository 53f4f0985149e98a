"""A kernel: a plain function, the constants that specialise it, and its launch bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import FunctionType, MappingProxyType
from typing import Any

from engine.backends.cuda.codegen.ptx import Registers, SharedMemory, Unrolled
from engine.backends.cuda.codegen.written import globals_of, written_out
from engine.lazy_dataclass import dataclass

Leaf = Callable[[str, Any], Any]
"""Maps a kernel's global (its name and value) to its replacement."""


@dataclass(frozen=True)
class Kernel:
    """One kernel, compiled or not.

    `name` is unique and identifies all `constants`, which replace globals of
    `body` and of the functions it calls.

    `parameters` has one code for each argument: "l" int64 (addresses, offsets), "i" int32, "f" float32. A
    block has `threads` threads, and `blocks` blocks fit on a multiprocessor at once. `registers` is the
    maximum for a thread. `min_capability` is the compute capability it needs (80 for 8.0).
    """

    name: str
    body: Callable[..., None]
    parameters: str
    threads: int
    registers: int
    constants: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    blocks: int = 1
    min_capability: int = 75

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and other.name == self.name


_WRITTEN_OUT = Unrolled | Registers | SharedMemory | str
"""Globals that make a function be rewritten (`written_out`); no compiled kernel compares strings."""


def specialised(
    function: Callable[..., Any],
    constants: Mapping[str, Any],
    leaf: Leaf,
    write_out: bool = True,
    made: dict[Any, Any] | None = None,
) -> FunctionType:
    """A copy of `function` whose globals are `constants`, and `leaf` of the others;
    functions it calls are copied the same way.

    Unless `write_out` is False, loops over `static(range(...))` are unrolled, `registers` become variables,
    and conditions on constants are decided. `leaf` also gets every copied function, callees first.
    """
    made = {} if made is None else made
    assert isinstance(function, FunctionType)
    code, values, sizes = function.__code__, globals_of(function, constants), set[int]()
    if write_out and any(isinstance(value, _WRITTEN_OUT) for value in values.values()):
        code, values, sizes = written_out(function, constants)
    resolved: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, FunctionType):
            if value not in made:
                made[value] = leaf(name, specialised(value, constants, leaf, write_out, made))
            resolved[name] = made[value]
        else:
            resolved[name] = leaf(name, value)
    resolved["__builtins__"] = __builtins__
    resolved["__name__"] = function.__module__
    resolved.update({f"shared_{size}": leaf("shared", SharedMemory(size)) for size in sizes})
    out = FunctionType(code, resolved, function.__name__, function.__defaults__)
    out.__qualname__ = function.__qualname__
    out.__module__ = function.__module__
    return out
