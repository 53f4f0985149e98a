"""Rewrites kernels: unrolls `static` loops, makes `registers` variables, decides constant conditions.

A function that takes `registers` is inlined where it is called, either as a statement or as the whole right
side of an assignment. It may return only at its end, and its names are made unique. The interpreter calls it
as a function that changes a list.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any

from engine.backends.cuda.codegen.ptx import Registers, SharedMemory, Unrolled


def globals_of(function: FunctionType, constants: Mapping[str, Any]) -> dict[str, Any]:
    """What the global names in a function refer to; `constants` override its module's globals."""
    around = {**function.__globals__, **constants}
    return {name: around[name] for name in function.__code__.co_names if name in around}


def written_out(
    function: FunctionType, constants: Mapping[str, Any]
) -> tuple[CodeType, dict[str, Any], set[int]]:
    """The function's new code, the values of its global names, and the sizes of its shared memory.

    Raises `ValueError` if a loop, an index or a size is not known, or if a function cannot be inlined.
    """
    definition = _definition(function)
    arguments = [ast.arg(argument.arg) for argument in definition.args.args]
    writer = _Writer(function, constants, {*_stored(definition), *(argument.arg for argument in arguments)})
    body = writer.statements(definition.body)
    definition.args = ast.arguments([], arguments, None, [], [], None, [])
    definition.body, definition.decorator_list, definition.returns = body, [], None
    module = compile(
        ast.fix_missing_locations(ast.Module([definition], [])),
        inspect.getsourcefile(function) or "<kernel>",
        "exec",
    )
    code = next(constant for constant in module.co_consts if inspect.iscode(constant))
    return (
        code,
        {name: value for name, value in writer.values.items() if name in code.co_names},
        writer.shared,
    )


def _definition(function: FunctionType) -> ast.FunctionDef:
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    return definition


def _stored(node: ast.AST) -> set[str]:
    """The names of the variables that are assigned."""
    return {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> Any:
        return ast.copy_location(ast.Name(self._names.get(node.id, node.id), node.ctx), node)


class _Writer(ast.NodeTransformer):
    """Rewrites one function.

    `taken` are its own variables; `values` collects what its global names refer to.
    """

    def __init__(self, function: FunctionType, constants: Mapping[str, Any], taken: set[str]) -> None:
        self._constants, self._taken = constants, taken
        self._registers: dict[str, int] = {}
        self._known: dict[str, Any] = {}
        self._calls_written = 0
        self.values: dict[str, Any] = {}
        self.shared: set[int] = set()
        self._adopt(function, taken)

    def _adopt(self, function: FunctionType, own: set[str]) -> None:
        """Make a function's globals known, except for the names in `own`."""
        for name, value in globals_of(function, self._constants).items():
            if name in own:
                continue
            known = self.values.setdefault(name, value)
            if name in self._taken or (known is not value and known != value):
                raise ValueError(f"{function.__qualname__} is written out where {name} is something else")
            if isinstance(value, int | float | str | tuple):
                self._known[name] = value

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The rewritten statements; never empty."""
        out: list[ast.stmt] = []
        for statement in body:
            done = self.visit(statement)
            out += done if isinstance(done, list) else [done]
        return out or [ast.Pass()]

    def visit_For(self, node: ast.For) -> Any:
        if not self._calls(node.iter, Unrolled):
            node.iter = self.visit(node.iter)
            node.body = self.statements(node.body)
            return node
        assert isinstance(node.iter, ast.Call)
        assert isinstance(node.target, ast.Name)
        assert not node.orelse
        found, numbers = self._value(node.iter.args[0])
        if not found:
            raise ValueError(
                f"static({ast.unparse(node.iter.args[0])}) is not known before the kernel is compiled"
            )
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
        function = self._given_registers(node.value)
        if function is not None:
            assert isinstance(node.value, ast.Call)
            body, result = self._in_place(function, node.value)
            if result is None:
                raise ValueError(
                    f"{function.__qualname__} returns nothing that {ast.unparse(node)} could take"
                )
            return [*body, ast.Assign([self.visit(target) for target in node.targets], result)]
        if not self._calls(node.value, Registers):
            return self.generic_visit(node)
        assert isinstance(node.value, ast.Call)
        (target,) = node.targets
        assert isinstance(target, ast.Name)
        _, size = self._value(node.value.args[1])
        self._registers[target.id] = size
        value = self.visit(node.value.args[0])
        return [
            ast.Assign([ast.Name(f"{target.id}_{i}", ast.Store())], copy.deepcopy(value)) for i in range(size)
        ]

    def visit_Expr(self, node: ast.Expr) -> Any:
        function = self._given_registers(node.value)
        if function is None:
            return self.generic_visit(node)
        assert isinstance(node.value, ast.Call)
        return self._in_place(function, node.value)[0]

    def _given_registers(self, node: ast.expr) -> FunctionType | None:
        """The function that a call passes `registers` to, or None."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            return None
        function = self.values.get(node.func.id)
        given = any(isinstance(each, ast.Name) and each.id in self._registers for each in node.args)
        return function if given and isinstance(function, FunctionType) else None

    def _in_place(self, function: FunctionType, call: ast.Call) -> tuple[list[ast.stmt], ast.expr | None]:
        """The inlined body of a call, and its result."""
        definition = _definition(function)
        parameters, stored = [argument.arg for argument in definition.args.args], _stored(definition)
        if call.keywords or len(call.args) != len(parameters):
            raise ValueError(
                f"{ast.unparse(call)}: {function.__qualname__} takes {len(parameters)} arguments, by their "
                "places"
            )
        self._adopt(function, {*parameters, *stored})
        self._calls_written += 1
        names = {name: f"{name}_of_{self._calls_written}" for name in (*parameters, *stored)}
        body: list[ast.stmt] = []
        for parameter, argument in zip(parameters, call.args, strict=True):
            found, value = self._value(argument)
            if found and parameter not in stored:
                self._known[names[parameter]] = value
            elif isinstance(argument, ast.Name) and parameter not in stored:
                names[parameter] = argument.id
            else:
                body.append(ast.Assign([ast.Name(names[parameter], ast.Store())], self.visit(argument)))
        statements: list[ast.stmt] = [_Renamed(names).visit(statement) for statement in definition.body]
        last = statements.pop() if isinstance(statements[-1], ast.Return) else None
        if any(isinstance(each, ast.Return) for statement in statements for each in ast.walk(statement)):
            raise ValueError(f"{function.__qualname__} is given registers, so it may return at its end only")
        body += self.statements(statements)
        result = last.value if isinstance(last, ast.Return) else None
        return body, None if result is None else self.visit(result)

    def visit_Call(self, node: ast.Call) -> Any:
        if not self._calls(node, SharedMemory):
            return self.generic_visit(node)
        found, size = self._value(node.args[0])
        if not found:
            raise ValueError(f"{ast.unparse(node)}: the size is not known before the kernel is compiled")
        self.shared.add(size)
        return ast.Call(ast.Name(f"shared_{size}", ast.Load()), [], [])

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not (isinstance(node.value, ast.Name) and node.value.id in self._registers):
            # An entry of a constant table becomes a literal, so that it can also be an index.
            found, value = self._value(node)
            return (
                ast.Constant(value)
                if found and isinstance(value, int | float | str)
                else self.generic_visit(node)
            )
        found, index = self._value(node.slice)
        if not found:
            raise ValueError(f"{ast.unparse(node)}: the index is not known before the kernel is compiled")
        if not 0 <= index < self._registers[node.value.id]:
            raise ValueError(f"{ast.unparse(node)}: the index is {index}")
        return ast.Name(f"{node.value.id}_{index}", node.ctx)

    def visit_Name(self, node: ast.Name) -> Any:
        value = self._known.get(node.id)
        return (
            ast.Constant(value) if isinstance(node.ctx, ast.Load) and isinstance(value, int | float) else node
        )

    def _value(self, node: ast.expr) -> tuple[bool, Any]:
        """Whether an expression is known, and its value."""
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        helpers: dict[str, Any] = {"range": range, "len": len, "min": min, "max": max}
        if not names <= {*self._known, *helpers}:
            return False, None
        return True, eval(
            compile(ast.Expression(copy.deepcopy(node)), "<static>", "eval"),
            {"__builtins__": {}, **helpers},
            self._known,
        )

    def _calls(self, node: ast.expr, kind: type[Any]) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and isinstance(self.values.get(node.func.id), kind)
        )
