"""What hyper-connections and layers that run several times are, as read from a model's headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.backends.ngrams import NGrams
from engine.backends.states import ConvolutionShape, StateShape
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HyperConnections:
    """Several streams of rows in place of one (arXiv 2409.19606): each half of a layer reads a weighted sum
    of them and adds its result, weighted, to each.
    """

    streams: int
    magnitude: float
    """Multiplies the sigmoids that weigh a result; those that weigh what a half reads stand alone."""
    eps: float
    """Added to all weights; where streams are mixed, to those that weigh what a half reads alone."""
    rounds: int = 0
    """How often the matrix is normalised by which streams are mixed before a result is added (manifold-
    constrained hyper-connections, arXiv 2512.24880), see `Ops.balance`; 0: streams stay as they are.
    """
    mean: bool = False
    """Whether the layers end in the mean of the streams, rather than a weighted sum."""
    read_eps: float | None = None
    """Takes the place of `eps` in what weighs the streams that a half reads; None: it is `eps`."""
    inputs_first: bool = False
    """Whether the matrix that mixes streams is normalised first over what goes into each stream, rather than
    over what goes out of it (Xing 4).
    """
    limit: float = 0.0
    """The largest size of the logits of that matrix; 0: any."""


@dataclass(frozen=True, slots=True)
class Cycles:
    """Two stacks of layers that run in turns; see `CyclicBlocks`."""

    layers: int
    """Of each stack."""
    slow: int
    """How often the second one runs."""
    fast: int
    """How often the first one runs before each run of the second."""

    @property
    def first(self) -> int:
        """The number of layers in the first of two stacks."""
        return self.layers

    def order(self, layers: int) -> tuple[int, ...]:
        """The layers of both stacks, `layers` in all, as they run one after the other."""
        first, second = tuple(range(self.layers)), tuple(range(self.layers, layers))
        return (first * self.fast + second) * self.slow

    def of(self, layers: int) -> Cycles:
        """The same with this many layers in both stacks."""
        return replace(self, layers=layers // 2)


@dataclass(frozen=True, slots=True)
class Loops:
    """One stack of layers that runs several times; see `LoopedBlocks`."""

    times: int
    normed: bool
    """Whether the norm after all layers is also between two runs."""
    before: int = 0
    """How many of the first layers run once; the next are as many of the last."""
    after: int = 0
    window: int = 0
    """Of the keys of later runs, which also look at those of the first (IQuest-Coder Loop); 0: they look at
    all keys of their own.
    """

    @property
    def first(self) -> int:
        """0: there is one stack."""
        return 0

    def order(self, layers: int) -> tuple[int, ...]:
        """The layers as they run one after the other."""
        every, end = range(layers), layers - self.after
        return (*every[: self.before], *tuple(every[self.before : end]) * self.times, *every[end:])

    def of(self, layers: int) -> Loops:
        """The same with any number of layers, which all run several times."""
        return replace(self, before=0, after=0)


@dataclass(frozen=True, slots=True)
class Sphere:
    """What the learned factors of layers on the unit sphere are multiplied by; see
    `engine.models.layers.residual.unit_sphere`.
    """

    unit: float
    """A stored factor of this size stands for the one that training began with."""
    rate: float
    """The rate that training began with."""


@dataclass(frozen=True, slots=True)
class SphereNames:
    """The names of these factors, the last a full name, the others after `TensorNames.layer`."""

    query: str = "self_attn.sqk"
    gate: str = "self_attn.s_gate"
    mlp_gate: str = "mlp.suv_gate"
    mlp_up: str = "mlp.suv_up"
    attention_rate: str = "lambda_1"
    mlp_rate: str = "lambda_2"
    logits: str = "lm_head.logit_scale"


SPHERE = SphereNames()
"""Those of folders as transformers saves them."""


@dataclass(frozen=True, slots=True)
class NGramLayers:
    """The layers that add embeddings of n-grams to the streams before anything else (Qwen 4); see
    `engine.models.layers.residual.ngrams`.
    """

    hashes: Mapping[int, NGrams]
    """Of each of these layers, how its n-grams are hashed."""
    width: int
    """Numbers of a token's embedding."""
    taps: int
    """Of the convolution, of which each reads the row this many rows further back as the longest n-grams have
    tokens.
    """
    multiple: int
    """What the rows of a table are a multiple of."""

    def parts(self, layer: int, channels: int) -> tuple[StateShape, StateShape]:
        """What a layer keeps of a sequence: its last tokens, and the rows that it convolves."""
        size = self.hashes[layer].size
        return ConvolutionShape(size, size), ConvolutionShape(channels, (self.taps - 1) * size + 1)


@dataclass(frozen=True, slots=True)
class NGramTables:
    """Embeddings of n-grams beside those of tokens, each head's in a table of its own (LongCat); see
    `engine.models.layers.residual.ngrams`.
    """

    hashes: NGrams
    dim: int
    """Numbers of a row of a table."""

    @property
    def part(self) -> StateShape:
        """What is kept of a sequence: its last tokens."""
        return ConvolutionShape(self.hashes.size, self.hashes.size)


@dataclass(frozen=True, slots=True)
class GatedStreamNames:
    """The names of the tensors of `GatedStreams`, the first four after `TensorNames.hyper_attention` and its
    like, the others after `TensorNames.layer`; norms without ".weight".
    """

    norm: str = "hc_norm"
    down: str = "input_mix_weight_down"
    up: str = "input_mix_weight_up"
    inject: str = "block_inject_weight"
    table: str = "ple.ple_embedding.ngram_embedding"
    """The embeddings of n-grams; a name in `TensorNames.per_layer_table` takes its place."""
    key: str = "ple.key_proj"
    value: str = "ple.value_proj"
    key_norm: str = "ple.norm_key"
    query_norm: str = "ple.norm_query"
    result_norm: str = "ple.norm_conv"
    taps: str = "ple.conv1d"
    tap_dims: int = 3
    """3: the taps are (C, 1, K), 2: (C, K)."""


GATED_STREAMS = GatedStreamNames()
"""Those of folders."""


@dataclass(frozen=True, slots=True)
class GatedStreams:
    """Several streams of rows of which a half of a layer reads the mean of gated numbers (Qwen 4): gates are
    made by two matrices with `rank` numbers between them.
    """

    streams: int
    rank: int
    ngrams: NGramLayers | None = None

    def parts(self, width: int) -> tuple[tuple[int, StateShape], ...]:
        """What the layers with n-grams keep of a sequence, in streams of this width."""
        own, channels = self.ngrams, self.streams * width
        return (
            tuple((layer, one) for layer in own.hashes for one in own.parts(layer, channels)) if own else ()
        )
