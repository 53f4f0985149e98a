"""`ExLlamaV2StreamingGenerator`: one sequence, token by token."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from engine.compat.exllamav2.attributes import ignores_others, refuse
from engine.compat.exllamav2.cache import ExLlamaV2CacheBase
from engine.compat.exllamav2.generator.base import (
    ExLlamaV2BaseGenerator,
    check_settings,
    output_settings,
    random_seed,
)
from engine.compat.exllamav2.generator.filters.followed import engine_filters
from engine.compat.exllamav2.model import ExLlamaV2
from engine.compat.exllamav2.settings import Settings
from engine.compat.exllamav2.step_by_step import prompt_rows
from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer
from engine.errors import BadSetting
from engine.generator.request import GenerationRequest
from engine.settings import ConstraintSettings, SpeculationSettings
from engine.speculation.compatible import draft_problem
from engine.text.stops.conditions import StopCondition

_MOST_DRAFTS = 7
_STATE = dict.fromkeys(
    ("held_text", "held_tokens", "held_ptokens", "held_probs", "held_pprobs", "held_logits", "future_logits",
     "future_tokens", "ngram", "ngram_preloaded", "first_token", "heal_next_token", "ban_checkpoint",
     "blocked_tokens", "blocked_position", "current_blocked_tokens", "reuse_logits", "remaining_tokens",
     "no_tokens", "no_ptokens", "no_probs", "no_pprobs", "no_logits", "stop_strings_utf32_buffer",
     "stop_strings_utf32_offsets", "banned_strings_utf32_buffer", "banned_strings_utf32_offsets",
     "strings_to_utf32", "indexed_embeddings", "input_mask", "position_offsets"),
    "it is the inner state of ExLlamaV2's loop",
) | dict.fromkeys(
    ("tail_decode_tokens", "max_fallback_tokens"), "characters are always held back until they are complete"
) | dict.fromkeys(
    ("settings", "return_probabilities", "return_top_tokens", "return_logits", "decode_special_tokens",
     "banned_strings", "filters", "filter_prefer_eos", "active_loras"),
    "it is an argument of begin_stream_ex",
)  # fmt: skip


class ExLlamaV2StreamingGenerator(ExLlamaV2BaseGenerator):
    """A streaming generator over this package's objects; ids, probabilities and logits are torch tensors.

    With a draft model, up to `num_speculative_tokens` (at most 7) are drafted at a time, while each is
    likelier than `speculative_prob_threshold`. With `speculative_ngram`, matches of `speculative_ngram_min`
    to `speculative_ngram_max` tokens are looked up instead, and a pass has at most
    `speculative_ngram_max_inf` tokens, including the one that follows without drafting. Raises `BadSetting`
    if the draft model's vocabulary does not match.
    """

    missing: ClassVar[Any] = ExLlamaV2BaseGenerator.missing | _STATE
    draft_model: ExLlamaV2 | None
    draft_cache: ExLlamaV2CacheBase | None
    num_speculative_tokens: int
    speculative_prob_threshold: float
    speculative_ngram: bool
    speculative_ngram_min: int
    speculative_ngram_max: int
    speculative_ngram_max_inf: int
    speculative_ngram_threshold: int

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2CacheBase,
        tokenizer: ExLlamaV2Tokenizer,
        draft_model: ExLlamaV2 | None = None,
        draft_cache: ExLlamaV2CacheBase | None = None,
        num_speculative_tokens: int = 5,
    ) -> None:
        super().__init__(model, cache, tokenizer)
        self.draft_model = draft_model
        self.draft_cache = draft_cache
        if draft_model is not None:
            problem = draft_problem(
                tokenizer.engine_tokenizer, ExLlamaV2Tokenizer(draft_model.config).engine_tokenizer
            )
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
        self.speculative_ngram_threshold = 1

    @property
    def stop_tokens(self) -> frozenset[int]:
        """The ids that end a reply; `set_stop_conditions` changes them."""
        return frozenset(self._steps.rules.token_ids)

    @property
    def stop_strings(self) -> frozenset[str]:
        """The texts that end a reply; `set_stop_conditions` changes them."""
        return frozenset(self._steps.rules.strings)

    @property
    def total_tokens(self) -> int:
        """New tokens since `reset_sd_stats`."""
        return self.get_sd_stats()[2]

    @property
    def total_draft_tokens(self) -> int:
        """Drafted tokens since `reset_sd_stats`."""
        return self.get_sd_stats()[3]

    @property
    def accepted_draft_tokens(self) -> int:
        """Accepted drafts since `reset_sd_stats`."""
        return self.get_sd_stats()[4]

    def set_stop_conditions(self, stop_conditions: Iterable[int | str | StopCondition]) -> None:
        self._steps.set_stop_conditions(list(stop_conditions))

    @ignores_others
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
        filters: Sequence[Any] | None = None,
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
        check_settings(gen_settings)
        ids, guidance = prompt_rows(input_ids, input_mask, position_offsets, gen_settings.cfg_scale)
        request = GenerationRequest(
            ids, stops=self._steps.rules, guidance=guidance, output=output_settings(decode_special_tokens),
            constraint=ConstraintSettings(banned_strings=tuple(banned_strings or ()), ban_ignore_case=True),
            filters=engine_filters(filters or gen_settings.filters, self.tokenizer.engine_tokenizer),
            prefer_end=bool(filter_prefer_eos or gen_settings.filter_prefer_eos),
            top_tokens=return_top_tokens, logits=return_logits, heal=token_healing,
            seed=random_seed() if seed is None else seed,
        )  # fmt: skip
        self._begin(
            request, gen_settings, loras, max_new_tokens, abort_event,
            probabilities=return_probabilities, input_embeddings=input_embeddings,
        )  # fmt: skip

    @ignores_others
    def stream_ex(self, ban_tokens: Sequence[int] | None = None) -> dict[str, Any]:
        """`StepByStep.step` with torch tensors."""
        import numpy as np
        import torch

        result = self._steps.step(ban_tokens)
        return {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in result.items()
        }

    @ignores_others
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

    @ignores_others
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
            reason = "the longest match drafts, however often it occurred"
            refuse("speculative_ngram_threshold", self.speculative_ngram_threshold, 1, reason)
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
