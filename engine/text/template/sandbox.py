"""The Jinja environment of chat templates: the features of `transformers`, with limits on time and size.

A template comes with a model file, so it is untrusted code. Jinja's `ImmutableSandboxedEnvironment` keeps it
from Python internals and from changing what it is given, but not from running or growing without bound:
nested loops, `"a" * 10**10`, `"%999999999d" % 1`, filters that multiply such as `replace` and `indent`. This
module does. Every loop step, call, filter, operator and output is charged to a `Budget`, and operations that
could make something huge in one step are estimated first (`sandbox_limits`). A template may change the lists
and dictionaries that it made itself (`own_values`).

The plain sandbox in a helper process with limits would not do: a template is rendered for each reply and for
the counts of tokens before it, so each model would need a process and a way to send and check values; not
every system can limit a process's memory; and a killed one could name neither the line nor the reason.
"""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache, wraps
from types import CodeType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes as nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from engine.errors import BadTemplate
from engine.text.template.own_values import GivenValues, added_by, changes_own, changes_through_class
from engine.text.template.sandbox_limits import (
    FILTER_SIZES,
    INT_LIMIT,
    LAZY_FILTERS,
    METHOD_SIZES,
    OPERATOR_SIZES,
    Deadline,
)
from engine.words import N_, _, translate

TIME_LIMIT = 2.0
"""Seconds of work that one template may take to compile, and to render."""
SIZE_LIMIT = 1_000_000
"""Characters and items of one value, beyond what the messages need."""
WORK_LIMIT = 16_000_000
"""Characters and items made in one rendering, beyond what the messages need."""
SOURCE_LIMIT = 100_000
"""Characters of a template's source."""
# intended for web pages; slow or multiplying on large input
_LEFT_OUT = ("pprint", "striptags", "urlize", "wordwrap", "xmlattr")
_PRIVATE = ("_loop_vars", "_block_vars")  # added by Jinja to calls inside loops and blocks
_FAILURES = (
    jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, AssertionError,
    NameError, RuntimeError, MemoryError, SyntaxError,
)  # fmt: skip


class _Refusal(jinja2.TemplateError):
    """Raised by a template's raise_exception()."""


class _OverLimit(SecurityError):
    """Raised by the budget."""


class TemplateOverLimit(BadTemplate):
    """The template is too slow or its output too large; trying again would cost as much again."""


class Budget:
    """What one rendering may still use. The limits grow with the `content` characters of the messages."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, content: int) -> None:
        """Begin a rendering."""
        self.size = SIZE_LIMIT + 8 * content
        self.work = WORK_LIMIT + 64 * content
        self.deadline = Deadline(TIME_LIMIT)

    def spend(self, amount: int) -> None:
        """Charge a step that makes `amount` characters or items. Raises `SecurityError` over the limit."""
        self.work -= amount + 1
        if amount > self.size or self.work < 0:
            raise _OverLimit(_("the template produces too much text"))
        if self.deadline.passed:
            raise _OverLimit(_("the template runs longer than {time_limit:g} seconds", time_limit=TIME_LIMIT))

    def check(self, *values: Any) -> int:
        """The total size of the values, nested lists included. Raises `SecurityError` over the limit."""
        size, stack = 0, list(values)
        while stack:
            value = stack.pop()
            if isinstance(value, (str, bytes)):
                size += len(value)
            elif isinstance(value, int):
                size += value.bit_length() // 64
            elif isinstance(value, dict):
                stack += [*value.keys(), *value.values()]
            elif isinstance(value, (list, tuple, set, frozenset)):
                stack += value
            size += 1
            if size + len(stack) > self.size:
                raise _OverLimit(_("the template produces too large a value"))
        return size

    def made(self, value: Any) -> Any:
        """`value`, charged as newly made."""
        self.spend(len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 1)
        self.check(value)
        return value


class _Counted:
    """The items of a loop, each charged as a step."""

    def __init__(self, items: Iterable[Any], budget: Budget) -> None:
        self._items, self._budget = items, budget

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._budget.spend(0)
            yield item

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]  # a TypeError makes Jinja count the items


class _Bounds(NodeTransformer):
    """Inserts the budget's hooks into a parsed template, as filters with names that no template can write."""

    def _hook(self, name: str, node: nodes.Expr) -> nodes.Filter:
        return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno, environment=node.environment)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = self._hook("(loop)", node.iter)  # type: ignore[arg-type]
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        for i, part in enumerate(node.nodes):
            if isinstance(part, nodes.TemplateData):
                part = nodes.Const(part.data, lineno=part.lineno, environment=part.environment)
            node.nodes[i] = self._hook("(out)", part)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        joined = node.nodes[0]
        for part in node.nodes[1:]:
            pair = [self._hook("(out)", joined), self._hook("(out)", part)]
            joined = self._hook(
                "(made)", nodes.Concat(pair, lineno=node.lineno, environment=node.environment)
            )
        return joined

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return self._hook("(made)", node) if isinstance(node.arg, nodes.Slice) else node

    def _literal(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return node if getattr(node, "ctx", "load") != "load" else self._hook("(made)", node)

    visit_List = visit_Tuple = visit_Dict = _literal


class _Generation(jinja2.ext.Extension):
    """`{% generation %} ... {% endgeneration %}` marks text for training; here it prints its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller: Callable[[], str]) -> str:
        return caller()


class _Names(Namespace):
    """Jinja's namespace without names that begin with an underscore, as in `transformers`."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        Namespace.__init__(*args, **kwargs)
        for name in dict(*args[1:], **kwargs):
            _refuse_private(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"  # its contents could nest without end


def _refuse_private(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold the name {name!r}")


def _raise_exception(message: str) -> None:
    raise _Refusal(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and renders chat templates, one rendering at a time."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        self._budget = Budget()
        self._given = GivenValues({})
        self._lock = threading.Lock()
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now, namespace=_Names)
        del self.globals["lipsum"]
        kept = {name: filter for name, filter in self.filters.items() if name not in _LEFT_OUT} | {
            "tojson": _to_json,
            "fromjson": json.loads,
            "from_json": json.loads,  # so OpenVINO Model Server calls it
        }
        self.filters = {name: self._bounded_filter(name, filter) for name, filter in kept.items()}
        self.filters["(loop)"] = jinja2.pass_context(lambda _unused, items: _Counted(items, self._budget))
        self.filters["(out)"] = jinja2.pass_context(lambda _unused, value: self._out(value))
        self.filters["(made)"] = jinja2.pass_context(lambda _unused, value: self._budget.made(value))

    def compile_bounded(self, source: str) -> jinja2.Template:
        """The compiled template. Raises `BadTemplate` with one sentence."""
        if len(source) > SOURCE_LIMIT:
            raise BadTemplate(
                _(
                    "The chat template has {source} characters, but at most {source_limit} are allowed.",
                    source=len(source),
                    source_limit=SOURCE_LIMIT,
                )
            )
        with self._lock:
            self._budget.start(0)
            try:
                return self.template_class.from_code(self, _code(source), self.make_globals(None))
            except _FAILURES as error:
                raise _explain(_COMPILING, error) from error

    def render_bounded(self, template: jinja2.Template, content: int, variables: Mapping[str, Any]) -> str:
        """The template's text for `variables`; the messages among them have `content` characters.

        Raises `BadTemplate` with one sentence.
        """
        with self._lock:
            self._budget.start(content)
            self._given = GivenValues(variables)
            try:
                return template.render(variables)
            except _FAILURES as error:
                raise _explain(_RENDERING, error) from error
            finally:
                self._given = GivenValues({})

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Jinja asks this of every attribute."""
        if changes_own(obj, attr):
            return SandboxedEnvironment.is_safe_attribute(self, obj, attr, value) and not self._given.has(obj)
        return not changes_through_class(obj, attr) and super().is_safe_attribute(obj, attr, value)

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        return super()._generate(_Bounds().visit(source), name, filename, defer_init)

    def _out(self, value: Any) -> Any:
        self._budget.spend(len(value) if isinstance(value, str) else self._budget.check(value))
        return value

    def _bounded_filter(self, name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(filter)  # keeps Jinja's mark for filters that take the context
        def bounded(*args: Any, **kwargs: Any) -> Any:
            mark = 1 if hasattr(filter, "jinja_pass_arg") else 0
            if name not in LAZY_FILTERS:
                args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
            self._check(name, FILTER_SIZES.get(name), args[mark:], kwargs, lazy=name in LAZY_FILTERS)
            return self._budget.made(filter(*args, **kwargs))

        return bounded

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Every call of a template passes through here."""
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, (str, bytes, int)):
            args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
            named = {name: value for name, value in kwargs.items() if name not in _PRIVATE}
            __self._check(method.__name__, METHOD_SIZES.get(method.__name__), (owner, *args), named)
        elif isinstance(owner, (list, dict)) and changes_own(owner, method.__name__):
            __self._check(method.__name__, None, args, {})
            named = {name: value for name, value in kwargs.items() if name not in _PRIVATE}
            args, added = added_by(owner, method.__name__, args, named, __self._budget.size)
            __self._budget.spend(added)
        return __self._budget.made(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Every `+ * ** %` passes through here."""
        self._check(operator, OPERATOR_SIZES[operator], (left, right), {}, numbers=False)
        return self._budget.made(super().call_binop(context, operator, left, right))

    def _check(
        self,
        name: str,
        size: Callable[..., int] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        lazy: bool = False,
        numbers: bool = True,
    ) -> None:
        """Refuse an operation whose result would be too large, before it runs."""
        self._budget.spend(0)
        values = (*args, *kwargs.values())
        if not lazy:
            self._budget.check(*values)
        if numbers and any(isinstance(value, int) and abs(value) > INT_LIMIT for value in values[1:]):
            raise _OverLimit(_("the template passes too large a number to {name}", name=name))
        if size is not None and size(*args, **kwargs) > self._budget.size:
            raise _OverLimit(_("the template produces too much text with {name}", name=name))


@lru_cache(maxsize=16)
def _code(source: str) -> CodeType:
    """A template's code, the same in every environment: a model is often opened again, and compiling its
    template takes a tenth of a second.
    """
    return BoundedEnvironment().compile(source)


_COMPILING = (
    N_("The chat template cannot be compiled: {reason}."),
    N_("The chat template cannot be compiled in line {line}: {reason}."),
)
_RENDERING = (
    N_("The chat template failed: {reason}."),
    N_("The chat template failed in line {line}: {reason}."),
)


def _explain(words: tuple[str, str], error: BaseException) -> BadTemplate:
    """One sentence: the template's own message for a refusal, otherwise the reason, and the line if it is
    known; `words` without and with the line.
    """
    reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
    if isinstance(error, _Refusal):
        return BadTemplate(_("The chat template rejects this chat: {reason}.", reason=reason))
    line = error.lineno if isinstance(error, jinja2.TemplateSyntaxError) else None
    for frame in traceback.extract_tb(error.__traceback__):
        line = frame.lineno if frame.filename == "<template>" else line
    kind = TemplateOverLimit if isinstance(error, _OverLimit) else BadTemplate
    return kind(translate(words[bool(line)], line=line, reason=reason))
