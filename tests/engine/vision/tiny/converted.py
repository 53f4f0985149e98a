"""The tensors of a folder's vision encoder, renamed by the `gguf` package as llama.cpp's converter does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

from tests.engine.vision.tiny.encoding import Floats
from tests.engine.vision.tiny.mmproj import write_mmproj

TOWER_KEYS = {
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count", "num_attention_heads": "attention.head_count",
    "image_size": "image_size", "patch_size": "patch_size", "layer_norm_eps": "attention.layer_norm_epsilon",
}  # fmt: skip
"""What config.json's `vision_config` calls the keys of an mmproj file."""


FLATTENED = {
    "vision_tower.embeddings": "vision_tower.vision_model.embeddings",
    "vision_tower.encoder": "vision_tower.vision_model.encoder",
    "vision_tower.pre_layrnorm": "vision_tower.vision_model.pre_layrnorm",
    "vision_tower.post_layernorm": "vision_tower.vision_model.post_layernorm",
}  # fmt: skip
"""Names of a tower in folders of today, and as the package knows them."""


_LEFT_OUT = "language_model", "text_model", "lm_head", "vision_tower.head.", "vision_model.head."
"""Of the language model, and of the pooling that SigLIP has for other uses."""
_MOST = 32
"""Numbers in names that the package is asked for."""


def encoder_tensors(
    folder: Path, renames: Mapping[str, str] = {}, skipped: Sequence[str] = ()
) -> dict[str, Floats]:
    """All tensors but the language model's, and those with `skipped` in their names. `renames` are parts of
    names that the package does not know.
    """
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, _MOST)
    found: dict[str, Floats] = {}
    for name, values in load_file(folder / "model.safetensors").items():
        if any(part in name for part in (*_LEFT_OUT, *skipped)):
            continue
        for old, new in renames.items():
            name = name.replace(old, new)
        known = name if name.startswith(("mm.", "v.")) else names.get_name(name, (".weight", ".bias"))
        assert known is not None, f"llama.cpp has no name for {name}"
        found[known] = values
    return found


def write_tower(
    folder: Path, kind: str, vision: Any, width: int, tensors: Mapping[str, Floats], **keys: Any
) -> Path:
    """An mmproj file of this `clip.projector_type` beside a model of this width, whose path is returned.

    `vision` is the `vision_config`; `keys` are further ones, whose dots are written "__".
    """
    whole: dict[str, Any] = {"clip.projector_type": kind, "projection_dim": width}
    for name, key in TOWER_KEYS.items():
        value = getattr(vision, name, None)
        if value is not None:
            whole[key] = value[0] if isinstance(value, (list, tuple)) else value
    whole |= {name.replace("__", "."): value for name, value in keys.items()}
    return write_mmproj(folder, "llama", width, whole, tensors)


def flat_kernels(values: Floats, patch: int) -> Floats:
    """The matrix (E, patch * patch * 3) over patches as kernels (E, 3, patch, patch)."""
    kernels = values.reshape(len(values), patch, patch, 3).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(kernels)
