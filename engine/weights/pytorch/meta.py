"""Llama as Meta publishes it: params.json and consolidated.00.pth, consolidated.01.pth, ..., no config.json.

Each file has a part of every matrix: rows of queries, keys, values, the feed-forward's first two matrices
and the head; columns of the output projections; of the embeddings columns (Llama 1 and 2) or rows (Llama 3).
Where there are more files than heads of keys, several have the same heads. Vectors are the same in all of
them. The names and the order of rows are those of `consolidated.py`. Sources: Meta's llama and llama-models
(`ModelArgs`, model parallelism of fairscale); llama.cpp, for which context goes with which settings;
ExecuTorch, for the scaling of Llama 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint
from engine.text.template.source import META_FILES, is_ranked
from engine.weights.file import Bytes
from engine.weights.joined import JoinedBytes
from engine.weights.pytorch.file import read_pytorch
from engine.weights.safetensors.consolidated import PARAMS, own_format, read_number, read_params, read_size
from engine.weights.safetensors.json import read_json_object
from engine.weights.tensor import FileTensor, find_format
from engine.words import _

_EMBEDDINGS, _HEAD = "tok_embeddings.weight", "output.weight"
_FEED_FORWARD = "layers.0.feed_forward.w1.weight"
_BY_COLUMNS = (".attention.wo.weight", ".feed_forward.w2.weight")
_KEYS = (".attention.wk.weight", ".attention.wv.weight")
_OTHER_KINDS = ("moe", "moe_args", "model_type", "vision_chunk_size", "quantization_args", "lora_args")
"""Settings of models whose files have other tensors: with experts, pictures or quantised matrices."""
_CODE_BASE, _CODE_CONTEXT = 1e6, 16384
_FIRST_EPS, _FIRST_CONTEXT, _SECOND_CONTEXT = 1e-6, 2048, 4096
_THIRD_CONTEXT, _SCALED_CONTEXT = 8192, 131_072
_TIED_WIDTH = 3072
"""Models up to this width have scaled rope by 32 and a tied head (Llama 3.2), wider ones by 8 (3.1, 3.3)."""


def read_meta(folder: Path) -> tuple[dict[str, Any], dict[str, FileTensor], tuple[Path, ...]]:
    """What config.json would say, the whole tensors by the names in the files, and the files.

    Raises `BadCheckpoint`, `ModelNotFound` and `UnsupportedModel`.
    """
    path = folder / PARAMS
    params = read_json_object(path)
    if any(params.get(name) for name in _OTHER_KINDS):
        raise own_format(folder)
    files = tuple(sorted(folder.glob(META_FILES)))
    names = [f"consolidated.{number:02d}.pth" for number in range(len(files))]
    if [file.name for file in files] != names:
        raise _incomplete(folder, len(files))
    parts = [{tensor.name: tensor for tensor in read_pytorch(file)} for file in files]
    if any(part.keys() != parts[0].keys() for part in parts):
        raise _incomplete(folder, len(files))
    width, heads = read_size(params, "dim", path), read_size(params, "n_heads", path)
    # at least 1: reading the configuration refuses more heads than columns, which would be 0 here
    keys = max(1, read_size(params, "n_kv_heads", path, heads) * (width // heads))
    tensors = {
        name: _joined(name, [part[name] for part in parts], width, keys)
        for name in parts[0]
        if name != "rope.freqs"
    }
    expected = {
        _EMBEDDINGS: (None, width), _FEED_FORWARD: (None, width),
        "layers.0.attention.wo.weight": (width, width),
    }  # fmt: skip
    for name, (rows, columns) in expected.items():
        shape = tensors[name].shape if name in tensors else ()
        if len(shape) != 2 or shape[1] != columns or shape[0] != (rows or shape[0]):
            raise _incomplete(folder, len(files))
    if "hidden_dim" in params:  # the first of Mistral AI's models
        return read_params(path), tensors, files
    return _config(params, tensors, path), tensors, files


def _config(params: Mapping[str, Any], tensors: Mapping[str, FileTensor], path: Path) -> dict[str, Any]:
    width, heads = read_size(params, "dim", path), read_size(params, "n_heads", path)
    base, eps = read_number(params, "rope_theta", path, 10_000.0), read_number(params, "norm_eps", path, 1e-5)
    vocabulary, scaled = tensors[_EMBEDDINGS].shape[0], params.get("use_scaled_rope") is True
    context = _SCALED_CONTEXT if scaled else _THIRD_CONTEXT
    if not is_ranked(vocabulary):
        context = _FIRST_CONTEXT if eps == _FIRST_EPS else _SECOND_CONTEXT
        context = _CODE_CONTEXT if base == _CODE_BASE else context
    tied = scaled and width <= _TIED_WIDTH
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": base}
    if scaled:
        usual = 32.0 if tied else 8.0
        rope |= {
            "rope_type": "llama3", "factor": read_number(params, "rope_scaling_factor", path, usual),
            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": _THIRD_CONTEXT,
        }  # fmt: skip
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width,
        "num_hidden_layers": read_size(params, "n_layers", path), "num_attention_heads": heads,
        "num_key_value_heads": read_size(params, "n_kv_heads", path, heads), "head_dim": width // heads,
        "intermediate_size": tensors[_FEED_FORWARD].shape[0], "vocab_size": vocabulary, "rms_norm_eps": eps,
        "tie_word_embeddings": tied or _HEAD not in tensors, "rope_parameters": rope,
        "max_position_embeddings": context,
    }  # fmt: skip


def _joined(name: str, parts: Sequence[FileTensor], width: int, keys: int) -> FileTensor:
    """The whole of a tensor of which each file has a part; heads of keys in several files count once."""
    first = parts[0]
    if len(parts) == 1 or len(first.shape) != 2:
        return first
    if any(part.shape != first.shape or part.type != first.type for part in parts):
        raise _incomplete_tensor(name)
    rows, columns = first.shape
    by_columns = name.endswith(_BY_COLUMNS) or (name == _EMBEDDINGS and columns < width)
    if by_columns:
        return FileTensor(name, first.type, (rows, columns * len(parts)), _BesideBytes(tuple(parts)))
    if name.endswith(_KEYS) and rows * len(parts) > keys:
        parts = parts[:: rows * len(parts) // keys]
    return FileTensor(name, first.type, (rows * len(parts), columns), JoinedBytes(tuple(parts)))


class _BesideBytes:
    """The bytes of matrices (N, K) beside each other, row by row; reads as `ModelFile` does."""

    __slots__ = ("_parts", "_row")

    def __init__(self, parts: tuple[FileTensor, ...]) -> None:
        self._parts = parts
        format = find_format(parts[0].type)
        assert format is not None
        self._row = format.nbytes(parts[0].shape[1:])

    def read(self, start: int, count: int, what: str) -> Bytes:
        """`count` bytes from byte `start` on, uint8, in a new array; `what` is not used. Raises
        `BadCheckpoint`.
        """
        whole, row = self._row * len(self._parts), self._row
        first, last = start // whole, -(-(start + count) // whole)
        found = [part.part_of_data(first * row, (last - first) * row) for part in self._parts]
        rows = np.concatenate([each.reshape(-1, row) for each in found], axis=1).reshape(-1)
        return rows[start - first * whole :][:count]

    def read_runs(self, runs: Iterable[tuple[int, int]], out: Bytes, what: str) -> None:
        """Fill `out` with the bytes of all (start, count) `runs` in order. Raises `BadCheckpoint`."""
        at = 0
        for start, count in runs:
            out[at : at + count] = self.read(start, count, what)
            at += count


def _incomplete(folder: Path, count: int) -> BadCheckpoint:
    return BadCheckpoint(
        _(
            "{folder}: its consolidated.*.pth files ({count}) are not all parts of the model that "
            "params.json describes; download the missing ones.",
            folder=folder.name,
            count=count,
        )
    )


def _incomplete_tensor(name: str) -> BadCheckpoint:
    return BadCheckpoint(
        _(
            "The parts of the tensor {name} in the consolidated.*.pth files have different shapes; download "
            "the files of one model again.",
            name=name[:100],
        )
    )
