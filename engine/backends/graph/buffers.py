"""The activations of a pass as a recording names them, before any memory is theirs."""

from __future__ import annotations

from engine.lazy_dataclass import dataclass


@dataclass(eq=False)
class Buffer:
    """An activation (rows, width) of 4-byte numbers.

    It has `copies` rows for each row of the step, or, with `on_logit_rows`, for each row that needs logits.
    Rows begin on cache lines, `stride` bytes apart. `device` is the number of the device it lies on, `place`
    its memory in a plan.
    """

    width: int
    on_logit_rows: bool = False
    copies: int = 1
    device: int = 0
    place: int = -1

    @property
    def stride(self) -> int:
        """Bytes from row to row: whole vectors of 64 bytes."""
        return (self.width + 15) // 16 * 64

    @property
    def row_bytes(self) -> int:
        """Bytes for each row of the step."""
        return self.copies * self.stride

    def like(self, width: int = 0) -> Buffer:
        """A new buffer of as many rows on the same device, of this width or, for 0, of the same."""
        return Buffer(width or self.width, self.on_logit_rows, self.copies, self.device)
