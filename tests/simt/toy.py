"""A toy of a program's step of one row for decode loops: its logits stand in a table, a row a position; it
notes what it was given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cuda.runtime.decode_loop import DecodeLoops, OneRow
from tests.simt.fake import FakeDevice


class Toy:
    """`answer(token, position, page)` gives the logits (V,) float32, where `page` is that of the position;
    `seen` are its arguments, `ropes` the rope positions.
    """

    def __init__(
        self, answer: Any, vocabulary: int, context: int = 4096, device: FakeDevice | None = None
    ) -> None:
        self.device = device or FakeDevice()
        self.answer, self.vocabulary = answer, vocabulary
        self.seen: list[tuple[int, int, int]] = []
        self.ropes: list[int] = []
        sizes = (4, 4, 4, 4 * (context // 256 + 1), 4 * vocabulary)
        self.tokens, self.position, self.rope_position, self.pages, self.logits = (
            self.device.zeros(size) for size in sizes
        )
        self.states = self.device.zeros(32)
        row = OneRow(
            self._launch, self.tokens, self.position, self.rope_position, self.pages, self.states,
            self.logits, context,
        )  # fmt: skip
        self.decode_loops = DecodeLoops(self.device, row)

    def _launch(self) -> None:
        self.device.later(self._run)

    def _run(self) -> None:
        token, place, rope = (
            int(tensor.numpy().view(np.int32)[0])
            for tensor in (self.tokens, self.position, self.rope_position)
        )
        page = int(self.pages.numpy().view(np.int32)[place // 256])
        self.seen.append((token, place, page))
        self.ropes.append(rope)
        self.logits.numpy().view(np.float32)[:] = self.answer(token, place, page)
