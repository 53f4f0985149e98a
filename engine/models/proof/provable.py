"""What a backend has whose kernels can be checked: only then is `first_use` imported, with its cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from engine.backends.base import Forward


@runtime_checkable
class Provable(Protocol):
    """A backend whose kernels can be checked."""

    notice: str
    """Why torch's operations have replaced the kernels; "" while they have not."""
    report: str

    def to_prove(self, forward: Forward, cache_dtype: str) -> Sequence[Any]:
        """The kernels left to check: a `cuda.proof.trial.Trial` for each device."""
        ...

    def replace(self, why: str, report: str) -> None:
        """Use torch's operations from now on."""
        ...

    def forget_proofs(self) -> None:
        """Check all kernels again."""
        ...
