"""A stand-in for a program that samples: its rows run one by one, and the host's compiled pick samples."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from engine.backends.cpu.runtime.sampling_block import SamplingBlock
from engine.sampling.kernels import Pick, PickedToken, ScanBuffers


class _Block:
    """What a decode loop needs of a sampling block."""

    def plan(self, head: int, steps: Any, alternatives: int, ends: Collection[int]) -> None:
        self.pick, self.alternatives, self.ends = Pick(ScanBuffers(), head, steps), alternatives, ends

    def begin(self, uniforms: list[float]) -> None:
        self.uniforms, self.found = uniforms, list[PickedToken]()

    def drawn(self) -> list[PickedToken]:
        return self.found


class HostSampling:
    """Decodes with the `run_row` of the class that inherits it, and the block `sampling`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._block = _Block()
        self.sampling = cast("SamplingBlock", self._block)

    def decode(self, token: int, place: int, steps: int, vocabulary: int, shift: int = 0) -> None:
        block, rows = self._block, cast("Any", self)
        assert len(block.uniforms) == steps
        for number in block.uniforms:
            found = block.pick(rows.run_row(token, place, shift)[:vocabulary], number, block.alternatives)
            block.found.append(found)
            token, place = found[0], place + 1
            if token < 0 or token in block.ends:
                break
