"""Tensors that a folder has in several pieces, of which the rows follow each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from engine.tensors import RawTensor
from engine.weights.file import Bytes
from engine.weights.format import Format
from engine.weights.tensor import FileTensor, find_format

EMBEDDING = (".wte.embedding", ".wte.new_embedding")
"""How the names of Molmo 2's embedding end: that of a text model, and the rows that pictures need."""

_SWITCH, _EXPERTS = ".switch_mlp.", ".experts."
_IN_LISTS = re.compile(r"\.experts\.(\w+_proj)s\.(\d+)\.")
_ROUTERS = re.compile(r"\.mlp\.gate\.(gate_)?proj\.")
_OF_MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
_NUMBERED = {"fc1": "up_proj", "fc2": "down_proj"}


class JoinedBytes:
    """The bytes of several tensors one after the other; reads as `ModelFile` does."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: tuple[FileTensor, ...]) -> None:
        self._pieces = pieces

    def read(self, start: int, count: int, what: str) -> Bytes:
        """`count` bytes from byte `start` on, uint8, in a new array; `what` is not used. Raises
        `BadCheckpoint`.
        """
        out = np.empty(count, np.uint8)
        self.read_runs([(start, count)], out, what)
        return out

    def read_runs(self, runs: Iterable[tuple[int, int]], out: Bytes, what: str) -> None:
        """Fill `out` with the bytes of all (start, count) `runs` in order. Raises `BadCheckpoint`."""
        at = 0
        for start, count in runs:
            first = 0
            for piece in self._pieces:
                low, high = max(start, first), min(start + count, first + piece.nbytes)
                if low < high:
                    out[at : at + high - low] = piece.part_of_data(low - first, high - low)
                    at += high - low
                first += piece.nbytes


def with_joined(tensors: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    """The same tensors, and the whole of those in pieces: under the name that ends in ".wte.weight", and of
    "shard_0.weight", "shard_1.weight", ... under "weight". Experts that mlx-lm or Unsloth saved have the
    names of the original tensors, stacks without the number.
    """
    out = {_expert_name(name): tensor for name, tensor in _with_shards(tensors).items()}
    for name, first in tensors.items():
        second = tensors.get(name.removesuffix(EMBEDDING[0]) + EMBEDDING[1])
        if not (name.endswith(EMBEDDING[0]) and isinstance(first, FileTensor)):
            continue
        if isinstance(second, FileTensor) and _fit(first, second):
            whole = name.removesuffix("embedding") + "weight"
            shape = (first.shape[0] + second.shape[0], first.shape[1])
            out[whole] = FileTensor(whole, first.type, shape, JoinedBytes((first, second)))
            del out[name], out[second.name]
    return out


def _expert_name(name: str) -> str:
    """mlx-lm's "X.switch_mlp.up_proj.weight" as "X.experts.up_proj.weight", or Mixtral's name for it, also
    where it is "fc1", and its routers "X.gate.gate_proj.weight" and "X.gate.proj.weight" as "X.gate.weight";
    Unsloth's "X.experts.up_projs.0.weight" as "X.experts.0.up_proj.weight", and "X.router.linear.weight".
    """
    at, found, rest = name.partition(_SWITCH)
    if not found:
        name = _IN_LISTS.sub(r".experts.\2.\1.", name).replace(".router.linear.", ".router.")
        return _ROUTERS.sub(".mlp.gate.", name)
    matrix, dot, end = rest.partition(".")
    matrix = _NUMBERED.get(matrix, matrix)
    if at.endswith("block_sparse_moe"):
        matrix = _OF_MIXTRAL.get(matrix, matrix)
    return at + _EXPERTS + matrix + dot + end


def _with_shards(tensors: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    """Pieces that do not follow each other, or do not fit, stay apart."""
    out = dict(tensors)
    for name in [name for name in tensors if name.endswith(".shard_0.weight")]:
        at, pieces = name.removesuffix("shard_0.weight"), list[FileTensor]()
        while isinstance(piece := tensors.get(f"{at}shard_{len(pieces)}.weight"), FileTensor):
            pieces.append(piece)
        if pieces and all(_fit(pieces[0], piece) for piece in pieces):
            shape = (sum(piece.shape[0] for piece in pieces), *pieces[0].shape[1:])
            whole = FileTensor(at + "weight", pieces[0].type, shape, JoinedBytes(tuple(pieces)))
            out = {name: each for name, each in out.items() if each not in pieces} | {whole.name: whole}
    return out


def _fit(first: FileTensor, second: FileTensor) -> bool:
    """Whether two matrices have the same type without blocks and as many columns."""
    format: Format | None = find_format(first.type)
    plain = format is not None and format.block_size == 1
    return (
        plain and first.type == second.type and first.shape[1:] == second.shape[1:] and len(first.shape) == 2
    )
