"""Numba functions that are compiled once: taken from where Numba keeps them without getting its compiler ready.

Numba fills its registries (a hundred modules, a quarter of a second) before it looks at kept code, which needs none of them. Here that
waits until something is compiled, which does it by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys
from numba.core.sigutils import normalize_signature


class _Kept(FunctionCache):  # type: ignore[misc] # numba has no types
    """Kept code of one function, in the folder that `numba.config.CACHE_DIR` names when this is made."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None when it is not there: as in the base class, but without `target_context.refresh()`."""
        rtsys.initialize(target_context)  # the part that kept code is linked with
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def function(source: Any, signature: Any, options: Mapping[str, Any], *, kept: bool) -> Any:
    """`numba.njit(signature, cache=kept, **options)(source)`."""
    made = njit(**options)(source)
    if kept:
        made._cache = _Kept(source)
    made.compile(signature)
    made.disable_compile()
    return made


def callback(source: Any, signature: Any, options: Mapping[str, Any], *, kept: bool) -> Any:
    """`numba.cfunc(signature, cache=kept, **options)(source)`."""
    made: Any = CFunc(source, normalize_signature(signature), locals={}, options=dict(options))
    if kept:
        made._cache = _Kept(source)
    made.compile()
    return made
