"""FastVLM's encoder against the formulas of FastViTHD in float64: the package that has it, timm, is none of
the test dependencies; with these shapes and with the published ones, it gave the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from engine.errors import BadCheckpoint
from engine.vision import Span
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.chats import Reply, add_text, asked, assert_as_with_rows, opened, vocabulary
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import SIZES, Encoded, Floats, assert_close, picture, randomise
from tests.engine.vision.tiny.whole_models import END, TEXT

TOWER, LAST, WIDTH, SIDE = "model.vision_tower.timm_model.", "model.multi_modal_projector.", 32, 128
STAGES = ((1, 8, 16, False), (2, 16, 48, False), (1, 32, 64, False), (1, 64, 128, True), (2, 64, 128, True))
"""Of each stage: its blocks, channels, channels inside them, and whether they are attention."""
SIZE, IDS = vocabulary(["<image>", END])


def weights() -> dict[str, Tensor]:
    """Random tensors under the names of folders."""
    generator = torch.Generator().manual_seed(5)
    found: dict[str, Tensor] = {}

    def filled(name: str, *shape: int, bias: bool = True, scale: float = 1.3) -> None:
        size = max(1, int(torch.tensor(shape[1:]).prod()))
        found[name + ".weight"] = torch.randn(shape, generator=generator) * scale * size**-0.5
        if bias:
            found[name + ".bias"] = torch.randn(shape[0], generator=generator) * 0.2

    def positive(name: str, *shape: int) -> None:
        found[name] = torch.rand(shape, generator=generator) + 0.5

    def half(first: str, second: str, width: int, size: int) -> None:
        filled(f"{TOWER}{first}.reparam_conv", width, 1, size, size)
        filled(f"{TOWER}{second}.reparam_conv", width, width, 1, 1)

    filled(TOWER + "stem.0.reparam_conv", STAGES[0][1], 3, 3, 3)
    half("stem.1", "stem.2", STAGES[0][1], 3)
    for stage, (blocks, width, hidden, attends) in enumerate(STAGES):
        if stage:
            half(f"stages.{stage}.downsample.proj.0", f"stages.{stage}.downsample.proj.1", width, 7)
        if attends:
            filled(f"{TOWER}stages.{stage}.pos_emb.reparam_conv", width, 1, 7, 7)
        for number in range(blocks):
            at = f"{TOWER}stages.{stage}.blocks.{number}."
            if attends:
                positive(at + "norm.weight", width)
                found[at + "norm.bias"] = torch.randn(width, generator=generator) * 0.2
                filled(at + "token_mixer.qkv", 3 * width, width, bias=False, scale=2.0)
                filled(at + "token_mixer.proj", width, width)
                positive(at + "layer_scale_1.gamma", width, 1, 1)
            else:
                filled(at + "token_mixer.reparam_conv", width, 1, 3, 3)
            positive(f"{at}layer_scale{'_2' if attends else ''}.gamma", width, 1, 1)
            filled(at + "mlp.conv.conv", width, 1, 7, 7, bias=False)
            for part in ("weight", "running_var"):
                positive(f"{at}mlp.conv.bn.{part}", width)
            for part in ("bias", "running_mean"):
                found[f"{at}mlp.conv.bn.{part}"] = torch.randn(width, generator=generator) * 0.2
            filled(at + "mlp.fc1", hidden, width, 1, 1)
            filled(at + "mlp.fc2", width, hidden, 1, 1)
    features = 2 * STAGES[-1][1]
    filled(TOWER + "final_conv.reparam_conv", features, 1, 3, 3)
    filled(TOWER + "final_conv.se.fc1", 8, features, 1, 1)
    filled(TOWER + "final_conv.se.fc2", features, 8, 1, 1)
    filled(LAST + "linear_1", WIDTH, features)
    filled(LAST + "linear_2", WIDTH, WIDTH)
    return found


class Formulas:
    """What the tensors make of a picture."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = {name: values.double() for name, values in tensors.items()}

    def convolved(self, x: Tensor, name: str, step: int = 1) -> Tensor:
        kernel, bias = self.tensors[name + ".weight"], self.tensors.get(name + ".bias")
        groups = x.shape[1] // kernel.shape[1]
        return functional.conv2d(x, kernel, bias, step, kernel.shape[-1] // 2, groups=groups)

    def half(self, x: Tensor, first: str, second: str) -> Tensor:
        y = functional.gelu(self.convolved(x, f"{TOWER}{first}.reparam_conv", 2))
        return functional.gelu(self.convolved(y, f"{TOWER}{second}.reparam_conv"))

    def mlp(self, x: Tensor, at: str) -> Tensor:
        y, own = self.convolved(x, at + "conv.conv"), self.tensors
        mean, variance, weight, bias = (
            own[f"{at}conv.bn.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        y = functional.batch_norm(y, mean, variance, weight, bias, eps=1e-5)
        return self.convolved(functional.gelu(self.convolved(y, at + "fc1")), at + "fc2")

    def attention(self, x: Tensor, at: str) -> Tensor:
        own, width = self.tensors, x.shape[1]
        rows = x.flatten(2)[0].T
        rows = functional.layer_norm(rows, (width,), own[at + "norm.weight"], own[at + "norm.bias"], 1e-5)
        made = (rows @ own[at + "token_mixer.qkv.weight"].T).reshape(len(rows), 3, width // 32, 32)
        q, k, v = made.permute(1, 2, 0, 3)
        found = functional.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(len(rows), width)
        found = found @ own[at + "token_mixer.proj.weight"].T + own[at + "token_mixer.proj.bias"]
        return found.T.reshape(x.shape) * own[at + "layer_scale_1.gamma"]

    def rows(self, pixels: Tensor) -> Floats:
        own = self.tensors
        x = functional.gelu(self.convolved(pixels, TOWER + "stem.0.reparam_conv", 2))
        x = self.half(x, "stem.1", "stem.2")
        for stage, (blocks, _width, _hidden, attends) in enumerate(STAGES):
            at = f"stages.{stage}."
            x = self.half(x, at + "downsample.proj.0", at + "downsample.proj.1") if stage else x
            x = self.convolved(x, f"{TOWER}{at}pos_emb.reparam_conv") if attends else x
            for number in range(blocks):
                block = f"{TOWER}{at}blocks.{number}."
                if attends:
                    x = x + self.attention(x, block)
                else:
                    x = self.convolved(x, block + "token_mixer.reparam_conv")
                scale = own[f"{block}layer_scale{'_2' if attends else ''}.gamma"]
                x = x + self.mlp(x, block + "mlp.") * scale
        x = self.convolved(x, TOWER + "final_conv.reparam_conv")
        y = functional.relu(self.convolved(x.mean((2, 3), keepdim=True), TOWER + "final_conv.se.fc1"))
        x = functional.gelu(x * self.convolved(y, TOWER + "final_conv.se.fc2").sigmoid())
        rows = functional.linear(
            x.flatten(2)[0].T, own[LAST + "linear_1.weight"], own[LAST + "linear_1.bias"]
        )
        rows = functional.linear(
            functional.gelu(rows), own[LAST + "linear_2.weight"], own[LAST + "linear_2.bias"]
        )
        made: Floats = rows.float().numpy()
        return made


def processor() -> Any:
    """With the settings of the published folders, but for the size."""
    return CLIPImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, image_mean=[0.0] * 3,
        image_std=[1.0] * 3,
    )  # fmt: skip


def expected(tensors: Mapping[str, Tensor], width: int, height: int) -> Floats:
    pixels = processor()([picture(width, height)], return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        return Formulas(tensors).rows(pixels.double())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Tensor], Path]:
    """A text model, the encoder's tensors, and the folder of both."""
    folder, tensors = tmp_path_factory.mktemp("fast_vlm"), weights()
    config = Qwen2Config(
        **TEXT, num_key_value_heads=1, vocab_size=SIZE, tie_word_embeddings=False, pad_token_id=0,
        bos_token_id=1, eos_token_id=IDS[END],
    )  # fmt: skip
    text = randomise(Qwen2ForCausalLM(config))
    own = {
        name.replace("model.", "model.language_model."): values for name, values in text.state_dict().items()
    }
    save_file({**own, **tensors}, folder / "model.safetensors")
    vision = {
        "model_type": "timm_wrapper", "architecture": "fastvit_mci3", "hidden_size": 2 * STAGES[-1][1],
        "model_args": {"inference_mode": True},
    }  # fmt: skip
    whole = {
        "architectures": ["FastVlmForConditionalGeneration"], "model_type": "fast_vlm",
        "text_config": {**config.to_dict(), "model_type": "qwen2"}, "vision_config": vision,
        "image_token_index": IDS["<image>"], "vision_feature_layer": -1, "tie_word_embeddings": False,
        "vision_feature_select_strategy": "full", "projector_hidden_act": "gelu",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(whole, default=str), "utf-8")
    processor().save_pretrained(folder)
    add_text(folder, ["<image>"], "<image>")
    return text, tensors, folder


@pytest.fixture(scope="module")
def encoded(made: tuple[Any, dict[str, Tensor], Path]) -> Iterator[Encoded]:
    found = Encoded(made[2])
    yield found
    found.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_are_those_of_the_formulas(made: Any, encoded: Encoded, width: int, height: int) -> None:
    assert encoded.layout(width, height) == (Span(SIDE // 64, SIDE // 64),)
    assert_close(encoded.states(picture(width, height)), expected(made[1], width, height))


def test_a_reply_about_a_picture(made: Any) -> None:
    text, tensors, folder = made
    with closing(opened(folder)) as chat:
        assert chat.info.vision_encoder == "fast_vlm"
        reply = Reply(chat, [asked("What is this?", (60, 40))])
    assert_as_with_rows(reply, text, IDS["<image>"], expected(tensors, 60, 40))


@pytest.mark.parametrize(
    "left_out",
    [
        "stem.1", "stages.0.blocks.0", "blocks.0.mlp.fc1.weight", "stages.2.", "final_conv.se", "linear_1",
        "stages.4.blocks.1.norm.bias", "running_var", "layer_scale_2",
    ],
)  # fmt: skip
def test_tensors_that_are_not_there(made: Any, tmp_path: Path, left_out: str) -> None:
    """As where branches are not joined, too, which then have other names."""
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((made[2] / name).read_bytes())
    tensors = load_file(made[2] / "model.safetensors")
    save_file(
        {name: each for name, each in tensors.items() if left_out not in name}, tmp_path / "model.safetensors"
    )
    with pytest.raises(BadCheckpoint) as raised, closing(open_checkpoint(tmp_path)) as checkpoint:
        vision_spec(checkpoint)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("name", "shape"), [("mlp.fc2.weight", 1), ("qkv.weight", 0), ("fc1.bias", 0)])
def test_tensors_of_other_shapes(made: Any, tmp_path: Path, name: str, shape: int) -> None:
    """Such as channels that are no multiple of those before."""
    (tmp_path / "config.json").write_bytes((made[2] / "config.json").read_bytes())
    tensors = load_file(made[2] / "model.safetensors")
    at = f"{TOWER}stages.3.blocks.0."
    full = next(each for each in tensors if each.startswith(at) and each.endswith(name))
    kept = tensors[full][: len(tensors[full]) - 1] if not shape else tensors[full][:20]
    save_file({**tensors, full: kept.contiguous()}, tmp_path / "model.safetensors")
    with pytest.raises(BadCheckpoint) as raised, closing(open_checkpoint(tmp_path)) as checkpoint:
        vision_spec(checkpoint)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("vision_config", {"architecture": "fastvit_mci0"}, "architecture to 'fastvit_mci0'"),
        ("", {"vision_feature_layer": -2}, "vision_feature_layer to -2"),
        ("", {"vision_feature_select_strategy": "default"}, "strategy to 'default'"),
        ("", {"projector_hidden_act": "mish"}, "activation 'mish'"),
        ("text_config", {"hidden_size": 64}, "shape"),
    ],
)  # fmt: skip
def test_damaged_headers(made: Any, tmp_path: Path, part: str, changes: dict[str, Any], words: str) -> None:
    assert_refused(made[2], tmp_path, changes, words, part)


@pytest.mark.parametrize("crop", [{"height": 100, "width": 100}, 100, {"height": 0}, "large"])
def test_sides_that_do_not_fit(made: Any, tmp_path: Path, crop: object) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((made[2] / name).read_bytes())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"crop_size": crop}), "utf-8")
    with pytest.raises(BadCheckpoint) as raised, closing(open_checkpoint(tmp_path)) as checkpoint:
        vision_spec(checkpoint)
    assert "\n" not in str(raised.value)
