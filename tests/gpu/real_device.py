"""A real GPU where tests of whole models expect a fake one.

`tests.gpu.on_device` puts `RealDevice` in the place of `tests.simt.fake.FakeDevice` in the tests of
`tests/simt/backend`. What only a fake device can do, such as being lost or breaking one kernel, skips the
test that asks for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from engine.backends.cuda.runtime.torch_device import TorchDevice, TorchGraph

SIZE, CAPABILITY = 1 << 34, 90
"""What `FakeDevice` has unless a test asks for something else; a real device has what it has."""


def _skip(what: str) -> NoReturn:
    pytest.skip(f"a real GPU has no {what}")


class _Broken(dict[str, Any]):
    def __setitem__(self, name: str, value: Any) -> None:
        _skip("kernels that break when they are told to")


class _CountedGraph:
    def __init__(self, device: RealDevice, graph: TorchGraph) -> None:
        self._device, self._graph = device, graph

    def launch(self) -> None:
        self._device.graph_launches += 1
        self._graph.launch()


class RealDevice(TorchDevice):
    """The first GPU, with `FakeDevice`'s constructor and counters. Further devices are the same GPU again."""

    kept = 0
    done = 1
    early = False
    """Whether kernels may start early; set by `tests.gpu.on_device`."""

    def __init__(
        self,
        total_memory: int = SIZE,
        capability: int = CAPABILITY,
        sm_count: int = 0,
        index: int = 0,
        interpret: bool = False,
    ) -> None:
        super().__init__(0, early=self.early)
        if total_memory != SIZE:
            _skip(f"memory of {total_memory} bytes")
        if capability not in (CAPABILITY, self.capability):
            _skip(f"compute capability of {capability / 10}")
        self.name = f"fake {index}"  # as the tests know it
        self.taken = self.records = self.graph_launches = 0
        self.memory, self.broken = SimpleNamespace(kept={}), _Broken()
        self.prepared: set[Any] = set()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("lost", "refused", "interpret") or (name == "total_memory" and "taken" in vars(self)):
            _skip(f"{name} that can be set")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in ("later", "step", "check"):
            _skip(f"queue of launches with {name}()")
        raise AttributeError(name)

    def empty(self, size: int) -> torch.Tensor:
        tensor = super().empty(size)
        self.taken += size
        weakref.finalize(tensor, self._forget, size).atexit = False
        return tensor

    def _forget(self, size: int) -> None:
        self.taken -= size

    def prepare(self, kernels: Any) -> Any:
        self.prepared |= set(kernels)
        return super().prepare(kernels)

    def record(self, launches: Callable[[], None]) -> Any:
        self.records += 1
        return _CountedGraph(self, super().record(launches))
