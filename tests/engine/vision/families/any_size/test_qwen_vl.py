"""The encoders of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen 3.5 against transformers, from folders and from
mmproj files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.errors import EngineError
from engine.vision import Positions, Span
from engine.vision.opening import vision_spec
from engine.vision.pictures.sizes import MOST_TOKENS
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture, randomise, save
from tests.engine.vision.tiny.mmproj import write_mmproj
from tests.tiny import TINY

WIDTH = TINY.width
TEXT = {
    "hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 64, "tie_word_embeddings": False,
}  # fmt: skip
SIZES = ((300, 200), (10, 7), (1, 190), (640, 640), (224, 112), (97, 531))


@dataclass(frozen=True)
class Case:
    """A tiny model: its classes, `vision_config`, and what mmproj files say of it."""

    config: Any
    model: Any
    vision: Mapping[str, Any]
    projector: str
    architecture: str
    keys: Mapping[str, Any]
    text: Mapping[str, Any] = field(default_factory=dict)
    model_keys: Mapping[str, Any] = field(default_factory=dict)
    patch: int = 14


CASES = {
    "qwen2_vl": Case(
        Qwen2VLConfig, Qwen2VLForConditionalGeneration,
        {"depth": 3, "embed_dim": 48, "hidden_size": WIDTH, "num_heads": 2, "mlp_ratio": 2},
        "qwen2vl_merger", "qwen2vl", {},
        {"rope_parameters": {"rope_theta": 1e4, "mrope_section": [10, 7, 7]}},
    ),
    "qwen2_5_vl": Case(
        Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration,
        {
            "depth": 5, "hidden_size": 48, "intermediate_size": 72, "num_heads": 3, "out_hidden_size": WIDTH,
            "fullatt_block_indexes": [1, 3], "window_size": 112,
        },
        "qwen2.5vl_merger", "qwen2vl", {"n_wa_pattern": 2, "clip.use_silu": True},
        {"rope_parameters": {"rope_theta": 1e4, "mrope_section": [10, 7, 7]}},
    ),
    "qwen3_vl": Case(
        Qwen3VLConfig, Qwen3VLForConditionalGeneration,
        {
            "depth": 4, "hidden_size": 48, "intermediate_size": 72, "num_heads": 2, "out_hidden_size": WIDTH,
            "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 2], "patch_size": 16,
        },
        "qwen3vl_merger", "qwen3vl",
        {
            "clip.use_gelu": True, "is_deepstack_layers": [True, False, True, False], "image_size": 96,
        },
        {"head_dim": 20, "rope_parameters": {"rope_theta": 1e4, "mrope_section": [4, 3, 3]}},
        {"attention.key_length": 20, "attention.value_length": 20}, patch=16,
    ),
    "qwen3_5": Case(
        Qwen3_5Config, Qwen3_5ForConditionalGeneration,
        {
            "depth": 2, "hidden_size": 64, "intermediate_size": 72, "num_heads": 4, "out_hidden_size": WIDTH,
            "num_position_embeddings": 25, "patch_size": 16,
        },
        "qwen3vl_merger", "qwen35", {"clip.use_gelu": True, "image_size": 80},
        {
            "head_dim": 40, "layer_types": ["full_attention"], "linear_num_value_heads": 2,
            "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
                "mrope_section": [4, 3, 3],
            },
        },
        {
            "attention.key_length": 40, "attention.value_length": 40, "ssm.conv_kernel": 4,
            "ssm.state_size": 8, "ssm.group_count": 2, "ssm.time_step_rank": 2, "ssm.inner_size": 16,
        },
        patch=16,
    ),
}  # fmt: skip


def processor_of(case: Case) -> Any:
    area = (2 * case.patch) ** 2
    return Qwen2VLImageProcessorPil(
        patch_size=case.patch, size={"shortest_edge": 4 * area, "longest_edge": 130 * area}
    )


def sections_of(case: Case) -> tuple[int, int, int]:
    """The pairs of time, rows and columns in the language model."""
    time, rows, columns = case.text["rope_parameters"]["mrope_section"]
    return time, rows, columns


def model_of(case: Case) -> Any:
    return randomise(
        case.model(case.config(vision_config=dict(case.vision), text_config={**TEXT, **case.text}))
    )


Made = tuple[Case, Any, Any, Path]


@pytest.fixture(scope="module", params=CASES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A case, its model, its image processor, and the folder of both."""
    case = CASES[request.param]
    model, processor = model_of(case), processor_of(case)
    return case, model, processor, save(model, processor, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def encoded(made: Made) -> Iterator[Encoded]:
    found = Encoded(made[3])
    yield found
    found.close()


def expected(model: Any, processor: Any, width: int, height: int) -> tuple[Any, list[Any], tuple[int, int]]:
    """The rows of a picture, the deep ones, and how many rows and columns they are."""
    inputs = processor([picture(width, height)], return_tensors="pt")
    grid = inputs["image_grid_thw"]
    with torch.no_grad():
        found = model.model.get_image_features(inputs["pixel_values"], grid, return_dict=True)
    deep = [each[0].numpy() for each in getattr(found, "deepstack_features", [])]
    return found.pooler_output[0].numpy(), deep, (int(grid[0, 1]) // 2, int(grid[0, 2]) // 2)


def assert_same(encoded: Encoded, model: Any, processor: Any, width: int, height: int) -> None:
    states, deep, shape = expected(model, processor, width, height)
    assert encoded.layout(width, height) == (Span(*shape),)
    (found,) = encoded.rows(picture(width, height))
    assert_close(found.states, states)
    assert len(found.deep) == len(deep) == encoded.spec.deep
    for mine, theirs in zip(found.deep, deep, strict=True):
        assert_close(mine, theirs)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_folder(made: Made, encoded: Encoded, width: int, height: int) -> None:
    """Rows, deep rows and their shape are those of transformers."""
    assert_same(encoded, made[1], made[2], width, height)


# -- mmproj files


def converted(case: Case, model: Any) -> dict[str, Any]:
    """The tensors of an encoder as llama.cpp's converter writes them."""
    out, deep = dict[str, Any](), case.vision.get("deepstack_visual_indexes", [])
    fused = "num_position_embeddings" in case.vision
    for name, parameter in model.model.visual.state_dict().items():
        values = parameter.numpy()
        if name == "patch_embed.proj.weight":
            out["v.patch_embd.weight"], out["v.patch_embd.weight.1"] = values[:, :, 0], values[:, :, 1]
        elif ".attn.qkv." in name and not fused:
            for part, third in zip("qkv", np.split(values, 3), strict=True):
                out[_renamed(name, deep).replace("attn_qkv", f"attn_{part}")] = third
        else:
            out[_renamed(name, deep)] = values
    return out


_NAMES = (
    ("patch_embed.proj", "v.patch_embd"), ("pos_embed", "v.position_embd"), ("merger.mlp.", "mm."),
    ("merger.linear_fc1", "mm.0"), ("merger.linear_fc2", "mm.2"), ("merger.ln_q", "v.post_ln"),
    ("merger.norm", "v.post_ln"), ("blocks.", "v.blk."), (".attn.qkv", ".attn_qkv"),
    (".attn.proj", ".attn_out"), (".norm1", ".ln1"), (".norm2", ".ln2"), (".mlp.fc1", ".ffn_up"),
    (".mlp.fc2", ".ffn_down"), (".mlp.linear_fc1", ".ffn_up"), (".mlp.linear_fc2", ".ffn_down"),
    (".mlp.gate_proj", ".ffn_gate"), (".mlp.up_proj", ".ffn_up"), (".mlp.down_proj", ".ffn_down"),
)  # fmt: skip


def _renamed(name: str, deep: Sequence[int]) -> str:
    if name.startswith("deepstack_merger_list."):
        number, rest = name.removeprefix("deepstack_merger_list.").split(".", 1)
        return f"v.deepstack.{deep[int(number)]}.{rest.replace('linear_', '')}"
    for old, new in _NAMES:
        name = name.replace(old, new)
    return name


def write_gguf(
    made: Made, folder: Path, change: Callable[[dict[str, Any]], None] = lambda tensors: None
) -> Path:
    """The model of a case as a GGUF file, beside its mmproj file. Returns the path of the model."""
    case, model, processor, _ = made
    vision, heads = case.vision, case.vision["num_heads"]
    width = vision.get("embed_dim", vision["hidden_size"])
    keys = {
        "clip.projector_type": case.projector, "embedding_length": width, "block_count": vision["depth"],
        "feed_forward_length": vision.get("intermediate_size", 0), "attention.head_count": heads,
        "attention.layer_norm_epsilon": 1e-6, "projection_dim": WIDTH, "patch_size": case.patch,
        "spatial_merge_size": 2, "image_min_pixels": processor.size["shortest_edge"],
        "image_max_pixels": processor.size["longest_edge"], "image_size": 560,
    }  # fmt: skip
    tensors = converted(case, model)
    change(tensors)
    return write_mmproj(
        folder, case.architecture, WIDTH, {**keys, **case.keys}, tensors,
        {"rope.dimension_sections": [*sections_of(case), 0],
            "rope.dimension_count": 2 * sum(sections_of(case)), **case.model_keys},
    )  # fmt: skip


def test_mmproj(made: Made, encoded: Encoded, tmp_path: Path) -> None:
    """An mmproj file says the same as the folder."""
    found = Encoded(write_gguf(made, tmp_path))
    for width, height in SIZES[:3]:
        assert_same(found, made[1], made[2], width, height)
    interleaved = made[0].projector == "qwen3vl_merger"
    assert found.spec.positions == encoded.spec.positions == Positions(sections_of(made[0]), interleaved)
    found.close()


def test_the_first_converter_swapped_names(tmp_path: Path) -> None:
    """The matrices of the feed-forward part had each other's names in the first files of Qwen2-VL."""
    case = CASES["qwen2_vl"]
    made = case, model_of(case), processor_of(case), tmp_path

    def swap(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if ".ffn_up." in name]:
            other = name.replace("ffn_up", "ffn_down")
            tensors[name], tensors[other] = tensors[other], tensors[name]

    found = Encoded(write_gguf(made, tmp_path, swap))
    assert_same(found, made[1], made[2], 120, 90)
    found.close()


# -- damaged files


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_heads": 7}, "a multiple of num_heads"),
        ({"num_heads": 24}, "2 dimensions, but a multiple of 4"),
        ({"depth": 10**6}, "depth is 1000000"),
        ({"depth": 5}, "lacks tensors"),
        ({"num_position_embeddings": 37}, "37 positions"),
        ({"num_position_embeddings": 49}, "shape"),
        ({"deepstack_visual_indexes": [9]}, "deepstack_visual_indexes"),
        ({"deepstack_visual_indexes": [0, 1, 2]}, "lacks tensors"),
        ({"spatial_merge_size": 0}, "spatial_merge_size"),
        ({"spatial_merge_size": 3}, "shape"),
        ({"patch_size": 10**9}, "patch_size"),
        ({"patch_size": 15}, "shape"),
        ({"out_hidden_size": "wide"}, "out_hidden_size"),
        ({"hidden_act": "unknown"}, "activation"),
        ({"temporal_patch_size": 1}, "shape"),
    ],
)
def test_hostile_folders(hostile: Path, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """One sentence says what is wrong."""
    assert_refused(hostile, tmp_path, change, words)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Qwen3-VL's case."""
    case = CASES["qwen3_vl"]
    return save(model_of(case), processor_of(case), tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": {"shortest_edge": -4}}, "shortest_edge"), ({"min_pixels": "few"}, "min_pixels"),
        ({"image_std": [0.0, 1.0, 1.0]}, "image_std"), ({"resample": 9}, "resample"),
    ],
)  # fmt: skip
def test_hostile_processors(hostile: Path, settings: dict[str, Any], words: str) -> None:
    """Settings that are none are named."""
    path = hostile / "preprocessor_config.json"
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), **settings}))
    try:
        with pytest.raises(EngineError, match=words):
            vision_spec(open_checkpoint(hostile))
    finally:
        path.write_text(kept)


def test_the_makers_settings_of_sizes(hostile: Path) -> None:
    """The makers' files state pixels beside other settings; more than `MOST_TOKENS` are never used."""
    path = hostile / "preprocessor_config.json"
    kept = path.read_text()
    settings = {key: value for key, value in json.loads(kept).items() if key != "size"}
    path.write_text(json.dumps({**settings, "min_pixels": 4096, "max_pixels": 16384 * 32 * 32}))
    try:
        found = Encoded(hostile)
    finally:
        path.write_text(kept)
    assert found.layout(8000, 8000) == (Span(35, 35),)
    assert found.layout(8, 8) == (Span(2, 2),)
    assert found.layout(60_000, 20) == (Span(1, MOST_TOKENS),)
    found.close()


# -- mixtures


@pytest.mark.parametrize("name", ["Qwen3VLMoe", "Qwen3_5Moe"])
def test_mixtures_have_the_same_encoder(tmp_path: Path, name: str) -> None:
    """Only the language model differs."""
    case = CASES["qwen3_vl" if name == "Qwen3VLMoe" else "qwen3_5"]
    text = {
        **TEXT, **case.text, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
    }  # fmt: skip
    config = getattr(transformers, name + "Config")(vision_config=dict(case.vision), text_config=text)
    model = randomise(getattr(transformers, name + "ForConditionalGeneration")(config))
    processor = processor_of(case)
    found = Encoded(save(model, processor, tmp_path))
    assert found.spec.positions == Positions((4, 3, 3), True)
    assert_same(found, model, processor, 150, 100)
    found.close()
