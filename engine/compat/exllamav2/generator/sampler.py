"""`ExLlamaV2Sampler`: the namespace of `Settings`, and sampling for scripts that run the model themselves."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.compat.exllamav2.attributes import refuse
from engine.compat.exllamav2.generator.base import check_settings
from engine.compat.exllamav2.settings import BREAKERS, KEPT
from engine.compat.exllamav2.settings import Settings as SamplerSettings
from engine.errors import NotSupportedYet
from engine.generator.request import Guidance
from engine.sampling.sampler import Sampler
from engine.tensors import Floats
from engine.text.tokenizer.healing import TokenPrefixes
from engine.text.tokenizer.token_rules import ids_containing
from engine.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

_ROW_STEP = 0.6180339887498949
"""The random numbers of a batch's rows are this far apart, modulo 1: the golden ratio spreads them evenly."""


class ExLlamaV2Sampler:
    """The namespace of `Settings`, and `sample`."""

    Settings = SamplerSettings

    @staticmethod
    def get_dry_default_sequence_breaker_tokens(tokenizer: ExLlamaV2Tokenizer) -> set[int]:
        """The ids that `dry_sequence_breakers` None stands for: punctuation, line breaks, control tokens."""
        return set(ids_containing(tokenizer.engine_tokenizer, BREAKERS))

    @staticmethod
    def get_default_xtc_mask_tokens(tokenizer: ExLlamaV2Tokenizer) -> frozenset[int]:
        """The ids that `xtc_ignore_tokens` None stands for: line breaks and control tokens."""
        return ids_containing(tokenizer.engine_tokenizer, KEPT)

    @staticmethod
    def get_xtc_mask_tensor(
        tokenizer: ExLlamaV2Tokenizer, vocab_size: int, xtc_mask_tokens: frozenset[int] | None
    ) -> Any:
        """(vocab_size,) bool, false for the ids that XTC never removes; None stands for the default ones."""
        import torch

        kept = xtc_mask_tokens
        if kept is None:
            kept = ids_containing(tokenizer.engine_tokenizer, KEPT)
        mask = torch.ones(vocab_size, dtype=torch.bool)
        mask[sorted(kept)] = False
        return mask

    @staticmethod
    def apply_dry(
        settings: SamplerSettings, tokenizer: ExLlamaV2Tokenizer, sequence_ids: Any, logits: Any
    ) -> None:
        """Raises `NotSupportedYet`: `sample` applies DRY with the other steps."""
        raise NotSupportedYet(
            "`ExLlamaV2Sampler.apply_dry` is not supported here: `sample` applies DRY; call that instead."
        )

    @staticmethod
    def sample(
        logits: Any, settings: SamplerSettings, sequence_ids: Any, random: float,
        tokenizer: ExLlamaV2Tokenizer, prefix_token: Any = None, return_top_tokens: int = 0,
        blocked_tokens: Collection[int] | None = None, filters: Any = None, filter_prefer_eos: bool = False,
        sync: bool = False,
    ) -> tuple[Any, Any, Any, Any, bool]:  # fmt: skip
        """Sample a token for each row of `logits` (B, n, V), tensors of `forward`: its last position counts.

        `sequence_ids` (B, m) are the texts so far, `random` is in [0, 1); with `settings.cfg_scale` the two
        rows are mixed into one. A token begins with the text of `prefix_token` (1,) or (1, 1), if given, and
        is none of `blocked_tokens`. `sync` has no effect, nor has `filter_prefer_eos` without filters.

        Returns tensors: the tokens (B, 1) int64, the `return_top_tokens` (k) likeliest that are left, int64
        (B, 1, k), and their probabilities, float32, with zeros where fewer are left (None and None if k is
        0), the tokens' probabilities after all steps (B, 1) float32; and False, since no filter ends the
        text.
        Raises `NotSupportedYet` for filters and Mirostat, whose state belongs to a sequence, and ValueError
        for other shapes, and for a `prefix_token` that is none.
        """
        import torch

        check_settings(settings)
        refuse("filters", filters or None, None, "what they have read is kept with a generator's sequence")
        refuse(
            "mirostat", settings.mirostat, False, "what it has learned is kept with a generator's sequence"
        )
        rows = _last_rows(logits, settings.cfg_scale)
        texts = np.atleast_2d(np.asarray(sequence_ids))
        if texts.ndim != 2 or len(texts) < len(rows):
            raise ValueError(f"sequence_ids are {texts.shape}, but logits have {len(rows)} rows")
        only = None
        if prefix_token is not None:
            only = _beginning_like(tokenizer.engine_tokenizer, int(np.asarray(prefix_token).reshape(-1)[0]))
        frozen, tables = settings.frozen(), settings.tables(tokenizer.engine_tokenizer)
        found = []
        for row, own in enumerate(rows):
            number = (float(random) + row * _ROW_STEP) % 1.0
            sampler = Sampler(frozen, int(number * 2.0**53), tables)
            distribution = sampler.distribution(
                own, texts[row].tolist(), only=only, blocked=blocked_tokens or ()
            )
            token = distribution.final.sample(number)
            found.append(sampler.commit(distribution, token, top=return_top_tokens))
        tokens = torch.tensor([[each.id] for each in found], dtype=torch.long)
        probabilities = torch.tensor([[each.probability] for each in found], dtype=torch.float32)
        if not return_top_tokens:
            return tokens, None, None, probabilities, False
        top = [[*each.top, *[(0, 0.0)] * (return_top_tokens - len(each.top))] for each in found]
        ids = torch.tensor([[[id for id, _ in each]] for each in top], dtype=torch.long)
        shares = torch.tensor([[[share for _, share in each]] for each in top], dtype=torch.float32)
        return tokens, ids, shares, probabilities, False


def _beginning_like(tokenizer: Tokenizer, prefix: int) -> npt.NDArray[np.int64]:
    """The ids of the tokens whose bytes begin with those of the token `prefix`, itself included."""
    if not 0 <= prefix < tokenizer.vocab_size:
        raise ValueError(f"prefix_token is {prefix}, but ids go from 0 to {tokenizer.vocab_size - 1}")
    begun = tokenizer.token_bytes(prefix)
    longer = TokenPrefixes(tokenizer).starting_with(begun) if begun else ()
    return np.union1d(np.asarray(longer, np.int64), [prefix])


def _last_rows(logits: Any, scale: float | None) -> list[Floats]:
    """The logits (V,) float32 of each row's last position; of two rows with a `scale` their mixture."""
    values = np.asarray(logits.detach().float().cpu() if hasattr(logits, "detach") else logits, np.float32)
    if values.ndim not in (2, 3) or not values.size:
        raise ValueError(f"logits are {values.shape}, but must be (B, n, V) or (B, V)")
    rows = values[:, -1] if values.ndim == 3 else values
    if scale is None:
        return [np.ascontiguousarray(row) for row in rows]
    if len(rows) != 2:
        raise ValueError(f"logits have {len(rows)} rows, but cfg_scale is {scale}: guidance mixes two")
    return [Guidance((), scale).mixed(*rows)]
