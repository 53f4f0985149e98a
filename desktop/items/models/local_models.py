"""A model on this computer, as menus and lists show it."""

from __future__ import annotations

import json
from pathlib import Path

import resources
from engine.core import ModelInfo
from engine.lazy_dataclass import dataclass
from engine.printable import one_line
from engine.remote import shown_name, split_address
from engine.units import number_text, size_text
from engine.words import N_, _, dotted, translate

__all__ = [
    "ModelEntry", "count_text", "entry", "model_name", "starter_inside", "starter_size", "starter_words",
    "template_text",
]  # fmt: skip

_STARTER = json.loads(resources.text("starter.json"))
_FALLBACKS = {
    "chatml": "ChatML",
    "llama3": "Llama 3",
    "gemma": "Gemma",
    "command": "Command R",
    "granite": "Granite",
    "deepseek": "DeepSeek",
    "phi": "Phi",
    "glm4": "GLM-4",
    "chatglm3": "ChatGLM3",
    "chatglm2": "ChatGLM2",
    "roles": "<|user|>, <|assistant|>",
    "mistral": "Mistral",
    "plain": N_("“User: … Assistant: …”"),
}
"""The usual names of the formats of `engine.text.template.fallback`."""


def starter_inside() -> bool:
    """Whether the starter model came with this program, as in some packages: nothing has to be downloaded."""
    try:
        return resources.path(f"models/{_STARTER['file']}").is_file()
    except FileNotFoundError:
        return False


def starter_size() -> str:
    """How large the starter model is: "98.4 MB"."""
    return size_text(_STARTER["bytes"])


def starter_words() -> str:
    """The command that brings the starter model, as in menus."""
    return (
        _("Use starter model")
        if starter_inside()
        else _("Download starter model ({starter_size})", starter_size=starter_size())
    )


@dataclass(frozen=True)
class ModelEntry:
    """A model that can be chosen; `detail` is small text beside its name, `trouble` the reason why it cannot
    be used.

    `source` is the program whose folder it is in ("Ollama"); `info` is read from its headers, None if they
    cannot be read. An assistant has both an `info` and a trouble.
    """

    path: str
    name: str
    detail: str = ""
    trouble: str = ""
    source: str = ""
    info: ModelInfo | None = None


def entry(info: ModelInfo, source: str = "", title: str = "") -> ModelEntry:
    """The entry of a readable model: its size in parameters, bits per weight and bytes.

    `title` replaces its own name.
    """
    parts = (
        _("embedding model") if info.embedding else _("assistant for drafting") if info.assistant else "",
        count_text(info.parameters),
        _("{bits_per_weight:.3g} bit", bits_per_weight=info.bits_per_weight),
        size_text(info.size),
        _("reads pictures") if info.reads_pictures else "",
    )
    trouble = info.why_no_text if info.assistant else ""
    return ModelEntry(info.path, one_line(title) or info.name, dotted(*parts), trouble, source, info)


def model_name(path: str | Path) -> str:
    """The name of a model that was not read, or not yet: that of its file or folder, or a server's; of one of
    Ollama's blobs, the one that it was pulled by.
    """
    address = split_address(str(path))
    if address is not None:
        return one_line(shown_name(address[1]))
    path = Path(path)
    if path.parent.name == "blobs":
        from engine.weights.gguf.ollama import pulled_name

        if name := pulled_name(path):
            return one_line(name)
    return one_line(path.stem if path.suffix.lower() == ".gguf" else path.name)


def count_text(parameters: int) -> str:
    """For example "135 M" or "8.03 B"; empty when not known."""
    if parameters <= 0:
        return ""
    if parameters >= 1_000_000_000:
        return f"{number_text(parameters / 1e9, '.3g')} B"
    return f"{number_text(parameters / 1e6, '.3g')} M" if parameters < 999_500_000 else "1 B"


def template_text(info: ModelInfo, given: bool = False) -> str:
    """The chat template in use: the user's if one is `given`, the model's own, or the fallback."""
    if info.embedding:
        return _("none; this is an embedding model")
    if info.assistant:
        return _("none; it only drafts for another model")
    if given:
        return (
            _("yours, instead of the model's own")
            if info.has_chat_template
            else _("yours; the model has none")
        )
    if info.has_chat_template:
        return _("the model's own")
    return _(
        "none; the general template {fallbacks} is used",
        fallbacks=translate(_FALLBACKS.get(info.fallback_template, _FALLBACKS["plain"])),
    )
