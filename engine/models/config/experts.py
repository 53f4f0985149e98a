"""What a mixture of experts is, as read from a model's headers."""

from __future__ import annotations

from engine.backends.routing import Routing
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.words import _

Limits = tuple[float, float]
"""The largest size of a feed-forward part's activated gate, and of what that multiplies."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts (arXiv 2401.04088)."""

    count: int
    used: int
    """How many of them each token uses."""
    width: int
    """Features inside each expert."""
    normalise: bool
    """As in `Routing`, like `scores`, `scale`, `groups`, `used_groups`, `group_best`, `nearness` and
    `by_logit`.
    """
    layers: frozenset[int]
    """The layers that have experts; the others have a plain feed-forward part."""
    scores: str = "softmax"
    scale: float = 1.0
    groups: int = 1
    used_groups: int = 1
    group_best: int = 1
    nearness: float = -1.0
    by_logit: bool = False
    corrected: bool | None = False
    """Whether a bias is added to the scores for the choice alone; True, False and None as for biases."""
    router_bias: bool | None = False
    """Whether the router has a bias."""
    bias: bool | None = False
    """Whether the experts have biases."""
    sum_bias: bool = False
    """Whether the weighted sum of the experts' results has a bias (Nomic BERT)."""
    shared_width: int = 0
    """Features inside the shared expert, which every token uses; 0: there is none."""
    shared_gate: bool = False
    """Whether the sigmoid of a router of its own multiplies what the shared expert makes."""
    shared_shares: bool = False
    """Whether a router with two numbers, as a softmax, weighs what the chosen experts and the shared one make
    (Klear).
    """
    weighs_input: bool = False
    """Whether the weight multiplies what goes into an expert instead of what comes out (Llama 4)."""
    early: bool = False
    """Whether the router reads the layer's input, before attention and any norm (SmallThinker)."""
    shared_scale: float = 1.0
    """Multiplies what the shared expert makes, as `scale` what the routed ones do."""
    normed: bool = False
    """Whether what routed experts and the shared one make together is normed (A.X K1)."""
    router_cap: float = 0.0
    """Soft cap of the router's logits, as `ModelConfig.attention_cap`; 0: none (Laguna)."""
    router_width: int = 0
    """Numbers of a row that a network makes for the router; 0: the router reads the layer's (ZAYA1)."""
    router_scale: float = 1.0
    """Multiplies the router's logits."""
    narrow: int = 0
    """Features of a projection on which the experts work; 0: they work on the layer's."""
    apart: bool = False
    """Whether the layers with experts have a plain feed-forward part, too, and what their experts make is
    added later (LongCat).
    """
    idle: int = 0
    """How many of the experts, the last ones, have no matrices."""
    always: int = 0
    """How many of the experts, the last ones, every token uses, weighed as the others are (Inkling)."""
    beside: bool = False
    """Whether the layers with experts have a plain feed-forward part, too, and norms of both (Gemma 4)."""
    past_attention: bool = False
    """The same, but the experts' input is that of the whole layer (Snowflake Arctic)."""
    tabled: frozenset[int] = frozenset()
    """The layers whose experts are those of a token in a table, rather than the best ones (DeepSeek V4)."""
    adjugates: int = 0
    """How many neighbouring experts have an adjugate expert in common, which works wherever one of them does
    and as often, with its weight (Grove MoE, arXiv 2508.07785); 0: they have none.
    """
    adjugate_width: int = 0
    """Features inside each of these."""
    adjugate_scale: float = 1.0
    """Multiplies what they make."""

    def __post_init__(self) -> None:
        if self.used > self.count:
            raise BadCheckpoint(
                _(
                    "The model uses {used} experts for each token but has {count}; the file is damaged.",
                    used=self.used,
                    count=self.count,
                )
            )
        size, rest = divmod(self.count, self.groups)
        if rest or self.used_groups > self.groups or self.used > self.used_groups * size:
            raise BadCheckpoint(
                _(
                    "The model chooses {used} of {count} experts from {used_groups} of {groups} "
                    "groups, which is not possible; the file is damaged.",
                    used=self.used,
                    count=self.count,
                    used_groups=self.used_groups,
                    groups=self.groups,
                )
            )

    @property
    def active(self) -> int:
        """How many experts have matrices."""
        return self.count - self.idle

    @property
    def routing(self) -> Routing:
        """How experts are chosen."""
        return Routing(
            self.count, self.used, self.normalise, self.scores, self.scale, self.groups, self.used_groups,
            self.group_best, self.nearness, self.by_logit,
        )  # fmt: skip
