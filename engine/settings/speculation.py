"""Drafting: who proposes tokens, and how many."""

from __future__ import annotations

from engine.fields import Settings, setting, within
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class SpeculationSettings(Settings):
    """Drafting: cheap guesses of the next tokens, checked by the model in one pass.

    Never changes what is written.
    """

    method: str = setting(
        "none",
        "Drafting",
        "What drafts tokens: nothing, repeats in the text, a smaller model with the same vocabulary, or the "
        "head for multi-token prediction that some models come with.",
        choices=(
            ("none", "None"), ("ngram", "Repeats in the text"), ("model", "Draft model"),
            ("mtp", "The model's own head"),
        ),
    )  # fmt: skip
    draft_model: str = setting(
        "",
        "Draft model",
        "The file or folder of the smaller model, or of the model's assistant, EAGLE-3 or DFlash drafter.",
        neutral="",
    )
    draft_tokens: int = setting(
        5,
        "Draft length",
        "The maximum number of tokens drafted at a time.",
        low=1,
        high=7,
        step=1,
        unit="tokens",
    )
    adaptive: bool = setting(
        True,
        "Adapt to success",
        "Draft fewer tokens while few are accepted, and pause while drafting slows down writing.",
    )
    ngram_min: int = setting(
        1,
        "Shortest match",
        "The number of last tokens that must have occurred before.",
        **within(1, 5, step=1),
        advanced=True,
    )
    ngram_max: int = setting(
        5, "Longest match", "The longest match to look for first.", **within(1, 5, step=1), advanced=True
    )
    ngram_prompt: bool = setting(
        True,
        "Draft from the prompt",
        "Draft repeats of the prompt too, not only those of the reply.",
        advanced=True,
    )
