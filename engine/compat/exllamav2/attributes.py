"""Attributes are those that a class declares; one of a part that this engine lacks, or a misspelt one, is
refused by name.

One that is a script's own, which ExLlamaV2 does not have either, is set as there, but with a warning.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from engine.errors import NotSupportedYet

_PACKAGE = __name__.rpartition(".")[0]
_CLOSE = 0.8
"""How alike (`difflib.SequenceMatcher.ratio`) an unknown name is to the known one that was meant."""
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


class UnknownAttribute(NotSupportedYet, AttributeError):
    """An attribute that does not exist here, or that cannot be set."""


class Declared:
    """Attributes with an annotation in the class, and properties, can be set.

    `missing` maps attributes of ExLlamaV2 that are not here to the reason, which ends the sentence: getting
    or setting one raises `UnknownAttribute`, and so does setting one that is spelt almost as a known one, or
    replacing a method. Others, which ExLlamaV2 does not have either, are set with a warning; a script's
    subclasses add theirs without one.
    """

    missing: ClassVar[Mapping[str, str]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        cls = type(self)
        found = getattr(cls, name, None)
        if isinstance(found, property):
            if found.fset is None:
                raise UnknownAttribute(f"{cls.__name__}.{name} can be read but not set; do not change it.")
        elif callable(found) and cls.__module__.startswith(_PACKAGE):
            if getattr(value, "__func__", value) is not getattr(found, "__func__", found):
                raise UnknownAttribute(f"{cls.__name__}.{name} is a method here and cannot be replaced.")
            return  # a script that copies all attributes of another object
        elif not self._may_be_set(name):
            raise self._unknown(name)
        elif not (self._declares(name) or name.startswith("_") or name in vars(self)):
            if self._meant(name):
                raise self._unknown(name)
            message = f"{cls.__name__} has no {name}; setting it has no effect."
            warnings.warn(message, stacklevel=2)
        super().__setattr__(name, value)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            raise self._unknown(name)

    @classmethod
    def _may_be_set(cls, name: str) -> bool:
        return name not in cls.missing

    @classmethod
    def _declares(cls, name: str) -> bool:
        declared = any(name in vars(base).get("__annotations__", {}) for base in cls.__mro__)
        return declared or not cls.__module__.startswith(_PACKAGE)

    @classmethod
    def _meant(cls, name: str) -> str:
        """The known attribute of almost this name, "" if there is none."""
        known = {one for base in cls.__mro__ for one in (*vars(base), *vars(base).get("__annotations__", ()))}
        public = sorted(one for one in known if not one.startswith("_"))
        return next(iter(difflib.get_close_matches(name, public, 1, _CLOSE)), "")

    @classmethod
    def _unknown(cls, name: str) -> UnknownAttribute:
        reason = cls.missing.get(name, "no such attribute is known")
        hint = f" Did you mean {meant}?" if name not in cls.missing and (meant := cls._meant(name)) else ""
        return UnknownAttribute(f"{cls.__name__}.{name} is not supported here: {reason}.{hint}")


def refuse(name: str, given: object, neutral: object, reason: str) -> None:
    """Raise `NotSupportedYet` for an argument or setting `name` unless it has its neutral value."""
    if given != neutral:
        raise NotSupportedYet(f"`{name}` is not supported here: {reason}; leave it at {neutral}.")


def check_config(owner: str, given: object) -> None:
    """Raise TypeError for a folder where `owner` needs the configuration made from it."""
    if isinstance(given, str | Path):
        raise TypeError(
            f"{owner} takes a configuration, but got the path {str(given)!r}; give it ExLlamaV2Config(path)."
        )


def ignores_others(function: F) -> F:
    """`function`, called with named arguments that it does not have: they are left out, with a warning.

    Some of ExLlamaV2's functions take any argument by name, and scripts give them what belongs elsewhere.
    """
    known = frozenset(inspect.signature(function).parameters)
    where = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        others = [name for name in named if name not in known]
        if others:
            warnings.warn(
                f"{where} ignores {', '.join(f'`{name}`' for name in others)}, as ExLlamaV2 does.",
                stacklevel=2,
            )
        return function(*args, **{name: value for name, value in named.items() if name in known})

    return cast(F, call)


def constructor_ignores_others(cls: C) -> C:
    """`ignores_others` for the constructor of a class."""
    cls.__init__ = ignores_others(cls.__init__)  # type: ignore[misc]
    return cls
