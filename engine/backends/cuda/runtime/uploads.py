"""Uploads small arrays to the device in order with its work, while earlier ones may still be in transit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cuda.runtime.device import Device, Mark

if TYPE_CHECKING:
    import torch

_PIECE = 1 << 16
_PIECES = 4


class Uploads:
    """Pinned memory for a few pieces; each is reused only after the device has copied its contents."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._room = device.pinned(_PIECE * _PIECES)
        self._marks: list[Mark | None] = [None] * _PIECES
        self._turn = 0

    def send(self, array: Any, target: torch.Tensor) -> None:
        """Copy a contiguous NumPy array to the start of a uint8 device tensor, after all queued work."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, raw.size, _PIECE):
            part, turn = raw[start : start + _PIECE], self._turn
            mark = self._marks[turn]
            if mark is not None:
                mark.wait()
            piece = self._room[turn * _PIECE : turn * _PIECE + part.size]
            piece.numpy()[:] = part
            self._device.copy(piece, target[start : start + part.size])
            self._marks[turn] = self._device.mark()
            self._turn = (turn + 1) % _PIECES
