"""Attributes are those that a class declares; any other one is refused by name.

In ExLlamaV2 a misspelt attribute, or one of a part that this engine lacks, is set without an error and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from engine.errors import NotSupportedYet

_PACKAGE = __name__.rpartition(".")[0]


class UnknownAttribute(NotSupportedYet, AttributeError):
    """An attribute that does not exist here, or that cannot be set."""


class Declared:
    """Only attributes with an annotation in the class, and properties, can be set.

    `missing` maps attributes of ExLlamaV2 that are not here to the reason, which ends the sentence. A
    script's subclasses may add attributes. Getting or setting another one raises `UnknownAttribute`.
    """

    missing: ClassVar[Mapping[str, str]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        cls = type(self)
        found = getattr(cls, name, None)
        if isinstance(found, property) and found.fset is None:
            raise UnknownAttribute(f"{cls.__name__}.{name} can be read but not set; do not change it.")
        if not isinstance(found, property) and not self._may_be_set(name):
            raise self._unknown(name)
        super().__setattr__(name, value)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            raise self._unknown(name)

    @classmethod
    def _may_be_set(cls, name: str) -> bool:
        declared = any(name in vars(base).get("__annotations__", {}) for base in cls.__mro__)
        foreign = not cls.__module__.startswith(_PACKAGE)
        return declared or name.startswith("_") or (foreign and name not in cls.missing)

    @classmethod
    def _unknown(cls, name: str) -> UnknownAttribute:
        reason = cls.missing.get(name, "no such attribute is known")
        return UnknownAttribute(f"{cls.__name__}.{name} is not supported here: {reason}.")


def refuse(name: str, given: object, neutral: object, reason: str) -> None:
    """Raise `NotSupportedYet` for an argument or setting `name` unless it has its neutral value."""
    if given != neutral:
        raise NotSupportedYet(f"`{name}` is not supported here: {reason}; leave it at {neutral}.")
