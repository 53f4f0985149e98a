"""The encoders of Pixtral and Mistral Small 3.1 against transformers, from folders and from mmproj files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    LightOnOcrConfig,
    LightOnOcrForConditionalGeneration,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralLarge4Config,
    MistralLarge4ForConditionalGeneration,
)
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

from engine.errors import EngineError
from engine.vision import Span
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.models.cases.mistral_large_4 import LARGE
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture, randomise, save
from tests.engine.vision.tiny.mmproj import write_mmproj
from tests.tiny import TINY

WIDTH, PATCH, LONGEST = TINY.width, 14, 200
SIZES = ((300, 200), (40, 7), (1, 190), (640, 640), (182, 182), (97, 531))
VISION = {
    "model_type": "pixtral", "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 3,
    "num_attention_heads": 2, "patch_size": PATCH, "image_size": LONGEST, "hidden_act": "silu",
}  # fmt: skip
TEXT = {
    "model_type": "mistral", "hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 64, "rms_norm_eps": 1e-5,
    "head_dim": 20,
}  # fmt: skip
Made = tuple[Any, Any, int, Path]


@pytest.fixture(scope="module", params=["pixtral", "mistral3", "lightonocr", "mistral_large4"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A model, its image processor, how many patches are merged on each side, and the folder of all."""
    if request.param == "pixtral":
        config = LlavaConfig(
            vision_config=VISION, text_config=TEXT, vision_feature_layer=-1,
            vision_feature_select_strategy="full", image_token_index=3,
        )  # fmt: skip
        model, factor = randomise(LlavaForConditionalGeneration(config)), 1
    elif request.param == "lightonocr":
        text = {**TEXT, "model_type": "qwen3"}
        ocr = LightOnOcrConfig(vision_config=VISION, text_config=text, image_token_id=3)
        model, factor = randomise(LightOnOcrForConditionalGeneration(ocr)), 2
    elif request.param == "mistral_large4":
        large = MistralLarge4Config(
            vision_config={**VISION, "hidden_act": "gelu"}, text_config={**LARGE, "hidden_size": WIDTH},
            image_token_index=3,
        )  # fmt: skip
        model, factor = randomise(MistralLarge4ForConditionalGeneration(large)), 2
    else:
        config = Mistral3Config(
            vision_config={**VISION, "hidden_act": "gelu"}, text_config=TEXT, image_token_index=3
        )
        model, factor = randomise(Mistral3ForConditionalGeneration(config)), 2
    processor = PixtralImageProcessorPil(size={"longest_edge": LONGEST}, patch_size=PATCH * factor)
    return model, processor, factor, save(model, processor, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def encoded(made: Made) -> Iterator[Encoded]:
    found = Encoded(made[3])
    yield found
    found.close()


def assert_same(encoded: Encoded, made: Made, width: int, height: int) -> None:
    """Rows and layout are those of transformers."""
    model, processor, factor, _ = made
    inputs = processor([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        found = model.model.get_image_features(
            inputs["pixel_values"], image_sizes=inputs["image_sizes"], return_dict=True
        )
    assert_close(encoded.states(picture(width, height)), found.pooler_output[0].flatten(0, -2).numpy())
    high, wide = (int(side) // (PATCH * factor) for side in inputs["image_sizes"][0])
    if encoded.spec.family == "lightonocr":
        assert encoded.layout(width, height) == (Span(high, wide),)
        return
    row = "[IMG]" * wide
    assert encoded.text(width, height) == "[IMG_BREAK]".join([row] * high) + "[IMG_END]"


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_folder(made: Made, encoded: Encoded, width: int, height: int) -> None:
    assert_same(encoded, made, width, height)


_NAMES = (
    ("vision_encoder.", "vision_tower."), ("vision_projection.", "multi_modal_projector."),
    ("vision_tower.patch_conv", "v.patch_embd"), ("vision_tower.ln_pre", "v.pre_ln"),
    ("vision_tower.transformer.layers.", "v.blk."), ("attention_norm", "ln1"), ("ffn_norm", "ln2"),
    ("attention.q_proj", "attn_q"), ("attention.k_proj", "attn_k"), ("attention.v_proj", "attn_v"),
    ("attention.o_proj", "attn_out"), ("feed_forward.gate_proj", "ffn_gate"),
    ("feed_forward.up_proj", "ffn_up"), ("feed_forward.down_proj", "ffn_down"),
    ("multi_modal_projector.norm", "mm.input_norm"), ("multi_modal_projector.linear_1", "mm.1"),
    ("multi_modal_projector.linear_2", "mm.2"),
    ("multi_modal_projector.patch_merger.merging_layer", "mm.patch_merger"),
)  # fmt: skip


def write_gguf(made: Made, folder: Path) -> Path:
    """The model as a GGUF file, beside its mmproj file, in which the rows of queries and keys are in the
    order of pairs. Returns the path of the model.
    """
    model, _, factor, _ = made
    ocr = isinstance(model, LightOnOcrForConditionalGeneration)
    tensors = {"v.token_embd.img_break": np.zeros(WIDTH)}
    for name, parameter in model.model.state_dict().items():
        if name.startswith("language_model."):
            continue
        values = parameter.numpy()
        if "q_proj" in name or "k_proj" in name:
            heads = VISION["num_attention_heads"]
            values = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        for old, new in _NAMES:
            name = name.replace(old, new)
        tensors[name] = values
    keys = {
        "clip.projector_type": "lightonocr" if ocr else "pixtral",
        "embedding_length": 48, "block_count": 3, "patch_size": PATCH, "feed_forward_length": 72,
        "attention.head_count": 2, "attention.layer_norm_epsilon": 1e-5, "projection_dim": WIDTH,
        "image_size": LONGEST,
        "clip.use_gelu": factor == 2 and not ocr, "clip.use_silu": factor == 1 or ocr,
    }  # fmt: skip
    if factor > 1:
        keys["spatial_merge_size"] = factor
    return write_mmproj(folder, "llama", WIDTH, keys, tensors)


def test_mmproj(made: Made, tmp_path: Path) -> None:
    """An mmproj file says the same as the folder."""
    found = Encoded(write_gguf(made, tmp_path))
    for width, height in SIZES[:3]:
        assert_same(found, made, width, height)
    found.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_attention_heads": 7}, "a multiple of num_attention_heads"),
        ({"num_attention_heads": 24}, "multiple of 4"), ({"num_hidden_layers": 4}, "lacks tensors"),
        ({"patch_size": 0}, "patch_size"), ({"patch_size": 16}, "shape"),
        ({"image_size": "big"}, "image_size"),
        ({"rope_parameters": {"rope_theta": -1}}, "rope_theta"), ({"hidden_act": 5}, "hidden_act"),
        ({"intermediate_size": 10**9}, "intermediate_size"),
    ],
)  # fmt: skip
def test_hostile_folders(made: Made, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """One sentence says what is wrong."""
    shutil.copytree(made[3], tmp_path, dirs_exist_ok=True)
    (tmp_path / "preprocessor_config.json").unlink()
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["vision_config"] |= change
    path.write_text(json.dumps(config))
    with pytest.raises(EngineError, match=words) as caught:
        vision_spec(open_checkpoint(tmp_path))
    assert "\n" not in str(caught.value)
