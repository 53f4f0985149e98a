"""What a kernel is: a plain function, the constants it is specialised with, and the bounds it promises to keep."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType
from typing import Any

from engine.backends.cuda.ptx import Registers, SharedMemory, Unrolled

Leaf = Callable[[str, Any], Any]
"""Turns a global of a kernel (its name, its value) into what takes its place."""


@dataclass(frozen=True)
class Kernel:
    """One kernel, compiled or not. `name` is unique and tells all `constants`, which replace globals of `body` and of what it calls.

    `parameters` has a letter for each argument: "l" int64 (addresses, offsets), "i" int32, "f" float32. Blocks have `threads`
    threads, of which `blocks` fit on a multiprocessor at once; `registers` is the most that a thread may take, `least` the
    compute capability that it needs (80 for 8.0). `model` names what the tests' fake device runs instead: an operation, told the
    constants.
    """

    name: str
    body: Callable[..., None]
    parameters: str
    threads: int
    registers: int
    constants: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    blocks: int = 1
    least: int = 75
    model: str = ""

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and other.name == self.name


def specialised(
    function: Callable[..., Any], constants: Mapping[str, Any], leaf: Leaf, write_out: bool = True, made: dict[Any, Any] | None = None
) -> FunctionType:
    """A copy of `function` whose globals are `constants` and what `leaf` makes of the others; what it calls is copied likewise.

    Loops over `static(range(...))` are written out, and `registers` become variables, unless `write_out` is False. `leaf` gets every
    copied function, too, the called ones first.
    """
    made = {} if made is None else made
    assert isinstance(function, FunctionType)
    around = {**function.__globals__, **constants}
    values = {name: around[name] for name in function.__code__.co_names if name in around}
    written_out = write_out and any(isinstance(value, Unrolled | Registers | SharedMemory) for value in values.values())
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
    code = function.__code__
    if written_out:
        code, sizes = _written_out(function, values)
        resolved.update({f"shared_{size}": leaf("shared", SharedMemory(size)) for size in sizes})
    out = FunctionType(code, resolved, function.__name__, function.__defaults__)
    out.__qualname__ = function.__qualname__
    out.__module__ = function.__module__
    return out


class _WritesOut(ast.NodeTransformer):
    """Writes `static` loops out, takes the branch of a condition that is known, and makes variables of `registers`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._known = {name: value for name, value in values.items() if isinstance(value, int | float | str | tuple)}
        self._loop = {name for name, value in values.items() if isinstance(value, Unrolled)}
        self._make = {name for name, value in values.items() if isinstance(value, Registers)}
        self._share = {name for name, value in values.items() if isinstance(value, SharedMemory)}
        self._registers: dict[str, int] = {}
        self.shared: set[int] = set()

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Written out; never empty."""
        out: list[ast.stmt] = []
        for statement in body:
            done = self.visit(statement)
            out += done if isinstance(done, list) else [done]
        return out or [ast.Pass()]

    def visit_For(self, node: ast.For) -> Any:
        if not self._calls(node.iter, self._loop):
            node.iter = self.visit(node.iter)
            node.body = self.statements(node.body)
            return node
        assert isinstance(node.iter, ast.Call)
        assert isinstance(node.target, ast.Name)
        assert not node.orelse
        found, numbers = self._value(node.iter.args[0])
        if not found:
            raise ValueError(f"static({ast.unparse(node.iter.args[0])}) is not known before the kernel is compiled")
        before = self._known.get(node.target.id)
        out: list[ast.stmt] = []
        for number in numbers:
            self._known[node.target.id] = number
            out += self.statements(copy.deepcopy(node.body))
        self._known.pop(node.target.id, None)
        if before is not None:
            self._known[node.target.id] = before
        return out

    def visit_While(self, node: ast.While) -> Any:
        node.test = self.visit(node.test)
        node.body = self.statements(node.body)
        return node

    def visit_If(self, node: ast.If) -> Any:
        found, value = self._value(node.test)
        if found:
            return self.statements(node.body if value else node.orelse) if node.orelse or value else []
        node.test = self.visit(node.test)
        node.body = self.statements(node.body)
        node.orelse = self.statements(node.orelse) if node.orelse else []
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        found, value = self._value(node.test)
        return self.visit(node.body if value else node.orelse) if found else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        if not self._calls(node.value, self._make):
            return self.generic_visit(node)
        assert isinstance(node.value, ast.Call)
        (target,) = node.targets
        assert isinstance(target, ast.Name)
        _, size = self._value(node.value.args[1])
        self._registers[target.id] = size
        value = self.visit(node.value.args[0])
        return [ast.Assign([ast.Name(f"{target.id}_{i}", ast.Store())], copy.deepcopy(value)) for i in range(size)]

    def visit_Call(self, node: ast.Call) -> Any:
        if not self._calls(node, self._share):
            return self.generic_visit(node)
        found, size = self._value(node.args[0])
        if not found:
            raise ValueError(f"{ast.unparse(node)}: the size is not known before the kernel is compiled")
        self.shared.add(size)
        return ast.Call(ast.Name(f"shared_{size}", ast.Load()), [], [])

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not (isinstance(node.value, ast.Name) and node.value.id in self._registers):
            # An entry of a constant table, so that it can be an index, too.
            found, value = self._value(node)
            return ast.Constant(value) if found and isinstance(value, int | float | str) else self.generic_visit(node)
        found, index = self._value(node.slice)
        if not found:
            raise ValueError(f"{ast.unparse(node)}: the index is not known before the kernel is compiled")
        if not 0 <= index < self._registers[node.value.id]:
            raise ValueError(f"{ast.unparse(node)}: the index is {index}")
        return ast.Name(f"{node.value.id}_{index}", node.ctx)

    def visit_Name(self, node: ast.Name) -> Any:
        value = self._known.get(node.id)
        return ast.Constant(value) if isinstance(node.ctx, ast.Load) and isinstance(value, int | float) else node

    def _value(self, node: ast.expr) -> tuple[bool, Any]:
        """Whether an expression is known, and its value."""
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        helpers: dict[str, Any] = {"range": range, "len": len, "min": min, "max": max}
        if not names <= {*self._known, *helpers}:
            return False, None
        return True, eval(compile(ast.Expression(copy.deepcopy(node)), "<static>", "eval"), {"__builtins__": {}, **helpers}, self._known)

    @staticmethod
    def _calls(node: ast.expr, names: set[str]) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _written_out(function: FunctionType, values: Mapping[str, Any]) -> tuple[Any, set[int]]:
    """The function's code without its `static` loops and `registers`, and the sizes of its shared memory."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    arguments = [ast.arg(argument.arg) for argument in definition.args.args]
    stored = {each.id for each in ast.walk(definition) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    names = {name: value for name, value in values.items() if name not in stored and name not in {a.arg for a in arguments}}
    writer = _WritesOut(names)
    body = writer.statements(definition.body)
    definition.args = ast.arguments([], arguments, None, [], [], None, [])
    definition.body, definition.decorator_list, definition.returns = body, [], None
    module = compile(ast.fix_missing_locations(ast.Module([definition], [])), inspect.getsourcefile(function) or "<kernel>", "exec")
    return next(constant for constant in module.co_consts if inspect.iscode(constant)), writer.shared
