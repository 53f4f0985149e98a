"""Which recommended models suit this computer, and what is said of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from desktop.items.models.library import speed_text
from engine.units import size_text
from engine.words import N_, _, dotted

if TYPE_CHECKING:
    from engine.hub import Pick
    from engine.models.memory.fit import Fit

__all__ = ["ABOUT", "TITLES", "Suggestion", "pick_facts", "suggestions"]

READING_SPEED = 8.0
"""Tokens per second that keep up with a reader: about six words."""
HALF = 0.5
"""While no speed is known, a good model leaves this part of the free memory to other programs."""
SMALLER = 0.65
"""The small model has at most this part of the good one's weights, or it would not be worth a choice."""
TITLES = {
    "small": N_("Small and quick"),
    "good": N_("Good for this computer"),
    "largest": N_("Largest that fits"),
}
ABOUT = {
    "tiny": N_("Very small and quick: short answers, titles and simple rewording in many languages."),
    "office": N_("Small: summaries, extraction and other office work with texts."),
    "everyday": N_("Small: everyday questions in many languages; it can think before it answers."),
    "european": N_(
        "Small: conversation and writing in six European languages; it can think before it answers."
    ),
    "languages": N_("Writing and translation in a great many languages."),
    "laptop": N_("A good all-rounder for ordinary laptops; it can think before it answers."),
    "reasoning": N_("An all-rounder with sound reasoning: questions, code and longer texts."),
    "writing": N_("Careful writing and translation in a great many languages."),
    "difficult": N_("Difficult questions, code and long texts, if you can wait a little."),
    "sixth": N_("Reasoning and code, quick for its size because each token uses a sixth of it."),
    "ninth": N_("Knows a lot and is quick for its size, because each token uses a ninth of it."),
    "strong": N_("Very good reasoning and code, slow without a GPU."),
    "broad": N_("Broad knowledge and careful writing, slow without a large GPU."),
    "strongest": N_("The strongest in this list: reasoning and code, quick for its size."),
}
"""What a model is good for, by `Pick.about`."""


class Suggestion(NamedTuple):
    """A model, and why it is shown: a key of `TITLES`."""

    why: str
    pick: Pick
    fit: Fit


def suggestions(picks: Sequence[Pick], fits: Mapping[str, Fit]) -> tuple[Suggestion, ...]:
    """At most three of `picks`, which are ordered from the weakest to the strongest; `fits` are by the path
    of `Pick.info`. Fewer if one model is two of them, none if nothing fits or nothing is known yet.
    """
    known = [(pick, fits[pick.info.path]) for pick in picks if pick.info.path in fits]
    room = [each for each in known if each[1].verdict == "fits"] or [
        each for each in known if each[1].verdict == "tight"
    ]
    if not room:
        return ()
    good = [each for each in room if _is_good(each[1])][-1:] or room[:1]
    small = [each for each in room if _is_smaller(*each, *good[0])][-1:]
    chosen = {"small": small, "good": good, "largest": room[-1:] if room[-1] not in good else []}
    return tuple(Suggestion(why, *each) for why, found in chosen.items() for each in found)


def _is_good(fit: Fit) -> bool:
    """Whether it answers as fast as one reads; while that is not known, whether it leaves room."""
    if fit.tokens_per_second > 0:
        return fit.tokens_per_second >= READING_SPEED
    return fit.total <= HALF * fit.free


def _is_smaller(pick: Pick, fit: Fit, good: Pick, good_fit: Fit) -> bool:
    """Whether it is much smaller than the good one, and quicker if that is known: a mixture of experts may be
    large and quick.
    """
    quicker = not good_fit.tokens_per_second or fit.tokens_per_second > good_fit.tokens_per_second
    return pick.bytes <= SMALLER * good.bytes and quicker


def pick_facts(suggestion: Suggestion) -> str:
    """Size, memory, speed and licence in a line."""
    pick, fit = suggestion.pick, suggestion.fit
    speed = speed_text(fit)
    parts = (
        _("{size} to download", size=size_text(pick.choice.bytes)),
        _("needs about {size} of memory", size=size_text(fit.total)),
        speed,
        _("{name} licence", name=pick.licence),
    )
    return dotted(*parts)
