"""`ExLlamaV2Sampler.Settings`: mutable, with ExLlamaV2's field names and defaults, read at each begin."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from engine.compat.exllamav2.attributes import Declared, refuse
from engine.errors import NotSupportedYet
from engine.lazy_dataclass import dataclass
from engine.sampling.tables import TokenTables
from engine.settings import SAMPLER_STEP_NAMES, TEMPERATURE_LAST, SamplerSettings
from engine.text.tokenizer.token_rules import ids_containing
from engine.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

BREAKERS = (".", ",", "!", "?", "<", ">", "[", "]", "(", ")", "{", "}", "\\n", "\\t", '"')
"""Texts whose tokens are DRY's sequence breakers by default."""
KEPT = ("\\n",)
"""Texts whose tokens XTC never removes by default."""
_MOST = 1 << 20
"""More than any vocabulary or context has, so that larger counts mean the same."""


@dataclass
class Settings(Declared):
    """How the next token is sampled, as it is when a sequence begins; later changes count for the next one.

    `filters` and `filter_prefer_eos` are the older place of these arguments: they count where a generator is
    given no filters. `frozen()` gives the engine's settings, `tables()` the settings of individual tokens.
    """

    missing: ClassVar[Any] = dict.fromkeys(
        ("ngram_trie", "ngram_index", "ngram_history"),
        "what a sequence has repeated is kept with the sequence, not with its settings",
    ) | {"greedy_clone": "use clone(), or Settings.greedy()"}
    stop_sequences: ClassVar[Any] = None
    """LangChain keeps its own stop texts here; of no effect."""
    token_repetition_penalty: float = 1.025
    token_repetition_range: int = -1
    token_repetition_decay: int = 0
    token_frequency_penalty: float = 0.0
    token_presence_penalty: float = 0.0
    temperature: float = 0.8
    smoothing_factor: float = 0.0
    min_temp: float = 0.0
    max_temp: float = 0.0
    temp_exponent: float = 1.0
    top_k: int = 50
    top_p: float = 0.8
    top_a: float = 0.0
    min_p: float = 0.0
    tfs: float = 0.0
    typical: float = 0.0
    skew: float = 0.0
    temperature_last: bool = False
    mirostat: bool = False
    mirostat_tau: float = 1.5
    mirostat_eta: float = 0.1
    mirostat_mu: Any = None
    token_bias: Any = None
    cfg_scale: float | None = None
    post_sampling_hooks: list[Callable[..., Any]] = field(default_factory=list)
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_max_ngram: int = 20
    dry_range: int = 0
    dry_sequence_breakers: set[int] | None = None
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    xtc_ignore_tokens: frozenset[int] | None = None
    filters: list[Any] = field(default_factory=list)
    filter_prefer_eos: bool = False

    @classmethod
    def greedy(cls, **more: Any) -> Self:
        """Settings that always take the likeliest token."""
        return cls(**{"temperature": 1.0, "token_repetition_penalty": 1.0, "top_p": 0.0, "top_k": 1} | more)

    def clone(self) -> Self:
        """A deep copy, but with the same filters."""
        return copy.deepcopy(self, {id(one): one for one in self.filters})

    def disallow_tokens(self, tokenizer: ExLlamaV2Tokenizer, tokens: int | Sequence[int]) -> None:
        """Never sample these tokens: their `token_bias` becomes -inf."""
        import torch

        if self.token_bias is None:
            self.token_bias = torch.zeros(_padded(tokenizer))
        self.token_bias[tokens] = -torch.inf

    def allow_tokens(self, tokenizer: ExLlamaV2Tokenizer, tokens: Sequence[int | str]) -> None:
        """Sample only these tokens, ids or texts of single tokens: the `token_bias` of all others is -inf.

        Where there is a `token_bias`, only these tokens change: they are allowed too, as after an earlier
        call. Raises ValueError for a text that is not one token.
        """
        import torch

        ids = [tokenizer.single_id(one) if isinstance(one, str) else int(one) for one in tokens]
        if None in ids:
            raise ValueError(f"{tokens[ids.index(None)]!r} is not one token of this model; give its ids")
        if self.token_bias is None:
            self.token_bias = torch.full((_padded(tokenizer),), -torch.inf)
        self.token_bias[ids] = 0.0

    def frozen(self) -> SamplerSettings:
        """The engine's settings. Raises `BadSetting` for values out of range, `NotSupportedYet` for hooks."""
        if self.post_sampling_hooks:
            raise NotSupportedYet(
                "This version does not support `post_sampling_hooks` yet; leave the list empty."
            )
        if self.dry_multiplier > 0:
            refuse("dry_max_ngram", self.dry_max_ngram, 20, "a repeated passage counts with its whole length")
        refuse("mirostat_mu", self.mirostat_mu, None, "each sequence begins at twice mirostat_tau")
        usual = tuple(name for name, _ in SAMPLER_STEP_NAMES)
        return SamplerSettings(
            temperature=max(0.0, self.temperature),
            top_k=min(max(0, self.top_k), _MOST),
            top_p=_off_at_zero(self.top_p),
            min_p=self.min_p if 0 < self.min_p < 1 else 0.0,
            repetition_penalty=self.token_repetition_penalty,
            repetition_range=min(max(-1, self.token_repetition_range), _MOST),
            repetition_decay=min(max(0, self.token_repetition_decay), _MOST),
            presence_penalty=self.token_presence_penalty,
            frequency_penalty=self.token_frequency_penalty,
            dry_multiplier=max(0.0, self.dry_multiplier),
            dry_base=self.dry_base,
            dry_allowed_length=self.dry_allowed_length,
            dry_range=min(max(0, self.dry_range), _MOST),
            min_temperature=max(0.0, self.min_temp),
            max_temperature=max(0.0, self.max_temp),
            temperature_exponent=self.temp_exponent,
            smoothing_factor=max(0.0, self.smoothing_factor),
            skew=min(max(-50.0, self.skew), 50.0),
            top_a=max(0.0, self.top_a),
            tail_free=_off_at_zero(self.tfs),
            typical=_off_at_zero(self.typical),
            # no two tokens can both have more than half of the probability
            xtc_probability=min(1.0, max(0.0, self.xtc_probability)) if self.xtc_threshold <= 0.5 else 0.0,
            xtc_threshold=min(0.5, max(0.0, self.xtc_threshold)),
            mirostat=self.mirostat,
            mirostat_tau=self.mirostat_tau,
            mirostat_eta=self.mirostat_eta,
            order=TEMPERATURE_LAST if self.temperature_last else usual,
        )

    def tables(self, tokenizer: Tokenizer) -> TokenTables:
        """Bias, allowed and banned tokens, and the special tokens of DRY and XTC if these are on."""
        given = [] if self.token_bias is None else self.token_bias
        # `tolist` works for tensors of any dtype on any device.
        given = np.asarray(given.tolist() if hasattr(given, "tolist") else given, np.float64)
        bias = np.zeros(tokenizer.vocab_size)
        bias[: len(given)] = given[: len(bias)]
        banned = bias == -np.inf
        biased = np.flatnonzero((bias != 0) & ~banned)
        breakers: frozenset[int] = frozenset()
        protected: frozenset[int] = frozenset()
        if self.dry_multiplier > 0:  # searching the vocabulary takes most of a second
            named = self.dry_sequence_breakers
            breakers = frozenset(named) if named is not None else ids_containing(tokenizer, BREAKERS)
        if self.xtc_probability > 0:
            ignored = self.xtc_ignore_tokens
            protected = frozenset(ignored) if ignored is not None else ids_containing(tokenizer, KEPT)
        return TokenTables(
            vocabulary=tokenizer.vocab_size,
            bias=tuple(zip(biased.tolist(), bias[biased].tolist(), strict=True)),
            # whichever are fewer
            allowed=_ids(~banned) if 2 * banned.sum() > tokenizer.vocab_size else None,
            banned=_ids(banned) if 2 * banned.sum() <= tokenizer.vocab_size else frozenset(),
            dry_breakers=breakers,
            xtc_protected=protected,
        )


def _padded(tokenizer: ExLlamaV2Tokenizer) -> int:
    """The length of a `token_bias`: the vocabulary's, rounded up to a multiple of 32."""
    return -(-tokenizer.get_vocab_size() // 32) * 32


def _ids(chosen: Any) -> frozenset[int]:
    return frozenset(np.flatnonzero(chosen).tolist())


def _off_at_zero(value: float) -> float:
    """1 disables these settings here; in ExLlamaV2, 0 and values of at least 1 do."""
    return value if 0 < value < 1 else 1.0
