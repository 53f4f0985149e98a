"""Phi-3.5-vision, in folders as its makers publish it. Its tower is CLIP's in transformers; what they do with
pictures and rows is written here from their report, with Pillow and PyTorch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.nn.functional import gelu, interpolate

from engine.errors import BadCheckpoint
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.chats import Reply, add_text, asked, assert_as_with_rows, opened, vocabulary
from tests.engine.vision.tiny.encoding import Encoded, Floats, assert_close, picture, randomise
from tests.engine.vision.tiny.whole_models import END

SIDE, PATCH, CROPS, WIDTH, OUTPUTS, LAYERS = 56, 14, 4, 128, 40, 3
CELLS = SIDE // PATCH // 2
MEAN, DEVIATION = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
SIZE, IDS = vocabulary(["<|image|>", END])
TEXT: dict[str, Any] = {
    "hidden_size": OUTPUTS, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 5,
    "num_key_value_heads": 5, "vocab_size": SIZE, "tie_word_embeddings": False, "pad_token_id": 0,
    "eos_token_id": IDS[END],
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "architectures": ["Phi3VForCausalLM"], "model_type": "phi3_v", **TEXT,
    "embd_layer": {
        "embedding_cls": "image", "hd_transform_order": "sub_glb", "projection_cls": "mlp",
        "use_hd_transform": True, "with_learnable_separator": True,
    },
    "img_processor": {
        "image_dim_out": WIDTH, "model_name": "openai/clip-vit-large-patch14-336",
        "name": "clip_vision_model", "num_img_tokens": CELLS**2,
    },
}  # fmt: skip
EMBED = "model.vision_embed_tokens."
TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Like the makers', it knows nothing of pictures."""


class Made:
    """A random model, and what its encoder makes of pictures."""

    def __init__(self, folder: Path) -> None:
        from transformers import CLIPVisionConfig, CLIPVisionModel, Phi3Config, Phi3ForCausalLM

        config = CLIPVisionConfig(
            hidden_size=WIDTH, intermediate_size=72, num_hidden_layers=LAYERS, num_attention_heads=2,
            image_size=SIDE, patch_size=PATCH,
        )  # fmt: skip
        self.tower: Any = randomise(CLIPVisionModel(config))
        generator = torch.Generator().manual_seed(1)
        shapes = {
            "img_projection.0.weight": (OUTPUTS, 4 * WIDTH), "img_projection.0.bias": (OUTPUTS,),
            "img_projection.2.weight": (OUTPUTS, OUTPUTS), "img_projection.2.bias": (OUTPUTS,),
            "sub_GN": (1, 1, 1, 4 * WIDTH), "glb_GN": (1, 1, 4 * WIDTH),
        }  # fmt: skip
        self.rest = {name: torch.randn(shape, generator=generator) / 8 for name, shape in shapes.items()}
        self.text: Any = randomise(Phi3ForCausalLM(Phi3Config(**TEXT)))
        tensors = {EMBED + name: values for name, values in self.rest.items()} | self.text.state_dict()
        for name, values in self.tower.state_dict().items():
            if not name.endswith("position_ids"):
                own = "vision_model." + name.removeprefix("vision_model.")
                tensors[f"{EMBED}img_processor.{own}"] = values
        whole = {name: values.contiguous() for name, values in tensors.items()}
        save_file(whole, folder / "model.safetensors")
        write(folder, CONFIG)
        add_text(folder, ["<|image|>", END], "")
        (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
        settings = {"image_mean": MEAN, "image_std": DEVIATION, "num_crops": CROPS}
        (folder / "preprocessor_config.json").write_text(json.dumps(settings), "utf-8")

    def rows(self, image: Image.Image, *, whole_first: bool = False) -> Floats:
        """The rows of a picture, tiles, mark and whole."""
        canvas = with_bars(image)
        wide, high = canvas.size[0] // SIDE, canvas.size[1] // SIDE
        values = torch.from_numpy(np.asarray(canvas, np.float32) / 255)
        values = ((values - torch.tensor(MEAN)) / torch.tensor(DEVIATION)).permute(2, 0, 1)[None]
        whole = interpolate(values, (SIDE, SIDE), mode="bicubic")
        tiles = values.reshape(3, high, SIDE, wide, SIDE).permute(1, 3, 0, 2, 4).reshape(-1, 3, SIDE, SIDE)
        tiled, one = self._lines(self._states(tiles), high, wide), self._lines(self._states(whole), 1, 1)
        rest = self.rest
        mark = rest["glb_GN"].reshape(1, -1)
        rows = torch.cat([one, mark, tiled] if whole_first else [tiled, mark, one])
        rows = gelu(rows @ rest["img_projection.0.weight"].T + rest["img_projection.0.bias"])
        rows = rows @ rest["img_projection.2.weight"].T + rest["img_projection.2.bias"]
        return np.asarray(rows)

    def _states(self, pixels: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = self.tower(pixels, output_hidden_states=True).hidden_states[-2][:, 1:]
        return found

    def _lines(self, states: torch.Tensor, high: int, wide: int) -> torch.Tensor:
        grid = states.reshape(high, wide, CELLS, 2, CELLS, 2, WIDTH).permute(0, 2, 1, 4, 3, 5, 6)
        grid = grid.reshape(high * CELLS, wide * CELLS, 4 * WIDTH)
        ends = self.rest["sub_GN"].reshape(1, 1, -1).expand(high * CELLS, 1, -1)
        return torch.cat([grid, ends], dim=1).reshape(-1, 4 * WIDTH)


def with_bars(image: Image.Image) -> Image.Image:
    """The picture made as large as at most so many tiles, in white up to whole ones."""
    tall = image.size[0] < image.size[1]
    image = image.transpose(Image.Transpose.TRANSPOSE) if tall else image
    ratio, count = image.size[0] / image.size[1], 1
    while (count + 1) * math.ceil((count + 1) / ratio) <= CROPS:
        count += 1
    width = count * SIDE
    image = image.resize((width, max(1, int(width / ratio))), Image.Resampling.BILINEAR)
    height = math.ceil(image.size[1] / SIDE) * SIDE
    canvas = Image.new("RGB", (width, height), (255, 255, 255))
    canvas.paste(image, (0, int((height - image.size[1]) / 2)))
    return canvas.transpose(Image.Transpose.TRANSPOSE) if tall else canvas


def write(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


def changed(made: Path, folder: Path, part: str, changes: dict[str, Any]) -> Path:
    """The same folder with changes in a part of config.json. Returns it."""
    write(folder, {**CONFIG, part: {**CONFIG[part], **changes}})
    for name in ("model.safetensors", "preprocessor_config.json"):
        (folder / name).write_bytes((made / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Made, Encoded]]:
    folder = tmp_path_factory.mktemp("phi3_v")
    made = Made(folder)
    encoded = Encoded(folder)
    yield made, encoded
    encoded.close()


@pytest.mark.parametrize(
    ("width", "height"), [(300, 200), (10, 7), (1, 900), (2000, 10), (112, 112), (97, 531), (57, 56)]
)
def test_rows_and_layout_are_those_of_the_makers(pair: Any, width: int, height: int) -> None:
    made, encoded = pair
    image = picture(width, height)
    expected = made.rows(image)
    assert_close(encoded.states(image), expected)
    assert encoded.text(width, height) == "<|image|>" * len(expected)
    wide, high = (side // SIDE for side in with_bars(image).size)
    assert len(expected) == (wide * high + 1) * CELLS**2 + 1 + (high + 1) * CELLS
    assert wide * high <= CROPS


def test_the_whole_may_come_first(pair: Any, tmp_path: Path) -> None:
    made, encoded = pair
    other = Encoded(changed(encoded.path, tmp_path, "embd_layer", {"hd_transform_order": "glb_sub"}))
    assert_close(other.states(picture(300, 200)), made.rows(picture(300, 200), whole_first=True))
    other.close()


@pytest.mark.parametrize(
    "left_out", ["sub_GN", "img_projection.2.weight", "encoder.layers.1.", "class_embedding"]
)
def test_tensors_that_are_not_there(pair: Any, tmp_path: Path, left_out: str) -> None:
    folder = changed(pair[1].path, tmp_path, "embd_layer", {})
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: each for name, each in tensors.items() if left_out not in name}, tmp_path / "model.safetensors"
    )
    with pytest.raises(BadCheckpoint) as raised:
        vision_spec(open_checkpoint(folder))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("changes", [{"layer_idx": -9}, {"layer_idx": "last"}])
def test_damaged_headers(pair: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = changed(pair[1].path, tmp_path, "img_processor", changes)
    with pytest.raises(BadCheckpoint) as raised:
        vision_spec(open_checkpoint(folder))
    assert "\n" not in str(raised.value)


def test_a_reply_about_a_picture(pair: Any) -> None:
    made, encoded = pair
    with closing(opened(encoded.path)) as chat:
        assert chat.info.vision_encoder == "phi3_v"
        assert not any("only its text model runs" in remark for remark in chat.info.remarks)
        reply = Reply(chat, [asked("What is this?", (60, 40))])
    assert_as_with_rows(reply, made.text, IDS["<|image|>"], made.rows(picture(60, 40)))
