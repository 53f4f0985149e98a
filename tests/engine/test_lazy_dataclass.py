"""Classes whose methods are made later behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable, Iterable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import pytest

from engine.lazy_dataclass import dataclass

OPTIONS: tuple[dict[str, bool], ...] = (
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "eq": False},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "kw_only": True},
    {"eq": False, "repr": False},
)


def classes(decorator: Callable[..., Any], **options: bool) -> tuple[Any, Any]:
    """A class with a field of each kind, and one that derives from it."""

    @decorator(**options)
    class Base:
        name: str
        counts: ClassVar[int] = 7
        size: int = field(default=3, compare=False)
        parts: list[int] = field(default_factory=list, hash=False)
        secret: str = field(default="s", repr=False)
        late: int = field(default=5, init=False)
        named: int = field(default=0, kw_only=True)

        def __post_init__(self) -> None:
            object.__setattr__(self, "secret", self.secret + self.name)

    @decorator(**options)
    class Derived(Base):
        size: int = 4
        more: tuple[int, ...] = ()

    return Base, Derived


def answer(action: Callable[[], object]) -> object:
    """What it returns, or the kind and text of what it raises."""
    try:
        return action()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


def seen(cls: Any) -> Iterable[object]:
    """What can be seen of a class from outside."""
    one, same = cls(name="a", parts=[1]), cls(name="a", size=9, parts=[1])
    yield repr(one).rpartition("<locals>.")[2] if cls.__repr__ is not object.__repr__ else "plain"
    yield one == same, one == cls(name="b"), one == cls(name="a", parts=[2]), one == 1
    yield answer(lambda: hash(one) == hash(same)), cls.__hash__ is None
    yield asdict(one), asdict(replace(one, name="c")), [each.name for each in fields(cls)]
    yield (
        answer(lambda: cls()),
        answer(lambda: asdict(cls("a", 1, [], "s"))),
        answer(lambda: cls(name="a", other=1)),
    )
    yield answer(lambda: setattr(one, "name", "z"))
    if hasattr(one, "__dict__"):  # with slots, Python 3.11 calls super() with a class of the same name
        yield answer(lambda: setattr(one, "unknown", 1))
    yield answer(lambda: delattr(one, "size")), one.size if hasattr(one, "size") else None
    yield cls.__match_args__, cls.counts, hasattr(one, "__dict__")
    parameters = inspect.signature(cls).parameters.values()
    yield [
        (each.name, each.kind, each.annotation, each.default == inspect.Parameter.empty)
        for each in parameters
    ]
    yield asdict(copy.copy(same)), asdict(copy.deepcopy(same))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("which", [0, 1], ids=["base", "derived"])
def test_a_class_is_as_in_the_standard_library(options: dict[str, bool], which: int) -> None:
    mine, other = classes(dataclass, **options)[which], classes(dataclasses.dataclass, **options)[which]
    assert list(seen(mine)) == list(seen(other))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_methods_of_the_class_stay(options: dict[str, bool]) -> None:
    def made(decorator: Any) -> Any:
        @decorator(**options)
        class Own:
            value: int = 0

            def __eq__(self, other: object) -> bool:
                return True

            def __hash__(self) -> int:
                return 11

            def __repr__(self) -> str:
                return "own"

        return Own

    for cls in (made(dataclass), made(dataclasses.dataclass)):
        assert (cls(value=1) == cls(value=2), hash(cls()), repr(cls())) == (True, 11, "own")


@dataclass(frozen=True, slots=True)
class Sent:
    """What goes through a pipe."""

    number: int
    inner: Sent | None = None


@dataclass(frozen=True)
class WithCache:
    """Computes its half once."""

    number: int

    @cached_property
    def half(self) -> float:
        return self.number / 2


class Wider(Sent):
    """Has attributes of its own."""

    extra = 0


def test_frozen_ones_are_pickled_cache_and_may_be_derived_from() -> None:
    sent = Sent(1, Sent(2))
    assert pickle.loads(pickle.dumps(sent)) == sent
    assert hash(sent) == hash(Sent(1, Sent(2)))
    cached = WithCache(5)
    assert cached.half == cached.half == 2.5
    assert vars(cached) == {"number": 5, "half": 2.5}
    wider = Wider(1)
    wider.extra = 4
    assert wider.extra == 4
    assert wider != sent
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'number'"):
        wider.number = 2  # type: ignore[misc] # the test


@pytest.mark.parametrize("others", [0, 1])
def test_values_are_compared_as_in_tuples(others: int) -> None:
    """An object is equal to itself, whatever it says of that; the answer is a truth value."""

    class Odd:
        def __eq__(self, other: object) -> Any:
            return ["maybe"]

        __hash__ = object.__hash__

    def seen(decorator: Any) -> Iterable[object]:
        fields = [("odd", Any), *[(f"more_{n}", int, field(default=n)) for n in range(others)]]
        annotations = {name: kind for name, kind, *_default in fields}
        defaults = {each[0]: each[2] for each in fields if len(each) > 2}
        cls: Any = decorator(frozen=True)(type("Holder", (), {"__annotations__": annotations, **defaults}))
        nan = float("nan")
        yield cls(nan) == cls(nan), cls(nan) == cls(float("nan")), hash(cls(nan)) == hash(cls(nan))
        yield cls(Odd()) == cls(Odd())

    assert list(seen(dataclass)) == list(seen(dataclasses.dataclass))


def test_what_holds_itself_is_printed() -> None:
    @dataclass
    class Loop:
        items: list[object]

    loop = Loop([])
    loop.items.append(loop)
    assert repr(loop).endswith("Loop(items=[...])")


def test_nothing_is_compiled_before_the_first_instance() -> None:
    @dataclass(frozen=True, slots=True)
    class Unused:
        value: int

    before = vars(Unused)["__init__"]
    assert not inspect.isfunction(before)
    assert Unused(3).value == 3
    assert inspect.isfunction(vars(Unused)["__init__"])
    assert Unused.__init__.__qualname__.endswith("Unused.__init__")
