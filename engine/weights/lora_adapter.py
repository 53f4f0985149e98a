"""LoRA adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors in one folder.

For a module `m` with a matrix (N, K) and rank R there are `base_model.model.<m>.lora_A.weight` (R, K) and
`...lora_B.weight` (N, R). They add B A * alpha / R to the matrix, or B A * alpha / sqrt(R) with "use_rslora".
Sources: LoRA, arXiv 2106.09685; rank-stabilised LoRA, arXiv 2312.03732; PEFT's documentation of the
checkpoint format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, ModelNotFound, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.pytorch.file import read_pytorch
from engine.weights.safetensors.folder import read_safetensors
from engine.weights.safetensors.json import read_json_object
from engine.weights.tensor import FileTensor
from engine.words import _

_NAME = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])(?:\.[^.]+)?\.weight")
_PLAIN = ("F32", "F16", "BF16")
_REPEATED, _REPEATED_GROUP = re.compile(r"[*+?{]"), re.compile(r"\)[*+?{]")
_MOST_PATTERN, _MOST_REPEATS = 1000, 3
"""Without repeated groups, a search takes a power of the name's length."""
_MOST_RANK = 1 << 14
_MOST_SCALE = 1e6


@dataclass(frozen=True, slots=True)
class LowRank:
    """The update of one module's matrix: `scale` * up (N, R) @ down (R, K)."""

    down: RawTensor
    up: RawTensor
    scale: float


@dataclass(frozen=True, slots=True)
class Adapter:
    """A folder's low-rank updates by module name, as in the model that it was trained on."""

    path: Path
    modules: Mapping[str, LowRank]


def open_adapter(folder: str | Path) -> Adapter:
    """Read the headers of an adapter. Raises `ModelNotFound`, `BadCheckpoint` and `UnsupportedModel`."""
    folder = Path(folder).expanduser()
    if folder.is_file():
        folder = folder.parent
    if not (folder / "adapter_config.json").is_file():
        raise ModelNotFound(
            _(
                "{folder} has no adapter_config.json; choose the folder of a LoRA adapter (PEFT).",
                folder=folder,
            )
        )
    config = read_json_object(folder / "adapter_config.json")
    _check_kind(folder, config)
    file = folder / "adapter_model.safetensors"
    pickled = not file.is_file() and file.with_suffix(".bin").is_file()
    if pickled:
        file = file.with_suffix(".bin")
    if not file.is_file():
        raise ModelNotFound(
            _("{folder} has no adapter_model.safetensors; download the adapter's weights too.", folder=folder)
        )
    sides = _sides(folder, read_pytorch(file) if pickled else read_safetensors(file))
    modules = {}
    for module, (down, up) in sides.items():
        if down is None or up is None:
            raise BadCheckpoint(
                _(
                    "{folder}: the module {module} has only one of its two LoRA matrices; download "
                    "the adapter again.",
                    folder=folder.name,
                    module=module,
                )
            )
        modules[module] = LowRank(down, up, _scale(folder, config, module, down, up))
    if not modules:
        raise BadCheckpoint(
            _(
                "{folder}: {file} holds no LoRA matrices; download the adapter again.",
                folder=folder.name,
                file=file.name,
            )
        )
    return Adapter(folder, modules)


def _check_kind(folder: Path, config: Mapping[str, Any]) -> None:
    if config.get("peft_type", "LORA") != "LORA":
        kind = str(config["peft_type"])[:40]
        raise UnsupportedModel(
            _(
                "{folder} is an adapter of the kind {kind!r}; only LoRA adapters can be used.",
                folder=folder.name,
                kind=kind,
            )
        )
    for key in ("use_dora", "modules_to_save", "trainable_token_indices", "lora_bias"):
        if config.get(key):
            raise UnsupportedModel(
                _(
                    "{folder}: the adapter sets {key}, which is not supported; choose a plain LoRA adapter.",
                    folder=folder.name,
                    key=key,
                )
            )
    if config.get("bias", "none") != "none":
        raise UnsupportedModel(
            _(
                "{folder}: the adapter changes biases, which is not supported; choose a plain LoRA adapter.",
                folder=folder.name,
            )
        )


def _sides(folder: Path, tensors: list[FileTensor]) -> dict[str, tuple[FileTensor | None, FileTensor | None]]:
    """{module: (A, B)}; a missing matrix is None."""
    found: dict[str, tuple[FileTensor | None, FileTensor | None]] = {}
    for tensor in tensors:
        match = _NAME.fullmatch(tensor.name)
        if match is None or len(tensor.shape) != 2 or tensor.type not in _PLAIN:
            raise UnsupportedModel(
                _(
                    "{folder}: the tensor {tensor} of type {type} and shape {shape} is not a LoRA "
                    "matrix of a plain linear module; choose another adapter.",
                    folder=folder.name,
                    tensor=tensor.name,
                    type=tensor.type,
                    shape=tensor.shape,
                )
            )
        down, up = found.get(match["module"], (None, None))
        found[match["module"]] = (tensor, up) if match["side"] == "A" else (down, tensor)
    return found


def _scale(folder: Path, config: Mapping[str, Any], module: str, down: FileTensor, up: FileTensor) -> float:
    """alpha / R, or alpha / sqrt(R); `alpha_pattern` in `config` overrides alpha for modules it names."""
    rank = down.shape[0]
    if up.shape[1] != rank or not 1 <= rank <= _MOST_RANK:
        raise BadCheckpoint(
            _(
                "{folder}: the LoRA matrices of {module} have the shapes {shape} and {shape_2}; "
                "(R, K) and (N, R) were expected.",
                folder=folder.name,
                module=module,
                shape=down.shape,
                shape_2=up.shape,
            )
        )
    patterns = config.get("alpha_pattern") or {}
    alpha = next(
        (a for pattern, a in patterns.items() if _names(folder, pattern, module)),
        config.get("lora_alpha", rank),
    )
    if (
        not isinstance(alpha, int | float)
        or isinstance(alpha, bool)
        or not math.isfinite(alpha)
        or abs(alpha) > _MOST_SCALE
    ):
        raise BadCheckpoint(
            _(
                "{folder}: lora_alpha of {module} is {alpha!r}; a number was expected.",
                folder=folder.name,
                module=module,
                alpha=str(alpha)[:40],
            )
        )
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _names(folder: Path, pattern: str, module: str) -> bool:
    """Whether a pattern of PEFT, a regular expression, is the module's name or its last parts.

    Raises `UnsupportedModel` for one that is not valid, or whose search could take very long.
    """
    try:
        repeats = len(_REPEATED.findall(pattern))
        if len(pattern) > _MOST_PATTERN or _REPEATED_GROUP.search(pattern) or repeats > _MOST_REPEATS:
            raise re.error("")
        return re.match(rf"(.*\.)?({pattern})$", module) is not None
    except re.error as error:
        raise UnsupportedModel(
            _(
                "{folder}: the adapter sets {key}, which is not supported; choose a plain LoRA adapter.",
                folder=folder.name,
                key=f"alpha_pattern {pattern[:80]!r}",
            )
        ) from error
