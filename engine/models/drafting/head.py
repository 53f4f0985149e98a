"""A head: a model of a layer or a few that drafts from the hidden states that passes of another one leave."""

from __future__ import annotations

import numpy as np

from engine.models.base import Model, Weights
from engine.models.config import ModelConfig
from engine.models.layers.features import Features
from engine.models.layers.whole import Parts
from engine.models.memory.fit import prefill_rows
from engine.tensors import Floats
from engine.words import _


def of_another(width: int, tokens: int, main: ModelConfig) -> str:
    """The sentence about a drafter of a model of other features or tokens than the main one has."""
    return _(
        "The drafter is for models with {width} features and {count} tokens, but this one has {width_2} and "
        "{count_2}. Choose the drafter that was made for this model.",
        width=width,
        count=tokens,
        width_2=main.width,
        count_2=main.vocab_size,
    )


def lacks_states() -> str:
    """The sentence about a main model without the hidden states that a drafter reads."""
    return _(
        "The drafter reads hidden states between the layers of a model, and this model does not have those "
        "that it reads. Choose the drafter that was made for this model."
    )


class HeadModel(Model):
    """A model on the backend of `main`, for which it drafts.

    A pass takes, besides tokens, the first rows of `given` (rows, F) float32, the states of the positions
    before them; it leaves its own states in `kept` (rows, F), which take their place for the guess after it.
    `of_main` are the features of the main model's passes that are its states; None: their hidden states
    after the final norm. With `in_blocks`, all guesses of a draft come of one pass.
    """

    of_main: Features | None = None
    in_blocks = False

    def __init__(self, config: ModelConfig, main: Model, parts: Parts, loaded: Weights) -> None:
        super().__init__(config, main.backend, parts, loaded)
        rows = prefill_rows(config, main.backend.name)
        self.given = np.zeros((rows, config.width), np.float32)
        self.kept: Floats = np.zeros((rows, config.width), np.float32)

    def widened(self, logits: Floats) -> Floats:
        """The logits (V,) of all tokens of the main model from those of a pass, valid until the next call."""
        return logits

    def close(self) -> None:
        super().close()
        self.of_main = None
