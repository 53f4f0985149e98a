"""LoRA adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors in one folder.

For a module `m` with a matrix (N, K) and rank R there are `base_model.model.<m>.lora_A.weight` (R, K) and
`...lora_B.weight` (N, R). They add B A * alpha / R to the matrix, or B A * alpha / sqrt(R) with "use_rslora".
`...lora_B.bias` (N,) is added to the module's bias, scaled alike. `...lora_magnitude_vector` (N,) are the
lengths of the changed matrix's rows (DoRA). `<m>.weight` and `<m>.bias` take the place of the model's.
Sources: LoRA, arXiv 2106.09685; rank-stabilised LoRA, arXiv 2312.03732; DoRA, arXiv 2402.09353; PEFT's
documentation of the checkpoint format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, ModelNotFound, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.pytorch.file import read_pytorch
from engine.weights.safetensors.folder import read_safetensors
from engine.weights.safetensors.json import read_json_object
from engine.weights.tensor import FileTensor
from engine.words import _

_NAME = re.compile(
    r"(?:base_model\.model\.)?(?P<module>.+?)\."
    r"(?:lora_(?P<side>[AB])(?:\.[^.]+)?\.(?P<what>weight|bias)|(?P<magnitude>lora_magnitude_vector)(?:\.[^.]+)*"
    r"|(?:base_layer\.|modules_to_save\.(?:[^.]+\.)?)?(?P<whole>weight|bias))"
)
_REFUSED = (
    "trainable_token_indices", "layer_replication", "alora_invocation_tokens", "use_qalora", "use_bdlora",
    "arrow_config", "kasa_config", "target_parameters",
)  # fmt: skip
"""Fields of PEFT's LoraConfig that give an adapter another meaning."""
_CHANGED_MODEL = ("pissa", "olora", "loftq", "corda", "lora_ga", "mica")
"""Values of `init_lora_weights` whose training begins with a changed model, unless they are converted."""
_PLAIN = ("F32", "F16", "BF16")
_REPEATED, _REPEATED_GROUP = re.compile(r"[*+?{]"), re.compile(r"\)[*+?{]")
_MOST_PATTERN, _MOST_REPEATS = 1000, 3
"""Without repeated groups, a search takes a power of the name's length."""
_MOST_RANK = 1 << 14
_MOST_SCALE = 1e6


@dataclass(frozen=True, slots=True)
class LowRank:
    """The update of one module's matrix: `scale` * up (N, R) @ down (R, K).

    `magnitude` (N,) are the lengths of the rows of the changed matrix, or None if they are not set apart.
    `scale` * `bias` (N,) is added to the module's bias.
    """

    down: RawTensor
    up: RawTensor
    scale: float
    magnitude: RawTensor | None = None
    bias: RawTensor | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """A folder's low-rank updates by module name, as in the model that it was trained on.

    `whole` are matrices (N, K) and `biases` vectors (N,) that take the place of the module's own.
    """

    path: Path
    modules: Mapping[str, LowRank]
    whole: Mapping[str, RawTensor] = field(default_factory=dict)
    biases: Mapping[str, RawTensor] = field(default_factory=dict)


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
    found = _found(folder, read_pytorch(file) if pickled else read_safetensors(file))
    modules = {}
    for module in {**found["A"], **found["B"], **found["magnitude"], **found["B bias"]}:
        down, up = found["A"].get(module), found["B"].get(module)
        if down is None or up is None:
            raise BadCheckpoint(
                _(
                    "{folder}: the module {module} has only one of its two LoRA matrices; download "
                    "the adapter again.",
                    folder=folder.name,
                    module=module,
                )
            )
        scale = _scale(folder, config, module, down, up)
        magnitude, bias = found["magnitude"].get(module), found["B bias"].get(module)
        if config.get("use_dora") and magnitude is None:
            raise _unsupported(folder, "use_dora without lora_magnitude_vector")
        for vector in (magnitude, bias):
            if vector is not None and vector.shape != (up.shape[0],):
                raise _not_lora(folder, vector)
        if magnitude is not None and bias is not None:
            raise _unsupported(folder, "use_dora, lora_bias")
        modules[module] = LowRank(down, up, scale, magnitude, bias)
    if not modules:
        raise BadCheckpoint(
            _(
                "{folder}: {file} holds no LoRA matrices; download the adapter again.",
                folder=folder.name,
                file=file.name,
            )
        )
    return Adapter(folder, modules, found["weight"], found["bias"])


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
    for key in _REFUSED:
        if config.get(key):
            raise _unsupported(folder, key)
    begun = str(config.get("init_lora_weights")).lower()
    if begun.startswith(_CHANGED_MODEL):
        raise UnsupportedModel(
            _(
                "{folder}: the adapter belongs to a model that its training changed first "
                "(init_lora_weights: {begun}); convert it to a plain LoRA adapter with PEFT.",
                folder=folder.name,
                begun=begun[:40],
            )
        )


def _unsupported(folder: Path, key: str) -> UnsupportedModel:
    return UnsupportedModel(
        _(
            "{folder}: the adapter sets {key}, which is not supported; choose a plain LoRA adapter.",
            folder=folder.name,
            key=key,
        )
    )


def _not_lora(folder: Path, tensor: FileTensor) -> UnsupportedModel:
    return UnsupportedModel(
        _(
            "{folder}: the tensor {tensor} of type {type} and shape {shape} is not a LoRA "
            "matrix of a plain linear module; choose another adapter.",
            folder=folder.name,
            tensor=tensor.name,
            type=tensor.type,
            shape=tensor.shape,
        )
    )


def _found(folder: Path, tensors: list[FileTensor]) -> dict[str, dict[str, FileTensor]]:
    """{"A", "B", "B bias", "magnitude", "weight" or "bias": {module: tensor}}."""
    found: dict[str, dict[str, FileTensor]] = {
        kind: {} for kind in ("A", "B", "B bias", "magnitude", "weight", "bias")
    }
    for tensor in tensors:
        match = _NAME.fullmatch(tensor.name)
        if match is None or tensor.type not in _PLAIN:
            raise _not_lora(folder, tensor)
        if match["side"]:
            kind = match["side"] + (" bias" if match["what"] == "bias" else "")
        else:
            kind = "magnitude" if match["magnitude"] else match["whole"]
        dimensions = 2 if kind in ("A", "B", "weight") else 1
        if kind not in found or len(tensor.shape) != dimensions or match["module"] in found[kind]:
            raise _not_lora(folder, tensor)
        found[kind][match["module"]] = tensor
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
        raise _unsupported(folder, f"alpha_pattern {pattern[:80]!r}") from error
