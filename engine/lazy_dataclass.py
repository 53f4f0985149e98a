"""`dataclass` of the standard library, whose methods are made when they are needed.

That one writes, compiles and runs the text of up to six methods for each class as its module is imported. A
start imports 300 such classes and uses 120 of them: this took a seventh of its time. Here only `__init__` is
compiled, on first use, because it alone has to be; the other methods are closures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]


class _Init:
    """`__init__` of a dataclass: compiled, and put in this one's place, when anyone looks at it."""

    def __init__(self, owner: type, *, frozen: bool, slots: bool) -> None:
        self._owner, self._frozen, self._slots = owner, frozen, slots

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = _compiled_init(self._owner, self._frozen, self._slots)
        self._owner.__init__ = made  # type: ignore[misc] # which is what a decorator of classes does
        return made.__get__(instance, owner)


def _compiled_init(cls: type, frozen: bool, slots: bool) -> Any:
    fields = dataclasses.fields(cls)
    scope: dict[str, Any] = {"__name__": cls.__module__, "_set": object.__setattr__, "_missing": MISSING}
    usual, by_name, lines = ["self"], list[str](), list[str]()
    for each in fields:
        name = value = given = each.name
        if each.default is not MISSING:
            scope[f"_default_{name}"] = each.default
            given += f"=_default_{name}"
            value = name if each.init else f"_default_{name}"
        elif each.default_factory is not MISSING:
            scope[f"_make_{name}"] = each.default_factory
            given += "=_missing"
            value = f"_make_{name}()" + f" if {name} is _missing else {name}" * each.init
        if each.init:
            (by_name if each.kw_only else usual).append(given)
        elif value == name or (value.startswith("_default") and not slots):
            continue  # without a value, or with that of the class
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    usual += ["*", *by_name] if by_name else []
    exec(f"def __init__({', '.join(usual)}):\n " + "\n ".join(lines or ["pass"]), scope)
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {each.name: each.type for each in fields if each.init} | {"return": None}
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """As `dataclasses.dataclass`, with the options that `_made` has, and without `InitVar`. A wrong order
        of fields shows with the first instance, a base that is not frozen never: mypy refuses both.
        """
        return _made(cls, **options) if cls is not None else lambda each: _made(each, **options)


def _made(
    cls: type,
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> Any:
    written = {name for name, value in vars(cls).items() if value is not None}
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)(cls)
    members: dict[str, Any] = {}
    if init:
        members["__init__"] = _Init(made, frozen=frozen, slots=slots)
    if repr:
        members["__repr__"] = _repr
    if eq:
        members |= _compared(dataclasses.fields(made), frozen)
    if frozen:
        members |= {name: _refused(made, name) for name in ("__setattr__", "__delattr__")}
        if slots:
            members |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, member in members.items():
        if name not in written:
            setattr(made, name, member)
    return made


def _values(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Gets the values of these attributes as a tuple, which compares an object with itself as equal."""
    match tuple(names):
        case ():
            return lambda _: ()
        case (name,):
            return lambda self: (getattr(self, name),)
        case several:
            return attrgetter(*several)


def _compared(fields: Iterable[Field[Any]], frozen: bool) -> dict[str, Any]:
    """`__eq__` and `__hash__` by the values of the fields that count."""
    counted = _values(each.name for each in fields if each.compare)
    hashed = _values(each.name for each in fields if (each.compare if each.hash is None else each.hash))

    def equal(self: Any, other: Any) -> Any:
        return counted(self) == counted(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: Any) -> int:
        return hash(hashed(self))

    return {"__eq__": equal, "__hash__": hash_of if frozen else None}


def _refused(cls: Any, name: str) -> Callable[..., None]:
    """`__setattr__` or `__delattr__` of a frozen class; a derived one may have more attributes."""

    def refuse(self: Any, attribute: str, *value: Any) -> None:
        if type(self) is cls or attribute in cls.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {attribute!r}")
        getattr(super(cls, self), name)(attribute, *value)

    return refuse


@recursive_repr()
def _repr(self: Any) -> str:
    parts = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: Iterable[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
