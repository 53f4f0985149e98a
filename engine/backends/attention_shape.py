"""The attention of one layer, as every backend sees it."""

from __future__ import annotations

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """One layer's attention: H query heads share G key/value heads; D is the head dimension.

    A token attends to the latest `window` tokens, itself included (arXiv 2004.05150); 0 means all of them.
    If `chunked`, these are instead those since the last multiple of `window` (Llama 4's model card).
    `soft_cap` turns a scaled score s into cap * tanh(s / cap) (Gemma 2, arXiv 2408.00118); 0 means no cap.
    With `latent`, values are the first `latent` columns of the keys, and only keys are cached (multi-head
    latent attention in its absorbed form, arXiv 2405.04434); 0 means that values are apart.
    `slopes` (ALiBi, arXiv 2108.12409) has a number m for each query head: m * (key's position - query's) is
    then added to its scores. With `rounded_slopes` r, r * bf16(m * bf16(key's position)) is, bf16() being the
    nearest bfloat16: as Falcon counts.
    If `bidirectional`, as in encoders (arXiv 1810.04805), a token attends to the later ones of its pass, too:
    to all, or with a window to those fewer than `window` positions away, or if `chunked` to those before the
    next multiple of `window`. Slopes then multiply minus the distance. With a `backward_window` it attends to
    all later ones, and the window counts among the earlier ones alone.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    soft_cap: float = 0.0
    latent: int = 0
    slopes: tuple[float, ...] = ()
    rounded_slopes: float = 0.0
    chunked: bool = False
    bidirectional: bool = False
    backward_window: bool = False

    @property
    def value_dim(self) -> int:
        """Columns of a value."""
        return self.latent or self.head_dim
