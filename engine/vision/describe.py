"""Describes a model by its headers, without loading it: what it is, and which pictures it reads."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core import ModelInfo
from engine.errors import EngineError
from engine.models.describe import describe_text_model
from engine.vision.files import VISION_PARTS, may_have_encoder
from engine.weights.checkpoint import Checkpoint, open_checkpoint
from engine.words import _

if TYPE_CHECKING:
    from engine.vision.opening import Layouts

_EYES = (*VISION_PARTS, "visual", "vision")
_EARS = (
    "audio_config", "audio_encoder", "sound_config", "encoder_config", "acoustic_tokenizer_encoder_config",
)  # fmt: skip


_WITH_PICTURES = (
    "qwen2vl", "qwen3vl", "qwen3vlmoe", "cogvlm", "gemma3n", "glm4v", "glm4v_moe", "hunyuan_vl", "llama4",
    "paddleocr", "pixtral",
)  # fmt: skip
"""GGUF architectures whose models all read pictures."""
_GEMMA_3, _LAYERS_WITH_EYES = "gemma3", 34
"""Gemma 3 reads pictures from 4B on, which has this many layers (its technical report, arXiv 2503.19786)."""


def describe(path: str | Path) -> ModelInfo:
    """The facts of a model file or folder. Raises `ModelNotFound`, `BadCheckpoint` and `UnsupportedModel`."""
    with closing(open_checkpoint(path)) as checkpoint:
        return describe_checkpoint(checkpoint)


def describe_checkpoint(checkpoint: Checkpoint) -> ModelInfo:
    """The same for an open checkpoint. Raises `BadCheckpoint` and `UnsupportedModel`."""
    return described(checkpoint)[0]


def described(
    checkpoint: Checkpoint, *, for_gpus: bool = True, picture_tokens: int = 0
) -> tuple[ModelInfo, Layouts | None]:
    """The same, and what pictures become in the model's prompts with `LoadSettings.picture_tokens`, if it
    reads any; `for_gpus` is as in `describe_text_model`.
    """
    info = describe_text_model(checkpoint, for_gpus=for_gpus)
    if info.assistant or info.why_no_text:
        return info, None
    found, why = _layouts_or_why(checkpoint, picture_tokens)
    info = replace(info, remarks=(*other_senses(checkpoint, reads=found is not None), *info.remarks, *why))
    if found is None:
        return replace(info, lacks_vision_file=not why and _lacks_file(checkpoint, info)), None
    spec, file = found.spec, found.file
    info = replace(
        info, reads_pictures=True, picture_rows=spec.seen_rows, vision_encoder=spec.family,
        vision_bytes=spec.nbytes,
        vision_file="" if file is None else str(file),
        vision_file_bytes=0 if file is None else file.stat().st_size,
    )  # fmt: skip
    return info, found


def _layouts_or_why(checkpoint: Checkpoint, tokens: int) -> tuple[Layouts | None, tuple[str, ...]]:
    """What pictures become in a model's prompts; or a sentence why it reads none, though its files have an
    encoder: the model can still be used without.
    """
    if not may_have_encoder(checkpoint):
        return None, ()
    from engine.vision.opening import vision_layouts  # with all families of encoders

    try:
        return vision_layouts(checkpoint, tokens), ()
    except EngineError as error:
        return None, (_("The model's pictures cannot be read: {error}", error=error),)


def other_senses(checkpoint: Checkpoint, *, reads: bool) -> tuple[str, ...]:
    """A sentence about what the model takes besides texts, if it is not used here."""
    if checkpoint.format == "gguf":
        return ()
    whole = checkpoint.metadata["config"]
    if isinstance(thinker := whole.get("thinker_config"), dict):  # Qwen's Omni
        whole = thinker
    sees, hears = (any(isinstance(whole.get(key), dict) for key in keys) for keys in (_EYES, _EARS))
    if sees and hears and not reads:
        return (_("The model also takes pictures and sounds, but only its text model runs here."),)
    if sees and not reads:
        return (_("The model also takes pictures, but only its text model runs here."),)
    if hears and reads:
        return (_("The model also takes sounds, which are not used here."),)
    return (_("The model also takes sounds, but only its text model runs here."),) if hears else ()


def _lacks_file(checkpoint: Checkpoint, info: ModelInfo) -> bool:
    """Whether a GGUF model reads pictures by a file that is not there."""
    if checkpoint.format != "gguf" or may_have_encoder(checkpoint):
        return False
    name = checkpoint.metadata.get("general.architecture")
    return name in _WITH_PICTURES or (name == _GEMMA_3 and info.layers >= _LAYERS_WITH_EYES)
