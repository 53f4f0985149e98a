"""The encoder of Gemma 4 against transformers, from folders and from mmproj files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Gemma4Config, Gemma4ForConditionalGeneration
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

from engine.vision import Span, passes
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture, randomise, save
from tests.engine.vision.tiny.mmproj import write_mmproj
from tests.tiny import TINY

WIDTH, PATCH, TOKENS = TINY.width, 16, 70
SIZES = ((300, 200), (10, 7), (1, 190), (640, 640), (2000, 10), (97, 531))
VISION = {
    "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 3, "num_attention_heads": 3,
    "num_key_value_heads": 3, "head_dim": 16, "patch_size": PATCH, "position_embedding_size": 900,
}  # fmt: skip
TEXT = {
    "hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 64, "vocab_size_per_layer_input": 64, "head_dim": 20,
    "layer_types": ["full_attention"], "hidden_size_per_layer_input": 8,
}  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "limits": ({"use_clipped_linears": True}, {}),
    "standard": (
        {"standardize": True},
        {"hidden_size_per_layer_input": 0, "use_bidirectional_attention": "vision"},
    ),
    "groups": ({"num_key_value_heads": 1, "head_dim": 20, "use_clipped_linears": True}, {}),
}  # fmt: skip
Made = tuple[str, Any, Any, Path]


def model_of(case: str) -> Any:
    vision, text = CASES[case]
    config = Gemma4Config(
        vision_config={**VISION, **vision}, text_config={**TEXT, **text}, audio_config=None, image_token_id=3,
        video_token_id=4, audio_token_id=5,
    )  # fmt: skip
    model = randomise(Gemma4ForConditionalGeneration(config))
    generator = torch.Generator().manual_seed(3)
    for name, buffer in model.model.vision_tower.named_buffers():
        if name.endswith(("_min", "_max")):
            buffer.fill_(float(torch.rand((), generator=generator) + 0.3) * (1 if "max" in name else -1))
        elif name.startswith("std_"):
            torch.nn.init.uniform_(buffer, 0.5, 1.5, generator=generator)
    return model


@pytest.fixture(scope="module", params=CASES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A case, its model, its image processor, and the folder of both."""
    model, processor = model_of(request.param), Gemma4ImageProcessorPil(max_soft_tokens=TOKENS)
    return request.param, model, processor, save(model, processor, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def encoded(made: Made) -> Iterator[Encoded]:
    found = Encoded(made[3])
    yield found
    found.close()


def expected(made: Made, width: int, height: int) -> tuple[Any, int]:
    """The rows of a picture, and how many rows they are in its grid."""
    inputs = made[2]([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        found = made[1].model.get_image_features(
            inputs["pixel_values"], inputs["image_position_ids"], return_dict=True
        )
    return found.pooler_output[0].numpy(), (int(inputs["image_position_ids"][0, :, 1].max()) + 1) // 3


def assert_same(encoded: Encoded, made: Made, width: int, height: int) -> None:
    """Rows and layout are those of transformers."""
    states, rows = expected(made, width, height)
    span = Span(rows, len(states) // rows)
    assert encoded.layout(width, height) == ("<|image>", span, "<image|>")
    assert_close(encoded.states(picture(width, height)), states)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_folder(made: Made, encoded: Encoded, width: int, height: int) -> None:
    assert_same(encoded, made, width, height)


def test_larger_models_look_at_pictures_in_both_directions(made: Made, encoded: Encoded) -> None:
    """In their layers with windows alone."""
    both = made[0] == "standard"
    assert (encoded.spec.bidirectional, encoded.spec.windows_alone) == (both, both)


def test_limits_and_standards_count(made: Made, encoded: Encoded) -> None:
    """Without them, the rows of the tests' pictures would be others."""
    states, _ = expected(made, 300, 200)
    plain = model_of(made[0])
    for name, buffer in plain.model.vision_tower.named_buffers():
        if name.endswith("_min"):
            buffer.fill_(-torch.inf)
        elif name.endswith("_max"):
            buffer.fill_(torch.inf)
        elif name.startswith("std_"):
            buffer.fill_(1.0 if "scale" in name else 0.0)
    others, _ = expected((made[0], plain, *made[2:]), 300, 200)
    assert np.abs(states - others).max() > 0.1 * np.abs(states).max()


_NAMES = (
    ("vision_tower.patch_embedder.input_proj", "v.patch_embd"),
    ("vision_tower.patch_embedder.position_embedding_table", "v.position_embd.weight"),
    ("vision_tower.encoder.layers.", "v.blk."), ("vision_tower.std_", "v.std_"), (".linear.", "."),
    ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_out"), ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"), ("pre_feedforward_layernorm", "ln2"),
    ("post_feedforward_layernorm", "ffn_post_norm"), ("post_attention_layernorm", "attn_post_norm"),
    ("input_layernorm", "ln1"), ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"), ("embed_vision.embedding_projection", "mm.input_projection"),
)  # fmt: skip


def write_gguf(made: Made, folder: Path) -> Path:
    """The model as a GGUF file, beside its mmproj file. Returns the path of the model."""
    case, model, _, _ = made
    tensors = {}
    for name, parameter in model.model.state_dict().items():
        if not name.startswith(("vision_tower.", "embed_vision.")):
            continue
        values = parameter.numpy().reshape(parameter.shape or (1,))
        if name.endswith("input_proj.weight"):
            values = values.reshape(len(values), PATCH, PATCH, 3).transpose(0, 3, 1, 2)
        for old, new in _NAMES:
            name = name.replace(old, new)
        tensors[name] = values
    keys = {
        "projector_type": "gemma4v", "embedding_length": 48, "block_count": 3, "patch_size": PATCH,
        "feed_forward_length": 72, "attention.head_count": 3, "attention.layer_norm_epsilon": 1e-6,
        "projection_dim": WIDTH, "image_size": 224, "image_mean": [0.0, 0.0, 0.0],
        "image_std": [1.0, 1.0, 1.0], "clip.use_gelu": True,
    }  # fmt: skip
    text = {**TEXT, **CASES[case][1]}
    own = {
        "embedding_length_per_layer_input": text["hidden_size_per_layer_input"],
        "attention.sliding_window": 32, "attention.sliding_window_pattern": [False],
        "attention.key_length": 20, "attention.value_length": 20, "attention.head_count_kv": 2,
    }  # fmt: skip
    return write_mmproj(folder, "gemma4", WIDTH, keys, tensors, own)


@pytest.mark.parametrize("made", ["limits", "standard"], indirect=True)
def test_mmproj(made: Made, encoded: Encoded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An mmproj file says the same as the folder, with the number of tokens that all files have."""
    monkeypatch.setattr(passes, "MANY_ROWS", 1 << 20)  # as exact as passes over few rows
    found = Encoded(write_gguf(made, tmp_path))
    whole = (*made[:2], Gemma4ImageProcessorPil(max_soft_tokens=280), made[3])
    for width, height in SIZES[:2]:
        assert_same(found, whole, width, height)
    assert found.spec.bidirectional == encoded.spec.bidirectional
    found.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head_dim": 18}, "multiple of 4"), ({"num_key_value_heads": 9}, "num_key_value_heads"),
        ({"num_attention_heads": 4}, "shape"), ({"num_hidden_layers": 4}, "lacks tensors"),
        ({"position_embedding_size": 901}, "shape"), ({"position_embedding_size": 209}, "positions for 209"),
        ({"patch_size": 1 << 20}, "patch_size"), ({"pooling_kernel_size": 0}, "pooling_kernel_size"),
        ({"hidden_activation": "unknown"}, "activation"), ({"rms_norm_eps": "small"}, "rms_norm_eps"),
    ],
)  # fmt: skip
def test_hostile_folders(hostile: Path, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """One sentence says what is wrong."""
    assert_refused(hostile, tmp_path, change, words)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model with limits."""
    return save(
        model_of("limits"),
        Gemma4ImageProcessorPil(max_soft_tokens=TOKENS),
        tmp_path_factory.mktemp("hostile"),
    )
