"""Molmo 2's vision encoder against transformers: its model, and what can be had of its image processor
without torchvision.
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from transformers import Molmo2Config, Molmo2ForConditionalGeneration

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.vision import Span
from engine.vision.opening import vision_spec
from engine.vision.pictures.images import Normalisation, patches
from engine.vision.pictures.overlapping import Overlapping
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.chats import Reply, add_text, asked, opened, vocabulary
from tests.engine.vision.tiny.encoding import Encoded, Floats, assert_close, picture, randomise
from tests.engine.vision.tiny.whole_models import END, TEXT

SIDE, PATCH, MOST, MARGINS, POOL = 63, 7, 5, (2, 1), (2, 3)
SIZES = ((300, 200), (10, 7), (21, 90), (200, 21), (1, 900), (640, 640), (63, 63), (97, 531))
MARKS = ["<im_start>", "<im_end>", "<im_patch>", "<im_col>", "<low_res_im_start>"]
IDS = ("image_start_token_id", "image_end_token_id", "image_patch_id", "image_col_id")


@lru_cache
def rules() -> Mapping[str, Any]:
    """The functions of transformers' image processor that need no torchvision."""
    spec = importlib.util.find_spec("transformers.models.molmo2")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent / "image_processing_molmo2.py"
    wanted = "select_tiling", "compute_crop_geometry", "arange_for_pooling", "batch_pixels_to_patches"
    kept = [each for each in ast.parse(source.read_text("utf-8")).body if getattr(each, "name", "") in wanted]
    names: dict[str, Any] = {"torch": torch, "itertools": itertools, "math": math, "F": F}
    exec(compile(ast.Module(kept, []), str(source), "exec"), names)  # names are the package's own
    return names


def pixels(image: Image.Image, width: int, height: int) -> torch.Tensor:
    """A picture in another size, (1, 3, height, width), as torchvision resizes one without antialiasing."""
    values = torch.from_numpy(np.asarray(image, np.float32).copy()).permute(2, 0, 1)[None]
    sized = F.interpolate(values, (height, width), mode="bilinear", align_corners=False).round()
    return sized.clamp(0, 255) / 255 * 2 - 1


def inputs(image: Image.Image) -> dict[str, torch.Tensor]:
    """What `Molmo2ImageProcessor` makes of a picture."""
    names, (width, height) = rules(), image.size
    high, wide, tall, broad = names["compute_crop_geometry"](height, width, MOST, list(MARGINS), SIDE, PATCH)
    count, (before, after) = SIDE // PATCH, MARGINS
    step = (count - before - after) * PATCH
    canvas = pixels(image, broad, tall).unfold(2, SIDE, step).unfold(3, SIDE, step)
    crops = canvas.permute(0, 2, 3, 4, 5, 1).reshape(high * wide, SIDE, SIDE, 3)
    whole = pixels(image, SIDE, SIDE).permute(0, 2, 3, 1)
    numbers = torch.arange(high * wide * count**2).reshape(high, wide, count, count)
    numbers[1:, :, :before, :] = numbers[:, 1:, :, :before] = -1
    numbers[:-1, :, -after:, :] = numbers[:, :-1, :, -after:] = -1
    flat = numbers.permute(0, 2, 1, 3).reshape(-1)
    grid = flat[flat >= 0].reshape(tall // PATCH, broad // PATCH)
    second, rows, columns = names["arange_for_pooling"](grid, *POOL)
    first, low_rows, low_columns = names["arange_for_pooling"](
        torch.arange(count**2).reshape(count, count), *POOL
    )
    return {
        "pixel_values": names["batch_pixels_to_patches"](torch.cat([whole, crops]), PATCH),
        "image_token_pooling": torch.cat([first, torch.where(second >= 0, second + count**2, -1)]),
        "image_grids": torch.tensor([[low_rows, low_columns, rows, columns]]),
    }


def same_pixels(image: Image.Image, expected: torch.Tensor) -> torch.Tensor:
    """The engine's patches of a picture, if they are these but for a few values that are in the middle of two
    whole numbers.
    """
    cutter = Overlapping(SIDE, PATCH, MOST, *MARGINS, POOL)
    values = Normalisation((0.5,) * 3, (0.5,) * 3)
    crops = cutter.crops(np.asarray(image))
    found = torch.from_numpy(np.stack([patches(each, PATCH, values, colours_last=True) for each in crops]))
    away = (found - expected).abs()
    assert away.max() < 2 / 255 + 1e-5
    assert (away > 1e-5).float().mean() < 0.005
    return found


def written(grid: Sequence[int]) -> list[str]:
    """The tokens of a picture, as `Molmo2Processor.replace_image_token` writes them."""
    found = list[str]()
    for start, (high, wide) in (("<low_res_im_start>", grid[:2]), ("<im_start>", grid[2:])):
        found += [start, *([*["<im_patch>"] * wide, "<im_col>"] * high), "<im_end>"]
    return found


class Made:
    """A model, and its folder with the ids of the marks."""

    def __init__(self, folder: Path) -> None:
        tokens = [*MARKS, "<|image|>"]
        size, self.ids = vocabulary([*tokens, END])
        vision = {
            "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "image_size": [SIDE, SIDE], "patch_size": PATCH,
        }  # fmt: skip
        adapter = {
            "hidden_size": 48, "intermediate_size": 56, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 8, "text_hidden_size": 32, "vision_feature_layer": [2, -3],
        }  # fmt: skip
        text = {
            **TEXT, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": size, "additional_vocab_size": 8,
            "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"},
        }  # fmt: skip
        self.marks = {mark: size + at for at, mark in enumerate(MARKS)}  # in the second table
        names = dict(zip((*IDS, "low_res_image_start_token_id"), self.marks.values(), strict=True))
        config = Molmo2Config(vision_config=vision, adapter_config=adapter, text_config=text, **names)
        self.model = cast(Any, randomise(Molmo2ForConditionalGeneration(config)))
        self.model.save_pretrained(folder)
        settings = {
            "max_crops": MOST, "overlap_margins": MARGINS, "pooling_size": POOL, "image_mean": [0.5] * 3,
            "image_std": [0.5] * 3,
        }  # fmt: skip
        (folder / "preprocessor_config.json").write_text(json.dumps(settings), "utf-8")
        add_text(folder, tokens, "<|image|>")
        self.folder = folder

    def rows(self, image: Image.Image) -> tuple[Floats, list[int]]:
        """What stands in place of a picture's embeddings, and the ids of its tokens."""
        given = inputs(image)
        given["pixel_values"] = same_pixels(image, given["pixel_values"])
        ids = [self.marks[each] for each in written(given["image_grids"][0].tolist())]
        with torch.no_grad():
            (features,) = self.model.model.get_image_features(**given).pooler_output
            found = self.model.get_input_embeddings()(torch.tensor(ids))
        found[torch.tensor(ids) == self.marks["<im_patch>"]] += features
        return found.numpy(), ids


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("molmo2"))


@pytest.fixture(scope="module")
def encoded(made: Made) -> Iterator[Encoded]:
    found = Encoded(made.folder)
    yield found
    found.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_are_those_of_transformers(made: Made, encoded: Encoded, width: int, height: int) -> None:
    image = picture(width, height)
    expected, ids = made.rows(image)
    assert encoded.layout(width, height) == (Span(1, len(ids)),)
    assert_close(encoded.states(image), expected)


def test_replies_are_those_of_transformers(made: Made) -> None:
    """The tokens of each picture attend to each other in both directions, and to those of earlier ones."""
    sizes = ((60, 40), (90, 130))
    chat = opened(made.folder)
    reply = Reply(chat, [asked("What are these?", *sizes)])
    again = Reply(chat, [asked("What are these?", *sizes)])
    chat.close()
    assert again.ids == reply.ids
    assert again.cached == len(reply.rendered.ids) - 1
    parts = [made.rows(picture(*size))[0] for size in sizes]
    ids, at = np.array(reply.rendered.ids), 0
    with torch.no_grad():
        plain = torch.from_numpy(np.where(ids < made.marks["<im_start>"], ids, 0))
        states = made.model.get_input_embeddings()(plain)
        mask = torch.tril(torch.ones(len(ids), len(ids), dtype=torch.bool))
        places = np.flatnonzero(ids >= made.marks["<im_start>"])
        for part in parts:
            own = places[at : at + len(part)]
            states[own], at = torch.from_numpy(part), at + len(part)
            mask[own[0] : own[-1] + 1, own[0] : own[-1] + 1] = True
        assert at == len(places)
        logits = made.model(inputs_embeds=states[None], attention_mask=mask[None, None]).logits[0, -1]
    likely = logits.softmax(-1).numpy()
    assert reply.ids[0] == int(likely.argmax())
    for each in reply.tokens[0].alternatives:
        assert each.raw_probability == pytest.approx(likely[each.id], rel=0.02, abs=2e-4)


def test_folders_as_their_makers_have_them(made: Made, encoded: Encoded, tmp_path: Path) -> None:
    """And as transformers names the parts itself."""
    config = json.loads((made.folder / "config.json").read_text("utf-8"))
    vision, adapter = config.pop("vision_config"), config["adapter_config"]
    config["vit_config"] = {
        **vision, "image_default_input_size": vision.pop("image_size"),
        "image_patch_size": vision.pop("patch_size"),
    }  # fmt: skip
    adapter["vit_layers"] = adapter.pop("vision_feature_layer")
    for file in made.folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    same = Encoded(tmp_path)
    np.testing.assert_array_equal(same.states(picture(90, 60)), encoded.states(picture(90, 60)))
    same.close()


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("preprocessor_config.json", {"overlap_margins": [5, 5]}, r"overlap_margins is \[5, 5\]"),
        ("preprocessor_config.json", {"pooling_size": [2]}, r"sets pooling_size to \[2\]"),
        ("config.json", {"image_patch_id": 1 << 20}, "wte"),
    ],
)  # fmt: skip
def test_damaged_headers(made: Made, tmp_path: Path, file: str, changes: dict[str, Any], words: str) -> None:
    for each in made.folder.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    changed = json.loads((tmp_path / file).read_text("utf-8")) | changes
    (tmp_path / file).write_text(json.dumps(changed), "utf-8")
    with pytest.raises((BadCheckpoint, UnsupportedModel), match=words):
        vision_spec(open_checkpoint(tmp_path))
