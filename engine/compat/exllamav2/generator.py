"""The generators, `ExLlamaV2Sampler.Settings` and the filters, under the names of `exllamav2.generator`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from engine.compat.exllamav2.cache import ExLlamaV2Cache
from engine.compat.exllamav2.lora import adapters_of
from engine.compat.exllamav2.model import ExLlamaV2
from engine.compat.exllamav2.settings import Settings
from engine.compat.exllamav2.step_by_step import StepByStep, prompt_rows
from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer
from engine.constraint.filter import Filter
from engine.constraint.prefix import PrefixFilter
from engine.constraint.select import SelectFilter
from engine.errors import BadSetting, NotSupportedYet
from engine.generator.request import GenerationRequest
from engine.generator.streaming import StreamingGenerator
from engine.settings import ConstraintSettings, OutputSettings, SpeculationSettings
from engine.speculation.compatible import draft_problem
from engine.text.stops.conditions import StopCondition, StopRules

__all__ = [
    "ExLlamaV2BaseGenerator", "ExLlamaV2PrefixFilter", "ExLlamaV2Sampler", "ExLlamaV2SelectFilter",
    "ExLlamaV2StreamingGenerator",
]  # fmt: skip

_MOST_DRAFTS = 7


class ExLlamaV2Sampler:
    """The namespace of `Settings`."""

    Settings = Settings


def ExLlamaV2PrefixFilter(
    model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, prefix_strings: str | Sequence[str]
) -> PrefixFilter:
    """A filter for replies that begin with one of these texts."""
    return PrefixFilter(tokenizer.tokenizer, prefix_strings)


def ExLlamaV2SelectFilter(
    model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, options: Sequence[str], case_insensitive: bool = False
) -> SelectFilter:
    """A filter for replies that are one of these texts."""
    return SelectFilter(tokenizer.tokenizer, options, case_insensitive)


class ExLlamaV2BaseGenerator:
    """Generates whole replies.

    `model`, `cache` and `tokenizer` are this package's objects. Several generators may share a cache, in
    which one sequence at a time is open.
    """

    def __init__(self, model: ExLlamaV2, cache: ExLlamaV2Cache, tokenizer: ExLlamaV2Tokenizer) -> None:
        self.model = model
        self.cache = cache
        self.tokenizer = tokenizer
        self._generator = StreamingGenerator(model.model, cache.paged, tokenizer.tokenizer)
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
        filters: Sequence[Filter] | None = None,
        filter_prefer_eos: bool = False,
    ) -> Any:
        """One whole reply, or a list for a list of prompts; the prompt comes first unless `completion_only`.

        `stop_token` -1 means the tokenizer's stop tokens, None never stops. Stop conditions are ignored.
        """
        if not isinstance(prompt, str):
            return [
                self.generate_simple(
                    part, gen_settings, num_tokens, seed, token_healing, encode_special_tokens,
                    decode_special_tokens, loras, stop_token,
                    add_bos, abort_event, input_embeddings, completion_only, filters, filter_prefer_eos,
                )
                for part in prompt
            ]  # fmt: skip
        ids = self.tokenizer.tokenizer.encode(prompt, special=encode_special_tokens, add_bos=add_bos)
        own = self.tokenizer.tokenizer.stop_token_ids
        ends = own if stop_token == -1 else () if stop_token is None else (stop_token,)
        request = GenerationRequest(
            ids, stops=StopRules.from_conditions(ends), output=_output(decode_special_tokens),
            filters=tuple(filters or ()), prefer_end=filter_prefer_eos, heal=token_healing, seed=seed,
        )  # fmt: skip
        self._begin(request, gen_settings, loras, num_tokens, abort_event, input_embeddings=input_embeddings)
        text = "" if completion_only else prompt
        while True:
            result = self._steps.step()
            text += result["chunk"]
            if result["eos"]:
                return text

    def _begin(
        self, request: GenerationRequest, gen_settings: Settings, loras: Any, max_new_tokens: int | None,
        abort: threading.Event | None, *, probabilities: bool = False, input_embeddings: Any = None,
    ) -> None:  # fmt: skip
        """Begin a sequence; one that another generator has open in the same cache is closed.

        Raises `NotSupportedYet` for embeddings as input, and what `StreamingGenerator.stream` and opening an
        adapter raise.
        """
        _check(gen_settings)
        if input_embeddings is not None:
            raise NotSupportedYet("This version does not support `input_embeddings` yet; leave it at None.")
        self.cache.taken_by(self._steps)
        self._steps.use_adapters(adapters_of(loras))
        rules = request.stops
        assert isinstance(rules, StopRules)
        request = replace(
            request, sampler=gen_settings.frozen(), tables=gen_settings.tables(self.tokenizer.tokenizer),
            stops=replace(rules, max_tokens=max_new_tokens) if max_new_tokens else rules,
            speculation=self._speculation(),
        )  # fmt: skip
        self._steps.begin(request, abort, probabilities=probabilities)

    def _speculation(self) -> SpeculationSettings:
        """The drafting settings of a sequence."""
        return SpeculationSettings()


class ExLlamaV2StreamingGenerator(ExLlamaV2BaseGenerator):
    """A streaming generator over this package's objects; ids, probabilities and logits are torch tensors.

    With a draft model, up to `num_speculative_tokens` (at most 7) are drafted at a time, while each is
    likelier than `speculative_prob_threshold`. With `speculative_ngram`, matches of `speculative_ngram_min`
    to `speculative_ngram_max` tokens are looked up instead, and a pass has at most
    `speculative_ngram_max_inf` tokens, including the one that follows without drafting. Raises `BadSetting`
    if the draft model's vocabulary does not match.
    """

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2Cache,
        tokenizer: ExLlamaV2Tokenizer,
        draft_model: ExLlamaV2 | None = None,
        draft_cache: ExLlamaV2Cache | None = None,
        num_speculative_tokens: int = 5,
    ) -> None:
        super().__init__(model, cache, tokenizer)
        self.draft_model = draft_model
        self.draft_cache = draft_cache
        if draft_model is not None:
            problem = draft_problem(tokenizer.tokenizer, ExLlamaV2Tokenizer(draft_model.config).tokenizer)
            if problem:
                raise BadSetting(f"This model cannot draft: {problem}")
            self._generator.drafters.set_model(
                draft_model.model, draft_cache.paged if draft_cache is not None else None
            )
        self.num_speculative_tokens = num_speculative_tokens
        self.speculative_prob_threshold = 0.25
        self.speculative_ngram = False
        self.speculative_ngram_min = 1
        self.speculative_ngram_max = 5
        self.speculative_ngram_max_inf = 3

    def set_stop_conditions(self, stop_conditions: Iterable[int | str | StopCondition]) -> None:
        self._steps.set_stop_conditions(list(stop_conditions))

    def begin_stream_ex(
        self,
        input_ids: Any,
        gen_settings: Settings,
        token_healing: bool = False,
        loras: Any = None,
        input_mask: Any = None,
        position_offsets: Any = None,
        return_probabilities: bool = False,
        return_top_tokens: int = 0,
        return_logits: bool = False,
        abort_event: threading.Event | None = None,
        input_embeddings: Any = None,
        decode_special_tokens: bool = False,
        banned_strings: Sequence[str] | None = None,
        filters: Sequence[Filter] | None = None,
        filter_prefer_eos: bool = False,
        max_new_tokens: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Prefill the prompt and get ready for `stream_ex`.

        Blocks until the prompt is in the cache or `abort_event` is set. `input_ids` is a list, or an array or
        tensor of shape (n,) or (1, n). With guidance (`gen_settings.cfg_scale`) it has two rows, the prompt
        and the negative prompt, the shorter one padded on the left as `input_mask` says. Raises
        `NotSupportedYet` for embeddings, `ContextTooLong` and `BadSetting` for a prompt that cannot be run,
        and what opening an adapter raises.
        """
        self._returns = return_probabilities, return_logits
        _check(gen_settings)
        ids, guidance = prompt_rows(input_ids, input_mask, position_offsets, gen_settings.cfg_scale)
        request = GenerationRequest(
            ids, stops=self._steps.rules, guidance=guidance, output=_output(decode_special_tokens),
            constraint=ConstraintSettings(banned_strings=tuple(banned_strings or ()), ban_ignore_case=True),
            filters=tuple(filters or ()), prefer_end=filter_prefer_eos, top_tokens=return_top_tokens,
            logits=return_logits, heal=token_healing, seed=seed,
        )  # fmt: skip
        self._begin(
            request, gen_settings, loras, max_new_tokens, abort_event,
            probabilities=return_probabilities, input_embeddings=input_embeddings,
        )  # fmt: skip

    def stream_ex(self, ban_tokens: Sequence[int] | None = None) -> dict[str, Any]:
        """`StepByStep.step` with torch tensors."""
        import numpy as np
        import torch

        result = self._steps.step(ban_tokens)
        return {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in result.items()
        }

    def begin_stream(
        self,
        input_ids: Any,
        gen_settings: Settings,
        token_healing: bool = False,
        loras: Any = None,
        input_mask: Any = None,
        position_offsets: Any = None,
        abort_event: threading.Event | None = None,
    ) -> None:
        """The older form of `begin_stream_ex`."""
        self.begin_stream_ex(
            input_ids,
            gen_settings,
            token_healing,
            loras,
            input_mask,
            position_offsets,
            abort_event=abort_event,
        )

    def stream(self) -> tuple[Any, ...]:
        """The older form of `stream_ex`: (chunk, eos, ids), then probabilities and logits if requested."""
        result = self.stream_ex()
        probabilities, logits = self._returns
        return (
            result["chunk"], result["eos"], result["chunk_token_ids"],
            *((result["probs"],) if probabilities else ()), *((result["logits"],) if logits else ()),
        )  # fmt: skip

    def get_sd_stats(self) -> tuple[float, float, int, int, int]:
        return self._steps.draft_stats()

    def reset_sd_stats(self) -> None:
        """Reset the drafting statistics."""
        self._steps.reset_draft_stats()

    def ngram_preload(self, input_ids: Any) -> None:
        """Let n-gram drafting use this text too; `input_ids` as in `begin_stream_ex`."""
        self._generator.drafters.preload(prompt_rows(input_ids, None, None, None)[0])

    def close(self) -> None:
        """Close the open sequence, release its pages, and drop the draft model."""
        super().close()
        self._generator.drafters.drop_model()

    def _speculation(self) -> SpeculationSettings:
        if self.speculative_ngram:
            drafts = max(1, min(self.speculative_ngram_max_inf - 1, _MOST_DRAFTS))
            return SpeculationSettings(
                method="ngram",
                draft_tokens=drafts,
                ngram_min=self.speculative_ngram_min,
                ngram_max=self.speculative_ngram_max,
            )
        if not self._generator.drafters.has_model:
            return SpeculationSettings()
        self._generator.drafters.threshold = self.speculative_prob_threshold
        return SpeculationSettings(
            method="model", draft_tokens=max(1, min(self.num_speculative_tokens, _MOST_DRAFTS))
        )


def _output(special: bool) -> OutputSettings:
    return OutputSettings(alternatives=0, show_special=special)


def _check(gen_settings: object) -> None:
    if not isinstance(gen_settings, Settings):
        raise ValueError(f"gen_settings must be ExLlamaV2Sampler.Settings, not {type(gen_settings).__name__}")
