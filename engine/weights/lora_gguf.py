"""LoRA adapters in GGUF files, as llama.cpp's `convert_lora_to_gguf.py` writes them.

The keys are general.type "adapter", general.architecture (the model's), adapter.type "lora" and
adapter.lora.alpha. For a matrix (N, K) of the model's GGUF file and rank R there are `<tensor>.lora_a` (R, K)
and `<tensor>.lora_b` (N, R), in that file's order of rows, which add B A * alpha / R; alpha 0, or none,
stands for R. For the table of embeddings, token_embd.weight (V, E), they are A (V, R) and B (E, R), which
add A B^T.
Source: that program and `src/llama-adapter.cpp` of the same project.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.adapter import (
    Adapter,
    LowRank,
    checked_alpha,
    checked_rank,
    no_matrices,
    not_lora,
    one_of_two,
    unsupported,
)
from engine.weights.gguf.file import GgufFile
from engine.weights.plain import NUMBER_FORMATS
from engine.weights.tensor import find_format
from engine.words import _

_NAME = re.compile(r"(?P<module>.+)\.weight\.lora_(?P<side>[ab])")
_ALPHA = "adapter.lora.alpha"
_INVOCATION = "adapter.alora.invocation_tokens"
_TABLE = "token_embd"


def read_gguf_adapter(path: Path) -> Adapter:
    """Read the headers of an adapter. Raises `ModelNotFound`, `BadCheckpoint` and `UnsupportedModel`."""
    with closing(GgufFile(path)) as file:
        architecture = _check_kind(path, file.metadata)
        alpha = checked_alpha(path.name, _ALPHA, file.metadata.get(_ALPHA, 0.0))
        found = _found(path, file.tensors)
    modules = {}
    for module in {**found["a"], **found["b"]}:
        a, b = found["a"].get(module), found["b"].get(module)
        if a is None or b is None:
            raise one_of_two(path.name, module)
        of_table = module == _TABLE
        down, up = (b, a) if of_table else (a, b)
        rank = checked_rank(path.name, module, down.shape[:: -1 if of_table else 1], up.shape)
        modules[module] = LowRank(down, up, alpha / rank if alpha else 1.0, of_table=of_table)
    if not modules:
        raise no_matrices(path.name, path.name)
    return Adapter(path, modules, architecture=architecture)


def _check_kind(path: Path, metadata: Mapping[str, Any]) -> str:
    """The architecture of the models that an adapter is for."""
    if metadata.get("general.type") != "adapter":
        raise UnsupportedModel(
            _(
                "{path} holds no LoRA adapter (its general.type is {kind!r}); choose an adapter's GGUF file, "
                "and load a model as a model.",
                path=path.name,
                kind=str(metadata.get("general.type", "model"))[:40],
            )
        )
    if metadata.get("adapter.type") != "lora":
        raise UnsupportedModel(
            _(
                "{folder} is an adapter of the kind {kind!r}; only LoRA adapters can be used.",
                folder=path.name,
                kind=str(metadata.get("adapter.type", ""))[:40],
            )
        )
    if _INVOCATION in metadata:
        raise unsupported(path.name, _INVOCATION)
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise BadCheckpoint(
            _(
                "{path} does not say which architecture it is for (general.architecture); download the "
                "adapter again.",
                path=path.name,
            )
        )
    return architecture


def _found(path: Path, tensors: Mapping[str, RawTensor]) -> dict[str, dict[str, RawTensor]]:
    """{"a" or "b": {module: tensor}}."""
    found: dict[str, dict[str, RawTensor]] = {"a": {}, "b": {}}
    for tensor in tensors.values():
        match = _NAME.fullmatch(tensor.name)
        if match is None or len(tensor.shape) != 2 or find_format(tensor.type) in NUMBER_FORMATS:
            raise not_lora(path.name, tensor)
        found[match["side"]][match["module"]] = tensor
    return found
