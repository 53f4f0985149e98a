"""LFM3-VL's encoder against transformers: convolutions over the grid, and attention with few keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Lfm3VlConfig, Lfm3VlForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.vision import Span
from engine.vision.layers.convolution import of_each_channel
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import TEXT, Encoded, assert_close, picture, randomise, save

SIZES = ((300, 200), (10, 7), (1, 100), (640, 640), (224, 112), (97, 531))
VISION = {
    "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "patch_size": 8,
}  # fmt: skip
WORDS = {
    **TEXT, "model_type": "lfm3", "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "num_hidden_layers": 1, "layer_types": ["conv"],
}  # fmt: skip
KINDS = {
    "as usual": {},
    "attention at both ends": {
        "layer_types": ["full_attention", "full_attention", "conv", "conv", "full_attention"],
        "conv_kernel_size": 5, "rope_parameters": {"rope_type": "axial", "rope_theta": 500.0},
    },
    "squares of nine, one frame": {"spatial_merge_size": 3, "temporal_patch_size": 1, "norm_eps": 1e-3},
}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, and the engine's encoder."""
    vision = VISION | KINDS[request.param]
    plain = request.param == "as usual"
    config = Lfm3VlConfig(
        vision_config=vision, text_config=WORDS, projector_hidden_size=56, projector_bias=plain,
        projector_hidden_act="gelu" if plain else "gelu_pytorch_tanh", image_token_id=3, video_token_id=4,
    )  # fmt: skip
    model = randomise(Lfm3VlForConditionalGeneration(config))
    factor, frames = vision.get("spatial_merge_size", 2), vision.get("temporal_patch_size", 2)
    area = (8 * factor) ** 2
    processor = Qwen2VLImageProcessorPil(
        patch_size=8, merge_size=factor, temporal_patch_size=frames,
        size={"shortest_edge": 4 * area, "longest_edge": 130 * area},
    )  # fmt: skip
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("lfm3_vl")))
    yield model, processor, encoded
    encoded.close()


@pytest.mark.slow_after(12)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded = pair
    inputs = processor([picture(width, height)], return_tensors="pt")
    grid, factor = inputs["image_grid_thw"], processor.merge_size
    with torch.no_grad():
        found = model.model.get_image_features(inputs["pixel_values"], grid, return_dict=True)
    assert encoded.layout(width, height) == (Span(int(grid[0, 1]) // factor, int(grid[0, 2]) // factor),)
    assert_close(encoded.states(picture(width, height)), found.pooler_output[0].numpy())
    assert encoded.spec.positions is None


@pytest.mark.parametrize(
    ("size", "step", "shape"), [(3, 1, (5, 9)), (7, 1, (2, 3)), (3, 2, (8, 6)), (5, 1, (1, 1))]
)
def test_a_convolution_of_each_channel(size: int, step: int, shape: tuple[int, int]) -> None:
    """Of grids that are no squares, too; where lines are halved, zeros stand after the last place."""
    rng = np.random.default_rng(size)
    grid = rng.standard_normal((*shape, 4)).astype(np.float32)
    kernels = rng.standard_normal((size, size, 4)).astype(np.float32)
    before = (size - 1) // 2 if step == 1 else 0
    padded = np.pad(grid, ((before, size), (before, size), (0, 0)))
    expected = torch.nn.functional.conv2d(
        torch.from_numpy(padded).permute(2, 0, 1)[None], torch.from_numpy(kernels).permute(2, 0, 1)[:, None],
        stride=step, groups=4,
    )[0].permute(1, 2, 0).numpy()  # fmt: skip
    found = of_each_channel(grid, kernels, step)
    assert found.shape == (-(-shape[0] // step), -(-shape[1] // step), 4)
    np.testing.assert_allclose(found, expected[: found.shape[0], : found.shape[1]], atol=1e-5)


@pytest.mark.slow_after(1)
def test_names_of_the_classes_of_transformers(pair: Any, tmp_path: Path) -> None:
    """Which rename three tensors as they read and write files."""
    folder, encoded = pair[2].path, pair[2]
    renamed = {"patchifier": "patch_embed", "q_layernorm": "q_norm", "k_layernorm": "k_norm"}
    tensors = load_file(folder / "model.safetensors")
    for old, new in renamed.items():
        assert any(old in name for name in tensors)
        tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with closing(Encoded(tmp_path)) as same:
        np.testing.assert_array_equal(same.states(picture(90, 60)), encoded.states(picture(90, 60)))


@pytest.mark.slow_after(12)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layer_types": ["conv"]}, "layer_types is not a list of 5"),
        ({"layer_types": "conv"}, "not a list"), ({"layer_types": ["conv"] * 4 + ["mamba"]}, "'mamba'"),
        ({"layer_types": [["conv"]] * 5}, "kind"), ({"conv_kernel_size": 4}, "conv_kernel_size to 4"),
        ({"conv_kernel_size": 7}, "shape"), ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_key_value_heads": 8}, "num_key_value_heads"), ({"hidden_size": 50}, "num_attention_heads"),
        ({"num_hidden_layers": 6, "layer_types": None}, "lacks"),
        ({"rope_parameters": {"rope_theta": "large"}}, "rope_theta"), ({"patch_size": 9}, "shape"),
    ],
)  # fmt: skip
def test_damaged_headers(pair: Any, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    assert_refused(pair[2].path, tmp_path, changes, words)
