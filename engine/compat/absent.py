"""Names of other engines that are not here: programs import them, and using one says so in a sentence.

Many programs import at their beginning what only some of their users need, such as pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NoReturn

from engine.errors import NotSupportedYet


class _AbsentType(type):
    """The type of names that are not here, nothing of which can be used. No object is an instance of one."""

    reason: str

    def __call__(cls, *_args: Any, **_named: Any) -> NoReturn:
        raise cls._refusal()

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(name) if name.startswith("__") else cls._refusal()

    def _refusal(cls) -> NotSupportedYet:
        return NotSupportedYet(f"{cls.__name__} is not supported here: {cls.reason}.")


class _Absent(metaclass=_AbsentType):
    """What stands for a name. A class derived from it is refused, too."""

    reason = ""

    def __init_subclass__(cls, **named: Any) -> None:
        if (base := cls.__mro__[1]) is not _Absent:
            raise base._refusal()  # type: ignore[attr-defined]
        super().__init_subclass__(**named)


@cache
def absent_name(name: str, reason: str) -> Any:
    """What stands for a name of another engine: calling it, an attribute of it, and a class derived from it
    raise `NotSupportedYet` with the reason.
    """
    return _AbsentType(name, (_Absent,), {"reason": reason})


def refusing(module: str, absent: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module that lacks these names: it gives `absent_name` for each."""

    def get(name: str) -> Any:
        if name in absent:
            return absent_name(f"`{name}`", absent[name])
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get
