"""Assigns layers to GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.backends.cuda.runtime.device import Device

_LAYER = re.compile(r"(?:^|\.)(?:blk|layers?|h|blocks?)\.(\d+)\.")
_FIRST = ("embed", "embd", "wte", "wpe")
"""Parts of the names of tensors that a pass starts with."""
_SPARE = 1.25
"""Memory to plan for, relative to the weights: it includes the key/value cache and work space."""


class Split:
    """Assigns layers to the fewest devices that hold the model, or, with `even`, to all.

    Sizes are noted by tensor name while the headers are read; the first query fixes the assignment.
    """

    def __init__(self, devices: Sequence[Device], even: bool = False) -> None:
        self._devices, self._even = list(devices), even
        self._sizes: dict[str, int] = {}
        self._latest = ""
        self._layers: list[int] | None = None

    def note(self, name: str, size: int) -> None:
        """Note the size in bytes of a tensor; calls in a row with the same name (stacked matrices) add up."""
        self._sizes[name] = size + (self._sizes[name] if name == self._latest else 0)
        self._latest = name

    def device_of(self, name: str) -> int:
        """The index of the device for a tensor of this name."""
        found = _LAYER.search(name)
        if found is not None:
            return self.layer(int(found[1]))
        return 0 if any(part in name for part in _FIRST) else self.used - 1

    def layer(self, number: int) -> int:
        """The index of the device for a layer."""
        layers = self._dealt()
        return layers[min(number, len(layers) - 1)] if layers else 0

    @property
    def used(self) -> int:
        """How many devices hold any layers."""
        layers = self._dealt()
        return layers[-1] + 1 if layers else 1

    def _dealt(self) -> list[int]:
        if self._layers is None:
            self._layers = self._deal()
        return self._layers

    def _deal(self) -> list[int]:
        """The device of each layer: runs of layers in proportion to the devices' free memory."""
        sizes: dict[int, int] = {}
        for name, size in self._sizes.items():
            found = _LAYER.search(name)
            if found is not None:
                sizes[int(found[1])] = sizes.get(int(found[1]), 0) + size
        if not sizes:
            return []
        free = [device.free_memory() for device in self._devices]
        count = len(free)
        if not self._even:
            total = sum(self._sizes.values()) * _SPARE
            count = next((n for n in range(1, len(free) + 1) if sum(free[:n]) >= total), len(free))
        room, layers = sum(free[:count]), max(sizes) + 1
        whole, out, before = sum(sizes.values()), list[int](), 0.0
        for layer in range(layers):
            middle = (before + sizes.get(layer, 0) / 2) / max(1, whole) * room
            out.append(next((n for n in range(count) if middle < sum(free[: n + 1])), count - 1))
            before += sizes.get(layer, 0)
        return out
