"""The parameters of one sequence: everything that is fixed before its first token."""

from __future__ import annotations

from collections.abc import Sequence

from engine.constraint.filter import Filter
from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.sampling.tables import TokenTables
from engine.settings import ConstraintSettings, SamplerSettings
from engine.text.stops.conditions import StopRules
from engine.text.tokenizer.token_rules import ids_containing, parse_bias
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _


@dataclass(frozen=True, slots=True)
class ReturnOptions:
    """What to report of each token besides its probabilities: the `top` likeliest tokens after all steps, the
    model's own likeliest as `alternatives`, the raw `logits`. `special` shows all control tokens as text,
    `shown` are those that are shown in any case. `channel_calls`: messages to functions are calls.
    """

    top: int = 0
    alternatives: int = 0
    logits: bool = False
    special: bool = False
    shown: frozenset[int] = frozenset()
    channel_calls: bool = False


@dataclass(frozen=True, slots=True)
class GenerationParams:
    """One sequence. `filters` belong to it alone; with `prefer_end` it ends as soon as they allow it.

    `banned` texts never appear. The last `given` tokens of the prompt are the reply's beginning, which the
    filters see too. `heal` chooses the prompt's last token again among those that begin with its text.
    `races`: a draft model may guess what the sampler draws (`Distribution.race`). `may_cut`: if the shortest
    text that the filters allow has too many tokens, it is cut rather than refused.
    """

    sampler: SamplerSettings
    seed: int
    rules: StopRules
    returns: ReturnOptions = ReturnOptions()
    tables: TokenTables = TokenTables()
    filters: Sequence[Filter] = ()
    prefer_end: bool = False
    banned: tuple[str, ...] = ()
    ban_ignore_case: bool = True
    given: int = 0
    heal: bool = False
    races: bool = False
    may_cut: bool = False


def token_tables(
    tokenizer: Tokenizer, sampler: SamplerSettings, constraint: ConstraintSettings = ConstraintSettings()
) -> TokenTables:
    """What the sampler needs to know of the vocabulary, as ids. Raises `BadSetting` for ids outside it, and
    for a bias that does not name one token.
    """
    outside = next(
        (i for i in (*constraint.allowed_tokens, *constraint.banned_tokens) if i >= tokenizer.vocab_size),
        None,
    )
    if outside is not None:
        raise BadSetting(
            _(
                "Token id {outside} is allowed or banned, but this model's ids go from 0 to "
                "{vocab_size}; remove it from the list.",
                outside=outside,
                vocab_size=tokenizer.vocab_size - 1,
            )
        )
    return TokenTables(
        vocabulary=tokenizer.vocab_size,
        bias=parse_bias(constraint.logit_bias, tokenizer),
        allowed=frozenset(constraint.allowed_tokens) or None,
        banned=frozenset(constraint.banned_tokens),
        dry_breakers=ids_containing(tokenizer, sampler.dry_breakers)
        if sampler.dry_multiplier
        else frozenset(),
        xtc_protected=ids_containing(tokenizer, ("\n",)) if sampler.xtc_probability else frozenset(),
    )
