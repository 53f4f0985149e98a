"""Tiny models of transformers that read pictures, whose rows are random, and prompts for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.backends.base import Step
from engine.backends.decode_loop import SamplingPlan
from engine.core import FIRST_PICTURE_ID, PAGE_TOKENS
from engine.models import Model
from engine.models.layers.positions.mrope import sequence_positions
from engine.vision import Positions, VisionSpec
from tests.engine.models.architectures import ROPE, ids, transformers_model, write_checkpoint
from tests.engine.models.cases.gemma_3n_4 import GEMMA_4_E
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.whole_models import DELTA, EXPERTS, EYES, QWEN_EYES, SECTIONS, Whole, saved_model

LENGTH, PICTURES = 44, ((7, 3, 4), (19, 2, 3), (28, 1, 6))
"""Tokens of the sequence, and its pictures: the first token of each, its rows and columns. Two of them follow
each other.
"""
SPANS = [(first, first + rows * columns) for first, rows, columns in PICTURES]
INSIDE = {at for first, end in SPANS for at in range(first + 1, end)}
SLIDING, FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class Kind:
    """A tiny model of transformers, and what its pictures need."""

    text: dict[str, Any]
    eyes: dict[str, Any] = field(default_factory=lambda: EYES)
    sections: tuple[int, int, int] | None = None
    interleaved: bool = False
    deep: int = 0
    bidirectional: bool = False
    windows_alone: bool = False
    case: str = ""
    """The name of a case of a text model in place of a whole one."""

    @property
    def spec(self) -> VisionSpec:
        positions = None if self.sections is None else Positions(self.sections, self.interleaved)
        return VisionSpec(
            "test", "<image>", "<image>", self.bidirectional, positions, self.deep,
            windows_alone=self.windows_alone,
        )  # fmt: skip


def sections(*numbers: int, **more: Any) -> dict[str, Any]:
    return {ROPE: {**SECTIONS, "mrope_section": list(numbers), **more}}


GEMMA = {
    "head_dim": 16, "sliding_window": 9, "layer_types": [SLIDING, SLIDING, FULL, SLIDING], "pad_token_id": 0,
}  # fmt: skip
KINDS = {
    "qwen2_vl": Kind(sections(2, 3, 3), QWEN_EYES, (2, 3, 3)),
    "qwen3_vl": Kind(
        {"head_dim": 24, **sections(6, 3, 3)}, QWEN_EYES, (6, 3, 3), interleaved=True, deep=2
    ),
    "qwen3_vl_moe": Kind(
        {"head_dim": 16, **EXPERTS, **sections(2, 3, 3)}, QWEN_EYES, (2, 3, 3), interleaved=True, deep=3
    ),
    "qwen3_5": Kind(
        {**DELTA, **sections(2, 1, 1, mrope_interleaved=True, partial_rotary_factor=0.25)}, QWEN_EYES,
        (2, 1, 1), interleaved=True,
    ),
    "glm4v": Kind(sections(2, 1, 1, partial_rotary_factor=0.5), QWEN_EYES, (2, 1, 1)),
    "llava": Kind({"model_type": "llama"}, {**EYES, "model_type": "clip_vision_model"}),
    "lfm2_vl": Kind(
        {"model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv", "conv"]},
        {**EYES, "model_type": "siglip2_vision_model"},
    ),
    "gemma3": Kind(GEMMA, {**EYES, "model_type": "siglip_vision_model"}, bidirectional=True),
    "gemma4": Kind(
        {**GEMMA_4_E, "sliding_window": 9, "use_bidirectional_attention": "vision", "pad_token_id": 0},
        {}, bidirectional=True, windows_alone=True,
    ),
}  # fmt: skip
KINDS["gemma3n"] = Kind({}, case="Gemma 3n")
PAGES, CONTEXT = np.zeros(1, np.int32), 64


class Prompt:
    """Tokens and pictures, the same for all models of one width."""

    def __init__(self, kind: Kind, width: int) -> None:
        draw = np.random.default_rng(4)
        self.kind, self.ids = kind, np.array(ids(LENGTH), np.int32)
        self.rows = draw.standard_normal((1 + kind.deep, LENGTH, width)).astype(np.float32)
        self.of_pictures = np.zeros(LENGTH, bool)
        for first, end in SPANS:
            self.of_pictures[first:end] = True
        spans = PICTURES if kind.sections else ()
        self.positions, self.shift = sequence_positions(spans, LENGTH)


def exact(model: Any, prompt: Prompt) -> Any:
    """Logits (LENGTH, V) by transformers."""
    kind, text = prompt.kind, getattr(model.model, "language_model", model.model)
    at, tokens = torch.from_numpy(prompt.of_pictures), torch.from_numpy(prompt.ids).long()[None]
    rows = torch.from_numpy(prompt.rows)
    x = text.embed_tokens(tokens)
    x = torch.where(at[None, :, None], rows[:1], x)
    more: dict[str, Any] = {}
    positions = torch.from_numpy(prompt.positions).long().T[:, None]
    more["position_ids"] = positions if kind.sections else positions[0]
    if kind.deep:
        more |= {"visual_pos_masks": at[None], "deepstack_visual_embeds": [*rows[1:, at]]}
    if kind.bidirectional:
        starts = np.zeros(LENGTH, int)
        starts[[first for first, _ in SPANS]] = 1
        groups = torch.from_numpy(np.where(prompt.of_pictures, starts.cumsum(), -1))[None]
        module = sys.modules[type(model).__module__]
        more["attention_mask"] = module.create_masks_for_vision_model(
            text.config, x, None, None, positions[0], groups
        )
    if hasattr(text, "get_per_layer_inputs"):
        further = (None,) if kind.windows_alone else ()
        more["per_layer_inputs"] = text.get_per_layer_inputs(torch.where(at, 0, tokens), *further)
    with torch.inference_mode():
        found = model.lm_head(text(inputs_embeds=x, use_cache=False, **more).last_hidden_state)[0]
    cap = getattr(text.config, "final_logit_softcapping", None)
    return (torch.tanh(found / cap) * cap if cap else found).numpy()


class Passes:
    """A model that runs a sequence part by part."""

    def __init__(self, model: Model, prompt: Prompt) -> None:
        self.prompt = prompt
        self.cache = model.new_cache(PAGE_TOKENS, "fp32")
        self.text = model.record(self.cache, LENGTH, CONTEXT)
        self.pictures = model.record_pictures(self.cache, LENGTH, CONTEXT, prompt.kind.spec)
        self.with_states = bool(self.cache.states.count)

    def run(self, cuts: Sequence[int]) -> Any:
        """Logits of all tokens, in passes that end at `cuts`, each over a text or over a picture."""
        found, prompt = [], self.prompt
        for first, end in zip([0, *cuts[:-1]], cuts, strict=True):
            states = [(0 if first else -1, 0)] if self.with_states else ()
            here, places = slice(first, end), np.arange(first, end, dtype=np.int32)
            ids = np.where(prompt.of_pictures[here], FIRST_PICTURE_ID + places, prompt.ids[here])
            step = Step(
                ids.astype(np.int32), places, PAGES, end - first, states=states,
                rope_positions=prompt.positions[here, 0],
            )  # fmt: skip
            picture = set(prompt.of_pictures[here].tolist())
            assert len(picture) == 1
            if picture == {True}:
                rows, *deep = prompt.rows[:, here]
                found.append(self.pictures.run(step, rows, deep, prompt.positions[here]).copy())
            else:
                found.append(self.text.run(step).copy())
        return np.concatenate(found)

    def close(self) -> None:
        self.pictures.close()
        self.text.close()
        self.cache.close()


AT_ONCE = [7, 19, 25, 28, 34, 44]
"""The ends of passes over whole texts and pictures."""
ONE_BY_ONE = [*range(1, 8), 12, 19, 21, 25, *range(26, 29), 34, *range(35, 45)]
"""The same with texts token by token, and pictures cut."""
DRAFTED = [*range(1, 8), 12, 19, 21, 25, *range(26, 29), 34, 36, 44]
"""The same with eight tokens at once in the end."""


@dataclass(frozen=True)
class Made:
    """A kind whose model lies in a folder, and the exact logits (LENGTH, V) of its prompt."""

    kind: Kind
    folder: Path
    logits: Any

    def check(self, model: Model, error: float, *, same_bits: bool) -> None:
        """Logits are at most `error` from the exact ones, as the root mean square by that of the logits; if
        `same_bits`, those of up to 8 rows at once are those of one.
        """
        passes = Passes(model, Prompt(self.kind, model.config.width))
        found = [
            passes.run([end for end in cuts if not (self.kind.bidirectional and end in INSIDE)])
            for cuts in (AT_ONCE, ONE_BY_ONE, DRAFTED)
        ]
        if same_bits:
            assert found[1].tobytes() == found[2].tobytes()
        for each in found:
            assert np.sqrt(((each - self.logits) ** 2).mean() / (self.logits**2).mean()) < error
        passes.close()


def made(name: str, folder: Path) -> Made:
    """Write a kind's model to a folder."""
    kind = KINDS[name]
    if kind.case:
        write_checkpoint(BY_NAME[kind.case], folder)
        whole = transformers_model(BY_NAME[kind.case])
    else:
        eyes = {"vision_config": kind.eyes} if kind.eyes else {}
        whole = saved_model(name, Whole(kind.text, eyes), folder)
    width = whole.config.get_text_config().hidden_size
    return Made(kind, folder, exact(whole, Prompt(kind, width)))


def decode_ahead(model: Model, kind: Kind) -> bool:
    """A decode loop that goes on after pictures gives what passes of one token do. False if there is none."""
    prompt = Prompt(kind, model.config.width)
    assert (prompt.shift > 0) == (kind.sections is not None)
    ahead, alone = Passes(model, prompt), Passes(model, prompt)
    for each in (ahead, alone):
        each.run([*AT_ONCE[:-1], LENGTH - 1])
    loop: Any = ahead.text.decode_loop(SamplingPlan(model.config.vocab_size, greedy=True))  # type: ignore[attr-defined]
    if loop is not None:
        _compare(loop, alone)
    for each in (ahead, alone):
        each.close()
    return loop is not None


def _compare(loop: Any, alone: Passes) -> None:
    prompt, states = alone.prompt, [(0, 0)] if alone.with_states else []
    tokens = prompt.ids.tolist()
    loop.start(tokens, PAGES, lambda place: 0.0, *(states or [None]), shift=prompt.shift)
    for length in range(LENGTH, LENGTH + 4) if states else ():
        loop.set_state(length, 0)
    for _unused in range(12):
        at = np.array([len(tokens) - 1], np.int32)
        last = np.array(tokens[-1:], np.int32)
        expected = alone.text.run(Step(last, at, PAGES, states=states, rope_positions=at - prompt.shift))[0]
        sampled = loop.next(min(loop.ahead, 5))
        assert loop.logits(len(tokens)).tobytes() == expected.tobytes()
        tokens.append(sampled.id)
        assert sampled.id == expected.argmax()
    loop.close()
