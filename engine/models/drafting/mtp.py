"""The head for multi-token prediction (MTP) that some models come with: one layer more, which drafts.

From the hidden state h of position i after the final norm, and the token of position i + 1, the head predicts
the token of position i + 2 (DeepSeek-V3, arXiv 2412.19437, section 2.2):
h' = layer(M [norm(embedding); norm(h)]), and the model's own head makes logits of norm(h'). For the token
after that, norm(h') takes the place of h.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any

from engine.backends.base import Array, Backend, MemoryEstimator, Ops
from engine.core import Loading
from engine.errors import BadCheckpoint, BadSetting
from engine.lazy_dataclass import dataclass
from engine.models.base import Model, Weights
from engine.models.building.decoder import block_of, norm_of
from engine.models.building.source import Loader, Survey, WeightSource, linear
from engine.models.config import ModelConfig
from engine.models.drafting.head import HeadModel
from engine.models.layers.parts import Block, Linear, Norm
from engine.models.layers.whole import Blocks, Parts
from engine.models.load import check_memory, find_architecture, read_config
from engine.models.names import TensorNames
from engine.tensors import RawTensor
from engine.weights.checkpoint import Checkpoint
from engine.weights.gguf.ollama import known_name
from engine.words import _

__all__ = ["MtpModel", "head_bytes", "read_head"]


@dataclass(frozen=True, slots=True)
class _Names:
    """Full names without ".weight"; `layer` comes before those of the layer, and `norm` is "" where it is
    the model's own.
    """

    layer: str
    embed_norm: str
    hidden_norm: str
    projection: str
    norm: str


def _find(tensors: Mapping[str, RawTensor], names: TensorNames, config: ModelConfig) -> _Names | None:
    """The names of the first head in a file; None if it has none. Qwen's folders have it apart, others as a
    layer after the last; GGUF files have all heads so.
    """
    at = names.layer.format(config.layers)
    known = (
        _Names("mtp.layers.0.", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc", "mtp.norm"),
        _Names(at, at + "enorm", at + "hnorm", at + "eh_proj", at + "shared_head.norm"),
        _Names(
            at, at + "nextn.enorm", at + "nextn.hnorm", at + "nextn.eh_proj", at + "nextn.shared_head_norm"
        ),
    )
    found = next((form for form in known if form.projection + ".weight" in tensors), None)
    if found is None or found.norm + ".weight" in tensors:
        return found
    other = at + "final_layernorm"  # Hunyuan 3's name
    return replace(found, norm=other if other + ".weight" in tensors else "")


def _layer_config(config: ModelConfig, has_experts: bool) -> ModelConfig:
    """The head's layer as a decoder of one: full attention, and experts if the file has them."""
    experts = config.experts
    return replace(
        config, layers=1, recurrent=None, recurrent_layers=frozenset(), mlp_layers=frozenset(),
        nope_layers=frozenset(), windows=(), ffn_widths=(), layer_heads=(), shared_kv=0,
        experts=replace(experts, layers=frozenset({0})) if experts is not None and has_experts else None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Head:
    embed_norm: Norm
    hidden_norm: Norm
    projection: Linear
    block: Block
    norm: Norm | None


def _build(source: WeightSource, config: ModelConfig, names: TensorNames, found: _Names) -> _Head:
    width = config.width
    names = replace(names, layer=found.layer)
    return _Head(
        norm_of(source, config, names, found.embed_norm),
        norm_of(source, config, names, found.hidden_norm),
        linear(source, found.projection, width, 2 * width, False),
        block_of(source, config, names),
        norm_of(source, config, names, found.norm) if found.norm else None,
    )


def _form(checkpoint: Checkpoint) -> tuple[ModelConfig, TensorNames, _Names] | None:
    """The layer's config, the names of the model, and those of its head; None if it has none that can run."""
    config, architecture = read_config(checkpoint), find_architecture(checkpoint)
    names = architecture.names(checkpoint.format, checkpoint.tensors)
    found = _find(checkpoint.tensors, names, config)
    odd = config.altup is not None or config.embed_norm or config.value_dim or config.layer_queries
    if found is None or config.per_layer is not None or odd:
        return None
    routed = bool(names.router) and found.layer + names.router + ".weight" in checkpoint.tensors
    return _layer_config(config, routed), names, found


def head_bytes(checkpoint: Checkpoint, backend: MemoryEstimator) -> int:
    """The bytes of the weights of a file's head; 0 if it has no complete one of a form that is known here,
    whose model is valid.
    """
    seen = Survey(checkpoint.tensors, backend)
    try:
        form = _form(checkpoint)
        if form is not None:
            _build(seen, *form)
    except BadCheckpoint:  # tensors of other shapes are of another kind of head
        return 0
    return 0 if form is None or seen.missing else seen.bytes


class MtpModel(HeadModel):
    """A head as a model of one layer, which shares the embedding and the head of `main`."""

    def __init__(self, main: Model, config: ModelConfig, made: _Head, loaded: Weights) -> None:
        outer = main.parts
        parts = Parts(
            outer.embed, Blocks((made.block,)), made.norm or outer.norm, outer.head,
            embed_scale=outer.embed_scale, logit_scale=outer.logit_scale, logit_cap=outer.logit_cap,
        )  # fmt: skip
        shared = {id(weight): weight.nbytes for weight in (outer.embed, outer.head.weight)}
        super().__init__(config, main, parts, replace(loaded, bytes=loaded.bytes + sum(shared.values())))
        self.resident_bytes = loaded.bytes
        self._made: _Head | None = made

    def forward(self, ops: Ops) -> Array:
        parts, made = self.parts, self._made
        assert made is not None
        tokens = made.embed_norm(ops, ops.embed(parts.embed, parts.embed_scale))
        states = made.hidden_norm(ops, ops.given(self.given))
        x = made.projection(ops, ops.join(tokens, states, 1))
        return parts.logits(ops, parts.last(ops, parts.stack(ops, x, self.rope_tables), self.kept))

    def close(self) -> None:
        super().close()
        self._made = None


def read_head(
    checkpoint: Checkpoint, main: Model, prepare: Callable[[RawTensor], RawTensor] | None = None
) -> Generator[Loading, None, MtpModel]:
    """Load the head that a file has for `main`, the model of the same file.

    Raises `BadSetting` if there is none, and `NotEnoughMemory`.
    """
    backend: Backend = main.backend
    name = known_name(checkpoint.path)
    form = _form(checkpoint) if head_bytes(checkpoint, backend) else None
    if form is None:
        raise BadSetting(
            _(
                "{name} has no head for multi-token prediction. Choose another drafting method, or "
                "turn off drafting.",
                name=name,
            )
        )
    seen = Survey(checkpoint.tensors, backend, prepare)
    _build(seen, *form)
    check_memory(name, seen.bytes, backend.free_memory(), backend.where)
    yield Loading(_("Loading the weights"), 0, 1)
    loader = Loader(checkpoint.tensors, backend, prepare)
    made = _build(loader, *form)
    slots: dict[str, Any] = {}
    model = MtpModel(main, form[0], made, Weights(seen.parameters, loader.bytes, loader.expert_bytes, slots))
    yield from model.prepare()
    return model
