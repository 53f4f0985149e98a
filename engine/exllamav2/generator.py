"""`ExLlamaV2StreamingGenerator`, `ExLlamaV2Sampler.Settings` and the filters, under the names of `exllamav2.generator`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from engine.constraint.filter import Filter
from engine.constraint.prefix import PrefixFilter
from engine.constraint.select import SelectFilter
from engine.exllamav2.cache import ExLlamaV2Cache
from engine.exllamav2.model import ExLlamaV2
from engine.exllamav2.settings import Settings
from engine.exllamav2.tokenizer import ExLlamaV2Tokenizer
from engine.generator.streaming import StreamingGenerator

__all__ = ["ExLlamaV2PrefixFilter", "ExLlamaV2Sampler", "ExLlamaV2SelectFilter", "ExLlamaV2StreamingGenerator"]


class ExLlamaV2Sampler:
    """The namespace of `Settings`."""

    Settings = Settings


def ExLlamaV2PrefixFilter(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, prefix_strings: str | Sequence[str]) -> PrefixFilter:
    """The reply begins with one of these texts."""
    return PrefixFilter(tokenizer.tokenizer, prefix_strings)


def ExLlamaV2SelectFilter(
    model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, options: Sequence[str], case_insensitive: bool = False
) -> SelectFilter:
    """The reply is one of these texts."""
    return SelectFilter(tokenizer.tokenizer, options, case_insensitive)


class ExLlamaV2StreamingGenerator(StreamingGenerator):
    """`StreamingGenerator` made of this package's objects; ids, probabilities and logits come as torch tensors."""

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2Cache,
        tokenizer: ExLlamaV2Tokenizer,
        draft_model: ExLlamaV2 | None = None,
        draft_cache: ExLlamaV2Cache | None = None,
        num_speculative_tokens: int = 5,
    ) -> None:
        super().__init__(
            model.model, cache.paged, tokenizer.tokenizer,
            draft_model.model if draft_model is not None else None, draft_cache.paged if draft_cache is not None else None,
            num_speculative_tokens,
        )  # fmt: skip
        self.ids: list[int] = []

    def begin_stream_ex(self, input_ids: Any, gen_settings: Any, *args: Any, **more: Any) -> None:
        """As `StreamingGenerator.begin_stream_ex`; `gen_settings` is `ExLlamaV2Sampler.Settings`, whose `cfg_scale` counts."""
        more.setdefault("cfg_scale", gen_settings.cfg_scale)
        more.setdefault("tables", gen_settings.tables(self.tokenizer))
        super().begin_stream_ex(input_ids, gen_settings.frozen(), *args, **more)

    def stream_ex(self, ban_tokens: Sequence[int] | None = None) -> dict[str, Any]:
        """As `StreamingGenerator.stream_ex`, with torch tensors."""
        import numpy as np
        import torch

        result = super().stream_ex(ban_tokens)
        return {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in result.items()}

    def begin_stream(self, input_ids: Any, gen_settings: Any, token_healing: bool = False, loras: Any = None) -> None:
        """The older form of `begin_stream_ex`."""
        self.begin_stream_ex(input_ids, gen_settings, token_healing, loras)

    def stream(self, *args: Any, **more: Any) -> Any:
        """Without arguments the older form of `stream_ex`: (chunk, eos, ids). With some, `StreamingGenerator.stream`."""
        if args or more:
            return super().stream(*args, **more)
        result = self.stream_ex()
        return result["chunk"], result["eos"], result["chunk_token_ids"]

    def full(self) -> bool:
        """Whether the open sequence has used up the context."""
        return self._begun is not None and len(self._begun.job.ids) >= self.cache.context_length

    def warmup(self) -> None:
        """Run one token, so that the first reply need not wait for anything."""
        with self.cache.open([0]) as lease:
            self.cache.run(lease, [0])

    def generate_simple(
        self,
        prompt: str | Sequence[str],
        gen_settings: Any,
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
        """One whole reply, or a list of them for a list of prompts, each after its prompt unless `completion_only`.

        `stop_token` -1 is the tokenizer's own, None never stops.
        """
        if not isinstance(prompt, str):
            return [
                self.generate_simple(
                    part, gen_settings, num_tokens, seed, token_healing, encode_special_tokens, decode_special_tokens, loras, stop_token,
                    add_bos, abort_event, input_embeddings, completion_only, filters, filter_prefer_eos,
                )
                for part in prompt
            ]  # fmt: skip
        before = self._rules
        own = self.tokenizer.stop_token_ids
        self.set_stop_conditions(list(own) if stop_token == -1 else [] if stop_token is None else [stop_token])
        try:
            ids = self.tokenizer.encode(prompt, special=encode_special_tokens, add_bos=add_bos)
            self.begin_stream_ex(
                ids, gen_settings, token_healing, loras, abort_event=abort_event, input_embeddings=input_embeddings,
                decode_special_tokens=decode_special_tokens, filters=filters, filter_prefer_eos=filter_prefer_eos,
                max_new_tokens=num_tokens, seed=seed,
            )  # fmt: skip
            text = "" if completion_only else prompt
            while True:
                result = self.stream_ex()
                text += result["chunk"]
                if result["eos"]:
                    return text
        finally:
            self._rules = before
