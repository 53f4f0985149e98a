"""Backends hold weights and run programs on a device; `make_backend` chooses one."""

from __future__ import annotations

from engine.backends.base import Backend
from engine.backends.choice import Fits, Target, choose
from engine.settings import LoadSettings

__all__ = ["backend_on", "make_backend"]


def make_backend(settings: LoadSettings, fits: Fits = lambda _: True) -> Backend:
    """The backend that `settings` ask for, on the first device that a model `fits` on.

    Raises `BadSetting`, with the reason, if the settings ask for GPUs that cannot be used.
    """
    return backend_on(choose(settings, fits), settings)


def backend_on(target: Target, settings: LoadSettings) -> Backend:
    """The backend of one device."""
    if target.backend == "cuda":
        from engine.backends.cuda.backend import CudaBackend
        from engine.backends.cuda.runtime.torch_device import TorchDevice

        # All GPUs that the user named take layers; of automatic ones, only as many as the model needs.
        devices = [TorchDevice(index) for index in target.gpus]
        return CudaBackend(
            devices, even=bool(settings.gpus), where=target.where, keep_free=settings.gpu_memory << 20
        )
    if target.backend == "reference":
        from engine.backends.reference.backend import ReferenceBackend

        return ReferenceBackend()
    from engine.backends.cpu.backend import CpuBackend

    return CpuBackend(settings.threads, int(settings.prompt_bits))
