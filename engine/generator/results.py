"""The step-by-step face in arrays and dicts: what goes in, what comes out.

The contract is ExLlamaV2's `stream_ex`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.generator.runner import Guidance
from engine.generator.sequence import StepOutput, TokenSequence
from engine.generator.stats import SequenceStats
from engine.generator.token_buffer import WrittenToken


@dataclass
class StreamState:
    """What `begin_stream_ex` leaves for `stream_ex`."""

    sequence: TokenSequence
    stats: SequenceStats
    probabilities: bool
    vocab_size: int
    waiting: StepOutput | None = None
    last: dict[str, Any] | None = None

    def result(self, output: StepOutput) -> dict[str, Any]:
        """The dict of one step; the last one is kept."""
        result: dict[str, Any] = {"chunk": output.text, "eos": bool(output.reason)} | self._arrays(
            output.tokens
        )
        healed = next((token.info.id for token in output.tokens if token.info.healed), None)
        if healed is not None:
            result["healed_token_id"] = healed
        if output.suppressed:
            result["suppressed"] = output.suppressed
        if output.reason:
            result |= {"reason": output.reason, "trigger": output.trigger}
            result["stats"] = self.stats.summary(self.sequence, self.sequence.params.seed)
            self.last = result
        return result

    def ended_already(self) -> dict[str, Any]:
        """The last result again, without its text and tokens."""
        assert self.last is not None
        kept = {
            name: value for name, value in self.last.items() if name not in ("healed_token_id", "suppressed")
        }
        return kept | self._arrays(()) | {"chunk": ""}

    def _arrays(self, tokens: Sequence[WrittenToken]) -> dict[str, npt.NDArray[Any]]:
        infos, wanted = [token.info for token in tokens], self.sequence.params.wanted
        out: dict[str, npt.NDArray[Any]] = {
            "chunk_token_ids": np.array([[info.id for info in infos]], dtype=np.int64)
        }
        if self.probabilities:
            out["probs"] = np.array([[info.probability for info in infos]], dtype=np.float32)
        if k := wanted.top:
            padded = [info.top + ((0, 0.0),) * (k - len(info.top)) for info in infos]
            out["top_tokens"] = np.array(
                [token for row in padded for token, _ in row], dtype=np.int64
            ).reshape(1, len(infos), k)
            out["top_probs"] = np.array(
                [share for row in padded for _, share in row], dtype=np.float32
            ).reshape(1, len(infos), k)
        if wanted.logits:
            rows = [token.logits for token in tokens if token.logits is not None]
            out["logits"] = np.array(rows, dtype=np.float32).reshape(1, len(rows), self.vocab_size)
        return out


def prompt_rows(ids: Any, mask: Any, offsets: Any, scale: float | None) -> tuple[list[int], Guidance | None]:
    """The prompt's ids and, from a second row, the guidance.

    `ids` is a list, or array-like of shape (n,), (1, n), or with guidance (2, n); `mask` (rows, n) is true
    where a token stands, false where a row is padded on its left; `offsets` (rows,) or (rows, 1) must be
    minus the padding, as it follows from the mask. Raises ValueError for other shapes, for two rows without a
    scale and for a scale without two rows.
    """
    array = np.asarray(ids)
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.shape[0] not in (1, 2) or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            "input_ids must be whole numbers of shape (n,) or (1, n), with guidance (2, n), not "
            f"{array.dtype} {array.shape}"
        )
    if (array.shape[0] == 2) != (scale is not None):
        raise ValueError(
            f"input_ids have {array.shape[0]} rows, but cfg_scale is {scale}: guidance needs two rows and a "
            "scale"
        )
    kept = np.ones(array.shape, bool) if mask is None else np.asarray(mask).astype(bool)
    if kept.shape != array.shape or (np.diff(kept.astype(np.int8), axis=1) < 0).any():
        raise ValueError(
            f"input_mask must have the shape {array.shape} of input_ids and be false only on the left of a "
            "row"
        )
    if offsets is not None and not np.array_equal(np.asarray(offsets).reshape(-1), -(~kept).sum(axis=1)):
        raise ValueError("position_offsets must be minus the number of masked tokens of each row")
    rows = [[int(token) for token in row[keep]] for row, keep in zip(array, kept, strict=True)]
    return rows[0], Guidance(tuple(rows[1]), float(scale)) if scale is not None else None
