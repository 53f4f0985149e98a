"""A machine with fake GPUs: what `open_chat` finds on it, and the devices that it then uses."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

import engine.backends
from engine.backends import choice
from engine.backends.base import Backend
from engine.backends.choice import Gpu, Target, Usable
from engine.backends.cuda.backend import CudaBackend
from engine.settings import LoadSettings
from tests.simt.fake import FakeDevice


@dataclass
class FakeMachine:
    """`backends` are those that were made on its devices, draft models' included."""

    devices: list[FakeDevice]
    backends: list[CudaBackend] = field(default_factory=list)

    def usable(self) -> Usable:
        """As the driver sees it: to it, what torch keeps is taken."""
        gpus = (
            Gpu(each.index, each.name, each.total_memory, each.free_memory() - each.kept)
            for each in self.devices
        )
        return Usable(tuple(gpus))

    def backend_on(self, target: Target, settings: LoadSettings) -> Backend:
        if target.backend != "cuda":
            return backend_on(target, settings)
        made = CudaBackend(
            [self.devices[index] for index in target.gpus], even=bool(settings.gpus), where=target.where,
            keep_free=settings.gpu_memory << 20,
        )  # fmt: skip
        self.backends.append(made)
        return made

    @property
    def taken(self) -> list[int]:
        """Bytes that are taken on each device."""
        return [device.taken for device in self.devices]


backend_on = engine.backends.backend_on


def install(monkeypatch: pytest.MonkeyPatch, *devices: FakeDevice) -> FakeMachine:
    """Have `open_chat`, draft models and ExLlamaV2's names find these devices."""
    machine = FakeMachine(list(devices) or [FakeDevice()])
    for device in machine.devices:
        device.memory.kept = {}
    monkeypatch.setattr(choice, "usable_gpus", machine.usable)
    monkeypatch.setattr(engine.backends, "backend_on", machine.backend_on)
    return machine
