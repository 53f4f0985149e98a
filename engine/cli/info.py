"""Command `info`: describes a model file from its headers alone, or, without a model, this machine."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
from pathlib import Path

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import model_path
from engine.platform.terminal import padded, width_of
from engine.platform.version import version
from engine.printable import one_line
from engine.settings import CacheSettings, LoadSettings
from engine.units import number_text
from engine.words import N_, _, translate

_MODEL_KEYS = (
    "architecture", "format", "parameters", "bits_per_weight", "weights_bytes", "layers", "context_length",
    "vocab_size", "kv_bytes_per_token", "stop_token_ids", "has_chat_template", "quantisation", "licence",
    "resident_bytes", "read_bytes", "embedding", "pooling", "reads_pictures", "vision_encoder",
    "vision_bytes", "vision_file",
)  # fmt: skip
_LABELS = (
    N_("architecture"), N_("format"), N_("parameters"), N_("bits per weight"), N_("weights bytes"),
    N_("layers"), N_("context length"), N_("vocab size"), N_("kv bytes per token"), N_("stop token ids"),
    N_("has chat template"), N_("quantisation"), N_("licence"), N_("resident bytes"), N_("read bytes"),
    N_("embedding"), N_("pooling"), N_("reads pictures"), N_("vision encoder"), N_("vision bytes"),
    N_("vision file"), N_("why no pictures"), N_("advised"), N_("remarks"), N_("needed bytes"), N_("verdict"),
    N_("memory"), N_("version"), N_("python"), N_("platform"), N_("packages"), N_("cpu"),
    N_("physical cores"), N_("logical cores"), N_("memory bytes"), N_("memory available bytes"), N_("gpus"),
    N_("gpus reason"), N_("kernels cached"), N_("kernel cache"), N_("kernel level"), N_("architectures"),
)  # fmt: skip
"""The keys of the answer, as people read them."""
_WHERE_THERE = (
    "gpus_reason", "remarks", "vision_encoder", "vision_bytes", "vision_file", "why_no_pictures",
)  # fmt: skip
"""What people are not shown where it is empty."""
_VERDICTS = (N_("fits"), N_("tight"), N_("too large"), N_("on disk"))
_PACKAGES = ("numba", "llvmlite", "numpy", "torch", "tokenizers", "safetensors", "llama-cpp-python")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=model_path,
        nargs="?",
        help=_("a GGUF file or a model folder; without it, describe this machine"),
    )


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    if options.model is None:
        return machine()
    from engine.backends.choice import choose
    from engine.models.memory.fit import fit, fits_by_headers
    from engine.vision.describe import describe

    info = describe(options.model)
    answer: Answer = {key: getattr(info, key) for key in _MODEL_KEYS}
    answer["stop_token_ids"] = list(info.stop_token_ids)
    target = choose(LoadSettings(), fits_by_headers(info, CacheSettings(), LoadSettings()))
    judged = fit(info, CacheSettings(), target.free, backend=target.backend, where=target.where)
    answer |= {
        "why_no_pictures": info.why_no_pictures if info.lacks_vision_file else "",
        "advised": dict(info.defaults),
        "remarks": list(info.remarks),
        "needed_bytes": judged.total,
        "verdict": judged.verdict,
        "memory": judged.sentence,
    }
    return answer


def machine() -> Answer:
    """Versions, processor, memory (bytes), GPUs, whether compiled CPU kernels are in the disk cache, and the
    architectures that models may have.

    `gpus_reason` says why no GPU, or one of them, cannot be used; `kernel_level` is the instruction set whose
    kernels this program brings, null if it brings none for this processor.
    """
    import psutil

    from engine.backends.choice import usable_gpus
    from engine.backends.cpu.codegen.kernel_cache import cache_folder
    from engine.models.architectures import ARCHITECTURES
    from engine.models.architectures.with_pictures import WITH_PICTURES
    from engine.platform.levels import chosen

    folder, level = cache_folder(), chosen()
    memory, usable = psutil.virtual_memory(), usable_gpus()
    return {
        "version": version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in _PACKAGES if (found := _package_version(name))},
        "cpu": cpu_name(),
        "physical_cores": psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
        "logical_cores": psutil.cpu_count() or 1,
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "gpus": [
            {"number": gpu.index, "name": gpu.name, "memory_bytes": gpu.total, "free_bytes": gpu.free}
            for gpu in usable.gpus
        ],
        "gpus_reason": usable.reason,
        "kernels_cached": folder is not None and any(folder.rglob("*.nbc")),
        "kernel_cache": str(folder) if folder else None,
        "kernel_level": level.name if level else None,
        "architectures": {
            "hf": sorted({*WITH_PICTURES, *(name for each in ARCHITECTURES for name in each.hf)}),
            "gguf": sorted({name for architecture in ARCHITECTURES for name in architecture.gguf}),
        },
    }


def cpu_name() -> str:
    """The processor's display name."""
    table = Path("/proc/cpuinfo")
    lines = table.read_text(encoding="utf-8", errors="replace").splitlines() if table.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _package_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _show(answer: Answer) -> str:
    shown = {key: value for key, value in answer.items() if value or key not in _WHERE_THERE}
    labels = {key: translate(key.replace("_", " ")) for key in shown}
    width = max(width_of(label) for label in labels.values())
    return "\n".join(f"{padded(label, width)}  {_readable(key, shown[key])}" for key, label in labels.items())


def _has_lists(value: dict[str, object]) -> bool:
    return any(isinstance(each, list) for each in value.values())


def _readable(key: str, value: object) -> str:
    if isinstance(value, dict):
        parts = (
            one_line(name)
            + " "
            + (", ".join(map(one_line, text)) if isinstance(text, list) else one_line(str(text)))
            for name, text in value.items()
        )
        return ("; " if _has_lists(value) else ", ").join(parts) or _("nothing")
    if value is None:
        return _("none")
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if key.endswith("bytes") and isinstance(value, int):
        return f"{number_text(value)} ({number_text(value / 2**30, '.2f')} GiB)"
    if isinstance(value, float):
        return number_text(value, ".2f")
    if key in ("verdict", "cpu_only"):
        return translate(str(value))
    if key == "remarks" and isinstance(value, list):
        return one_line(" ".join(map(str, value)))
    if isinstance(value, list):
        return one_line(
            ", ".join(_gpu(item) if isinstance(item, dict) else str(item) for item in value)
        ) or _("none")
    return number_text(value) if isinstance(value, int) else one_line(str(value))


def _gpu(gpu: Answer) -> str:
    return _(
        "{number}: {name} ({free:.1f} of {total:.1f} GiB free)",
        number=gpu["number"], name=gpu["name"], free=gpu["free_bytes"] / 2**30,
        total=gpu["memory_bytes"] / 2**30,
    )  # fmt: skip


INFO = Command("info", N_("describe a model, or this machine"), _arguments, _answer, _show)
