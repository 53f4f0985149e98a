"""A generator's sequence step by step, in dicts of NumPy arrays: the contract of ExLlamaV2's `stream_ex`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.compat.exllamav2.cache_rows import seen_columns
from engine.core import Prefill
from engine.drain import drain
from engine.generator.adapter_slot import AdapterSlot
from engine.generator.opening import OpenSequence
from engine.generator.request import GenerationRequest, Guidance
from engine.generator.sequence import StepOutput
from engine.generator.streaming import StreamingGenerator
from engine.generator.token_buffer import WrittenToken
from engine.lazy_dataclass import dataclass
from engine.text.stops.conditions import StopCondition, StopRules


@dataclass
class DraftCounts:
    """Counts over several sequences: all new tokens, those drafted, and the drafted tokens accepted."""

    tokens: int = 0
    drafted: int = 0
    accepted: int = 0

    @classmethod
    def of(cls, opened: OpenSequence) -> DraftCounts:
        """The counts of a sequence so far."""
        return cls(opened.sequence.new_tokens, opened.stats.drafted, opened.sequence.accepted_drafts)

    def plus(self, other: DraftCounts, sign: int = 1) -> DraftCounts:
        """The sum, or with `sign` -1 the difference."""
        return DraftCounts(
            self.tokens + sign * other.tokens,
            self.drafted + sign * other.drafted,
            self.accepted + sign * other.accepted,
        )


class StepByStep:
    """`begin` prefills a prompt, then each `step` chooses one token. One sequence is open at a time.

    `rules` are the stop rules of future sequences; until `set_stop_conditions`, the tokenizer's stop tokens.
    """

    def __init__(self, generator: StreamingGenerator) -> None:
        self.generator = generator
        self.rules = StopRules(frozenset(generator.tokenizer.stop_token_ids))
        self._opened: OpenSequence | None = None
        self._probabilities = False
        self._waiting: StepOutput | None = None
        self._last: dict[str, Any] | None = None
        self._counts = DraftCounts()

    @property
    def sequence(self) -> Sequence[int]:
        """The ids of the latest sequence, prompt and reply; empty before `begin` and after `close`."""
        return self._opened.sequence.ids if self._opened is not None else ()

    @property
    def cached_length(self) -> int:
        """How many tokens of the latest sequence are in the cache: all but the last."""
        return max(0, len(self.sequence) - 1)

    def set_stop_conditions(self, stop_conditions: Sequence[int | str | StopCondition]) -> None:
        """Replace the stop rules, also those of an open sequence.

        Ints are token ids, strings are stop strings; the objects of `engine.text.stops.conditions` are
        accepted too. Raises ValueError for anything else.
        """
        self.rules = StopRules.from_conditions(stop_conditions)
        if self._opened is not None and self._last is None:
            self._opened.sequence.change_rules(self.rules)

    def begin(
        self, request: GenerationRequest, stop: threading.Event | None = None, *, probabilities: bool = False
    ) -> None:
        """Prefill the prompt and get ready for `step`; an open sequence is closed.

        Blocks until the prompt is in the cache or `stop` is set. Raises as `StreamingGenerator.stream`.
        """
        opened = self.generator.open(request, stop)
        self.close()
        self._opened, self._probabilities = opened, probabilities
        self._waiting = self._last = None
        step = self._next()
        while isinstance(step, Prefill) and step.done < step.total:
            step = self._next()
        if isinstance(step, StepOutput):  # stopped during the prefill
            self._waiting = step

    def step(self, banned: Sequence[int] | None = None) -> dict[str, Any]:
        """Choose one token, with the ids in `banned` blocked, and return the text and tokens now final.

        Always: `chunk` (str, may be empty while text is held back), `eos` (bool), `chunk_token_ids` ((1, n)
        int64, n >= 0). On request: `probs` (1, n), `top_tokens` and `top_probs` (1, n, k), padded with id 0
        and probability 0 if fewer than k tokens survive the sampler, and `logits` (1, n, V), the model's own.
        `healed_token_id` once, when the token that replaced the prompt's last one is released; `suppressed`
        when a banned string was taken back. With eos: `reason` (one of `core.STOP_REASONS`), `trigger` (the
        text that matched) and `stats` (`core.Stats`). After eos, the last result is returned again without
        its text. Raises RuntimeError if no sequence is open.
        """
        opened = self._opened
        if opened is None:
            raise RuntimeError("no sequence is open: begin_stream_ex comes before stream_ex")
        if self._last is not None:
            return self._ended_already(self._last)
        opened.sequence.banned = tuple(banned or ())
        output = self._waiting or self._next()
        assert isinstance(output, StepOutput)
        result = self._result(opened, output)
        if output.reason:
            opened.steps.close()
            self._last = result
        return result

    def use_adapters(self, loras: Sequence[tuple[str, float]]) -> None:
        """Apply these adapters (folder, scaling) to the model; a change closes the open sequence first."""
        slot = AdapterSlot(self.generator.cache)
        if not slot.holds(loras):
            self.close()
            drain(slot.apply(loras))

    def draft_stats(self) -> tuple[float, float, int, int, int]:
        """Drafting statistics since `reset_draft_stats`, including the open sequence: accepted / all tokens,
        accepted / drafted, all tokens, drafted, accepted.
        """
        total = self._counts if self._opened is None else self._counts.plus(DraftCounts.of(self._opened))
        efficiency = total.accepted / total.tokens if total.tokens else 0.0
        accuracy = total.accepted / total.drafted if total.drafted else 0.0
        return efficiency, accuracy, total.tokens, total.drafted, total.accepted

    def reset_draft_stats(self) -> None:
        """Reset the statistics, even in the middle of a sequence."""
        before = DraftCounts()
        self._counts = before if self._opened is None else before.plus(DraftCounts.of(self._opened), -1)

    def close(self) -> None:
        """Close the open sequence, if any, and release its pages; what was run stays cached."""
        if self._opened is not None:
            self._counts = self._counts.plus(DraftCounts.of(self._opened))
            self._opened.steps.close()
        self._opened = None

    def _next(self) -> Prefill | StepOutput:
        """One step of the open sequence, which is closed if the step fails."""
        assert self._opened is not None
        try:
            return next(self._opened.steps)
        except BaseException:
            self.close()
            raise

    def _result(self, opened: OpenSequence, output: StepOutput) -> dict[str, Any]:
        """The dict of one step."""
        result: dict[str, Any] = {"chunk": output.text, "eos": bool(output.reason)}
        result |= self._arrays(opened, output.tokens)
        healed = next((token.info.id for token in output.tokens if token.info.healed), None)
        if healed is not None:
            result["healed_token_id"] = healed
        if output.suppressed:
            result["suppressed"] = output.suppressed
        if output.reason:
            result |= {"reason": output.reason, "trigger": output.trigger}
            result["stats"] = opened.stats.summary(opened.sequence, opened.sequence.params.seed)
        return result

    def _ended_already(self, last: dict[str, Any]) -> dict[str, Any]:
        """The last result again, without its text and tokens."""
        assert self._opened is not None
        kept = {name: value for name, value in last.items() if name not in ("healed_token_id", "suppressed")}
        return kept | self._arrays(self._opened, ()) | {"chunk": ""}

    def _arrays(self, opened: OpenSequence, tokens: Sequence[WrittenToken]) -> dict[str, npt.NDArray[Any]]:
        infos, returns = [token.info for token in tokens], opened.sequence.params.returns
        ids = np.array([[info.id for info in infos]], dtype=np.int64)
        out: dict[str, npt.NDArray[Any]] = {"chunk_token_ids": ids}
        if self._probabilities:
            out["probs"] = np.array([[info.probability for info in infos]], dtype=np.float32)
        if k := returns.top:
            top = [pair for info in infos for pair in (*info.top, *((0, 0.0),) * (k - len(info.top)))]
            shape = (1, len(infos), k)
            out["top_tokens"] = np.array([token for token, _ in top], dtype=np.int64).reshape(shape)
            out["top_probs"] = np.array([share for _, share in top], dtype=np.float32).reshape(shape)
        if returns.logits:
            rows = [token.logits for token in tokens if token.logits is not None]
            width = self.generator.model.config.vocab_size
            out["logits"] = np.array(rows, dtype=np.float32).reshape(1, len(rows), width)
        return out


def prompt_rows(ids: Any, mask: Any, offsets: Any, scale: float | None) -> tuple[list[int], Guidance | None]:
    """The prompt's ids and, from a second row, the guidance.

    `ids` is a list, or array-like of shape (n,), (1, n), or with guidance (2, n). `mask` (rows, n) is false,
    or a number below 0, where a row is padded on its left; `offsets` (rows,) or (rows, 1) must be minus the
    padding of each row. Raises ValueError for other shapes, for two rows without a scale and for a scale
    without two rows.
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
    kept = np.ones(array.shape, bool) if mask is None else seen_columns(mask)
    if kept.shape != array.shape or (np.diff(kept.astype(np.int8), axis=1) < 0).any():
        raise ValueError(
            f"input_mask must have the shape {array.shape} of input_ids and be false only on the left of a "
            "row"
        )
    if offsets is not None and not np.array_equal(np.asarray(offsets).reshape(-1), -(~kept).sum(axis=1)):
        raise ValueError("position_offsets must be minus the number of masked tokens of each row")
    rows = [[int(token) for token in row[keep]] for row, keep in zip(array, kept, strict=True)]
    return rows[0], Guidance(tuple(rows[1]), float(scale)) if scale is not None else None
