"""Describes a model by its headers, with its vision encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.core import ModelInfo
from engine.errors import EngineError
from engine.models.describe import describe_checkpoint as described_text_model
from engine.vision.families import FAMILIES
from engine.vision.opening import vision_spec
from engine.weights.checkpoint import Checkpoint, open_checkpoint

_OF_ARCHITECTURES = {
    "gemma3": "gemma3", "qwen2vl": "qwen2vl_merger", "qwen3vl": "qwen3vl_merger",
    "qwen3vlmoe": "qwen3vl_merger", "qwen35": "qwen3vl_merger", "qwen35moe": "qwen3vl_merger",
    "gemma4": "gemma4v", "mistral3": "pixtral",
}  # fmt: skip
"""Architectures of GGUF files whose models read pictures: the `clip.projector_type` of their encoders."""
_OF_NAMES = {
    "smolvlm": "idefics3", "internvl": "internvl", "lfm2-vl": "lfm2", "lfm2.5-vl": "lfm2", "llava": "mlp",
    "granite-docling": "idefics3",
}  # fmt: skip
"""The same by words in the name of the file or of the model, where the architecture is one of others, too."""
_TEXT_ONLY = {"gemma3": 30}
"""Architectures of which models with fewer layers read text only (the model card of Gemma 3)."""


def describe(path: str | Path) -> ModelInfo:
    """The facts of a model file or folder. Raises `ModelNotFound`, `BadCheckpoint` and `UnsupportedModel`."""
    checkpoint = open_checkpoint(path)
    try:
        return describe_checkpoint(checkpoint)
    finally:
        checkpoint.close()


def describe_checkpoint(checkpoint: Checkpoint) -> ModelInfo:
    """The same for an open checkpoint. An encoder whose files are damaged is a remark; the text model works
    without it.
    """
    problem = ""
    try:
        spec = vision_spec(checkpoint)
    except EngineError as error:
        spec, problem = None, str(error)
    info = described_text_model(checkpoint, reads_pictures=spec is not None)
    if problem:
        return replace(info, remarks=(*info.remarks, problem))
    if spec is None or info.why_no_text:
        return replace(info, lacks_vision_file=_lacks_file(checkpoint, info))
    return replace(
        info,
        reads_pictures=True,
        vision_encoder=spec.family,
        vision_bytes=spec.nbytes,
        vision_file=spec.file,
        vision_file_bytes=Path(spec.file).stat().st_size if spec.file else 0,
    )


def _lacks_file(checkpoint: Checkpoint, info: ModelInfo) -> bool:
    """Whether a GGUF model would read pictures by an mmproj file that can be run."""
    if checkpoint.format != "gguf" or info.why_no_text:
        return False
    names = f"{checkpoint.path.name} {checkpoint.metadata.get('general.name', '')}".lower().replace(" ", "-")
    kind = _OF_ARCHITECTURES.get(info.architecture, "")
    kind = kind or next((found for word, found in _OF_NAMES.items() if word in names), "")
    known = any(kind in family.gguf for family in FAMILIES)
    return known and info.layers >= _TEXT_ONLY.get(info.architecture, 0)
