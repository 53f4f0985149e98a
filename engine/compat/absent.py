"""Names of other engines that are not here: importing one says so in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import NotSupportedYet


def refusing(module: str, absent: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module that lacks these names: it raises `NotSupportedYet` for them."""

    def get(name: str) -> Any:
        if name in absent:
            raise NotSupportedYet(f"`{name}` is not supported here: {absent[name]}.")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get
