"""The dense layers that some embedding models have behind pooling: vector (K,) -> (N,).

Sources: sentence-transformers, `models/Dense.py` and modules.json; llama.cpp's tensors `dense_2` and
`dense_3` of EmbeddingGemma.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats, RawTensor
from engine.weights.checkpoint import Checkpoint
from engine.weights.safetensors.folder import read_whole
from engine.weights.safetensors.json import read_json_list, read_json_object
from engine.words import _

Vector = npt.NDArray[np.float64]
_ACTIVATIONS: Mapping[str, Callable[[Vector], Vector]] = {
    "Identity": lambda x: x, "Tanh": np.tanh, "ReLU": lambda x: np.maximum(x, 0.0),
}  # fmt: skip
_GGUF = ("dense_2.weight", "dense_3.weight")
_MOST = 8


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """activation(weight (N, K) x + bias (N,))."""

    weight: Floats
    bias: Floats | None = None
    activation: str = "Identity"

    def __call__(self, x: Vector) -> Vector:
        y = self.weight.astype(np.float64) @ x
        return _ACTIVATIONS[self.activation](y if self.bias is None else y + self.bias)


def dense_layers(checkpoint: Checkpoint, width: int) -> tuple[Dense, ...]:
    """The dense layers of a checkpoint whose hidden states have `width` numbers, in order.

    Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    if checkpoint.format == "gguf":
        found = [Dense(_matrix(checkpoint.tensors[name])) for name in _GGUF if name in checkpoint.tensors]
    else:
        found = [_of_folder(checkpoint.path / name) for name in _dense_folders(checkpoint.path)]
    for layer in found:
        if layer.weight.shape[1] != width or (
            layer.bias is not None and layer.bias.shape != layer.weight.shape[:1]
        ):
            raise BadCheckpoint(
                _(
                    "A dense layer of the embedding model is {shape}, but {width} columns were expected; "
                    "download the model again.",
                    shape=layer.weight.shape,
                    width=width,
                )
            )
        width = layer.weight.shape[0]
    return tuple(found)


def _matrix(tensor: RawTensor) -> Floats:
    if len(tensor.shape) != 2 or not tensor.shape[0]:
        raise BadCheckpoint(
            _(
                "The tensor {name} has the shape {shape}, but a matrix was expected; download the model "
                "again.",
                name=tensor.name,
                shape=tensor.shape,
            )
        )
    return tensor.dequantise()


def _dense_folders(folder: Path) -> Sequence[str]:
    """The folders that modules.json names for dense layers."""
    path = folder / "modules.json"
    if not path.is_file():
        return ()
    names = list[str]()
    for module in read_json_list(path):
        kind = module.get("type") if isinstance(module, dict) else None
        if not isinstance(kind, str) or kind.rpartition(".")[2] != "Dense":
            continue
        name = module.get("path")
        # Only plain names: a path could lead out of the folder.
        if not isinstance(name, str) or Path(name).name != name or "\\" in name or len(names) >= _MOST:
            raise BadCheckpoint(
                _(
                    "{path} names the folder {name!r} for a dense layer; the name of a folder beside it was "
                    "expected.",
                    path=path,
                    name=name,
                )
            )
        names.append(name)
    return names


def _of_folder(folder: Path) -> Dense:
    settings = read_json_object(folder / "config.json")
    activation = str(settings.get("activation_function", "Tanh")).rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        raise UnsupportedModel(
            _(
                "{folder} has the activation {activation!r}; only {known} are supported. Choose another "
                "model.",
                folder=folder.name,
                activation=activation,
                known=", ".join(_ACTIVATIONS),
            )
        )
    tensors: dict[str, Any] = {tensor.name: tensor for tensor in read_whole(folder)}
    if "linear.weight" not in tensors:
        raise BadCheckpoint(_("{file} lacks the tensor linear.weight; download it again.", file=folder))
    bias = tensors.get("linear.bias")
    return Dense(_matrix(tensors["linear.weight"]), None if bias is None else bias.dequantise(), activation)
