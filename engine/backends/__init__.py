"""Devices that hold weights and run programs; `make_backend` chooses one."""

from __future__ import annotations

from engine.backends.base import Backend
from engine.settings import LoadSettings


def make_backend(settings: LoadSettings) -> Backend:
    """The backend that `settings` ask for; "auto" is the CPU. Imports torch or Numba only now."""
    if settings.backend == "reference":
        from engine.backends.reference import ReferenceBackend

        return ReferenceBackend()
    from engine.backends.cpu import CpuBackend

    return CpuBackend(settings.threads, int(settings.prompt_bits))
