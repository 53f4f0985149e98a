"""`ExLlamaV2BaseGenerator`: whole replies."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from engine.compat.exllamav2.attributes import Declared, refuse
from engine.compat.exllamav2.cache import ExLlamaV2CacheBase
from engine.compat.exllamav2.generator.filters import ExLlamaV2Filter
from engine.compat.exllamav2.generator.filters.followed import engine_filters
from engine.compat.exllamav2.lora import adapters_of
from engine.compat.exllamav2.model import ExLlamaV2
from engine.compat.exllamav2.settings import Settings
from engine.compat.exllamav2.step_by_step import StepByStep
from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer
from engine.core import Text
from engine.generator.dynamic import DynamicGenerator
from engine.generator.job import Failed, Job
from engine.generator.request import GenerationRequest
from engine.generator.streaming import StreamingGenerator
from engine.settings import OutputSettings, SpeculationSettings
from engine.text.stops.conditions import StopRules

__all__ = ["ExLlamaV2BaseGenerator", "ExLlamaV2Filter"]


class ExLlamaV2BaseGenerator(Declared):
    """Generates whole replies.

    `model`, `cache` and `tokenizer` are this package's objects. Several generators may share a cache, in
    which one sequence at a time is open.
    """

    missing: ClassVar[Any] = dict.fromkeys(
        ("_gen_begin_base", "_gen_begin_reuse", "_gen_single_token", "_gen_feed_tokens", "_gen_rewind"),
        "the engine's generator has no such parts",
    )
    model: ExLlamaV2
    cache: ExLlamaV2CacheBase
    tokenizer: ExLlamaV2Tokenizer
    abort_event: threading.Event | None

    def __init__(self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, tokenizer: ExLlamaV2Tokenizer) -> None:
        self.model = model
        self.cache = cache
        self.tokenizer = tokenizer
        self.abort_event = None
        self._generator = StreamingGenerator(model.model, cache.paged, tokenizer.engine_tokenizer)
        self._steps = StepByStep(self._generator)

    @property
    def sequence_ids(self) -> Any:
        """Prompt and reply of the latest sequence, with its stop token: (1, n) int64, or None."""
        import torch

        ids = self._steps.sequence
        return torch.tensor([ids], dtype=torch.int64) if ids else None

    def full(self) -> bool:
        """Whether the latest sequence fills the context."""
        return len(self._steps.sequence) >= self.cache.paged.context_length

    def warmup(self) -> None:
        """Run one token, so that the first reply does not wait for initialisation."""
        self.cache.taken_by(self._steps)
        cache = self.cache.paged
        with cache.open([0]) as lease:
            cache.run(lease, [0])

    def close(self) -> None:
        """Close the open sequence and release its pages."""
        self._steps.close()

    def generate_simple(
        self,
        prompt: str | Sequence[str],
        gen_settings: Settings,
        num_tokens: int,
        seed: int | None = None,
        token_healing: bool = False,
        encode_special_tokens: bool = False,
        decode_special_tokens: bool = False,
        loras: Any = None,
        stop_token: int | None = -1,
        add_bos: bool = False,
        abort_event: threading.Event | None = None,
        input_embeddings: Any = None,
        completion_only: bool = False,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
    ) -> Any:
        """One whole reply, or a list for a list of prompts, which are answered together; the prompt comes
        first unless `completion_only`.

        `stop_token` -1 means the tokenizer's stop tokens, None never stops. Stop conditions are ignored.
        Prompt i has the `seed` plus i. Of a prompt that leaves no room for `num_tokens`, the beginning is
        left out.
        """
        check_settings(gen_settings)
        own = self.tokenizer.engine_tokenizer.stop_token_ids
        ends = own if stop_token == -1 else () if stop_token is None else (stop_token,)
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        filters = filters or gen_settings.filters
        requests = [
            GenerationRequest(
                self._shortened(text, num_tokens, special=encode_special_tokens, add_bos=add_bos),
                stops=StopRules.from_conditions(ends), output=output_settings(decode_special_tokens),
                filters=engine_filters(filters, self.tokenizer.engine_tokenizer), heal=token_healing,
                prefer_end=bool(filter_prefer_eos or gen_settings.filter_prefer_eos),
                seed=random_seed() if seed is None else seed + place,
            )
            for place, text in enumerate(prompts)
        ]  # fmt: skip
        whole = [
            self._ready(request, gen_settings, loras, num_tokens, abort_event, input_embeddings)
            for request in requests
        ]
        if filters or len(prompts) == 1:  # a filter follows one text at a time
            found = [self._alone(request, abort_event) for request in whole]
        else:
            found = self._together(whole, abort_event)
        if not completion_only:
            found = [text + reply for text, reply in zip(prompts, found, strict=True)]
        return found[0] if isinstance(prompt, str) else found

    def _shortened(self, text: str, num_tokens: int, *, special: bool, add_bos: bool) -> list[int]:
        """The ids of a prompt, less those of its beginning that leave no room for the reply."""
        ids = self.tokenizer.engine_tokenizer.encode(text, special=special, add_bos=add_bos)
        overflow = len(ids) + num_tokens - self.cache.paged.context_length
        return ids[max(0, min(overflow, len(ids) - 1)) :]

    def _alone(self, request: GenerationRequest, abort: threading.Event | None) -> str:
        """A whole reply."""
        self._steps.begin(request, abort)
        text, ended = "", False
        while not ended:
            result = self._steps.step()
            text, ended = text + str(result["chunk"]), bool(result["eos"])
        return text

    def _together(self, requests: Sequence[GenerationRequest], abort: threading.Event | None) -> list[str]:
        """Whole replies, written at the same time."""
        self._steps.close()
        generator = self._generator
        dynamic = DynamicGenerator(generator.model, generator.cache, generator.tokenizer, generator.drafters)
        jobs = [Job(request, stop=abort) for request in requests]
        texts = dict.fromkeys(jobs, "")
        dynamic.enqueue(jobs)
        try:
            while dynamic.num_remaining_jobs:
                for job, event, _ in dynamic.iterate():
                    if isinstance(event, Failed):
                        raise event.error
                    texts[job] += event.text if isinstance(event, Text) else ""
        finally:
            dynamic.close()
        return list(texts.values())

    def _begin(
        self, request: GenerationRequest, gen_settings: Settings, loras: Any, max_new_tokens: int | None,
        abort: threading.Event | None, *, probabilities: bool = False, input_embeddings: Any = None,
    ) -> None:  # fmt: skip
        """Begin a sequence; one that another generator has open in the same cache is closed.

        Raises `NotSupportedYet` for embeddings as input, and what `StreamingGenerator.stream` and opening an
        adapter raise.
        """
        request = self._ready(request, gen_settings, loras, max_new_tokens, abort, input_embeddings)
        self._steps.begin(request, abort, probabilities=probabilities)

    def _ready(
        self, request: GenerationRequest, gen_settings: Settings, loras: Any, max_new_tokens: int | None,
        abort: threading.Event | None, input_embeddings: Any,
    ) -> GenerationRequest:  # fmt: skip
        """The request with these settings; the cache is this generator's, the adapters are on the model."""
        check_settings(gen_settings)
        if input_embeddings is not None:
            refuse("input_embeddings", "given", None, "a prompt is made of tokens only")
        self.abort_event = abort
        self.cache.taken_by(self._steps)
        self._steps.use_adapters(adapters_of(loras))
        rules = request.stops
        assert isinstance(rules, StopRules)
        return replace(
            request, sampler=gen_settings.frozen(),
            tables=gen_settings.tables(self.tokenizer.engine_tokenizer),
            stops=replace(rules, max_tokens=max_new_tokens) if max_new_tokens else rules,
            speculation=self._speculation(),
        )  # fmt: skip

    def _speculation(self) -> SpeculationSettings:
        """The drafting settings of a sequence."""
        return SpeculationSettings()


def random_seed() -> int:
    """A seed from Python's global random numbers, so that `random.seed` makes a script repeatable."""
    return random.getrandbits(53)


def output_settings(special: bool) -> OutputSettings:
    """No alternatives; control tokens as text if `special`."""
    return OutputSettings(alternatives=0, show_special=special)


def check_settings(gen_settings: object) -> None:
    """Raise ValueError for anything but `ExLlamaV2Sampler.Settings`."""
    if not isinstance(gen_settings, Settings):
        raise ValueError(f"gen_settings must be ExLlamaV2Sampler.Settings, not {type(gen_settings).__name__}")
