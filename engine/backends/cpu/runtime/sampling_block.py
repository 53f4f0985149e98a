"""The memory of a program that samples: what to sample by, and what was sampled.

It begins with int64 words: the wanted number of `ALTERNATIVES`, the number of `STEPS` to decode and of those
`DONE`, and the number of `ENDS`, tokens after which no further step is decoded. Then come the ends, a random
number for each step, the block of `engine.sampling.passes`, and a result of `RESULT` words for each step:
token, final and raw probability, entropy, the number of alternatives and these, as `Pick` returns them. The
rest is the survey of the logits, float32: the maxima of BLOCK columns, and 2 * SUM_LANES sums for each block.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.cpu.runtime.memory import aligned
from engine.sampling import passes
from engine.sampling.kernels import PickedToken, set_steps

MOST_STEPS = 8
"""Steps that are decoded in a row."""
MOST_ENDS = 56
ALTERNATIVES, STEPS, DONE, ENDS = range(4)
END = 8
UNIFORM = END + MOST_ENDS
PICK = UNIFORM + MOST_STEPS
RESULTS = PICK + passes.ROOM
RESULT = 5 + 3 * passes.LONGEST_HEAD
SURVEY = RESULTS + RESULT * MOST_STEPS


class SamplingBlock:
    """The block of a program whose logits have `width` columns."""

    def __init__(self, width: int) -> None:
        blocks = -(-width // passes.BLOCK)
        survey = 4 * (passes.BLOCK + 2 * passes.SUM_LANES * (blocks + 1))
        memory = aligned(8 * SURVEY + survey)
        self.address = int(memory.ctypes.data)
        self._array: npt.NDArray[np.float64] = memory[: 8 * SURVEY].view(np.float64)
        # Python's own view of memory gives Python's own numbers.
        self._numbers: Any = self._array.data
        self._words: Any = self._array.view(np.int64).data

    def plan(
        self,
        head: int,
        steps: Sequence[tuple[int, float]] | None,
        alternatives: int,
        ends: Collection[int] = (),
    ) -> None:
        """Sample as `Pick(room, head, steps)` does, and report this many alternatives; decode no step after
        one of the tokens `ends`.
        """
        set_steps(self._array[PICK:RESULTS], head, steps)
        kept = [*ends][:MOST_ENDS]  # after a token of the rest, some steps are decoded in vain
        self._words[ALTERNATIVES], self._words[ENDS] = alternatives, len(kept)
        self._array.view(np.int64)[END : END + len(kept)] = kept

    def begin(self, uniforms: list[float]) -> None:
        """Decode a step for each of these random numbers, at most `MOST_STEPS`."""
        count = len(uniforms)
        self._words[STEPS], self._words[DONE] = count, 0
        self._array[UNIFORM : UNIFORM + count] = uniforms

    def drawn(self) -> list[PickedToken]:
        """The results of the steps that were done."""
        words, numbers, at = self._words, self._numbers, RESULTS
        found: list[PickedToken] = []
        for _ in range(words[DONE]):
            reported = words[at + 4]
            others = numbers[at + 5 : at + 5 + 3 * reported].tolist() if reported else []
            found.append((words[at], numbers[at + 1], numbers[at + 2], numbers[at + 3], others))
            at += RESULT
        return found
