"""What the names of the tensors in a file are."""

from __future__ import annotations

from dataclasses import replace

from engine.lazy_dataclass import dataclass
from engine.models.config.compressed import CompressedNames
from engine.models.config.gemma import AltUpNames
from engine.models.config.hyper import GATED_STREAMS, SPHERE, GatedStreamNames, SphereNames
from engine.models.config.indexer import IndexerNames
from engine.models.names.rwkv import RwkvNames, ShiftNames


@dataclass(frozen=True, slots=True)
class RecurrentNames:
    """The names of a recurrent layer's tensors, after those of `TensorNames.layer`; "" if there is none.

    `rate`, `shift` and `skip` are full names, as are those of norms without ".weight".
    """

    input: str
    """The matrix that makes what is convolved, and for Mamba-2 and LFM2 what gates it, too."""
    output: str
    convolution: str
    gate: str = ""
    decay: str = ""
    beta: str = ""
    beta_shift: str = ""
    """The full name of what is added to `beta`'s result."""
    decay_beta: str = ""
    """Decay and beta in one matrix, grouped by key head (Qwen3-Next)."""
    fused: str = ""
    """What a file may have in place of a delta net's `input`, `gate`, `beta` and `decay`: their rows in this
    order (Lara Mini); or of `query`, `key` and `value`.
    """
    rate: str = ""
    shift: str = ""
    skip: str = ""
    norm: str = ""
    query: str = ""
    """What makes queries, and the next keys and values, where they are made and convolved each alone."""
    key: str = ""
    value: str = ""
    convolutions: tuple[str, ...] = ()
    """Of the three; a single one is of all of them."""
    convolutions_even: bool = False
    """Whether those are equal parts of all channels, however many queries, keys and values have."""
    decay_up: str = ""
    gate_up: str = ""
    """The second matrices of decays and gates that are made by two."""
    tap_dims: int = 0
    """2: convolutions are (C, K), 3: (C, 1, K), 4: (1, C, 1, K), 0: as `gguf` says."""
    rate_dims: int = 1
    """1: rates of delta nets are (H,), 2: (H, 1), 4: (1, 1, H, 1)."""
    mixed: str = ""
    """What makes the steps' numbers, keys and queries of a Mamba layer; the next makes the steps, and then
    there are the norms of the three.
    """
    step: str = ""
    step_norm: str = ""
    key_norm: str = ""
    query_norm: str = ""
    gguf: bool = False
    """Whether convolutions are (C, K) instead of (C, 1, K), and rates -exp(A) instead of A."""
    rates_positive: bool = False
    """Whether those of such files are exp(A)."""


_OUTER = (
    "embed", "norm", "head", "layer", "positions", "embed_norm", "token_types", "distances", "project_in",
    "project_out", "head_norm", "hyper_head", "second_layer", "first_state",
    "per_layer_table", "per_layer_projection", "per_layer_norm", "ngram_table", "ngram_projection",
    "loop_gate",
    "altup_spread", "altup_gather",
)  # fmt: skip
"""The names that are not those of a layer's tensors."""


@dataclass(frozen=True, slots=True)
class LatentNames:
    """The names of latent attention's tensors, after those of `TensorNames.layer`; "" if there is none.

    Those without a latent of the queries have `TensorNames.query` in place of the first three.
    """

    query_down: str
    query_norm: str
    query_up: str
    down: str
    """The matrix that makes the latent and then the part of the key with rope."""
    norm: str
    up: str
    """The matrix that makes of each head in turn the key without rope and the value."""
    key_up: str = ""
    """A stack of each head's matrix from its query to the latent, that of the key transposed."""
    value_up: str = ""
    """A stack of each head's matrix from the latent to its value."""
    key_norm: str = ""
    """The norm of the part of the key with rope."""
    scales: tuple[str, str] = ("", "")
    """The full names of the numbers of `HeadScales`."""


@dataclass(frozen=True, slots=True)
class NarrowNames:
    """The names of what stands around experts of fewer features, after those of `TensorNames.layer`."""

    down: str
    up: str
    norm: str = ""
    each: str = ""
    """The norm after each expert, and the next that of their weighted sum."""
    last: str = ""


@dataclass(frozen=True, slots=True)
class NetworkNames:
    """The names of what is before a router, after those of `TensorNames.layer`; `carried` is a full name."""

    down: str
    carried: str
    norm: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class TensorNames:
    """The names in a file, without ".weight" and ".bias"; "" if there is no such tensor.

    Names of a layer follow `layer`, which holds "{}" for its number. A fused tensor (`query_key_value`,
    `gate_up`, `expert_gate_up`, `shared_gate_up`) is used if the file has it. `sinks` is a full name. An
    expert's name holds "{}" for its number where every expert has its own tensors; otherwise the experts are
    stacked.
    """

    embed: str
    norm: str
    head: str
    layer: str
    attention_norm: str
    query: str
    key: str
    value: str
    output: str
    mlp_norm: str
    gate: str
    up: str
    down: str
    query_key_value: str = ""
    key_value: str = ""
    """Keys and values in one matrix, where queries have their own."""
    gate_up: str = ""
    query_norm: str = ""
    key_norm: str = ""
    attention_post: str = ""
    mlp_post: str = ""
    output_gate: str = ""
    gate_bias: str = ""
    """The full name of that gate's bias, a number for each head."""
    mixed_norm: str = ""
    """The norm of attention's result, and the next that of what is inside the feed-forward part, each before
    the last matrix.
    """
    inner_norm: str = ""
    positions: str = ""
    xielu: str = ""
    """What comes before the names of an activation's own numbers."""
    embed_norm: str = ""
    project_in: str = ""
    project_out: str = ""
    head_norm: str = ""
    """The norm after the matrix `project_out` of `ModelConfig.head_activation`."""
    sinks: str = ""
    token_types: str = ""
    distances: str = ""
    """The table of `ModelConfig.distance_buckets`."""
    attention_again: str = ""
    """The norm of `ModelConfig.normed_twice`."""
    other_norms: tuple[tuple[str, str], ...] = ()
    """The ends of the names of norms, each with the one that some layers may have in its place."""
    gate_last: bool = False
    """Whether the gate is the second half of `gate_up` instead of the first."""
    router: str = ""
    router_transposed: bool = False
    """Whether it is (E, X) instead of (X, E)."""
    expert_gate: str = ""
    expert_up: str = ""
    expert_down: str = ""
    expert_gate_up: str = ""
    expert_sum_bias: str = ""
    """The full name of the bias of `Experts.sum_bias`."""
    expert_down_stack: str = ""
    """The stack beside `expert_gate_up`, where `expert_down` is the name in files with a tensor for each
    expert.
    """
    correction: str = ""
    """The full name of the bias that counts for the choice of experts alone."""
    correction_rows: int = 0
    """The rows of which it is the first, where it is a table instead of (X,)."""
    shared_router: str = ""
    shared_gate: str = ""
    shared_up: str = ""
    shared_down: str = ""
    shared_gate_up: str = ""
    shared_gate_vector: bool = False
    """Whether `shared_router` is (E,) instead of (1, E)."""
    stack_ends: tuple[str, str] = (".weight", ".bias")
    """How the names of stacks of weights and of biases end."""
    stacks_transposed: bool = False
    """Whether stacks are (X, K, N) instead of (X, N, K)."""
    stacks_flat: bool = False
    """Whether stacks are (X F, E), of which the matrices of `expert_down` are transposed (DBRX)."""
    stacks_alternate: bool = False
    """Whether the rows of a fused stack are gate, up, gate, up, ... instead of the gate's first."""
    router_norm: str = ""
    """The full name of the weight of the norm of the router's own input."""
    expert_scales: str = ""
    """The full name of the factors of the experts' weights."""
    beside_post: str = ""
    """The norm after the feed-forward part beside experts; the next two stand around these."""
    experts_norm: str = ""
    experts_post: str = ""
    adjugate_gate: str = ""
    """The stacks of `Experts.adjugates`."""
    adjugate_up: str = ""
    adjugate_down: str = ""
    per_layer_table: str = ""
    """A second embedding, of every token for every layer; the next five belong to it."""
    per_layer_projection: str = ""
    per_layer_norm: str = ""
    ngram_table: str = ""
    """The embeddings of n-grams, with "{}" for the number of a head, and the next what projects them."""
    ngram_projection: str = ""
    loop_gate: str = ""
    """The gate of a layer's second run, with "{}" for its number."""
    layer_gate: str = ""
    layer_projection: str = ""
    layer_post: str = ""
    layer_scale: str = ""
    """The full name of the number that multiplies a layer's result."""
    altup: AltUpNames | None = None
    altup_spread: str = ""
    """The matrices that make the versions of an embedding, and the next those that bring these together: a
    stack, or with "{}" for a number.
    """
    altup_gather: str = ""
    grouped: bool = False
    """Whether the rows of `query_key_value` are grouped by key/value head: the queries of a group, its key,
    its value (InternLM 2); those of `key_value`: a key, its value (TeleChat).
    """
    shards: int = 0
    """The parts of the rows of `query_key_value`, each with queries, values, keys (CodeGen); 0: one."""
    recurrent: RecurrentNames | None = None
    relative: tuple[str, str] = ("", "")
    """What makes the weights of a `RelativeBias`, and the full name of its profiles."""
    second_layer: str = ""
    """The same as `layer` for the second of two stacks (`ModelConfig.cycles`); "" where the numbers of its
    layers follow those of the first.
    """
    first_state: str = ""
    """The full name of the row that `CyclicBlocks` begins with."""
    pieces: tuple[tuple[str, str, int, int], ...] = ()
    """Of matrices of a layer that are equal parts of a tensor's rows: the name, the tensor, the number of the
    part and of all parts.
    """
    narrow: NarrowNames | None = None
    router_network: NetworkNames | None = None
    attention_residual_gate: str = ""
    """The full names of the gates of `ModelConfig.residual_gates`."""
    mlp_residual_gate: str = ""
    hyper_attention: str = ""
    """What comes before "fn", "scale" and "base", which weigh streams; the third is a full name."""
    hyper_mlp: str = ""
    hyper_head: str = ""
    gated_streams: GatedStreamNames = GATED_STREAMS
    sphere: SphereNames = SPHERE
    dense_scale: str = ""
    """The full name of the number that multiplies what a plain feed-forward part makes."""
    expert_table: str = ""
    """The full name of the table of `Experts.tabled`."""
    compressed: CompressedNames | None = None
    latent: LatentNames | None = None
    indexer: IndexerNames | None = None
    rwkv: RwkvNames | None = None
    shifted: ShiftNames | None = None
    transposed: bool = False
    """Whether matrices other than the embedding and the head are (K, N) instead of (N, K)."""
    odd: TensorNames | None = None
    """The names of odd layers, where those share a number in the file with the layers before them."""

    def of(self, layer: int) -> TensorNames:
        """The names of one layer."""
        if self.odd is None:
            return self
        own = self.odd if layer % 2 else self
        return replace(own, layer=self.layer.format(layer // 2), odd=None)

    def at(self, layer: int, stack: int = 0) -> str:
        """What the names of a layer's tensors begin with; `stack` is the number of layers in the first of two
        stacks, 0: there is one.
        """
        return (
            self.second_layer.format(layer - stack)
            if self.second_layer and layer >= stack
            else self.layer.format(layer)
        )

    def under(self, prefix: str) -> TensorNames:
        """The same names after `prefix`.

        If the prefix begins with "-", the rest replaces the first part of each name, and the head keeps its
        name: "-" alone is for a model saved without its head.
        """
        if not prefix:
            return self
        if prefix[0] == "-":
            first = self.embed.partition(".")[0] + "."
            names = [name for name in _OUTER if name != "head" and getattr(self, name)]
            return replace(
                self, **{name: prefix[1:] + getattr(self, name).removeprefix(first) for name in names}
            )
        return replace(self, **{name: prefix + getattr(self, name) for name in _OUTER if getattr(self, name)})
