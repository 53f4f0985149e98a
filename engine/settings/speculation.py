"""Drafting: who proposes tokens, and how many."""

from __future__ import annotations

from dataclasses import dataclass

from engine.fields import Settings, setting, within


@dataclass(frozen=True)
class SpeculationSettings(Settings):
    """Drafting: cheap guesses of the next tokens, checked by the model in one pass.

    Never changes what is written.
    """

    method: str = setting(
        "none",
        "Drafting",
        "Who guesses: nobody, the text so far, a smaller model with the same vocabulary, or the head for "
        "multi-token prediction that some models come with.",
        choices=(
            ("none", "None"), ("ngram", "Repeats in the text"), ("model", "Draft model"),
            ("mtp", "The model's own head"),
        ),
    )  # fmt: skip
    draft_model: str = setting("", "Draft model", "The smaller model's file or folder.", neutral="")
    draft_tokens: int = setting(
        5, "Draft length", "The most tokens guessed at a time.", low=1, high=7, step=1, unit="tokens"
    )
    adaptive: bool = setting(
        True,
        "Adapt to success",
        "Guesses fewer tokens while few are right, and pauses while drafting is slower than plain writing.",
    )
    ngram_min: int = setting(
        1,
        "Shortest match",
        "How many of the last tokens must have occurred before.",
        **within(1, 5, step=1),
        advanced=True,
    )
    ngram_max: int = setting(
        5,
        "Longest match",
        "The longest match that is looked for first.",
        **within(1, 5, step=1),
        advanced=True,
    )
    ngram_prompt: bool = setting(
        True,
        "Guess from the prompt",
        "Repeats of the prompt are guessed too, not only the reply's own.",
        advanced=True,
    )
