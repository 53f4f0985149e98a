"""Reads the pickles of PyTorch's files without calling anything that they name.

A pickle is a program for a stack machine, whose REDUCE calls any function by name. Here names stay names: a
call of one of `_MEANINGS` becomes a value of this module, and any other is refused. Source: the standard
library's `pickletools`.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable
from typing import IO, Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.printable import one_line
from engine.words import _

_MOST_STEPS = 1 << 24
_MARK = object()


@dataclass(frozen=True, slots=True)
class Name:
    """A class or a function that the pickle names, "torch.FloatStorage"."""

    text: str


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as a view of a storage, whose id in the file is `storage`; sizes in numbers, not in bytes.

    `dtype` is a name such as "torch.bfloat16" where the storage has no type of its own, else "".
    """

    storage: tuple[Any, ...]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = ""


def _tensor(*given: Any) -> Any:
    """`_rebuild_tensor_v2` (and `v3`, which has a dtype at the end): storage, offset, shape, strides, ..."""
    storage, offset, shape, strides = given[:4]
    sizes = (offset, *shape, *strides)
    if not isinstance(storage, tuple) or len(storage) < 3 or len(shape) != len(strides):
        raise ValueError
    if len(storage) > 5 and storage[5] is not None:  # a view of another storage, as before PyTorch 0.4
        raise ValueError
    if not all(type(size) is int and 0 <= size < 1 << 62 for size in sizes):
        raise ValueError
    kinds = [each.text for each in given[4:] if isinstance(each, Name)]
    return StoredTensor(storage, offset, tuple(shape), tuple(strides), kinds[0] if kinds else "")


_MEANINGS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *rest: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *rest: data,
    "torch._tensor._rebuild_from_type_v2": lambda function, kind, arguments, state: _called(
        function, arguments
    ),
    "collections.OrderedDict": lambda pairs=(): dict(pairs),
    "torch.Size": lambda sizes=(): tuple(sizes),
    "torch.device": lambda *where: None,
    # what may stand beside tensors
    "collections.Counter": lambda *items: None,
    "_codecs.encode": lambda text, encoding: None,
    **{
        f"{module}.{kind}": lambda *items: None
        for module in ("builtins", "__builtin__")
        for kind in ("bytearray", "bytes", "set")
    },
}


def read_pickle(file: IO[bytes], what: str) -> Any:
    """The value of the pickle that begins at the file's position, which is its end afterwards.

    Dicts, lists, tuples, texts and numbers, `Name` and `StoredTensor`; an id of a storage is its tuple.
    `what` is for messages. Raises `UnsupportedModel` for a call of another function, and `BadCheckpoint`.
    """
    machine = _Machine(what)
    try:
        for steps, (opcode, argument, _position) in enumerate(pickletools.genops(file)):
            if steps > _MOST_STEPS:
                raise ValueError
            machine.step(opcode.name, argument)
        return machine.stack[-1]
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, RecursionError) as error:
        raise BadCheckpoint(
            _("{path} is not a list of tensors that PyTorch wrote; download it again.", path=what)
        ) from error


class _Machine:
    """The stack, the values that the pickle keeps, and one method for each kind of step."""

    def __init__(self, what: str) -> None:
        self.stack: list[Any] = []
        self._kept: dict[int, Any] = {}
        self._what = what

    def step(self, name: str, argument: Any) -> None:
        """One opcode. Raises what a broken pickle raises."""
        stack = self.stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _MADE:
            stack.append(_MADE[name]())
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._kept[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            self._kept[len(self._kept)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._kept[int(argument)])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            items = [stack.pop() for _unused in range(count)]
            stack.append(tuple(reversed(items)))
        elif name == "TUPLE":
            stack.append(tuple(self._to_mark()))
        elif name == "LIST":
            stack.append(self._to_mark())
        elif name == "DICT":
            stack.append(_pairs(self._to_mark()))
        elif name in ("SETITEM", "SETITEMS", "APPEND", "APPENDS", "ADDITEMS"):
            self._add(name)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            parts = argument.split(" ", 1) if name == "GLOBAL" else [stack.pop(), stack.pop()][::-1]
            stack.append(Name(".".join(parts)))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments = stack.pop()
            stack.append(_called(stack.pop(), arguments, self._what))
        elif name == "BUILD":
            stack.pop()  # what a module keeps beside its tensors
        elif name == "POP":
            stack.pop()
        elif name not in ("PROTO", "FRAME", "STOP", "BINPERSID"):
            raise ValueError(name)

    def _to_mark(self) -> list[Any]:
        """What was pushed since the last mark."""
        at = max(i for i, each in enumerate(self.stack) if each is _MARK)
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def _add(self, name: str) -> None:
        """Add items to the list, dict or set below them."""
        count = {"SETITEM": 2, "APPEND": 1}.get(name)
        items = self._to_mark() if count is None else [self.stack.pop() for _unused in range(count)][::-1]
        target = self.stack[-1]
        if isinstance(target, dict):
            target.update(_pairs(items))
        elif isinstance(target, list):
            target.extend(items)
        elif target is not None:
            raise ValueError(name)


_VALUES = frozenset(
    ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINSTRING", "BINSTRING", "STRING",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "BININT", "BININT1", "BININT2", "INT", "LONG",
    "LONG1", "LONG4", "BINFLOAT", "FLOAT")
)  # fmt: skip
"""Steps that push their argument."""
_MADE: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": lambda: None,
    "MARK": lambda: _MARK, "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
}  # fmt: skip


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _called(function: Any, arguments: Iterable[Any], what: str = "") -> Any:
    """The value of a call. Raises `UnsupportedModel` for a function that is not in `_MEANINGS`."""
    meaning = _MEANINGS.get(function.text) if isinstance(function, Name) else None
    if meaning is None:
        raise UnsupportedModel(
            _(
                "{what} asks for {function} while it is read, which could run any code; only plain tensors "
                "are read. Get the variant of this model in safetensors, or a GGUF file.",
                what=what,
                function=one_line(getattr(function, "text", repr(function)))[:80],
            )
        )
    return meaning(*arguments)
