"""The paged key/value cache on GPUs, and its layout.

A layer has one buffer for keys and one for values, which latent attention does not have. Page p of head g (of
G key/value heads) is a block of `Layout.block` bytes, at (p G + g) `Layout.block`, with the 256 positions of
the page:

  fp32, fp16, fp8  numbers [256][D]: the D numbers of a position are adjacent.
  q8               codes int8 [256][n 32], then their scales fp16 [256][n]: n = ceil(D / 32) groups of 32
                   Hadamard-transformed dimensions.
  q4               codes uint32 [256][n 4]: a word holds eight dimensions, 2 j in bits 4 j .. 4 j + 3 and
                   2 j + 1 in bits 16 + 4 j .. 16 + 4 j + 3, so that one mask gives the codes of two
                   adjacent dimensions as halves of a word. A code is the index of its level in
                   `kv_formats.Q4_LEVELS`. Then scales as in q8. Then transformed vectors, float32 [n 32]: for
                   keys the mean that was subtracted from the page's keys, except from a sequence's first 16
                   positions (undefined until later ones are written), and the sequence's first key; for
                   values the first value. The first vectors exist only in a sequence's first page and replace
                   the codes of position 0.

The meaning of the numbers is defined in `engine.backends.kv_rounding`. All parts start at multiples of 16
bytes, blocks at multiples of 256.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.base import AttentionShape, KVCache
from engine.backends.cuda.runtime.device import Device, Mark
from engine.backends.kv_formats import GROUP, QUANTISED, CacheType, kept_bytes
from engine.backends.states import NO_STATES, States
from engine.core import PAGE_TOKENS
from engine.errors import DeviceLost
from engine.lazy_dataclass import dataclass
from engine.tensors import Bytes

if TYPE_CHECKING:
    import torch

KEYS, VALUES = "keys", "values"
_NUMBER_BYTES = {"fp32": 4, "fp16": 2, "fp8": 1}


@dataclass(frozen=True)
class Layout:
    """The block of one page's keys or values of one head; offsets are in bytes.

    `side` is "keys" or "values", `name` a format of `kv_formats`.
    """

    side: str
    name: str
    head_dim: int

    @property
    def groups(self) -> int:
        """Groups of 32 dimensions that share a scale."""
        return -(-self.head_dim // GROUP)

    @property
    def row(self) -> int:
        """Bytes from one position's numbers or codes to the next's."""
        if self.name in QUANTISED:
            return self.groups * (GROUP if self.name == "q8" else GROUP // 2)
        return self.head_dim * _NUMBER_BYTES[self.name]

    @property
    def scales(self) -> int:
        """Offset of the fp16 scales of q8 and q4, n for each position."""
        return PAGE_TOKENS * self.row

    @property
    def mean(self) -> int:
        """Offset of the mean of q4 keys, Hadamard-transformed, float32 (n 32)."""
        return self.scales + PAGE_TOKENS * 2 * self.groups

    @property
    def first(self) -> int:
        """Offset of the transformed vector of a sequence's first position in q4, float32 (n 32)."""
        return self.mean + (4 * GROUP * self.groups if self.side == KEYS else 0)

    @property
    def block(self) -> int:
        """Bytes of the whole block."""
        if self.name not in QUANTISED:
            return self.scales
        return self.mean + (
            kept_bytes(2 if self.side == KEYS else 1, self.head_dim) if self.name == "q4" else 0
        )


def side_bytes(side: str, name: str, head_dim: int) -> int:
    """Bytes of one page of one head's keys or values."""
    return Layout(side, name, head_dim).block


def page_bytes(kind: CacheType, kv_heads: int, head_dim: int, latent: bool = False) -> int:
    """Bytes of one page's keys and values in one layer; of its keys alone if `latent`."""
    values = 0 if latent else side_bytes(VALUES, kind.values, head_dim)
    return kv_heads * (side_bytes(KEYS, kind.keys, head_dim) + values)


def touched(addresses: tuple[int, int]) -> tuple[object, object]:
    """A layer's keys and values, as the reads and writes of calls name them."""
    return (KEYS, addresses[0]), (VALUES, addresses[1])


class CudaCache:
    """Keys and values of all layers, layer i on `devices[i]`, and states, part i on `part_devices[i]`.

    Raises `NotEnoughMemory`. Copies are in stream order with the devices' launches.
    """

    cross: KVCache | None = None

    def __init__(
        self,
        devices: Sequence[Device],
        shapes: Sequence[AttentionShape],
        page_count: int,
        kind: CacheType,
        states: States = NO_STATES,
        part_devices: Sequence[Device] = (),
    ) -> None:
        self.page_count = page_count
        self.kind = kind
        self.dtype = str(kind)
        self.states = states
        self.placed: tuple[list[int], list[int]] = [], []
        """The backend's numbers of these devices, of layers and of parts; empty if there is only one."""
        self._devices, self._part_devices = list(devices), list(part_devices)
        self._layers: list[list[torch.Tensor]] = []
        self.page_bytes = sum(
            page_bytes(kind, shape.kv_heads, shape.head_dim, shape.latent > 0) for shape in shapes
        )
        self.nbytes = page_count * self.page_bytes + states.count * states.state_bytes
        for device, shape in zip(self._devices, shapes, strict=True):
            sides = (KEYS, kind.keys), (VALUES, kind.values)
            self._layers.append(
                [
                    device.zeros(page_count * shape.kv_heads * side_bytes(*of, shape.head_dim))
                    for of in (sides[:1] if shape.latent else sides)
                ]
            )
        self._parts = [
            device.zeros(states.count * 4 * part.floats)
            for device, part in zip(part_devices, states.shapes, strict=True)
        ]
        self._host: torch.Tensor | None = None
        self._sent: list[Mark] = []

    def addresses(self, layer: int) -> tuple[int, int]:
        """Addresses of the layer's keys and values, on its device; of its keys twice in latent attention."""
        parts = self._layers[layer]
        return parts[0].data_ptr(), parts[-1].data_ptr()

    @property
    def crossed(self) -> CudaCache:
        """`cross`, which there is."""
        assert isinstance(self.cross, CudaCache)
        return self.cross

    def state_address(self, part: int) -> int:
        """Address of a part of the first state, on its device; the same part of the others follows it."""
        return int(self._parts[part].data_ptr())

    def close(self) -> None:
        for device in self._each_device():
            with suppress(DeviceLost):  # nothing runs on a lost device
                device.synchronize()
        self._layers, self._parts, self._host, self._sent = [], [], None, []
        for device in self._each_device():
            device.trim()

    def copy_page(self, source: int, target: int) -> None:
        """As `KVCache.copy_page`; returns at once."""
        if source != target:
            for (device, one), (_, other) in zip(self._page(source), self._page(target), strict=True):
                device.copy(one, other)

    def read_page(self, page: int) -> Bytes:
        """Each layer's keys and values, head by head. Waits for the devices."""
        return self._read(self._page(page), self.page_bytes)

    def write_page(self, page: int, data: Bytes) -> None:
        """Returns when `data` is copied to pinned memory; devices read it in stream order."""
        assert data.dtype == np.uint8
        assert data.shape == (self.page_bytes,)
        self._write(self._page(page), data)

    def read_state(self, number: int) -> Bytes:
        """All parts one after the other. Waits for the devices."""
        return self._read(self._state(number), self.states.state_bytes)

    def write_state(self, number: int, data: Bytes) -> None:
        """As `write_page`."""
        assert data.dtype == np.uint8
        assert data.shape == (self.states.state_bytes,)
        self._write(self._state(number), data)

    def _read(self, parts: Iterator[tuple[Device, torch.Tensor]], size: int) -> Bytes:
        host, at = self._staging(), 0
        for device, part in parts:
            device.copy(part, host[at : at + part.nbytes])
            at += part.nbytes
        for device in self._each_device():
            device.mark().wait()
        data: Bytes = host.numpy()[:size].copy()
        return data

    def _write(self, parts: Iterator[tuple[Device, torch.Tensor]], data: Bytes) -> None:
        host, at = self._staging(), 0
        host.numpy()[: len(data)] = data
        for device, part in parts:
            device.copy(host[at : at + part.nbytes], part)
            at += part.nbytes
        self._sent = [device.mark() for device in self._each_device()]

    def _staging(self) -> torch.Tensor:
        """Pinned memory for one page or state, once no copy uses it."""
        for mark in self._sent:
            mark.wait()
        self._sent = []
        if self._host is None:
            self._host = self._each_device()[0].pinned(max(self.page_bytes, self.states.state_bytes))
        return self._host

    def _page(self, page: int) -> Iterator[tuple[Device, torch.Tensor]]:
        """One page's bytes in all layers, keys before values."""
        assert 0 <= page < self.page_count
        for device, layer in zip(self._devices, self._layers, strict=True):
            for part in layer:
                size = part.nbytes // self.page_count
                yield device, part[page * size : (page + 1) * size]

    def _state(self, number: int) -> Iterator[tuple[Device, torch.Tensor]]:
        """One state's parts."""
        assert 0 <= number < self.states.count
        for device, part in zip(self._part_devices, self._parts, strict=True):
            size = part.nbytes // self.states.count
            yield device, part[number * size : (number + 1) * size]

    def _each_device(self) -> list[Device]:
        return list({id(device): device for device in [*self._devices, *self._part_devices]}.values())
