"""From an open checkpoint to a loaded model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from engine.backends.base import Backend, Forward, MemoryEstimator, Weight
from engine.core import PAGE_TOKENS, Loading, assistant_alone
from engine.drain import drain, mapped
from engine.errors import NotEnoughMemory, UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.architectures import architecture_of
from engine.models.architectures.drafters.names import is_drafter
from engine.models.architectures.with_pictures import PARTS, WITH_PICTURES, text_architecture
from engine.models.base import Model, Weights, rope_tables
from engine.models.building.source import Loader, Survey, View
from engine.models.class_names import with_class
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_architecture
from engine.models.headers.keys import Keys
from engine.models.lora.gguf import Places, find_slots
from engine.models.lora.slots import adapter_slots
from engine.models.other_kinds import of_another_type, what_it_is
from engine.models.proof.provable import Provable
from engine.tensors import Floats, RawTensor
from engine.units import size_text
from engine.weights.checkpoint import Checkpoint, open_checkpoint
from engine.weights.gguf.ollama import known_name
from engine.weights.packed.padded import without_padding
from engine.words import N_, _, translate


@runtime_checkable
class EarlyPreparation(Protocol):
    """A backend that can compile kernels in other processes."""

    def prepare_early(
        self, forward: Forward, cache_dtype: str, beside: Callable[[], object]
    ) -> Generator[Loading, None, None]:
        """`Backend.prepare`, begun before the weights are loaded: the first event comes as soon as other
        processes compile. One of them calls `beside`, which fills another cache of compiled code.
        """
        ...


_COMPARED_ROWS = 32
Prepare = Callable[[RawTensor], RawTensor]
"""Changes a matrix before it is loaded, for example by quantising it."""


def find_architecture(checkpoint: Checkpoint) -> Architecture:
    """The architecture of a checkpoint. Raises `UnsupportedModel` and `BadCheckpoint`."""
    if is_drafter(checkpoint):
        raise UnsupportedModel(assistant_alone(known_name(checkpoint.path)))
    if checkpoint.format == "gguf":
        other = of_another_type(checkpoint.metadata.get("general.type"), known_name(checkpoint.path))
        if other is not None:
            raise UnsupportedModel(other)
        name = Keys(checkpoint.metadata, known_name(checkpoint.path)).text("general.architecture")
    else:
        config = with_class(checkpoint.metadata["config"])
        name = hf_architecture(config)
        if name in WITH_PICTURES:
            return text_architecture(config, name)
    found = architecture_of(checkpoint.format, name)
    if found is None and checkpoint.format != "gguf":
        found = architecture_of(checkpoint.format, _with_head(name))
    if found is None:
        sentence = what_it_is(name, known_name(checkpoint.path)) if checkpoint.format == "gguf" else None
        raise UnsupportedModel(
            sentence
            or _(
                "{path} has the architecture {name!r}, which this version of Inglenook cannot run. "
                "A later version may. `inglenook-engine info --json` lists the architectures that "
                "it can.",
                path=known_name(checkpoint.path),
                name=name,
            )
        )
    return found


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The checked configuration. Raises `BadCheckpoint` and `UnsupportedModel`."""
    architecture = find_architecture(checkpoint)
    if checkpoint.format == "gguf":
        assert architecture.from_gguf is not None
        where = _("The GGUF metadata")
        prefix = Keys(checkpoint.metadata, where).text("general.architecture") + "."
        keys = Keys(checkpoint.metadata, where, prefix)
        return _in_both_directions(architecture.from_gguf(keys, checkpoint.tensors), keys)
    assert architecture.from_hf is not None
    whole = with_class(checkpoint.metadata["config"])
    read = architecture.completed(architecture.from_hf(Keys(whole, "config.json")), checkpoint.tensors)
    config = _tied_as_the_whole(read, architecture, checkpoint)
    name = hf_architecture(whole)
    headless = name not in architecture.hf and _with_head(name) in architecture.hf
    return replace(config, headless=True) if headless else config


def _in_both_directions(config: ModelConfig, keys: Keys) -> ModelConfig:
    """The same, as an encoder where the file of a decoder says that its attention is not causal, as in
    llama.cpp. Raises `UnsupportedModel` if it has other layers than whole attention.
    """
    if config.bidirectional or keys.flag("attention.causal", True):
        return config
    others = config.recurrent, config.latent, config.compressed, config.indexer, config.cycles, config.shared
    if any(config.windows) or any(part is not None for part in others):
        raise UnsupportedModel(
            _(
                "The model sets {architecture}.{key}, which is not supported yet. Choose another model.",
                architecture=config.architecture,
                key="attention.causal",
            )
        )
    return replace(config, bidirectional=True, headless=True)


def _tied_as_the_whole(
    config: ModelConfig, architecture: Architecture, checkpoint: Checkpoint
) -> ModelConfig:
    """The same where a model with pictures and its text model disagree about tied tables: the whole's word
    counts, unless the folder has no head. Here, since some of these models have an architecture of their own.
    Where tables are never tied, the head of the folder counts; so does one with other numbers than a table
    that is said to be tied, as in transformers 5, and one in EXL3, which is made of a tied table too.
    """
    whole: Mapping[str, Any] = checkpoint.metadata["config"]
    none: Mapping[str, Any] = {}
    text = next((whole[name] for name in PARTS if isinstance(whole.get(name), Mapping)), none)
    said = [each.get("tie_word_embeddings") for each in (whole, text)]
    names = architecture.names(checkpoint.format, checkpoint.tensors)
    head = names.head + ".weight"
    own = checkpoint.tensors.get(head)
    if own is not None:
        embed = checkpoint.tensors.get(names.embed + ".weight")
        if architecture.untied or own.type == "EXL3" or (config.tied and _differ(own, embed)):
            return replace(config, tied=False)
    if not all(isinstance(each, bool) for each in said) or said[0] == said[1]:
        return config
    return replace(config, tied=bool(said[0]) or head not in checkpoint.tensors)


def _differ(head: RawTensor, embed: RawTensor | None) -> bool:
    """Whether a few rows, evenly spaced, of two matrices (V, E) of one type are not the same."""
    if embed is None or (head.type, head.shape) != (embed.type, embed.shape):
        return False
    rows = np.linspace(0, head.shape[0] - 1, _COMPARED_ROWS).astype(np.int64)
    return not np.array_equal(head.take(rows).data, embed.take(rows).data)


def _with_head(name: str) -> str:
    """The class of the same decoder with a head: embedding models are often saved without it."""
    return name.removesuffix("Model") + "ForCausalLM"


def survey(checkpoint: Checkpoint, backend: MemoryEstimator, prepare: Prepare | None = None) -> Survey:
    """Check a model and count its bytes by its headers. Raises `BadCheckpoint` and `UnsupportedModel`."""
    architecture, config = find_architecture(checkpoint), read_config(checkpoint)
    seen = Survey(checkpoint.tensors, backend, prepare)
    seen.parts = drain(
        architecture.build(seen, config, architecture.names(checkpoint.format, checkpoint.tensors))
    )
    seen.check(known_name(checkpoint.path))
    return seen


def read_model(
    checkpoint: Checkpoint,
    backend: Backend,
    cache_dtype: str = "auto",
    prepare: Prepare | None = None,
    make_room: Callable[[Survey], None] | None = None,
) -> Generator[Loading, None, Model]:
    """Load the weights layer by layer, then prepare the backend: `model = yield from read_model(...)`.

    `cache_dtype` is the type of the caches to come: the kernels that they need are compiled here, with
    progress. `prepare` may change each matrix first. `make_room` is called with the survey once all headers
    are checked, before any weight is read; without it free memory is checked. The checkpoint may be closed
    afterwards. Raises `BadCheckpoint`, `UnsupportedModel` and `NotEnoughMemory`.
    """
    architecture, config = find_architecture(checkpoint), read_config(checkpoint)
    names = architecture.names(checkpoint.format, checkpoint.tensors)
    seen = survey(checkpoint, backend, prepare)
    if make_room is None:
        check_memory(known_name(checkpoint.path), seen.bytes, backend.free_memory(), backend.where)
    else:
        make_room(seen)
    yield Loading(_("Loading the weights"), 0, config.layers)
    loader = Loader(checkpoint.tensors, backend, prepare)
    kernels = _prepare_early(backend, seen, config, cache_dtype)
    try:
        begun = next(kernels, None)  # from here on, other processes compile
        parts = yield from mapped(
            architecture.build(loader, config, names),
            lambda done: Loading(_("Loading the weights"), done, config.layers),
        )
        if begun is not None:
            yield begun
        yield from kernels
    finally:
        kernels.close()
    slots = adapter_slots(architecture, config, names, loader.linears)
    stored = partial(_stored, checkpoint.path, loader.views)
    from_gguf = checkpoint.format == "gguf"
    places = Places(architecture, config, names, loader.linears, loader.views, from_gguf)
    gguf_slots = partial(find_slots, places)
    weights = Weights(seen.parameters, loader.bytes, loader.expert_bytes, slots, stored, gguf_slots)
    model = Model(config, backend, parts, weights)
    yield from model.prepare(cache_dtype)
    if isinstance(backend, Provable) and not backend.notice:
        from engine.models.proof.first_use import cases_for, prove
        from engine.models.proof.miniature import kinds_of, miniatures

        small = miniatures(architecture, config, names, checkpoint.tensors, prepare, cache_dtype)
        kinds = kinds_of(checkpoint.tensors, prepare)
        model.proof = partial(prove, backend, cases_for(kinds, small, config, cache_dtype), cache_dtype)
        yield from model.proof(model.forward)
    return model


def _stored(path: Path, views: Mapping[int, tuple[str, View]], weight: Weight) -> Floats:
    """The values (N, K) of a loaded matrix in its file."""
    name, view = views[id(weight)]
    with closing(open_checkpoint(path)) as checkpoint:
        tensor = without_padding(checkpoint.tensors[name], view.shape(*weight.shape))
        return view.of(tensor).dequantise()


def _prepare_early(
    backend: Backend, seen: Survey, config: ModelConfig, cache_dtype: str
) -> Generator[Loading, None, None]:
    """Compile the kernels that the headers ask for, if the backend can do so while weights are loaded."""
    if isinstance(backend, EarlyPreparation) and seen.parts is not None:
        from engine.sampling.kernels import prepare as prepare_sampler

        tables = rope_tables(config, PAGE_TOKENS, min(PAGE_TOKENS, config.context_length))
        forward, sampler = partial(seen.parts, tables=tables), partial(prepare_sampler, config.vocab_size)
        yield from backend.prepare_early(forward, cache_dtype, sampler)


def check_memory(name: str, needed: int, free: int, where: str = "", *, can_offload: bool = False) -> None:
    """Raise `NotEnoughMemory` when weights of `needed` bytes exceed `free`.

    `where` is `Backend.where`; `can_offload`: the processor may read weights from the disk.
    """
    if needed > free:
        if where:
            words = N_(
                "{name} needs {size} of memory for its weights, but {size_2} are free on {where}; "
                "close other programs, or choose a smaller model, a smaller quantisation of it, or "
                "the processor (CPU) as the device."
            )
        elif can_offload:
            words = N_(
                "{name} needs {size} of memory for its weights, but {size_2} are free; close other "
                "programs, choose a smaller model or a smaller quantisation of it, or turn on "
                "“Offload to disk”."
            )
        else:
            words = N_(
                "{name} needs {size} of memory for its weights, but {size_2} are free; close other "
                "programs, or choose a smaller model or a smaller quantisation of it."
            )
        raise NotEnoughMemory(
            translate(words, name=name, size=size_text(needed), size_2=size_text(free), where=where)
        )
