"""InternVL against transformers, in its folders and in those of the model's authors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    InternVLConfig,
    InternVLForConditionalGeneration,
    QianfanOCRConfig,
    QianfanOCRForConditionalGeneration,
)
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

from engine.errors import UnsupportedModel
from engine.models.headers.keys import Keys
from engine.vision.families.tiled.internvl import CHAT, Tiles, from_hf
from tests.engine.vision.tiny.converted import encoder_tensors, write_tower
from tests.engine.vision.tiny.encoding import SIZES, TEXT, Encoded, assert_close, picture, randomise, save

SIDE, PATCH, MOST = 56, 7, 6
KINDS = {
    "300M": {"norm_type": "layer_norm", "use_qk_norm": False, "attention_bias": True},
    "6B": {"norm_type": "rms_norm", "use_qk_norm": True, "attention_bias": False},
}  # fmt: skip


def as_authors_have_it(folder: Path, out: Path) -> Path:
    """The folder in the form of `InternVLChatModel`."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    vision = config["vision_config"]
    vision |= {"qk_normalization": vision["use_qk_norm"], "image_size": SIDE, "patch_size": PATCH}
    renamed = {
        "architectures": ["InternVLChatModel"], "llm_config": config["text_config"], "vision_config": vision,
        "max_dynamic_patch": MOST, "use_thumbnail": True, "dynamic_image_size": True, "select_layer": -1,
        "downsample_ratio": 0.5, "ps_version": "v2",
    }  # fmt: skip
    (out / "config.json").write_text(json.dumps(renamed), "utf-8")
    pairs = (
        ("vision_tower.", "vision_model."), ("encoder.layer.", "encoder.layers."),
        ("embeddings.cls_token", "embeddings.class_embedding"),
        ("embeddings.position_embeddings", "embeddings.position_embedding"),
        ("embeddings.patch_embeddings.projection", "embeddings.patch_embedding"),
        ("attention.projection_layer", "attn.proj"), ("attention.", "attn."), ("lambda_1", "ls1"),
        ("lambda_2", "ls2"), ("layernorm_before", "norm1"), ("layernorm_after", "norm2"),
        ("multi_modal_projector.layer_norm", "mlp1.0"),
        ("multi_modal_projector.linear_1", "mlp1.1"),
        ("multi_modal_projector.linear_2", "mlp1.3"),
    )  # fmt: skip
    found: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        name = name.removeprefix("model.")
        for old, new in pairs:
            name = name.replace(old, new)
        found[name] = tensor
    for name in [each for each in found if "attn.q_proj" in each]:
        parts = [found.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
        found[name.replace("q_proj", "qkv")] = torch.cat(parts)
    save_file(found, out / "model.safetensors")
    return out


@pytest.fixture(scope="module", params=KINDS)
def models(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded, Encoded]]:
    """A model, its image processor, and the engine's encoders of both folders."""
    tower = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": SIDE, "patch_size": PATCH, **KINDS[request.param],
    }  # fmt: skip
    config = InternVLConfig(vision_config=tower, text_config={"model_type": "qwen2", **TEXT})
    model = randomise(InternVLForConditionalGeneration(config))
    processor = GotOcr2ImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, crop_to_patches=True, max_patches=MOST,
        image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225],
    )  # fmt: skip
    folder = save(model, processor, tmp_path_factory.mktemp("internvl"))
    file = folder / "preprocessor_config.json"  # as published; InternVLProcessor asks for tiles
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {"crop_to_patches": False}), "utf-8")
    native = Encoded(folder)
    chat = Encoded(as_authors_have_it(folder, tmp_path_factory.mktemp("chat")))
    yield model, processor, native, chat
    native.close()
    chat.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(models: Any, width: int, height: int) -> None:
    model, processor, *both = models
    inputs = processor([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        found = model.model.get_image_features(
            inputs["pixel_values"], vision_feature_layer=-1, vision_feature_select_strategy="default"
        ).pooler_output
    expected = found.flatten(0, 1).numpy()
    tokens = (SIDE // PATCH // 2) ** 2 * int(inputs["num_patches"][0])
    for encoded in both:
        assert_close(encoded.states(picture(width, height)), expected)
        assert encoded.text(width, height) == f"<img>{'<IMG_CONTEXT>' * tokens}</img>"


def test_intern_s1_has_the_names_of_internvl(models: Any, tmp_path: Path) -> None:
    native = models[2]
    for file in native.path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config |= {"architectures": ["InternS1ForConditionalGeneration"], "model_type": "interns1"}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    same = Encoded(tmp_path)
    assert same.spec == native.spec
    np.testing.assert_array_equal(same.states(picture(90, 60)), native.states(picture(90, 60)))
    same.close()


def test_qianfan_ocr(tmp_path: Path) -> None:
    """Its folders have the names of InternVL's authors, and its configuration those of transformers."""
    tower = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": SIDE, "patch_size": PATCH,
    }  # fmt: skip
    config = QianfanOCRConfig(vision_config=tower, text_config={"model_type": "qwen3", **TEXT})
    model = randomise(QianfanOCRForConditionalGeneration(config))
    processor = GotOcr2ImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, crop_to_patches=True, max_patches=MOST
    )
    encoded = Encoded(save(model, processor, tmp_path))
    inputs = processor([picture(200, 100)], return_tensors="pt")
    with torch.no_grad():
        expected = model.model.get_image_features(inputs["pixel_values"]).pooler_output
    assert_close(encoded.states(picture(200, 100)), expected.flatten(0, 1).numpy())
    assert encoded.spec.placeholder == "<image>"
    encoded.close()


def test_an_mmproj_file_says_the_same(models: Any, tmp_path: Path) -> None:
    model, processor, native, _chat = models
    vision = model.config.vision_config
    names = {
        "multi_modal_projector.layer_norm": "mlp1.0", "multi_modal_projector.linear_1": "mlp1.1",
        "multi_modal_projector.linear_2": "mlp1.3", "position_embeddings": "position_embeddings.weight",
        "lambda_1": "lambda_1.weight", "lambda_2": "lambda_2.weight", "vision_tower": "model.vision_tower",
        "model.model.": "model.",
    }  # fmt: skip
    tensors = encoder_tensors(native.path, names)
    path = write_tower(
        tmp_path, "internvl", vision, TEXT["hidden_size"], tensors, image_mean=processor.image_mean,
        image_std=processor.image_std, clip__use_gelu=True, projector__scale_factor=2, preproc_max_tiles=MOST,
    )  # fmt: skip
    same = Encoded(path)
    for width, height in SIZES[:4]:
        assert_close(same.states(picture(width, height)), native.states(picture(width, height)))
        assert same.layout(width, height) == native.layout(width, height)
    same.close()


@pytest.mark.parametrize(("thumbnail", "spans"), [(True, 3), (False, 2)])
def test_the_whole_picture_follows_its_tiles_if_settings_say_so(thumbnail: bool, spans: int) -> None:
    tiles = Tiles(SIDE, PATCH, 2 * PATCH, 3, most=MOST, thumbnail=thumbnail)
    assert len(tiles.crops(np.asarray(picture(200, 100)))) == spans
    assert sum(not isinstance(piece, str) for piece in tiles.layout(200, 100)) == spans
    assert len(tiles.crops(np.asarray(picture(40, 40)))) == 1


def test_patches_in_the_order_of_the_first_version_are_refused() -> None:
    config = {"architectures": [CHAT], "ps_version": "v1", "vision_config": {"image_size": 448}}
    with pytest.raises(UnsupportedModel, match="the order of its first version"):
        from_hf(Keys(config, "config.json"), Keys({}, ""), {})
