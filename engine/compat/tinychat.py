"""TinyChat's streaming contract (llm-awq): `StreamGenerator` yields the text so far, with usage and times.

Unlike TinyChat, the end-of-turn token of the last turn stays in the cache, the caller names the stop ids,
only new text is decoded, and a full context ends the text with "length" instead of an error. The order of the
sampler steps is TinyChat's: temperature, repetition penalty, top-p, top-k.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from typing import Any

from engine.compat.absent import refusing
from engine.core import Done, Text
from engine.errors import BadSetting
from engine.generator.request import GenerationRequest
from engine.generator.streaming import StreamingGenerator
from engine.lazy_dataclass import dataclass
from engine.settings import SamplerSettings, StopSettings
from engine.text.tokenizer.tokenizer import Tokenizer

__all__ = ["StreamGenerator"]
__getattr__ = refusing(
    __name__,
    dict.fromkeys(
        ("LlavaStreamGenerator", "NVILAStreamGenerator", "InternVLStreamGenerator", "tokenizer_image_token"),
        "pictures go with messages to engine.open_chat; use StreamGenerator for texts",
    )
    | {"prepare_logits_processor": "gen_params say how tokens are sampled; pass them to StreamGenerator"},
)

_GREEDY_TEMPERATURE, _GREEDY_TOP_P = 1e-5, 1e-8
_STEPS = ("temperature", "repetition", "occurrence", "top_p", "top_k")

_turns: weakref.WeakKeyDictionary[StreamingGenerator, list[int]] = weakref.WeakKeyDictionary()
"""The ids of each generator's conversation so far, including end-of-turn tokens."""


def StreamGenerator(
    model: StreamingGenerator,
    tokenizer: Tokenizer,
    input: str,
    start_pos: int,
    gen_params: Mapping[str, Any] | Any,
    device: str = "cpu",
    stream_interval: int = 2,
    echo: bool = False,
    stop_token_ids: Sequence[int] = (),
    chunk_prefilling: bool = False,
    quant_llm: bool = False,
) -> Generator[dict[str, Any], None, None]:
    """Generate a reply to `input`, the formatted prompt.

    With `chunk_prefilling`, `input` is only the new turn and follows the first `start_pos` tokens of
    the conversation: add each turn's `total_tokens` to it, that of `usage` or of `timing`. `gen_params`
    (mapping or attributes): n_predict, temp, top_k, top_p, repeat_penalty, and seed (below 0: random).
    `device` and `quant_llm` are ignored.

    Yields a dict at the first token, then every `stream_interval` or more tokens, and at the end: `text`
    (after the prompt if `echo`), `usage` {prompt_tokens, completion_tokens, total_tokens}, `finish_reason`
    (None, at the end "stop" or "length") and `timing` (None, at the end {context_tokens, context_time,
    total_tokens, generation_time_list}, in seconds). The end-of-turn token counts towards the completion. If
    the generator is closed early, the tokens generated so far stay in the conversation. Raises `BadSetting`
    for a `start_pos` beyond the conversation and for settings out of range, and TypeError for a `model` that
    is no `StreamingGenerator`, such as one of PyTorch.
    """
    if not isinstance(model, StreamingGenerator):
        raise TypeError(
            f"StreamGenerator takes a StreamingGenerator as its model, but got {type(model).__name__}; make "
            "one from the model, its cache and its tokenizer."
        )
    if stream_interval < 1:
        raise BadSetting(f"stream_interval is {stream_interval}, but it must be at least 1.")
    value = (
        gen_params.get
        if isinstance(gen_params, Mapping)
        else lambda name, default: getattr(gen_params, name, default)
    )
    before = _before(model, start_pos if chunk_prefilling else 0)
    new = tokenizer.encode(input, special=True, add_bos=not before and tokenizer.add_bos)
    ids = [*before, *new]
    sampler, seed = _sampler(value)
    stops = StopSettings(
        max_tokens=int(value("n_predict", 512)), stop_token_ids=tuple(stop_token_ids), keep_stop=True
    )
    turn = _Turn(frozenset(stop_token_ids).union(tokenizer.stop_token_ids), len(new), input if echo else "")
    yielded = 1 - stream_interval  # the first token is shown at once
    stream = model.stream(GenerationRequest(ids, sampler, stops, seed=seed, started=turn.started))
    try:
        with closing(stream) as events:
            for event in events:
                if isinstance(event, Text):
                    turn.add(event)
                    if (
                        len(turn.written) - yielded >= stream_interval
                        and turn.written[-1] not in turn.stop_ids
                    ):
                        yielded = len(turn.written)
                        yield turn.state(None, None)
                elif isinstance(event, Done):
                    timing = {
                        "context_tokens": len(new), "context_time": event.stats.first_token_seconds,
                        "total_tokens": len(new) + len(turn.written),
                        "generation_time_list": turn.times[1:],
                    }  # fmt: skip
                    yield turn.state(
                        "length" if event.reason in ("max_tokens", "context_full") else "stop", timing
                    )
    finally:
        _turns[model] = [*ids, *turn.written]


@dataclass
class _Turn:
    """What one call has generated so far."""

    stop_ids: frozenset[int]
    prompt_tokens: int
    text: str
    written: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    latest: float = 0.0

    def add(self, event: Text) -> None:
        """Add text, except that of stop tokens; a token's time counts from the previous one."""
        hidden = sum(len(token.text) for token in event.tokens if token.id in self.stop_ids)
        self.text += event.text[: len(event.text) - hidden]
        self.written += [token.id for token in event.tokens]
        for token in event.tokens:
            self.times.append(token.seconds - self.latest)
            self.latest = token.seconds

    def state(self, reason: str | None, timing: dict[str, Any] | None) -> dict[str, Any]:
        """The dict to yield."""
        completion = len(self.written)
        usage = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
        }
        return {"text": self.text, "usage": usage, "finish_reason": reason, "timing": timing}


def _before(model: StreamingGenerator, start_pos: int) -> list[int]:
    conversation = _turns.get(model, [])
    if not 0 <= start_pos <= len(conversation):
        raise BadSetting(
            f"start_pos is {start_pos}, but this chat has {len(conversation)} tokens so far; 0 "
            "starts a new one."
        )
    return conversation[:start_pos]


def _sampler(value: Any) -> tuple[SamplerSettings, int | None]:
    """The sampler and the seed; as in TinyChat, a penalty up to 1 and a top-p from 1 on are off."""
    temperature, top_p = float(value("temp", 0.7)), float(value("top_p", 0.95))
    greedy = temperature < _GREEDY_TEMPERATURE or top_p < _GREEDY_TOP_P
    seed = int(value("seed", -1))
    return SamplerSettings(
        temperature=0.0 if greedy else max(temperature, 0.01), top_p=1.0 if greedy else min(top_p, 1.0),
        top_k=max(0, int(value("top_k", 40))), min_p=0.0,
        repetition_penalty=max(1.0, float(value("repeat_penalty", 1.1))), order=_STEPS,
    ), seed if seed >= 0 else None  # fmt: skip
