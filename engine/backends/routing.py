"""How a mixture chooses the experts of each token."""

from __future__ import annotations

from engine.lazy_dataclass import dataclass

SCORES = ("softmax", "sigmoid")
"""What makes an expert's score of its logit: the softmax over all experts, or the sigmoid."""
ROOT = "sqrtsoftplus"
"""A further one: the square root of softplus (DeepSeek V4)."""
SMALLEST_SUM = 1e-20
"""Added to a sum of scores before it divides them: sigmoids may all be 0."""
MOST_GPU_EXPERTS = 512  # a lane of a warp holds up to 16


@dataclass(frozen=True, slots=True)
class Routing:
    """Each token goes to the `used` of `experts` experts with the highest score, the first of equal ones.

    `scores` is one of `SCORES`, or `ROOT`. A chosen expert's weight is its score; `normalise` divides it by
    the sum of the chosen ones' scores, and `scale` multiplies it. Of `groups` groups of neighbours only the
    experts in the `used_groups` best may be chosen; a group is as good as the sum of its best `group_best`
    (1 or 2) experts. For the choice a bias is added to scores, or with `by_logit` to logits, which then are
    compared. With `nearness` n of 0 or more a chosen expert's weight is instead its part of the softmax over
    those experts not chosen before it whose logits l are near its own, m: m - l <= 2 n max(|l|, m). Sources:
    Mixtral, arXiv 2401.04088; DeepSeek-V2, arXiv 2405.04434, and V3, arXiv 2412.19437; SparseMixer, arXiv
    2409.12136, for `nearness`; transformers' Kolibri 1 for `by_logit`.
    """

    experts: int
    used: int
    normalise: bool = True
    scores: str = "softmax"
    scale: float = 1.0
    groups: int = 1
    used_groups: int = 1
    group_best: int = 1
    nearness: float = -1.0
    by_logit: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is Mixtral's: no groups, no scale, and softmax over all or the chosen ones."""
        return (self.scores, self.scale, self.groups) == ("softmax", 1.0, 1) and self.nearness < 0
