"""Named tuples that are made many times for each token of a reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def maker(kind: type[T]) -> Callable[[Iterable[Any]], T]:
    """Makes named tuples of this kind from the values of all their fields, in order, and calls no Python
    function for it.
    """
    return partial(tuple.__new__, kind)  # type: ignore[type-var]
