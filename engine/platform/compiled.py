"""Numba functions that are compiled once: taken from where Numba keeps them without getting its compiler
ready.

Numba fills its registries (a hundred modules, a quarter of a second) before it looks at kept code, which
needs none of them. Here that waits until something is compiled, which does it by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys
from numba.core.sigutils import normalize_signature


class _NotKept(LookupError):
    """There is no kept code."""


class _Kept(FunctionCache):  # type: ignore[misc] # numba has no types
    """Kept code of one function, in the folder that `numba.config.CACHE_DIR` names when this is made."""

    def __init__(self, source: Any, *, must: bool = False) -> None:
        super().__init__(source)
        self._must = must

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """As in the base class, but without `target_context.refresh()`; what is not there is None, or
        `_NotKept` where it `must` be.
        """
        rtsys.initialize(target_context)  # the part that kept code is linked with
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
            if found is not None:
                return found
        if self._must:
            raise _NotKept
        return None


def function(source: Any, signature: Any, options: Mapping[str, Any], *, kept: bool) -> Any:
    """`numba.njit(signature, cache=kept, **options)(source)`."""
    made = njit(**options)(source)
    if kept:
        made._cache = _Kept(source)
    made.compile(signature)
    made.disable_compile()
    return made


def kept_function(source: Any, signature: Any, options: Mapping[str, Any]) -> Any | None:
    """`function` of code that is kept, or None when it is not.

    What `source` calls is linked into kept code and need not be compiled.
    """
    made = njit(**options)(source)
    made._cache = _Kept(source, must=True)
    try:
        made.compile(signature)
    except _NotKept:
        return None
    made.disable_compile()
    return made


def kept_callback(source: Any, signature: Any, options: Mapping[str, Any]) -> Any | None:
    """`callback` of code that is kept, or None when it is not.

    What `source` calls is linked into kept code and need not be compiled.
    """
    made: Any = CFunc(source, normalize_signature(signature), locals={}, options=dict(options))
    made._cache = _Kept(source, must=True)
    try:
        made.compile()
    except _NotKept:
        return None
    return made


def callback(source: Any, signature: Any, options: Mapping[str, Any], *, kept: bool) -> Any:
    """`numba.cfunc(signature, cache=kept, **options)(source)`."""
    made: Any = CFunc(source, normalize_signature(signature), locals={}, options=dict(options))
    if kept:
        made._cache = _Kept(source)
    made.compile()
    return made
