"""The shape of a decoder and the quirks of its architecture, as read from its headers."""

from __future__ import annotations

from engine.backends.base import AttentionShape
from engine.backends.indexer_keys import cached_keys
from engine.backends.kv_formats import bytes_per_position, cache_type
from engine.backends.states import StateShape
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.config.compressed import CompressedAttention
from engine.models.config.experts import Experts, Limits
from engine.models.config.gemma import AltUp, PerLayer
from engine.models.config.hyper import Cycles, GatedStreams, HyperConnections, Loops, NGramTables, Sphere
from engine.models.config.indexer import Indexer
from engine.models.config.latent import LatentAttention
from engine.models.config.recurrent import PLAIN, Multipliers, Recurrent, SharedBlocks, state_parts
from engine.models.layers.positions.rope import RopeConfig
from engine.words import _


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
    """None: the model has a table of `learned_positions`, or none."""
    tied: bool
    """Whether the embedding table is also the head."""
    attention_bias: bool | None = None
    """Of the query, key and value projections."""
    output_bias: bool | None = None
    """Of the output projection of attention."""
    mlp_bias: bool | None = None
    head_bias: bool | None = False
    head_activation: str = ""
    """What follows the matrix before the head, and then comes a norm; "": there is none of these."""
    head_transform_bias: bool = False
    """Of that matrix."""
    normed_head: bool = False
    """Whether the rows of the head are made of length 1."""
    norm: str = "rms"
    """"rms" or "layer"."""
    eps_by_terms: bool = False
    """Whether epsilons of norms of the sum of all halves so far are multiplied by its number of terms."""
    norm_bias: bool | None = False
    norm_offset: float = 0.0
    """Added to every norm's weight as stored (Gemma: 1)."""
    offset_last: bool = True
    """Whether that holds for the final norm, too."""
    post_norm_eps: float = 0.0
    """The epsilon of norms after each half of a block, where it is not `norm_eps`."""
    placement: str = "before"
    """Where the norms stand: "before" each half of a block, "after" it (OLMo 2; in recurrent layers before),
    on "both" sides (Gemma 2),
    "kept": the same as "before", but what each half is added to is normed, too (a variant of Bloom),
    "after_sum": behind the sum of each half and its input (OPT 350M), "parallel": one norm for both halves,
    whose results are added to the same input (Cohere), "parallel_both": the same with a norm each, "": none.
    """
    qk_norm: str = "none"
    """The norm of queries and keys: "none"; "head": each head alone, one weight for all; "each": each head
    alone, a weight of its own; "row": all heads together; "bare": each head alone, without a weight; "roped":
    the same, in the layers with rope alone (Llama 4).
    """
    qk_layer_norm: bool = False
    """Whether it is a layer norm instead of an RMS norm."""
    qk_norm_eps: float = 0.0
    """Its epsilon, where it is not `norm_eps`, of norms of "each" head."""
    qk_norm_last: bool = False
    """Whether rope comes before it."""
    activation: str = "silu"
    gated: bool = True
    """Whether the feed-forward part is activation(gate) * up, rather than activation(up)."""
    xielu: tuple[tuple[float, float, float], ...] = ()
    """The numbers of each layer's "xielu", where the headers have them; see `Ops.activate_with`."""
    attention_clip: float = 0.0
    """The largest size of numbers in queries, keys and values (MPT); 0: any."""
    windows: tuple[int, ...] = ()
    """The sliding window of each layer, in tokens (0: none); empty when no layer has one."""
    chunked: bool = False
    """Whether windows do not slide, but start over at each of their multiples (Llama 4)."""
    rope_local: RopeConfig | None = None
    """The rope of layers with a window, where they have their own (Gemma 3), or of the next."""
    local_layers: frozenset[int] = frozenset()
    nope_layers: frozenset[int] = frozenset()
    """The layers without rope (NoPE, arXiv 2305.19466)."""
    scaled_nope: bool = False
    """Whether the scale of queries by position (`RopeConfig.scales_queries`) is that of these layers."""
    learned_positions: int = 0
    learned_offset: int = 0
    """Rows of their table before that of the first position (OPT: 2)."""
    sinusoids: str = ""
    """The table of positions that is computed, beginning at `learned_offset`: "closed" (XGLM) or "open"
    (CTRL), see `engine.models.layers.positions.sinusoids`; "": none.
    """
    embed_width: int = 0
    """Features of the embedding and the head, with a matrix each between them and `width` (OPT 350M)."""
    extra_embeddings: int = 0
    """Rows of the embedding after those of the vocabulary, which are left out."""
    embed_norm: bool = False
    """Whether embeddings are normed, without a weight where the names have none."""
    final_norm: bool = True
    inner_norms: bool = False
    """Whether attention's result and what is inside the feed-forward part are normed before the last matrix
    (BitNet).
    """
    head_results_normed: bool = False
    """Whether what attention makes is normed head by head, without a weight, before its gate."""
    residual_gates: float = 0.0
    """The temperature of the gates of a layer's halves, see `with_residual_gates`; 0: they have none."""
    norm_weights: bool = True
    """Whether norms have weights."""
    attention_scale: float = 0.0
    """0: 1 / sqrt(head_dim)."""
    scaled_by_layer: bool = False
    """Whether that is divided by the number of the layer, from 1 on."""
    attention_cap: float = 0.0
    """Soft cap of attention scores, cap * tanh(score / cap) (arXiv 2408.00118); 0: none."""
    slopes: tuple[float, ...] = ()
    """As in `AttentionShape`; see `alibi_slopes`."""
    rounded_slopes: float = 0.0
    logit_cap: float = 0.0
    """The same for logits."""
    embed_scale: float = 1.0
    picture_scale: float = 1.0
    """Multiplies the rows of pictures that stand in place of embeddings."""
    residual_scale: float = 1.0
    """Multiplies what each half of a block adds."""
    half_scales: tuple[tuple[float, float], ...] = ()
    """Of attention, recurrent layers and feed-forward parts, what multiplies their input before their result
    is added, and their result (MiniMax); empty: 1 and `residual_scale`.
    """
    logit_scale: float = 1.0
    residual_block: int = 0
    """Every how many layers a new sum begins, over all of which layers attend (Kimi K3); 0: there is one."""
    experts: Experts | None = None
    sinks: bool | frozenset[int] | None = False
    """Whether every layer has attention sinks (arXiv 2309.17453), or the layers that do; None: those of which
    the file has them.
    """
    recurrent: Recurrent | None = None
    """What the `recurrent_layers` have instead of attention."""
    recurrent_layers: frozenset[int] = frozenset()
    beside_attention: bool = False
    """Whether those layers have attention, too, with the same input; both results are added."""
    shared: SharedBlocks | None = None
    """What the layers that are no `mlp_layers` have before their recurrent part."""
    multipliers: Multipliers = PLAIN
    one_part: bool = False
    """Whether a layer is attention, recurrent or, as the `mlp_layers`, a feed-forward part, and no more."""
    mlp_layers: frozenset[int] = frozenset()
    """The layers without attention."""
    bare_layers: frozenset[int] = frozenset()
    """The layers without a feed-forward part; without attention, too, they do nothing."""
    picture_layers: frozenset[int] = frozenset()
    """Those of the layers that do nothing that look at pictures, by cross-attention, where there are any."""
    latent: LatentAttention | None = None
    """The kind of attention where keys and values come from a latent. Heads then share one key of the cache,
    the latent and the part with rope: `kv_heads` is 1, `head_dim` its width.
    """
    compressed: CompressedAttention | None = None
    """The kind of attention with keys of blocks beside a window; then `kv_heads` is 1 and `latent` None."""
    layer_latents: tuple[LatentAttention, ...] = ()
    """The `latent` of each layer, where they differ; then each scales its scores by 1 / sqrt(query_dim)."""
    layer_heads: tuple[tuple[int, int], ...] = ()
    """(key/value heads, head dimension) of each layer, where they differ."""
    layer_queries: tuple[int, ...] = ()
    """The `heads` of each layer, where they differ."""
    value_dim: int = 0
    """Numbers of a value, where they are fewer than those of a key, but no less than half; 0: as many. In the
    cache values are as long as keys.
    """
    value_scale: float = 1.0
    """Multiplies values."""
    silent_tokens: tuple[int, int] = (0, 0)
    """The tokens from the first to before the second are never written."""
    shared_kv: int = 0
    """How many of the last layers have no keys and values of their own; see `kv_layer`."""
    kv_sources: tuple[int, ...] = ()
    """What `kv_layer` is of each layer, where `shared_kv` does not say."""
    keys_as_values: frozenset[int] = frozenset()
    """The layers whose values are their keys before norm and rope."""
    value_norm: bool = False
    """Whether values are normed head by head, without a weight."""
    ffn_widths: tuple[int, ...] = ()
    """The `ffn_width` of each layer, where they differ."""
    per_layer: PerLayer | None = None
    altup: AltUp | None = None
    hyper: HyperConnections | GatedStreams | None = None
    ngrams: NGramTables | None = None
    cycles: Cycles | Loops | None = None
    """How often layers run, where it is more than once; the layers are those of all stacks."""
    sphere: Sphere | None = None
    """Not None: norms have no weights and make rows of length 1 (nGPT, arXiv 2410.01131)."""
    layer_scale: bool | None = False
    """Whether what a layer makes is multiplied by a number of its own; True, False and None as for biases."""
    output_gate: str = ""
    """What makes a gate, whose `gate_activation` multiplies attention's result: "queries", the matrix of
    these, "row", one of its own, or "head", one of its own with a number for each head; "": there is none.
    """
    gate_activation: str = "sigmoid"
    mlp_limits: tuple[Limits | None, ...] = ()
    """Of each layer, those of the feed-forward part, and of shared experts; None: any size."""
    expert_limits: tuple[Limits | None, ...] = ()
    """The same of the routed experts."""
    norm_gate_rank: int = 0
    """Numbers between the two matrices of the gates of norms; 0: they have none. Those before plain
    feed-forward parts have none, either (A.X K2).
    """
    indexer: Indexer | None = None
    """What chooses the positions that attention looks at; None: it looks at all."""
    bidirectional: bool = False
    """Whether a token attends to later ones, too: the model is an encoder, and a text is one pass."""
    headless: bool = False
    """Whether the model has no head: it makes hidden states, and cannot write text. All encoders are so."""
    token_types: int = 0
    """Rows of the table of token types, of which the first is added to every embedding (BERT)."""
    distance_buckets: int = 0
    """Rows of the table of what is added to attention's scores by distance; see `by_distance`."""
    narrow_positions: bool = False
    """Whether positions, token types and the norm of embeddings have `embed_width`, and stand before the
    matrix that widens them (ELECTRA).
    """
    unnormed_layers: frozenset[int] = frozenset()
    """The layers without a norm before attention."""
    normed_twice: bool = False
    """Whether attention's input is added to its normed result again, and that normed again (Jina BERT v2)."""

    def __post_init__(self) -> None:
        for layer in range(self.layers) if self.layer_heads or self.layer_queries else (0,):
            heads, kv_heads = self.queries_of(layer), self.heads_of(layer)[0]
            if heads % kv_heads:
                raise BadCheckpoint(
                    _("The model has {heads} heads and {kv_heads} key/value heads; the first "
                      "must be a multiple.", heads=heads, kv_heads=kv_heads)
                )  # fmt: skip
        if self.slopes and len(self.slopes) != self.heads:
            raise BadCheckpoint(
                _("The model has {heads} heads and {slopes} slopes of ALiBi.",
                  heads=self.heads, slopes=len(self.slopes))
            )  # fmt: skip
        if self.windows and len(self.windows) != self.layers:
            raise BadCheckpoint(
                _("The model has {layers} layers but states the kind of attention for {windows}.",
                  layers=self.layers, windows=len(self.windows))
            )  # fmt: skip
        if any(not 0 <= layer < self.layers for layer in self.recurrent_layers):
            raise BadCheckpoint(
                _("The model has {layers} layers, but its layer {recurrent_layers} is said to be "
                  "recurrent.", layers=self.layers, recurrent_layers=max(self.recurrent_layers))
            )  # fmt: skip
        for layer in range(self.layers - self.shared_kv, self.layers):
            self.kv_layer(layer)

    def shape(self, layer: int) -> AttentionShape:
        """The attention of one layer, its window and soft cap included."""
        kv_heads, head_dim = self.heads_of(layer)
        window, latent = self.window_of(layer), self.latent_of(layer)
        scale = (self.attention_scale or head_dim**-0.5) * self.multipliers.keys
        scale /= layer + 1 if self.scaled_by_layer else 1
        if latent is not None and self.layer_latents:
            scale = latent.query_dim**-0.5 * latent.score_scale
        return AttentionShape(
            self.queries_of(layer), kv_heads, head_dim, scale, window, self.attention_cap,
            latent.rank if latent else head_dim if self.compressed else 0, self.slopes, self.rounded_slopes,
            self.chunked and window > 0, self.bidirectional,
        )  # fmt: skip

    def heads_of(self, layer: int) -> tuple[int, int]:
        """(key/value heads, head dimension) of a layer."""
        return self.layer_heads[layer] if self.layer_heads else (self.kv_heads, self.head_dim)

    def latent_of(self, layer: int) -> LatentAttention | None:
        """The latent attention of a layer, if it has it."""
        return self.layer_latents[layer] if self.layer_latents else self.latent

    def queries_of(self, layer: int) -> int:
        """The query heads of a layer."""
        return self.layer_queries[layer] if self.layer_queries else self.heads

    def window_of(self, layer: int) -> int:
        """The sliding window of a layer; 0: none."""
        return self.windows[layer] if self.windows else 0

    def has_local_rope(self, layer: int) -> bool:
        """Whether a layer's rope is `rope_local`."""
        own = layer in self.local_layers if self.local_layers else self.window_of(layer) > 0
        return own and self.rope_local is not None

    def ffn_of(self, layer: int) -> int:
        """The features inside a layer's feed-forward part."""
        return self.ffn_widths[layer] if self.ffn_widths else self.ffn_width

    def scales_of(self, layer: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """The factors of what each half of a layer is added to, and of what it adds."""
        if not self.half_scales:
            return ((1.0, self.residual_scale),) * 2
        return self.half_scales[layer in self.recurrent_layers], self.half_scales[2]

    def kv_layer(self, layer: int) -> int:
        """The layer whose keys and values a layer reads: its own, but for the `shared_kv` layers those of the
        last layer before them that has a window if this one has. Raises `BadCheckpoint` if none has the same.
        """
        first, kind = self.layers - self.shared_kv, bool(self.window_of(layer))
        if layer < first:
            return self.kv_sources[layer] if self.kv_sources else layer
        alike = [other for other in range(first) if bool(self.window_of(other)) == kind]
        if not alike or self.heads_of(alike[-1]) != self.heads_of(layer):
            raise BadCheckpoint(
                _("Layer {layer} of the model shares an earlier layer's keys and values, but "
                  "none has the same heads; the file is damaged.", layer=layer)
            )  # fmt: skip
        return alike[-1]

    @property
    def cache_shapes(self) -> tuple[AttentionShape, ...]:
        """The attention of each layer of the cache, then keys of blocks, then the keys of each indexer."""
        indexers = [cached_keys(self.indexer.shape)] * len(self.indexer.layers) if self.indexer else []
        return (*(self.shape(layer) for layer in (*self.cached_layers, *self.block_layers)), *indexers)

    @property
    def block_layers(self) -> tuple[int, ...]:
        """The layers with keys of blocks."""
        return self.compressed.layers if self.compressed else ()

    @property
    def cached_layers(self) -> tuple[int, ...]:
        """The layers with keys and values, in the order of those of the cache."""
        order = self.cycles.order(self.layers) if self.cycles else range(self.layers)
        return tuple(layer for layer in order if layer not in self.uncached_layers)

    @property
    def kv_shapes(self) -> tuple[tuple[int, int], ...]:
        """(key/value heads, head dimension) of each layer with keys and values."""
        return tuple((shape.kv_heads, shape.head_dim) for shape in self.cache_shapes)

    @property
    def uncached_layers(self) -> frozenset[int]:
        """The layers without keys and values of their own."""
        shared = frozenset(range(self.layers - self.shared_kv, self.layers)) | self.mlp_layers
        shared |= {layer for layer, source in enumerate(self.kv_sources) if source != layer}
        return shared if self.beside_attention else self.recurrent_layers | shared

    def cache_layer(self, layer: int) -> int:
        """The number of the layer that a layer with attention reads, among those with keys and values."""
        layer = self.kv_layer(layer)
        return layer - sum(other < layer for other in self.uncached_layers)

    @property
    def state_shapes(self) -> tuple[StateShape, ...]:
        """The parts of a state: those of each recurrent layer, in order, then the further ones."""
        layers = sorted(self.recurrent_layers)
        own = [part for at in layers for part in state_parts(self.recurrent, self.width, at)]
        return (*own, *(shape for _layer, shape in self.further_parts))

    @property
    def further_parts(self) -> tuple[tuple[int, StateShape], ...]:
        """The parts of a state that are not those of recurrent layers, and the layers that have them."""
        choosing = self.indexer.layers if self.indexer else frozenset[int]()
        found = [*self.compressed.parts(self.head_dim, choosing)] if self.compressed else []
        found += self.indexer.parts if self.indexer else ()
        found += self.hyper.parts(self.width) if isinstance(self.hyper, GatedStreams) else ()
        found += [(0, self.ngrams.part)] if self.ngrams else []
        return tuple(sorted(found, key=lambda own: own[0]))

    def further_part(self, layer: int) -> int:
        """The number of the first of these of a layer."""
        return len(self.state_shapes) - sum(other >= layer for other, _shape in self.further_parts)

    def first_state_part(self, layer: int) -> int:
        """The number of a recurrent layer's first part of a state."""
        own = state_parts(self.recurrent, self.width, layer)
        return sum(x < layer for x in self.recurrent_layers) * len(own)

    @property
    def advised_context(self) -> int:
        """The longest context without loss of quality: longrope and dynamic scaling begin beyond it."""
        length = self.rope.original_length if self.rope is not None else 0
        return min(length, self.context_length) if length else self.context_length

    def kv_bytes_per_token(self, dtype: str = "fp16") -> int:
        """Bytes of one position in all layers; `dtype` is as in `kv_formats.cache_type`."""
        kind, shapes = cache_type(dtype), self.cache_shapes
        return sum(bytes_per_position(kind, one.kv_heads, one.head_dim, one.latent > 0) for one in shapes)
