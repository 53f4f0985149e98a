"""Gemma 3n's encoder against the formulas of MobileNetV5 in float64: the package that has it, timm, is none
of the test dependencies; with the published shapes, it gave the same rows.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from engine.errors import EngineError
from engine.vision import Span
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.encoding import Encoded, Floats, assert_close, picture
from tests.engine.vision.tiny.mmproj import write_mmproj

TOWER, PARTS, WIDTH, OUT = "model.vision_tower.timm_model.", "model.embed_vision.", 32, 24
STAGES: tuple[tuple[tuple[str, int, int, int, int], ...], ...] = (
    (("edge", 8, 20, 0, 0), ("edge", 8, 28, 0, 0)),
    (("inverted", 12, 24, 3, 5), ("inverted", 12, 36, 5, 0), ("inverted", 12, 20, 0, 3)),
    (("inverted", 16, 40, 5, 5), ("attention", 16, 24, 8, 3), ("inverted", 16, 16, 0, 0)),
    (("inverted", 20, 44, 5, 5), ("attention", 20, 24, 12, 0), ("inverted", 20, 32, 0, 0)),
)
"""Of each block: kind, channels after it and inside, and the sides of convolutions of each channel; of
attention, the dimensions of a head, and the side of what halves keys and values.
"""
TEXT = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "layer_types": ["sliding_attention", "full_attention"],
    "num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.0, 0.0],
}  # fmt: skip


def weights() -> dict[str, Tensor]:
    """Random tensors under the names of folders."""
    generator = torch.Generator().manual_seed(5)
    found: dict[str, Tensor] = {}

    def kernel(name: str, *shape: int) -> None:
        found[name] = torch.randn(shape, generator=generator) * (shape[1] * shape[2] * shape[3]) ** -0.5

    def norm(name: str, size: int) -> None:
        found[name] = torch.rand(size, generator=generator) + 0.5

    def pair(name: str, *shape: int) -> None:
        kernel(f"{name}.conv.weight", *shape)
        norm(f"{name}.bn.weight", shape[0])

    pair(TOWER + "conv_stem", 6, 3, 3, 3)
    found[TOWER + "conv_stem.conv.bias"] = torch.randn(6, generator=generator) * 0.1
    channels = 6
    for stage, blocks in enumerate(STAGES):
        for number, (kind, width, hidden, first, second) in enumerate(blocks):
            at = f"{TOWER}blocks.{stage}.{number}."
            if kind == "edge":
                kernel(at + "conv_exp.weight", hidden, channels, 3, 3)
                norm(at + "bn1.weight", hidden)
                kernel(at + "conv_pwl.weight", width, hidden, 1, 1)
                norm(at + "bn2.weight", width)
            else:
                norm(at + "layer_scale.gamma", width)
            if kind == "inverted":
                if first:
                    pair(at + "dw_start", channels, 1, first, first)
                pair(at + "pw_exp", hidden, channels, 1, 1)
                if second:
                    pair(at + "dw_mid", hidden, 1, second, second)
                pair(at + "pw_proj", width, hidden, 1, 1)
            if kind == "attention":
                norm(at + "norm.weight", width)
                for part, rows, columns in (
                    ("query", hidden, width), ("key", first, width), ("value", first, width),
                    ("output", width, hidden),
                ):  # fmt: skip
                    kernel(f"{at}attn.{part}.proj.weight", rows, columns, 1, 1)
                    if second and part in ("key", "value"):
                        kernel(f"{at}attn.{part}.down_conv.weight", width, 1, second, second)
                        norm(f"{at}attn.{part}.norm.weight", width)
            channels = width
    pair(TOWER + "msfa.ffn.pw_exp", 48, 36, 1, 1)
    pair(TOWER + "msfa.ffn.pw_proj", OUT, 48, 1, 1)
    norm(TOWER + "msfa.norm.weight", OUT)
    norm(PARTS + "soft_embedding_norm.weight", OUT)
    norm(PARTS + "hard_embedding_norm.weight", OUT)
    found[PARTS + "embedding.weight"] = torch.randn(128, OUT, generator=generator)
    found[PARTS + "embedding_projection.weight"] = torch.randn(WIDTH, OUT, generator=generator) * 0.2
    return found


def rms(x: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """Over the last dimension."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


class Formulas:
    """What the tensors make of a picture."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = {name: values.double() for name, values in tensors.items()}

    def norm(self, x: Tensor, name: str) -> Tensor:
        return rms(x.permute(0, 2, 3, 1), self.tensors[name]).permute(0, 3, 1, 2)

    def convolved(self, x: Tensor, name: str, step: int = 1) -> Tensor:
        kernel, bias = self.tensors[name + ".weight"], self.tensors.get(name + ".bias")
        size, side = kernel.shape[-1], x.shape[-1]
        missing = max(0, (-(-side // step) - 1) * step + size - side)
        edges = (missing // 2, missing - missing // 2) * 2
        groups = x.shape[1] if kernel.shape[1] == 1 and x.shape[1] > 1 else 1
        return functional.conv2d(functional.pad(x, edges), kernel, bias, step, groups=groups)

    def pair(self, x: Tensor, name: str, step: int = 1, *, active: bool = True) -> Tensor:
        y = self.norm(self.convolved(x, name + ".conv", step), name + ".bn.weight")
        return functional.gelu(y, approximate="tanh") if active else y

    def block(self, x: Tensor, at: str, step: int) -> Tensor:
        has = self.tensors.__contains__
        if has(at + "conv_exp.weight"):
            y = self.norm(self.convolved(x, at + "conv_exp", step), at + "bn1.weight")
            y = self.convolved(functional.gelu(y, approximate="tanh"), at + "conv_pwl")
            y = self.norm(y, at + "bn2.weight")
        elif has(at + "norm.weight"):
            y = self.attention(self.norm(x, at + "norm.weight"), at + "attn.")
        else:
            middle = has(at + "dw_mid.conv.weight")
            y = x
            if has(at + "dw_start.conv.weight"):
                y = self.pair(y, at + "dw_start", 1 if middle else step, active=False)
            y = self.pair(y, at + "pw_exp")
            y = self.pair(y, at + "dw_mid", step) if middle else y
            y = self.pair(y, at + "pw_proj", active=False)
        if has(at + "layer_scale.gamma"):
            y = y * self.tensors[at + "layer_scale.gamma"][:, None, None]
        return x + y if x.shape == y.shape else y

    def attention(self, x: Tensor, at: str) -> Tensor:
        keys, values = x, x
        if at + "key.down_conv.weight" in self.tensors:
            keys, values = (
                self.norm(self.convolved(x, f"{at}{part}.down_conv", 2), f"{at}{part}.norm.weight")
                for part in ("key", "value")
            )
        key, value = (
            self.convolved(each, f"{at}{part}.proj").flatten(2).transpose(1, 2)
            for each, part in ((keys, "key"), (values, "value"))
        )
        dim = key.shape[-1]
        made = self.convolved(x, at + "query.proj")
        queries = made.reshape(1, made.shape[1] // dim, dim, -1).transpose(2, 3)
        found = functional.scaled_dot_product_attention(queries, key[:, None], value[:, None])
        return self.convolved(found.transpose(2, 3).reshape(1, -1, *x.shape[2:]), at + "output.proj")

    def rows(self, pixels: Tensor) -> Floats:
        x, kept = self.pair(pixels, TOWER + "conv_stem", 2), []
        for stage, blocks in enumerate(STAGES):
            for number in range(len(blocks)):
                x = self.block(x, f"{TOWER}blocks.{stage}.{number}.", 1 if number else 2)
            kept.append(x)
        small = functional.interpolate(kept[3], size=kept[2].shape[2:], mode="nearest")
        x = self.pair(torch.cat([kept[2], small], 1), TOWER + "msfa.ffn.pw_exp")
        x = self.pair(x, TOWER + "msfa.ffn.pw_proj", active=False)
        x = functional.avg_pool2d(x, x.shape[-1] // 16)
        states = self.norm(x, TOWER + "msfa.norm.weight").flatten(2)[0].T * OUT**0.5
        soft, hard = (self.tensors[f"{PARTS}{kind}_embedding_norm.weight"] for kind in ("soft", "hard"))
        projection = self.tensors[PARTS + "embedding_projection.weight"].T
        mark = rms(rms(self.tensors[PARTS + "embedding.weight"][3:4], hard) @ projection)
        made: Floats = torch.cat([rms(rms(states, soft) @ projection), mark]).float().numpy()
        return made


def publish(tensors: Mapping[str, Tensor], folder: Path, side: int, **changes: Any) -> Path:
    save_file(dict(tensors), folder / "model.safetensors")
    config = {
        "architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n", "text_config": TEXT,
        "vision_config": {"model_type": "gemma3n_vision", "hidden_size": OUT, "vocab_offset": 262_144},
        "eoi_token_id": 262_147, **changes,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    settings = {"do_normalize": False, "resample": 2, "size": {"height": side, "width": side}}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings), "utf-8")
    return folder


def pixels(width: int, height: int, side: int) -> Tensor:
    image = picture(width, height).resize((side, side), 2)
    values = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).reshape(side, side, 3)
    return values.permute(2, 0, 1)[None].double() / 255


@pytest.mark.parametrize("side", [256, 512])
def test_rows_are_those_of_the_formulas(tmp_path: Path, side: int) -> None:
    tensors = weights()
    encoded = Encoded(publish(tensors, tmp_path, side))
    assert (encoded.spec.placeholder, encoded.spec.bidirectional) == ("<image_soft_token>", False)
    for size in ((300, 200), (10, 7), (1, 900), (side, side)):
        with torch.inference_mode():
            expected = Formulas(tensors).rows(pixels(*size, side))
        assert_close(encoded.states(picture(*size)), expected)
        assert encoded.layout(*size) == ("\n\n<start_of_image>", Span(1, 257), "\n\n")
    encoded.close()


def test_an_mmproj_file_says_the_same(tmp_path: Path) -> None:
    """Its mark is the first of the encoder's own embeddings."""
    tensors = weights()
    tensors[PARTS + "embedding.weight"][0] = tensors[PARTS + "embedding.weight"][3]
    (tmp_path / "folder").mkdir()
    encoded = Encoded(publish(tensors, tmp_path / "folder", 256))
    names = {
        TOWER + "blocks.": "v.blk.", TOWER: "v.", PARTS + "soft_embedding_norm": "mm.soft_emb_norm",
        PARTS + "hard_embedding_norm": "mm.hard_emb_norm", PARTS + "embedding.": "mm.embedding.",
        PARTS + "embedding_projection": "mm.input_projection",
    }  # fmt: skip
    found: dict[str, Floats] = {}
    for name, values in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        found[name] = values.reshape(1, -1, 1, 1).numpy() if name.endswith("bias") else values.numpy()
    keys = {
        "clip.vision.projector_type": "gemma3nv", "clip.use_gelu": True, "image_size": 256, "patch_size": 1,
        "embedding_length": OUT, "block_count": 128, "attention.head_count": 8, "feed_forward_length": 96,
        "attention.layer_norm_epsilon": 1e-6, "image_mean": [0.0] * 3, "image_std": [1.0] * 3,
        "projection_dim": WIDTH,
    }  # fmt: skip
    same = Encoded(write_mmproj(tmp_path, "llama", WIDTH, keys, found))
    assert same.spec.family == "gemma3n"
    assert_close(same.states(picture(90, 60)), encoded.states(picture(90, 60)))
    same.close()
    encoded.close()


@pytest.mark.parametrize(
    "gone",
    ["blocks.2.0.pw_exp.conv.weight", "blocks.1.1.dw_start.bn.weight", "msfa.norm.weight", "blocks.0.0.", ""],
)
def test_damaged_files(tmp_path: Path, gone: str) -> None:
    tensors = weights()
    if gone:
        tensors = {name: values for name, values in tensors.items() if TOWER + gone not in name}
    publish(tensors, tmp_path, 256 if gone else 250)
    with pytest.raises(EngineError) as raised:
        vision_spec(open_checkpoint(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("end", ["attn.key.proj.weight", "conv_stem.conv.weight", "pw_exp.conv.weight"])
def test_tensors_without_numbers(tmp_path: Path, end: str) -> None:
    tensors = weights()
    name = next(name for name in tensors if name.endswith(end))
    publish(tensors | {name: tensors[name][:0]}, tmp_path, 256)
    with pytest.raises(EngineError, match=r"has the shape .*; the file is damaged"):
        vision_spec(open_checkpoint(tmp_path))


def test_all_passes_share_their_threads(tmp_path: Path) -> None:
    """Of which it has dozens: threads of their own would be hundreds on a large machine."""

    def kernel_threads() -> int:
        return sum(thread.name.startswith("cpu-kernel") for thread in threading.enumerate())

    before = kernel_threads()
    encoded = Encoded(publish(weights(), tmp_path, 256))
    assert before < kernel_threads() <= before + 4
    first = encoded.states(picture(90, 60))
    assert (encoded.states(picture(60, 90)) != first).any()
    assert (encoded.states(picture(90, 60)) == first).all()
    encoded.close()
    assert kernel_threads() == before
