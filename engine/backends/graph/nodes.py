"""What a recorded pass is made of: nodes, and the copies between devices.

A node is one operation. It has no address, kernel or memory: a backend's `lowering` turns it into calls. A
buffer is written by one node; only the nodes of experts of several weight layouts write disjoint rows of one
buffer. The operations of `Ops`, each as a node with the method that records it, are in `rows`, `linear`,
`attention` and `moe`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from engine.backends.base import Weight
from engine.backends.graph.buffers import Buffer
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """One operation. `INPUTS` names the fields with the buffers that it reads."""

    INPUTS: ClassVar[tuple[str, ...]] = ("x",)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that it reads."""
        inputs = (getattr(self, name) for name in self.INPUTS)
        return tuple(each for each in inputs if each is not None)

    @property
    def device(self) -> int:
        """The number of the device that runs it."""
        return self.reads[0].device


@dataclass(frozen=True, eq=False, kw_only=True)
class Value(Node):
    """A node that writes the rows `y`."""

    y: Buffer

    @property
    def device(self) -> int:
        return self.y.device


@dataclass(frozen=True, eq=False, kw_only=True)
class Producer(Value):
    """A node whose rows may be written as floats (y), as packed activations of a `form`, or as both."""

    floats: bool = True
    form: str = "none"
    packed: Buffer | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class PeerCopy(Value):
    """y = x, which lies on another device."""

    x: Buffer


class Recording:
    """The nodes of a pass so far.

    `layer_devices` are the numbers of the devices of each layer's cache, `part_devices` of each part of a
    state, `cross_devices` of each layer of `KVCache.cross`, `device_of` gives a weight's; by default all is
    on device 0. Rows are copied to the device of the weight, cache or state they meet.
    """

    def __init__(
        self,
        layer_devices: Sequence[int] = (),
        device_of: Callable[[Weight], int] = lambda _: 0,
        part_devices: Sequence[int] = (),
        cross_devices: Sequence[int] = (),
    ) -> None:
        self.nodes: list[Node] = []
        self.positions = 1 << 31
        """The length of the shortest table of positions, apart from `given` ones of rope."""
        self.rope_positions = 1 << 31
        """The length of the shortest rotary table."""
        self._layer_devices, self._part_devices, self._device_of = layer_devices, part_devices, device_of
        self._cross_devices = cross_devices
        self._shared: dict[tuple[object, ...], Buffer] = {}

    def _add(self, node: Value) -> Buffer:
        """Record a node; returns the rows that it writes."""
        self.nodes.append(node)
        return node.y

    def _once(self, key: tuple[object, ...], node: Callable[[], Value]) -> Buffer:
        """The rows of a node that is recorded at the first call with this key."""
        if key not in self._shared:
            self._shared[key] = self._add(node())
        return self._shared[key]

    def _at(self, x: Buffer, device: int) -> Buffer:
        """x on this device, copied there once where it is not."""
        if x.device == device:
            return x
        y = Buffer(x.width, x.on_logit_rows, x.copies, device)
        return self._once((x, device), lambda: PeerCopy(x=x, y=y))

    def _table(self, table: Floats) -> Floats:
        """A table (positions, width), which limits the length of the context."""
        assert table.ndim == 2
        self.positions = min(self.positions, len(table))
        return table
