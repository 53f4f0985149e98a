"""Whether a model may have a vision encoder, by its files alone: most have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.weights.checkpoint import Checkpoint
from engine.weights.gguf.ollama import projectors_of

__all__ = ["PROJECTOR", "VISION_PARTS", "folder_config", "is_mmproj", "may_have_encoder", "vision_part"]

PROJECTOR = "clip.projector_type"
"""The key of a GGUF file that names the family of its vision encoder."""


VISION_PARTS = "vision_config", "img_processor", "vit_config"
"""Where config.json has what it says of a vision encoder; the others are Phi-3-vision's and Molmo 2's."""


def may_have_encoder(checkpoint: Checkpoint) -> bool:
    """Whether a folder's configuration has a part for vision, or a GGUF model's own file, as Ollama's do, or
    an mmproj file is beside it.
    """
    if checkpoint.format != "gguf":
        return vision_part(folder_config(checkpoint)) is not None
    return (
        PROJECTOR in checkpoint.metadata
        or bool(projectors_of(checkpoint.path))
        or any(is_mmproj(file.name) for file in checkpoint.path.parent.glob("*"))
    )


def folder_config(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """config.json of a folder; of Qwen's Omni, that of the part that reads and writes texts."""
    config: Mapping[str, Any] = checkpoint.metadata["config"]
    if isinstance(thinker := config.get("thinker_config"), dict):
        return {**thinker, "architectures": config.get("architectures")}
    return config


def vision_part(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a config.json says of a vision encoder; None if it says nothing."""
    return next((part for name in VISION_PARTS if isinstance(part := config.get(name), dict)), None)


def is_mmproj(name: str) -> bool:
    """Whether a GGUF file of this name holds a vision encoder, as those of llama.cpp's users do."""
    return "mmproj" in name.lower() and name.lower().endswith(".gguf")
