"""Perception LM against the formulas of its tower in float64, and the sizes of transformers' image processor:
the packages that have the rest, timm and torchvision, are none of the test dependencies. With crops as Pillow
makes them, models of these widths with timm's tower gave the same rows.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from engine.errors import BadCheckpoint, EngineError
from engine.vision.families.tiled.perception_lm import Tiles
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.chats import Reply, add_text, asked, assert_as_with_rows, opened, vocabulary
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import SIZES, Encoded, Floats, assert_close, picture, randomise
from tests.engine.vision.tiny.whole_models import END, TEXT

TOWER, LAST, WIDTH = "model.vision_tower.timm_model.", "model.multi_modal_projector.", 32
SIDE, PATCH, INNER, DEPTH, HEADS, MOST = 56, 14, 48, 3, 4, 6
CELLS = SIDE // PATCH
SIZE, IDS = vocabulary(["<|image|>", END])
KINDS: dict[str, dict[str, Any]] = {
    "large": {"architecture": "vit_pe_core_large_patch14_336", "row": True, "scaled": True, "pool": 2},
    "gigantic": {"architecture": "vit_pe_core_gigantic_patch14_448", "row": False, "scaled": True, "pool": 1},
    "normed": {"architecture": "vit_pe_core_large_patch14_336", "row": True, "scaled": False, "pool": 4},
}
"""The published ones, but for the third; whether there are a row of the class and layer scales, or a norm."""
RULES = (
    "_factors", "_find_supported_aspect_ratios", "_get_image_height_width", "_fit_image_to_canvas",
    "_find_closest_aspect_ratio",
)  # fmt: skip


@lru_cache
def rules() -> type[Any]:
    """The methods of transformers' image processor that choose grids, without what needs torchvision."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent / "models/perception_lm/image_processing_perception_lm.py"
    (found,) = (
        part for part in ast.parse(source.read_text("utf-8")).body if isinstance(part, ast.ClassDef)
        and any(getattr(each, "name", "") in RULES for each in part.body)
    )  # fmt: skip
    found.body = [each for each in found.body if getattr(each, "name", "") in RULES]
    assert len(found.body) == len(RULES)
    found.bases, found.decorator_list = [], []
    names: dict[str, Any] = {"math": math, "reduce": reduce}
    exec(compile(ast.Module([found], []), str(source), "exec"), names)  # names are the package's own
    made: type[Any] = names[found.name]
    return made


def grid_by_rules(width: int, height: int, side: int, most: int) -> tuple[int, int]:
    chooser = rules()()
    chooser.max_num_tiles = most
    found: tuple[int, int] | None = chooser._fit_image_to_canvas(width, height, side)
    return found or tuple(chooser._find_closest_aspect_ratio(width, height, side))


def weights(row: bool, scaled: bool) -> dict[str, Tensor]:
    """Random tensors under the names of folders."""
    generator = torch.Generator().manual_seed(5)
    found: dict[str, Tensor] = {}

    def linear(name: str, rows: int, columns: int) -> None:
        found[name + ".weight"] = torch.randn((rows, columns), generator=generator) * 1.5 * columns**-0.5
        found[name + ".bias"] = torch.randn(rows, generator=generator) * 0.2

    def norm(name: str) -> None:
        found[name + ".weight"] = torch.rand(INNER, generator=generator) + 0.5
        found[name + ".bias"] = torch.randn(INNER, generator=generator) * 0.2

    kernels = torch.randn((INNER, 3, PATCH, PATCH), generator=generator)
    found[TOWER + "patch_embed.proj.weight"] = kernels * 0.05
    found[TOWER + "pos_embed"] = torch.randn((1, CELLS**2 + row, INNER), generator=generator) * 0.5
    if row:
        found[TOWER + "cls_token"] = torch.randn((1, 1, INNER), generator=generator)
    norm(TOWER + "norm_pre")
    for layer in range(DEPTH):
        at = f"{TOWER}blocks.{layer}."
        norm(at + "norm1")
        norm(at + "norm2")
        linear(at + "attn.qkv", 3 * INNER, INNER)
        linear(at + "attn.proj", INNER, INNER)
        linear(at + "mlp.fc1", 72, INNER)
        linear(at + "mlp.fc2", INNER, 72)
        if scaled:
            for name in ("gamma_1", "gamma_2"):
                found[at + name] = torch.rand(INNER, generator=generator) + 0.3
    if not scaled:
        norm(TOWER + "norm")
    linear(LAST + "linear_1", WIDTH, INNER)
    linear(LAST + "linear_2", WIDTH, WIDTH)
    return found


class Formulas:
    """What the tensors make of crops; numbers of columns and rows begin with `first`."""

    def __init__(self, tensors: Mapping[str, Tensor], first: int, pool: int) -> None:
        self.tensors = {name: values.double() for name, values in tensors.items()}
        self.pool = pool
        rows, columns = np.divmod(np.arange(CELLS**2), CELLS)
        dim = INNER // HEADS
        bands = 10000.0 ** -(np.arange(dim // 4) / (dim // 4))
        angles = np.concatenate([(columns[:, None] + first) * bands, (rows[:, None] + first) * bands], axis=1)
        self.turns = torch.polar(torch.ones(angles.shape, dtype=torch.float64), torch.from_numpy(angles))

    def linear(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self.tensors[name + ".weight"], self.tensors[name + ".bias"])

    def norm(self, x: Tensor, name: str) -> Tensor:
        own = self.tensors
        return functional.layer_norm(x, (INNER,), own[name + ".weight"], own[name + ".bias"], 1e-5)

    def rotated(self, x: Tensor) -> Tensor:
        """Pairs of neighbours turn; the row of the class (H, 1, D) does not."""
        more = x.shape[1] - CELLS**2
        pairs = torch.view_as_complex(x[:, more:].reshape(HEADS, CELLS**2, -1, 2)) * self.turns
        return torch.cat([x[:, :more], torch.view_as_real(pairs).flatten(2)], dim=1)

    def rows(self, pixels: Tensor) -> Tensor:
        own = self.tensors
        x = functional.conv2d(pixels, own[TOWER + "patch_embed.proj.weight"], stride=PATCH).flatten(2)[0].T
        if TOWER + "cls_token" in own:
            x = torch.cat([own[TOWER + "cls_token"][0], x])
        x = self.norm(x + own[TOWER + "pos_embed"][0], TOWER + "norm_pre")
        for layer in range(DEPTH):
            at = f"{TOWER}blocks.{layer}."
            made = self.linear(self.norm(x, at + "norm1"), at + "attn.qkv")
            q, k, v = made.reshape(len(x), 3, HEADS, -1).permute(1, 2, 0, 3)
            found = functional.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v)
            y = self.linear(found.transpose(0, 1).reshape(len(x), INNER), at + "attn.proj")
            x = x + y * own.get(at + "gamma_1", torch.ones(()))
            y = functional.gelu(self.linear(self.norm(x, at + "norm2"), at + "mlp.fc1"))
            x = x + self.linear(y, at + "mlp.fc2") * own.get(at + "gamma_2", torch.ones(()))
        x = self.norm(x, TOWER + "norm") if TOWER + "norm.weight" in own else x
        x = x[len(x) - CELLS**2 :]
        x = self.linear(functional.gelu(self.linear(x, LAST + "linear_1")), LAST + "linear_2")
        grid = functional.avg_pool2d(x.T.reshape(1, WIDTH, CELLS, CELLS), self.pool)
        return grid.flatten(2)[0].T

    def of(self, width: int, height: int) -> Floats:
        """The rows of a picture of this size: the whole, then its tiles."""
        image = picture(width, height)
        wide, high = grid_by_rules(width, height, SIDE, MOST)
        canvas = image.resize((wide * SIDE, high * SIDE), 3)
        tiles = [
            canvas.crop((x, y, x + SIDE, y + SIDE))
            for y in range(0, high * SIDE, SIDE)
            for x in range(0, wide * SIDE, SIDE)
        ]
        found = []
        for crop in (image.resize((SIDE, SIDE), 3), *tiles):
            values = torch.from_numpy(np.asarray(crop).astype(np.float64) / 127.5 - 1)
            with torch.inference_mode():
                found.append(self.rows(values.permute(2, 0, 1)[None]))
        made: Floats = torch.cat(found).float().numpy()
        return made


@pytest.fixture(scope="module", params=KINDS)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Formulas, Path]:
    """A text model, what the encoder's tensors make, and the folder of both."""
    kind, folder = KINDS[request.param], tmp_path_factory.mktemp("perception_lm")
    tensors = weights(kind["row"], kind["scaled"])
    config = LlamaConfig(
        **TEXT, num_key_value_heads=1, vocab_size=SIZE, tie_word_embeddings=False, pad_token_id=0,
        bos_token_id=1, eos_token_id=IDS[END],
    )  # fmt: skip
    text = randomise(LlamaForCausalLM(config))
    own = {
        name.replace("model.", "model.language_model."): values for name, values in text.state_dict().items()
    }
    save_file({**own, **tensors}, folder / "model.safetensors")
    tower = {
        "embed_dim": INNER, "depth": DEPTH, "img_size": [SIDE, SIDE], "global_pool": "", "num_heads": HEADS,
        "use_post_transformer_norm": not kind["scaled"], "ref_feat_shape": [CELLS, CELLS],
        "init_values": 0.1 if kind["scaled"] else None,
    }  # fmt: skip
    whole = {
        "architectures": ["PerceptionLMForConditionalGeneration"], "model_type": "perception_lm",
        "text_config": {**config.to_dict(), "model_type": "llama"}, "image_token_id": IDS["<|image|>"],
        "vision_config": {
            "model_type": "timm_wrapper", "architecture": kind["architecture"], "model_args": tower,
        },
        "vision_use_cls_token": kind["row"], "projector_pooling_ratio": kind["pool"],
        "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(whole, default=str), "utf-8")
    settings = {
        "tile_size": SIDE, "max_num_tiles": MOST, "vision_input_type": "thumb+tile", "resample": 3,
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(settings), "utf-8")
    add_text(folder, ["<|image|>"], "<|image|>")
    return text, Formulas(tensors, int(kind["row"]), kind["pool"]), folder


@pytest.fixture(scope="module")
def encoded(made: tuple[Any, Formulas, Path]) -> Iterator[Encoded]:
    found = Encoded(made[2])
    yield found
    found.close()


@pytest.mark.slow_after(14)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_are_those_of_the_formulas(made: Any, encoded: Encoded, width: int, height: int) -> None:
    expected = made[1].of(width, height)
    assert_close(encoded.states(picture(width, height)), expected)
    assert encoded.text(width, height) == "<|image|>" * len(expected)


@pytest.mark.parametrize("most", [1, 2, 6, 7, 36])
def test_grids_are_those_of_transformers(most: int) -> None:
    tiles = Tiles(448, PATCH, 2 * PATCH, 3, most)
    pages = (448, 448), (449, 448), (1344, 896), (3000, 2000), (5000, 300), (300, 9000), (2689, 2689)
    for width, height in (*SIZES, *pages, (1654, 2339), (7, 3000)):
        assert tiles.grid(width, height) == grid_by_rules(width, height, 448, most)


@pytest.mark.slow_after(1)
def test_a_reply_about_a_picture(made: Any) -> None:
    text, formulas, folder = made
    with closing(opened(folder)) as chat:
        assert chat.info.vision_encoder == "perception_lm"
        reply = Reply(chat, [asked("What is this?", (60, 40))])
    assert_as_with_rows(reply, text, IDS["<|image|>"], formulas.of(60, 40))


@pytest.mark.slow_after(1)
def test_one_crop_where_settings_say_so(made: Any, tmp_path: Path) -> None:
    for file in made[2].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "preprocessor_config.json").read_text("utf-8"))
    settings["vision_input_type"] = "vanilla"
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings), "utf-8")
    with closing(Encoded(tmp_path)) as one:
        assert len(one.layout(300, 200)) == 1
        states = one.states(picture(300, 200))
    assert_close(states, made[1].of(300, 200)[: len(states)])


@pytest.mark.slow_after(5)
@pytest.mark.parametrize("left_out", ["norm_pre", "pos_embed", "blocks.2.", "attn.qkv.weight", "linear_2"])
def test_tensors_that_are_not_there(made: Any, tmp_path: Path, left_out: str) -> None:
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((made[2] / name).read_bytes())
    tensors = load_file(made[2] / "model.safetensors")
    save_file(
        {name: each for name, each in tensors.items() if left_out not in name}, tmp_path / "model.safetensors"
    )
    with pytest.raises(BadCheckpoint) as raised, closing(open_checkpoint(tmp_path)) as checkpoint:
        vision_spec(checkpoint)
    assert "\n" not in str(raised.value)


@pytest.mark.slow_after(9)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architecture": "vit_base_patch16_224"}, "architecture to 'vit_base"),
        ({"architecture": 3}, "text"), ({"architecture": None}, "architecture"),
        ({"model_args": {"rope_temperature": 5.0}}, "rope_temperature"),
        ({"model_args": {"img_size": [SIDE, 28]}}, "img_size"),
        ({"model_args": {"img_size": 57}}, "multiple"),
        ({"model_args": {"img_size": SIDE}}, "ref_feat_shape"), ({"model_args": []}, "an object"),
        ({"model_args": {"img_size": SIDE, "ref_feat_shape": 4, "num_heads": 5}}, "num_heads"),
    ],
)  # fmt: skip
def test_damaged_headers(made: Any, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    assert_refused(made[2], tmp_path, changes, words)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("changes", "words"),
    [({"projector_pooling_ratio": 3}, "multiple"), ({"projector_pooling_ratio": 0}, "pooling_ratio is 0")],
)
def test_other_squares(made: Any, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    assert_refused(made[2], tmp_path, changes, words, "")


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("changes", [{"tile_size": 448}, {"max_num_tiles": 0}, {"vision_input_type": 3}])
def test_settings_that_do_not_fit(made: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    for file in made[2].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(changes), "utf-8")
    with pytest.raises(EngineError) as raised, closing(open_checkpoint(tmp_path)) as checkpoint:
        vision_spec(checkpoint)
    assert "\n" not in str(raised.value)
