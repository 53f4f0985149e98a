"""From an open checkpoint to a loaded model."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import psutil

from engine.backends.base import Backend
from engine.core import Loading
from engine.errors import NotEnoughMemory, UnsupportedModel
from engine.models import llama
from engine.models.base import Model, gigabytes
from engine.models.config import ModelConfig, hf_architecture
from engine.models.keys import Keys
from engine.models.layers import Parts
from engine.models.source import Loader, Survey, WeightSource
from engine.weights.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family: its names in GGUF files and in config.json, and its parts list."""

    gguf_names: tuple[str, ...]
    hf_names: tuple[str, ...]
    build: Callable[[WeightSource, ModelConfig, str], Generator[int, None, Parts]]


ARCHITECTURES = (Architecture(llama.GGUF_NAMES, llama.HF_NAMES, llama.build),)
"""Every known family; a new one is one file and one line here."""


def find_architecture(checkpoint: Checkpoint) -> Architecture:
    """The family of a checkpoint. Raises `UnsupportedModel` with the known names, or `BadCheckpoint`."""
    if checkpoint.format == "gguf":
        name = Keys(checkpoint.metadata, checkpoint.path.name).text("general.architecture")
        known = {each: family for family in ARCHITECTURES for each in family.gguf_names}
    else:
        name = hf_architecture(checkpoint.metadata["config"])
        known = {each: family for family in ARCHITECTURES for each in family.hf_names}
    if name not in known:
        raise UnsupportedModel(
            f"{checkpoint.path.name} has the architecture {name!r}, which is not supported; choose a model of one of: {', '.join(known)}."
        )
    return known[name]


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The checked configuration. Raises `BadCheckpoint` and `UnsupportedModel`."""
    find_architecture(checkpoint)
    if checkpoint.format == "gguf":
        return ModelConfig.from_gguf(checkpoint.metadata, checkpoint.tensors)
    return ModelConfig.from_hf(checkpoint.metadata["config"])


def read_model(checkpoint: Checkpoint, backend: Backend, cache_dtype: str = "auto") -> Generator[Loading, None, Model]:
    """Load all weights (`model = yield from read_model(...)`): the backend's preparations first, then layer by layer.

    `cache_dtype` is the type of the caches to come, so that what they need is compiled here, with progress. The checkpoint is
    not needed afterwards. Raises `BadCheckpoint`, `UnsupportedModel` and `NotEnoughMemory`.
    """
    build, config = find_architecture(checkpoint).build, read_config(checkpoint)
    survey = Survey(checkpoint.tensors, backend)
    for _ in build(survey, config, checkpoint.format):
        pass
    survey.check(checkpoint.path.name)
    _check_memory(checkpoint.path.name, survey.bytes)
    types = frozenset(survey.matrix_types)
    yield from backend.prepare(types, cache_dtype)
    yield Loading("Loading the weights", 0, config.layers)
    loader = Loader(checkpoint.tensors, backend)
    layers = build(loader, config, checkpoint.format)
    while True:
        try:
            done = next(layers)
        except StopIteration as end:
            return Model(config, backend, end.value, types, survey.parameters, loader.bytes)
        yield Loading("Loading the weights", done, config.layers)


def _check_memory(name: str, needed: int) -> None:
    free = psutil.virtual_memory().available
    if needed > free:
        raise NotEnoughMemory(
            f"{name} needs {gigabytes(needed)} of memory for its weights, but {gigabytes(free)} are free; "
            "close other programs, or choose a smaller model or a smaller quantisation of it."
        )
