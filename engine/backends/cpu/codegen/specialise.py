"""Kernels made from templates: functions whose globals are filled in before Numba compiles them."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba.core import types

Jit = Callable[..., Any]
"""Compiles a function for a signature; a third argument are flags for its arithmetic with floats."""


def words(count: int) -> Any:
    """The signature of a helper: `count` int64 arguments, no result."""
    return types.void(*[types.int64] * count)


def specialise(template: Any, name: str, **values: Any) -> Any:
    """A copy of `template` named `name` with these globals, which Numba sees as constants."""
    function = FunctionType(template.__code__, {**template.__globals__, **values}, name)
    function.__qualname__ = name
    function.__module__ = template.__module__
    return function
