"""The shape of a decoder and the quirks of its architecture, as read from its headers."""

from __future__ import annotations

from dataclasses import dataclass

from engine.backends.base import AttentionShape
from engine.backends.kv_formats import bytes_per_position, cache_type
from engine.errors import BadCheckpoint
from engine.models.rope import RopeConfig


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts (arXiv 2401.04088)."""

    count: int
    used: int
    """How many of them each token uses."""
    width: int
    """Features inside each expert."""
    normalise: bool
    """As in `Routing`."""
    layers: frozenset[int]
    """The layers that have experts; the others have a plain feed-forward part."""

    def __post_init__(self) -> None:
        if self.used > self.count:
            raise BadCheckpoint(
                f"The model uses {self.used} experts for each token but has {self.count}; the file is "
                "damaged."
            )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder.

    A bias is True where it is required, False where there is none, None where it is used if the file has
    one (GGUF metadata does not say).
    """

    architecture: str
    name: str
    """The model's own name, for display; may be empty."""
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_width: int
    vocab_size: int
    context_length: int
    norm_eps: float
    rope: RopeConfig | None
    """None: the model has a table of `learned_positions`."""
    tied: bool
    """Whether the embedding table is also the head."""
    attention_bias: bool | None = None
    """Of the query, key and value projections."""
    output_bias: bool | None = None
    """Of the output projection of attention."""
    mlp_bias: bool | None = None
    head_bias: bool | None = False
    norm: str = "rms"
    """"rms" or "layer"."""
    norm_bias: bool | None = False
    norm_offset: float = 0.0
    """Added to every norm's weight as stored (Gemma: 1)."""
    placement: str = "before"
    """Where the norms stand: "before" each half of a block, "after" it (OLMo 2), on "both" sides (Gemma 2),
    or "parallel": one norm for both halves, whose results are added to the same input (Cohere).
    """
    qk_norm: str = "none"
    """The norm of queries and keys: "none"; "head": each head alone, one weight for all; "each": each head
    alone, a weight of its own; "row": all heads together.
    """
    qk_layer_norm: bool = False
    """Whether it is a layer norm instead of an RMS norm."""
    activation: str = "silu"
    gated: bool = True
    """Whether the feed-forward part is activation(gate) * up, rather than activation(up)."""
    windows: tuple[int, ...] = ()
    """The sliding window of each layer, in tokens (0: none); empty when no layer has one."""
    rope_local: RopeConfig | None = None
    """The rope of layers with a window, where they have their own (Gemma 3)."""
    nope_layers: frozenset[int] = frozenset()
    """The layers without rope (NoPE, arXiv 2305.19466)."""
    learned_positions: int = 0
    attention_scale: float = 0.0
    """0: 1 / sqrt(head_dim)."""
    attention_cap: float = 0.0
    """Soft cap of attention scores, cap * tanh(score / cap) (arXiv 2408.00118); 0: none."""
    logit_cap: float = 0.0
    """The same for logits."""
    embed_scale: float = 1.0
    residual_scale: float = 1.0
    """Multiplies what each half of a block adds."""
    logit_scale: float = 1.0
    experts: Experts | None = None
    sinks: bool = False
    """Whether every layer has attention sinks (arXiv 2309.17453)."""

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise BadCheckpoint(
                f"The model has {self.heads} heads and {self.kv_heads} key/value heads; the first must be a "
                "multiple."
            )
        if self.windows and len(self.windows) != self.layers:
            raise BadCheckpoint(
                f"The model has {self.layers} layers but names the kind of attention of {len(self.windows)}."
            )

    def shape(self, layer: int) -> AttentionShape:
        """The attention of one layer, its window and soft cap included."""
        scale = self.attention_scale or self.head_dim**-0.5
        window = self.windows[layer] if self.windows else 0
        return AttentionShape(self.heads, self.kv_heads, self.head_dim, scale, window, self.attention_cap)

    @property
    def attention_shape(self) -> AttentionShape:
        """What all layers share, which is all that a cache needs."""
        return AttentionShape(
            self.heads, self.kv_heads, self.head_dim, self.attention_scale or self.head_dim**-0.5
        )

    @property
    def advised_context(self) -> int:
        """The longest context without loss of quality: longrope and dynamic scaling begin beyond it."""
        length = self.rope.original_length if self.rope is not None else 0
        return min(length, self.context_length) if length else self.context_length

    def kv_bytes_per_token(self, dtype: str = "fp16") -> int:
        """Bytes of one position in all layers; `dtype` is as in `kv_formats.cache_type`."""
        return self.layers * bytes_per_position(cache_type(dtype), self.kv_heads, self.head_dim)
