"""Opens LoRA adapters, and reads those that PEFT saves: adapter_config.json and adapter_model.safetensors.

For a module `m` with a matrix (N, K) and rank R there are `base_model.model.<m>.lora_A.weight` (R, K) and
`...lora_B.weight` (N, R). They add B A * alpha / R to the matrix, or B A * alpha / sqrt(R) with "use_rslora".
`...lora_B.bias` (N,) is added to the module's bias, scaled alike. `...lora_magnitude_vector` (N,) are the
lengths of the changed matrix's rows (DoRA). `<m>.weight` and `<m>.bias` take the place of the model's: for
modules of "modules_to_save" in a copy, and for others, such as embeddings that were resized, in the model.
Sources: LoRA, arXiv 2106.09685; rank-stabilised LoRA, arXiv 2312.03732; DoRA, arXiv 2402.09353; PEFT's
documentation of the checkpoint format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, ModelNotFound, UnsupportedModel
from engine.printable import one_line
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
from engine.weights.gguf.file import begins_with_magic
from engine.weights.lora_gguf import read_gguf_adapter
from engine.weights.patterns import is_quick
from engine.weights.pytorch.file import read_pytorch
from engine.weights.safetensors.folder import read_safetensors
from engine.weights.safetensors.json import read_json_object
from engine.weights.tensor import FileTensor
from engine.words import _

_NAME = re.compile(
    r"(?:base_model\.model\.)?(?P<module>.+?)\."
    r"(?:lora_(?P<side>[AB])(?:\.[^.]+)?\.(?P<what>weight|bias)"
    r"|(?P<magnitude>lora_magnitude_vector)(?:\.[^.]+)*"
    r"|(?P<tokens>token_adapter\.trainable_tokens_delta)(?:\.[^.]+)*"
    r"|(?:base_layer\.|(?P<copy>modules_to_save\.(?:[^.]+\.)?|original_module\.))?(?P<whole>weight|bias))"
)
_REFUSED = (
    "layer_replication", "alora_invocation_tokens", "use_qalora", "use_bdlora",
    "arrow_config", "kasa_config", "target_parameters",
)  # fmt: skip
"""Fields of PEFT's LoraConfig that give an adapter another meaning."""
_CHANGED_MODEL = ("pissa", "olora", "loftq", "corda", "lora_ga", "mica")
"""Values of `init_lora_weights` whose training begins with a changed model, unless they are converted."""
_PLAIN = ("F32", "F16", "BF16")


def open_adapter(folder: str | Path) -> Adapter:
    """Read the headers of an adapter: a GGUF file, or a PEFT folder or one of its files. A folder without a
    configuration may hold one GGUF file. Raises `ModelNotFound`, `BadCheckpoint` and `UnsupportedModel`.
    """
    folder = Path(folder).expanduser()
    if folder.is_file() and (folder.suffix.lower() == ".gguf" or begins_with_magic(folder)):
        return read_gguf_adapter(folder)
    if folder.is_file():
        folder = folder.parent
    if not (folder / "adapter_config.json").is_file():
        files = list(folder.glob("*.gguf"))
        if len(files) == 1:
            return read_gguf_adapter(files[0])
        raise ModelNotFound(
            _(
                "{folder} has no adapter_config.json; choose the folder of a LoRA adapter (PEFT), or a LoRA "
                "adapter's GGUF file.",
                folder=folder,
            )
        )
    return _read_folder(folder)


def _read_folder(folder: Path) -> Adapter:
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
            raise one_of_two(folder.name, module)
        scale = _scale(folder, config, module, down, up)
        magnitude, bias = found["magnitude"].get(module), found["B bias"].get(module)
        if config.get("use_dora") and magnitude is None:
            raise unsupported(folder.name, "use_dora without lora_magnitude_vector")
        for vector in (magnitude, bias):
            if vector is not None and vector.shape != (up.shape[0],):
                raise not_lora(folder.name, vector)
        if magnitude is not None and bias is not None:
            raise unsupported(folder.name, "use_dora, lora_bias")
        modules[module] = LowRank(down, up, scale, magnitude, bias)
    tokens, tied = _tokens(folder, config, found["tokens"])
    if not modules and not tokens:
        raise no_matrices(folder.name, file.name)
    listed = config.get("modules_to_save")
    copied = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    shared = frozenset(name for name in found["weight"] if not _listed(copied, name))
    return Adapter(
        folder, modules, found["weight"], found["bias"], tokens=tokens, shared=shared, tied_tokens=tied
    )


def _listed(names: Iterable[str], module: str) -> bool:
    """Whether the last parts of a module's name are one of `names`."""
    return any(f".{module}".endswith(f".{name}") for name in names)


def _tokens(
    folder: Path, config: Mapping[str, Any], found: Mapping[str, FileTensor]
) -> tuple[dict[str, tuple[tuple[int, ...], RawTensor]], frozenset[str]]:
    """The tokens of `trainable_token_indices` (a list, or one for each module) with their rows, by module;
    and the modules without rows that have the tokens of another: PEFT does not save those of a tied head.

    Raises `BadCheckpoint` where one is missing.
    """
    said = config.get("trainable_token_indices")
    of_modules: dict[str, Any] = said if isinstance(said, dict) else {}
    out: dict[str, tuple[tuple[int, ...], RawTensor]] = {}
    for module, rows in found.items():
        numbers = said
        if isinstance(said, dict):
            numbers = next((said[key] for key in said if _listed((key,), module)), None)
        chosen = tuple(numbers) if isinstance(numbers, list) else ()
        valid = all(type(each) is int and each >= 0 for each in chosen)
        if not valid or not len(set(chosen)) == len(chosen) == rows.shape[0] > 0:
            raise _no_tokens(folder, module)
        out[module] = chosen, rows
    if said and not out:
        raise _no_tokens(folder, next(iter(of_modules), "embed_tokens"))
    missing = [key for key in of_modules if not any(map(partial(_listed, (key,)), out))]
    for key in missing:
        if not any(list(numbers) == of_modules[key] for numbers, _rows in out.values()):
            raise _no_tokens(folder, key)
    return out, frozenset(missing)


def _no_tokens(folder: Path, module: str) -> BadCheckpoint:
    return BadCheckpoint(
        _(
            "{folder}: the tokens of trainable_token_indices and the rows of {module} do not belong "
            "together; download the adapter again.",
            folder=folder.name,
            module=one_line(str(module))[:100],
        )
    )


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
            raise unsupported(folder.name, key)
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


def _found(folder: Path, tensors: list[FileTensor]) -> dict[str, dict[str, FileTensor]]:
    """{"A", "B", "B bias", "magnitude", "tokens", "weight" or "bias": {module: tensor}}.

    With a resized vocabulary, PEFT saves a module of "modules_to_save" under its own name, again as
    `modules_to_save`, and as it was before as `original_module`; the first is what it loads.
    """
    found: dict[str, dict[str, FileTensor]] = {
        kind: {} for kind in ("A", "B", "B bias", "magnitude", "tokens", "weight", "bias")
    }
    whole = {tensor.name for tensor in tensors}
    for tensor in tensors:
        match = _NAME.fullmatch(tensor.name)
        if match and match["copy"] and tensor.name.replace(match["copy"], "") in whole:
            continue
        if match is None or (match["copy"] or "").startswith("original") or tensor.type not in _PLAIN:
            raise not_lora(folder.name, tensor)
        if match["side"]:
            kind = match["side"] + (" bias" if match["what"] == "bias" else "")
        else:
            kind = "magnitude" if match["magnitude"] else "tokens" if match["tokens"] else match["whole"]
        dimensions = 2 if kind in ("A", "B", "tokens", "weight") else 1
        if kind not in found or len(tensor.shape) != dimensions or match["module"] in found[kind]:
            raise not_lora(folder.name, tensor)
        found[kind][match["module"]] = tensor
    return found


def _scale(folder: Path, config: Mapping[str, Any], module: str, down: FileTensor, up: FileTensor) -> float:
    """alpha / R, or alpha / sqrt(R); `alpha_pattern` in `config` overrides alpha for modules it names."""
    rank = checked_rank(folder.name, module, down.shape, up.shape)
    patterns = config.get("alpha_pattern") or {}
    if not isinstance(patterns, dict):
        raise unsupported(folder.name, f"alpha_pattern {str(patterns)[:80]!r}")
    alpha = next(
        (a for pattern, a in patterns.items() if _names(folder, pattern, module)),
        config.get("lora_alpha", rank),
    )
    number = checked_alpha(folder.name, f"lora_alpha of {module}", alpha)
    return number / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _names(folder: Path, pattern: str, module: str) -> bool:
    """Whether a pattern of PEFT, a regular expression, is the module's name or its last parts.

    Raises `UnsupportedModel` for one that is not valid, or whose search could take very long.
    """
    try:
        if not is_quick(pattern):
            raise re.error("")
        return re.match(rf"(.*\.)?({pattern})$", module) is not None
    except (re.error, OverflowError, RecursionError) as error:  # too large a count, too many parentheses
        raise unsupported(folder.name, f"alpha_pattern {pattern[:80]!r}") from error
