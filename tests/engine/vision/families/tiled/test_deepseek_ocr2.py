"""DeepSeek-OCR 2, in folders and in mmproj files, against transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from engine.errors import EngineError
from engine.models.headers.keys import Keys
from engine.vision.encoders.sam_encoder import SamDesign
from engine.vision.families.tiled.deepseek_ocr2 import ReaderShape, from_hf
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.test_by_llama_cpp import by_llama_cpp
from tests.engine.vision.tiny.deepseek_ocr_folders import DEEPSEEK, SAM, TILE, inputs
from tests.engine.vision.tiny.encoding import Encoded, Floats, assert_close, picture, randomise
from tests.engine.vision.tiny.mmproj import write_mmproj
from tests.tiny import TINY, write_gguf

SIDE, MOST = 832, 6
"""A side of which there are more rows than 144: from then on transformers takes the queries of the whole."""
READER = {
    "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
NAMES = {
    "model.sam_model.": "v.sam.", "patch_embed.proj": "patch_embd", "v.sam.blocks": "v.sam.blk",
    "pos_embed": "pos_embd.weight", "norm1": "pre_ln", "norm2": "post_ln", "attn.proj": "attn.out",
    "rel_pos_h": "pos_h.weight", "rel_pos_w": "pos_w.weight", "model.projector.layers": "mm.model.fc",
    "model.view_seperator": "v.view_seperator", "model.qwen2_model.model.model.layers": "v.blk",
    "model.qwen2_model.model.model.norm": "v.post_ln", "input_layernorm": "ln1",
    "post_attention_layernorm": "ln2", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_out", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "model.qwen2_model.query": "v.resample_query",
}  # fmt: skip
"""Parts of the makers' names -> those of llama.cpp."""


def random_model(sam: dict[str, Any], width: int) -> Any:
    """A random model whose language model is so wide."""
    from transformers import DeepseekOcr2Config, DeepseekOcr2ForConditionalGeneration

    reader = {**READER, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    config = DeepseekOcr2Config(
        vision_config={"sam_config": sam, "encoder_config": reader},
        text_config={**DEEPSEEK, "vocab_size": 64, "hidden_size": width}, image_token_id=3,
    )  # fmt: skip
    return randomise(DeepseekOcr2ForConditionalGeneration(config))


@pytest.fixture(scope="module")
def made() -> Any:
    return random_model({**SAM, "image_size": SIDE}, 32)


@pytest.fixture(scope="module")
def encoded(made: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encoded]:
    folder = tmp_path_factory.mktemp("ocr2")
    made.save_pretrained(folder)
    settings = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "tile_size": TILE}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": settings}), "utf-8")
    found = Encoded(folder)
    yield found
    found.close()


@pytest.mark.parametrize(("width", "height"), [(300, 200), (10, 7), (96, 96), (97, 90), (97, 531)])
def test_rows_and_layout_are_those_of_transformers(
    made: Any, encoded: Encoded, width: int, height: int
) -> None:
    given = inputs([picture(width, height)], side=SIDE, most=MOST)
    del given["patches_grid"]
    with torch.no_grad():
        found = made.model.get_image_features(**given)
    rows = torch.cat(list(found.pooler_output)).numpy()
    assert_close(encoded.states(picture(width, height)), rows)
    assert encoded.text(width, height) == "<image>" * len(rows)
    assert len(rows) == 144 * given["num_local_patches"][0] + 256 + 1


def write(folder: Path, target: Path, width: int, layers: int = 2) -> Path:
    """An mmproj file of a folder's encoder, beside a model in `target`, whose path is returned."""
    found: dict[str, Floats] = {}
    for name, values in load_file(folder / "model.safetensors").items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        if name.startswith(("v.", "mm.")):
            found[name] = values
    keys = {
        "clip.projector_type": "deepseekocr2", "clip.use_silu": True, "embedding_length": 32,
        "block_count": 2, "attention.head_count": 4, "attention.head_count_kv": 2,
        "attention.layer_norm_epsilon": 1e-6, "feed_forward_length": 40, "sam.embedding_length": 16,
        "sam.block_count": layers, "sam.head_count": 2, "window_size": 4, "image_size": 1024,
        "patch_size": 16, "projection_dim": width, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip
    return write_mmproj(target, "deepseek2-ocr", width, keys, found)


def test_an_mmproj_file_says_the_same(encoded: Encoded, tmp_path: Path) -> None:
    """Of a small picture, since files do not say how large tiles are."""
    same = Encoded(write(encoded.path, tmp_path, 32))
    assert same.spec.family == "deepseek_ocr2"
    assert_close(same.states(picture(90, 60)), encoded.states(picture(90, 60)))
    same.close()


def test_what_the_makers_folder_leaves_out() -> None:
    """With the shapes of the published model."""
    layer, sam_at = "model.qwen2_model.model.model.layers.{}.", "model.sam_model."
    shapes: dict[str, tuple[int, ...]] = {
        f"{sam_at}pos_embed": (1, 64, 64, 768), f"{sam_at}blocks.0.mlp.lin1.weight": (3072, 768),
        f"{sam_at}neck.2.weight": (256, 256, 3, 3), f"{sam_at}net_2.weight": (512, 256, 3, 3),
        f"{sam_at}net_3.weight": (896, 512, 3, 3),
        "model.qwen2_model.query_768.weight": (144, 896), "model.qwen2_model.query_1024.weight": (256, 896),
        layer.format(0) + "self_attn.k_proj.weight": (128, 896),
        layer.format(0) + "mlp.up_proj.weight": (4864, 896),
    }  # fmt: skip
    for number in range(12):
        distances = 127 if number in (2, 5, 8, 11) else 27
        shapes[f"{sam_at}blocks.{number}.attn.rel_pos_h"] = (distances, 64)
    shapes |= {layer.format(number) + "self_attn.q_proj.weight": (896, 896) for number in range(24)}
    tensors: Any = {name: SimpleNamespace(shape=shape) for name, shape in shapes.items()}
    sam = {"width": 768, "layers": 12, "heads": 12, "global_attn_indexes": [2, 5, 8, 11]}
    config = {"vision_config": {"width": {"qwen2-0-5b": {"dim": 896}, "sam_vit_b": sam}}}
    design = from_hf(Keys(config, "config.json"), Keys({}, ""), tensors)
    assert isinstance(design, SamDesign)
    reader = design.second
    assert isinstance(reader, ReaderShape)
    tower = reader.tower
    assert (design.sam.cells, reader.counts, reader.least, reader.most) == (64, (144, 256), 144, 256)
    assert (tower.width, tower.layers, tower.heads, tower.kv_heads) == (896, 24, 14, 2)
    assert (tower.mlp_width, tower.eps, reader.base) == (4864, 1e-6, 1e6)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("sam_config", {"num_attention_heads": 3}), ("sam_config", {"num_hidden_layers": 3}),
        ("sam_config", {"hidden_size": 18}), ("encoder_config", {"num_attention_heads": 5}),
        ("encoder_config", {"num_attention_heads": 32}), ("encoder_config", {"rms_norm_eps": -1.0}),
    ],
)  # fmt: skip
def test_damaged_headers(encoded: Encoded, tmp_path: Path, part: str, changes: dict[str, Any]) -> None:
    config = json.loads((encoded.path / "config.json").read_text("utf-8"))
    config["vision_config"][part] |= changes
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    (tmp_path / "model.safetensors").write_bytes((encoded.path / "model.safetensors").read_bytes())
    with pytest.raises(EngineError) as raised:
        vision_spec(open_checkpoint(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_rows_are_those_of_llama_cpp(tmp_path: Path) -> None:
    """It takes the sizes of the published model for granted, and has 16-bit kernels of convolutions."""
    sam = {**SAM, "image_size": 1024, "num_hidden_layers": 3, "global_attn_indexes": [2]}
    model = random_model(sam, TINY.width)
    model.save_pretrained(tmp_path / "folder")
    file = write(tmp_path / "folder", tmp_path, TINY.width, layers=3)
    image = picture(1024, 1024)
    theirs = by_llama_cpp(write_gguf(tmp_path / "text.gguf", TINY), tmp_path / "mmproj-model-f32.gguf", image)
    encoded = Encoded(file)
    mine = encoded.states(image)
    encoded.close()
    assert [len(each) for each in theirs] == [144, 144, 144, 144, 257]
    own, other = mine[-257:], theirs[-1]  # the whole, which is not resized
    cosines = (own * other).sum(1) / np.linalg.norm(own, axis=1) / np.linalg.norm(other, axis=1)
    assert cosines.min() > 0.98
    assert np.median(cosines) > 0.995
