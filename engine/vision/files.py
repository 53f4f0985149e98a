"""Whether a model may have a vision encoder, by its files alone: most have none."""

from __future__ import annotations

from engine.weights.checkpoint import Checkpoint
from engine.weights.gguf.ollama import projectors_of

__all__ = ["is_mmproj", "may_have_encoder"]


def may_have_encoder(checkpoint: Checkpoint) -> bool:
    """Whether a folder's configuration has a part for vision, or an mmproj file is beside a GGUF model."""
    if checkpoint.format != "gguf":
        return isinstance(checkpoint.metadata["config"].get("vision_config"), dict)
    return bool(projectors_of(checkpoint.path)) or any(
        is_mmproj(file.name) for file in checkpoint.path.parent.glob("*")
    )


def is_mmproj(name: str) -> bool:
    """Whether a GGUF file of this name holds a vision encoder, as those of llama.cpp's users do."""
    return "mmproj" in name.lower() and name.lower().endswith(".gguf")
