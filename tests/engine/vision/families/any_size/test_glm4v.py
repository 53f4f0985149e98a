"""The encoder of GLM-4.1V and GLM-4.6V against transformers, from folders and from mmproj files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Glm4vConfig,
    Glm4vForConditionalGeneration,
    GlmOcrConfig,
    GlmOcrForConditionalGeneration,
)
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

from engine.errors import EngineError
from engine.vision import Positions, Span
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture, randomise, save
from tests.engine.vision.tiny.mmproj import write_mmproj
from tests.tiny import TINY

WIDTH, PATCH = TINY.width, 14
SIZES = ((300, 200), (10, 7), (1, 100), (640, 640), (224, 112), (97, 531))
VISION = {
    "depth": 3, "hidden_size": 48, "num_heads": 2, "image_size": 84, "patch_size": PATCH,
    "out_hidden_size": WIDTH, "intermediate_size": 72,
}  # fmt: skip
TEXT = {
    "hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 64, "pad_token_id": 0, "eos_token_id": 1,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0, "mrope_section": [10, 7, 7],
    },
}  # fmt: skip
AREA = 2 * 28 * 28
Made = tuple[Any, Any, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A model, its image processor, and the folder of both."""
    model = randomise(Glm4vForConditionalGeneration(Glm4vConfig(vision_config=VISION, text_config=TEXT)))
    processor = Glm4vImageProcessorPil(size={"shortest_edge": 4 * AREA, "longest_edge": 130 * AREA})
    return model, processor, save(model, processor, tmp_path_factory.mktemp("glm4v"))


@pytest.fixture(scope="module")
def encoded(made: Made) -> Iterator[Encoded]:
    found = Encoded(made[2])
    yield found
    found.close()


def assert_same(encoded: Encoded, made: Made, width: int, height: int) -> None:
    """Rows and layout are those of transformers."""
    inputs = made[1]([picture(width, height)], return_tensors="pt")
    grid = inputs["image_grid_thw"]
    with torch.no_grad():
        found = made[0].model.get_image_features(inputs["pixel_values"], grid, return_dict=True)
    assert encoded.layout(width, height) == (Span(int(grid[0, 1]) // 2, int(grid[0, 2]) // 2),)
    assert_close(encoded.states(picture(width, height)), found.pooler_output[0].numpy())


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_folder(made: Made, encoded: Encoded, width: int, height: int) -> None:
    assert_same(encoded, made, width, height)
    assert encoded.spec.positions == Positions((10, 7, 7), False)


_NAMES = (
    ("patch_embed.proj", "v.patch_embd"), ("post_conv_layernorm", "v.norm_embd"),
    ("embeddings.position_embedding", "v.position_embd"), ("post_layernorm", "v.post_ln"),
    ("downsample", "mm.patch_merger"), ("merger.proj", "mm.model.fc"),
    ("merger.post_projection_norm", "mm.post_norm"), ("merger.gate_proj", "mm.gate"),
    ("merger.up_proj", "mm.up"), ("merger.down_proj", "mm.down"), ("blocks.", "v.blk."),
    ("attn.q_norm", "attn_q_norm"), ("attn.k_norm", "attn_k_norm"), ("attn.qkv", "attn_qkv"),
    ("attn.proj", "attn_out"), ("norm1", "ln1"), ("norm2", "ln2"),
    ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"),
)  # fmt: skip
KEYS = {
    "clip.projector_type": "glm4v", "embedding_length": 48, "block_count": 3, "patch_size": PATCH,
    "feed_forward_length": 72, "attention.head_count": 2, "attention.layer_norm_epsilon": 1e-5,
    "projection_dim": WIDTH, "image_size": 84, "spatial_merge_size": 2, "clip.use_silu": True,
    "image_min_pixels": 2 * AREA, "image_max_pixels": 65 * AREA,
}  # fmt: skip


def converted(model: Any) -> dict[str, Any]:
    """The tensors of an encoder as llama.cpp's converter writes them."""
    out = dict[str, Any]()
    for name, parameter in model.model.visual.state_dict().items():
        values = parameter.numpy()
        for old, new in _NAMES:
            name = name.replace(old, new)
        if name == "v.patch_embd.weight":
            out[name], out[name + ".1"] = values[:, :, 0], values[:, :, 1]
        else:
            out[name] = values
    return out


def test_mmproj(made: Made, tmp_path: Path) -> None:
    """An mmproj file says the same as the folder."""
    found = Encoded(write_mmproj(tmp_path, "llama", WIDTH, KEYS, converted(made[0])))
    for width, height in SIZES[:3]:
        assert_same(found, made, width, height)
    found.close()


def ocr() -> Any:
    """GLM-OCR, which has no positions but rope, norms of queries and keys, and biases."""
    config = GlmOcrConfig(vision_config=VISION, text_config={**TEXT, "head_dim": 48})
    return randomise(GlmOcrForConditionalGeneration(config))


def test_glm_ocr(made: Made, tmp_path: Path) -> None:
    """From a folder, and from an mmproj file."""
    model, processor = ocr(), made[1]
    folder = save(model, processor, tmp_path)
    for path in (folder, write_mmproj(tmp_path, "llama", WIDTH, KEYS, converted(model))):
        found = Encoded(path)
        for width, height in SIZES[:4]:
            assert_same(found, (model, processor, folder), width, height)
        found.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image_size": 85}, "a multiple of 14"), ({"image_size": 98}, "shape"),
        ({"block_count": 4}, "lacks"),
        ({"attention.head_count": 24}, "multiple of 4"), ({"spatial_merge_size": 3}, "shape"),
        ({"patch_size": 0}, "patch_size"),
    ],
)  # fmt: skip
def test_hostile_mmproj_files(made: Made, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """One sentence says what is wrong."""
    model = write_mmproj(tmp_path, "llama", WIDTH, {**KEYS, **change}, converted(made[0]))
    with pytest.raises(EngineError, match=words) as caught:
        vision_spec(open_checkpoint(model))
    assert "\n" not in str(caught.value)
