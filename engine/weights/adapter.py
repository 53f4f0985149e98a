"""A LoRA adapter as its files hold it, and the sentences that refuse one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.tensors import RawTensor
from engine.words import _

_MOST_RANK = 1 << 14
_MOST_SCALE = 1e6


@dataclass(frozen=True, slots=True)
class LowRank:
    """The update of one module's matrix: `scale` * up (N, R) @ down (R, K).

    `magnitude` (N,) are the lengths of the rows of the changed matrix, or None if they are not set apart.
    `scale` * `bias` (N,) is added to the module's bias. With `of_table` the matrix is a table of embeddings
    and `down` is stored transposed, (K, R).
    """

    down: RawTensor
    up: RawTensor
    scale: float
    magnitude: RawTensor | None = None
    bias: RawTensor | None = None
    of_table: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.up.shape[0], self.down.shape[0 if self.of_table else 1]


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's low-rank updates by module name, as in the model that it was trained on.

    `whole` are matrices (N, K) and `biases` vectors (N,) that take the place of the module's own; so do the
    rows of `tokens`, (n, K), that of n tokens each, of which the numbers come first. A table of embeddings
    and a head may have more or fewer rows than the model's. A matrix of `shared` belongs to the model itself,
    so where table and head are tied, it is both. A module of `tied_tokens` is the head of a model with
    tied tables, which takes the rows of the table.
    `architecture` is the general.architecture of the GGUF files whose names and orders of rows it has; "": it
    has those of a Hugging Face folder.
    """

    path: Path
    modules: Mapping[str, LowRank]
    whole: Mapping[str, RawTensor] = field(default_factory=dict)
    biases: Mapping[str, RawTensor] = field(default_factory=dict)
    tokens: Mapping[str, tuple[tuple[int, ...], RawTensor]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    tied_tokens: frozenset[str] = frozenset()
    architecture: str = ""


def checked_rank(name: str, module: str, down: tuple[int, ...], up: tuple[int, ...]) -> int:
    """R of the shapes `down`, (R, K), and `up`, (N, R). Raises `BadCheckpoint` if they have no common one."""
    rank = down[0]
    if up[1] != rank or not 1 <= rank <= _MOST_RANK:
        raise BadCheckpoint(
            _(
                "{folder}: the LoRA matrices of {module} have the shapes {shape} and {shape_2}; "
                "(R, K) and (N, R) were expected.",
                folder=name,
                module=module,
                shape=down,
                shape_2=up,
            )
        )
    return rank


def checked_alpha(name: str, key: str, alpha: object) -> float:
    """The number `alpha`. Raises `BadCheckpoint` if it is none, or none that is usual."""
    if (
        not isinstance(alpha, int | float)
        or isinstance(alpha, bool)
        or not math.isfinite(alpha)
        or abs(alpha) > _MOST_SCALE
    ):
        raise BadCheckpoint(
            _(
                "{folder}: {key} is {alpha!r}; a number was expected.",
                folder=name,
                key=key,
                alpha=str(alpha)[:40],
            )
        )
    return float(alpha)


def unsupported(name: str, key: str) -> UnsupportedModel:
    """What is said of an adapter whose configuration sets `key`."""
    return UnsupportedModel(
        _(
            "{folder}: the adapter sets {key}, which is not supported; choose a plain LoRA adapter.",
            folder=name,
            key=key,
        )
    )


def not_lora(name: str, tensor: RawTensor) -> UnsupportedModel:
    """What is said of a tensor that is no part of a LoRA adapter."""
    return UnsupportedModel(
        _(
            "{folder}: the tensor {tensor} of type {type} and shape {shape} is not a LoRA "
            "matrix of a plain linear module; choose another adapter.",
            folder=name,
            tensor=tensor.name,
            type=tensor.type,
            shape=tensor.shape,
        )
    )


def one_of_two(name: str, module: str) -> BadCheckpoint:
    """What is said of half a pair."""
    return BadCheckpoint(
        _(
            "{folder}: the module {module} has only one of its two LoRA matrices; download "
            "the adapter again.",
            folder=name,
            module=module,
        )
    )


def no_matrices(name: str, file: str) -> BadCheckpoint:
    """What is said of an adapter without matrices."""
    return BadCheckpoint(
        _("{folder}: {file} holds no LoRA matrices; download the adapter again.", folder=name, file=file)
    )
