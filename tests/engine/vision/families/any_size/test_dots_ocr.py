"""dots.ocr, in folders as its makers publish it and in mmproj files. Its image processor is that of Qwen2-VL
in transformers; what its tower does is written here with PyTorch, and compared with llama.cpp.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file
from torch.nn.functional import conv2d, gelu, layer_norm, scaled_dot_product_attention, silu
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.errors import BadCheckpoint
from engine.models.headers.keys import Keys
from engine.vision.families.any_size.dots_ocr import from_hf
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.test_by_llama_cpp import by_llama_cpp
from tests.engine.vision.tiny.encoding import Encoded, Floats, assert_close, picture
from tests.engine.vision.tiny.mmproj import write_mmproj
from tests.tiny import TINY, write_gguf

WIDTH, HEADS, INNER, LAYERS, PATCH, OUTPUTS, EPS = 48, 3, 72, 2, 14, TINY.width, 1e-5
SIDE = 2 * PATCH
VISION = {
    "embed_dim": WIDTH, "hidden_size": OUTPUTS, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 1,
    "rms_norm_eps": EPS, "use_bias": False, "post_norm": True,
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "architectures": ["DotsOCRForCausalLM"], "model_type": "dots_ocr", "hidden_size": OUTPUTS,
    "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    "vocab_size": 64, "vision_config": VISION,
}  # fmt: skip
PIXELS = {"shortest_edge": 4 * SIDE**2, "longest_edge": 30 * SIDE**2}
SIZES = ((300, 200), (30, 40), (560, 28), (112, 112), (97, 531))


def random_tensors() -> dict[str, torch.Tensor]:
    """A random tower, under the makers' names without "vision_tower."."""
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embed.patchifier.proj.weight": (WIDTH, 3, PATCH, PATCH),
        "patch_embed.patchifier.proj.bias": (WIDTH,), "merger.ln_q.bias": (WIDTH,),
        "merger.mlp.0.weight": (4 * WIDTH, 4 * WIDTH), "merger.mlp.0.bias": (4 * WIDTH,),
        "merger.mlp.2.weight": (OUTPUTS, 4 * WIDTH), "merger.mlp.2.bias": (OUTPUTS,),
    }  # fmt: skip
    norms = ["patch_embed.patchifier.norm", "post_trunk_norm", "merger.ln_q"]
    for number in range(LAYERS):
        at = f"blocks.{number}."
        norms += [at + "norm1", at + "norm2"]
        shapes |= {
            at + "attn.qkv.weight": (3 * WIDTH, WIDTH), at + "attn.proj.weight": (WIDTH, WIDTH),
            at + "mlp.fc1.weight": (INNER, WIDTH), at + "mlp.fc2.weight": (WIDTH, INNER),
            at + "mlp.fc3.weight": (INNER, WIDTH),
        }  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    found = {name: torch.randn(shape, generator=generator) * 0.15 for name, shape in shapes.items()}
    return found | {f"{name}.weight": torch.rand(WIDTH, generator=generator) + 0.5 for name in norms}


class Made:
    """A random encoder, and what it makes of pictures."""

    def __init__(self, folder: Path) -> None:
        self.tensors = random_tensors()
        self.processor: Any = Qwen2VLImageProcessorPil(
            patch_size=PATCH, temporal_patch_size=1, merge_size=2, size=PIXELS
        )
        whole = {f"vision_tower.{name}": values for name, values in self.tensors.items()}
        save_file(whole, folder / "model.safetensors")
        self.processor.save_pretrained(folder)
        (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")

    def rows(self, width: int, height: int) -> Floats:
        given = self.processor([picture(width, height)], return_tensors="pt")
        rows, columns = given["image_grid_thw"][0, 1:].tolist()
        return np.asarray(self._tower(given["pixel_values"].reshape(-1, 3, PATCH, PATCH), rows, columns))

    def _tower(self, pixels: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        w = self.tensors
        x = conv2d(pixels, w["patch_embed.patchifier.proj.weight"], w["patch_embed.patchifier.proj.bias"])
        x = self._norm(x.reshape(-1, WIDTH), "patch_embed.patchifier.norm")
        angles = rope_angles(rows, columns)
        for number in range(LAYERS):
            at = f"blocks.{number}."
            made = self._norm(x, at + "norm1") @ w[at + "attn.qkv.weight"].T
            q, k, v = made.reshape(len(x), 3, HEADS, -1).permute(1, 2, 0, 3)
            attended = scaled_dot_product_attention(rotated(q, angles), rotated(k, angles), v)
            x = x + attended.permute(1, 0, 2).reshape(len(x), WIDTH) @ w[at + "attn.proj.weight"].T
            y = self._norm(x, at + "norm2")
            y = silu(y @ w[at + "mlp.fc1.weight"].T) * (y @ w[at + "mlp.fc3.weight"].T)
            x = x + y @ w[at + "mlp.fc2.weight"].T
        x = self._norm(x, "post_trunk_norm")
        x = layer_norm(x, (WIDTH,), w["merger.ln_q.weight"], w["merger.ln_q.bias"], 1e-6)
        x = gelu(x.reshape(-1, 4 * WIDTH) @ w["merger.mlp.0.weight"].T + w["merger.mlp.0.bias"])
        return x @ w["merger.mlp.2.weight"].T + w["merger.mlp.2.bias"]

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.pow(2).mean(1, keepdim=True) + EPS).sqrt() * self.tensors[name + ".weight"]


def rope_angles(rows: int, columns: int) -> torch.Tensor:
    """Of the patches square by square, (T, D / 2): a half by rows, the other by columns."""
    dim = WIDTH // HEADS
    pairs = 1 / 10000 ** (torch.arange(0, dim // 2, 2) / (dim // 2))
    grid = torch.arange(rows * columns).reshape(rows // 2, 2, columns // 2, 2).permute(0, 2, 1, 3).flatten()
    return torch.cat([(grid // columns)[:, None] * pairs, (grid % columns)[:, None] * pairs], dim=1)


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """(H, T, D), whose halves are pairs."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Made, Encoded]]:
    folder = tmp_path_factory.mktemp("dots_ocr")
    made = Made(folder)
    encoded = Encoded(folder)
    yield made, encoded
    encoded.close()


def write(folder: Path, target: Path) -> Path:
    """An mmproj file of the folder's encoder, beside a model in `target`, whose path is returned."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 4)
    parts = {"mlp.fc1": "ffn_gate", "mlp.fc2": "ffn_down", "mlp.fc3": "ffn_up"}
    found: dict[str, Floats] = {}
    for name, values in load_file(folder / "model.safetensors").items():
        known = names.get_name(name, (".weight", ".bias"))
        if known is None:
            known = name.replace("vision_tower.blocks", "v.blk")
            for old, new in parts.items():
                known = known.replace(old, new)
        found[known] = values
    keys = {
        "clip.projector_type": "dots_ocr", "clip.use_silu": True, "embedding_length": WIDTH,
        "block_count": LAYERS, "attention.head_count": HEADS, "attention.layer_norm_epsilon": EPS,
        "feed_forward_length": INNER, "patch_size": PATCH, "image_size": 560, "projector.scale_factor": 2,
        "projection_dim": OUTPUTS, "image_min_pixels": PIXELS["shortest_edge"],
        "image_max_pixels": PIXELS["longest_edge"],
    }  # fmt: skip
    return write_mmproj(target, "qwen2", OUTPUTS, keys, found)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_the_makers(pair: Any, width: int, height: int) -> None:
    made, encoded = pair
    expected = made.rows(width, height)
    assert_close(encoded.states(picture(width, height)), expected)
    assert encoded.text(width, height) == "<|imgpad|>" * len(expected)


def test_an_mmproj_file_says_the_same(pair: Any, tmp_path: Path) -> None:
    same = Encoded(write(pair[1].path, tmp_path))
    assert same.spec.family == "dots_ocr"
    for width, height in SIZES:
        assert_close(same.states(picture(width, height)), pair[1].states(picture(width, height)))
    same.close()


@pytest.mark.slow
def test_rows_are_those_of_llama_cpp(pair: Any, tmp_path: Path) -> None:
    file, image = write(pair[1].path, tmp_path), picture(112, 84)
    text = write_gguf(tmp_path / "text.gguf", TINY)
    (theirs,) = by_llama_cpp(text, tmp_path / "mmproj-model-f32.gguf", image)
    encoded = Encoded(file)
    mine = encoded.states(image)
    encoded.close()
    assert mine.shape == theirs.shape
    cosines = (mine * theirs).sum(1) / np.linalg.norm(mine, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > 0.999


def test_pages_are_read_in_detail() -> None:
    design = from_hf(Keys({}, "config.json"), Keys({}, ""), {})
    (span,) = design.layout(1654, 2339)
    assert not isinstance(span, str)
    assert 4000 < span.tokens <= 4096


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 5}, {"num_attention_heads": 48}, {"embed_dim": 51}, {"patch_size": 0},
        {"intermediate_size": 71}, {"num_hidden_layers": 3}, {"spatial_merge_size": 3}, {"patch_size": 13},
    ],
)  # fmt: skip
def test_damaged_headers(pair: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = pair[1].path
    for name in ("model.safetensors", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    changed = {**CONFIG, "vision_config": {**VISION, **changes}}
    (tmp_path / "config.json").write_text(json.dumps(changed), "utf-8")
    with pytest.raises(BadCheckpoint) as raised:
        vision_spec(open_checkpoint(tmp_path))
    assert "\n" not in str(raised.value)
