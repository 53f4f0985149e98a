"""MiniCPM-V 4.7 against transformers: its rows among those of marks, and the canvas of rotary positions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import MiniCPMV4_7Config, MiniCPMV4_7ForConditionalGeneration
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

from engine.core import FIRST_PICTURE_ID, Picture
from engine.models.picture_tokens import places_of, shift_after, spans_in
from engine.vision.encoder_cache import EncoderCache
from engine.vision.families.tiled.minicpm_v4_7 import _spread
from engine.vision.opening import vision_layouts
from engine.weights import open_checkpoint
from tests.engine.models.whole_models import DELTA
from tests.engine.vision.tiny.chats import Reply, asked, by_transformers, opened
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture, randomise, save
from tests.engine.vision.tiny.minicpm_canvas import expanded, minicpm_v4_7

PATCH, SIDE, MOST = 7, 56, 5
IMAGE, MARKS = 5, {
    "image_start_id": 10, "image_end_id": 11, "slice_start_id": 12, "slice_end_id": 13, "newline_id": 14,
}  # fmt: skip
VISION = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
    "image_size": 70, "patch_size": PATCH,
}  # fmt: skip
SIZES = (
    (300, 200), (10, 7), (56, 56), (112, 112), (20, 90), (640, 640), (57, 56), (97, 531), (400, 60),
    (100, 90),
)  # fmt: skip


@pytest.fixture(scope="module", params=["16x", "4x"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, and the engine's encoder."""
    rope = {
        "rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5, "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
    }  # fmt: skip
    text = {**DELTA, "hidden_size": 32, "vocab_size": 64, "rope_parameters": rope}
    config = MiniCPMV4_7Config(
        vision_config=VISION, text_config=text, insert_layer_id=1, image_token_id=IMAGE, video_token_id=6,
        downsample_mode=request.param, **MARKS,
    )  # fmt: skip
    model = randomise(MiniCPMV4_7ForConditionalGeneration(config))
    processor = MiniCPMV4_6ImageProcessorPil(
        patch_size=PATCH, scale_resolution=SIDE, max_slice_nums=MOST, downsample_mode=request.param
    )
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("canvas")))
    yield model, processor, encoded
    encoded.close()


def prompt_ids(processor: Any, image: Image.Image) -> list[int]:
    """A picture's tokens and a line break, as `MiniCPMV4_7Processor` has them."""
    return [*expanded(processor, image, IMAGE, *list(MARKS.values())), MARKS["newline_id"]]


@pytest.mark.slow_after(14)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    """And between them the embeddings of marks."""
    model, processor, encoded = pair
    inputs = processor([picture(width, height)], return_tensors="pt")
    ids = torch.tensor(prompt_ids(processor, picture(width, height)))
    with torch.no_grad():
        expected = model.get_input_embeddings()(ids).clone()
        found = model.model.get_image_features(inputs["pixel_values"], inputs["target_sizes"])
    expected[ids == IMAGE] = torch.cat(found.pooler_output)
    assert_close(encoded.states(picture(width, height)), expected.numpy())


def positions(cache: EncoderCache, ids: Sequence[int]) -> np.ndarray:
    """The positions (T, 3) that passes over the texts and spans of a prompt have."""

    def shift(at: int) -> int:
        return shift_after(ids[:at], cache)

    found, at = list[np.ndarray](), 0
    for begin, end, _first, _span in [*spans_in(ids, cache), (len(ids), len(ids), 0, None)]:
        text = np.arange(at, begin) - shift(at)
        found.append(np.repeat(text[:, None], 3, axis=1))
        if begin < end:
            middle = (begin + end) // 2  # as if a pass ended there
            for first, last in ((begin, middle), (middle, end)):
                if first < last:
                    places = places_of(ids[:first], ids[first:last], cache, shift)
                    assert places is not None
                    found.append(places)
        at = end
    return np.concatenate(found)


def no_encoder() -> Any:
    raise AssertionError("positions do not depend on weights")


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("texts", [((3, 7), (2,), ()), ((), (), (9, 9, 9)), ((1,), (8, 8), (4,))])
def test_positions_are_those_of_transformers(pair: Any, texts: tuple[tuple[int, ...], ...]) -> None:
    """Of all tokens of a text with two pictures, whether line breaks follow these or not."""
    model, processor, encoded = pair
    with closing(open_checkpoint(encoded.path)) as checkpoint:
        layouts = vision_layouts(checkpoint)
    assert layouts is not None
    for first, second in pairwise(SIZES):
        cache, ids, own, sizes = EncoderCache(layouts, no_encoder), list[int](), list[int](), []
        for number, (width, height) in enumerate((first, second)):
            image = picture(width, height)
            theirs = prompt_ids(processor, image)
            shown = cache.placed(Picture(f"{number}", "", width, height, "image/png"))
            (span,) = (piece for piece in shown if isinstance(piece, range))
            followed = number == len(texts[2]) % 2
            ids += [*texts[number], *(theirs if followed else theirs[:-1])]
            own += [*texts[number], *span, *([span[-1] + 1] if followed else [])]
            sizes.append(processor([image], return_tensors="pt")["target_sizes"])
        ids, own = [*ids, *texts[2], 20, 21], [*own, *texts[2], 20, 21]
        given = torch.tensor([ids])
        expected, deltas = model.model.get_rope_index(given, (given == IMAGE).int(), torch.cat(sizes), None)
        np.testing.assert_array_equal(positions(cache, own), expected[:, 0].T.numpy())
        assert shift_after(own, cache) == -int(deltas)


def test_the_whole_is_spread_as_by_torch() -> None:
    for size in (1, 2, 3, 7, 8, 14, 16, 21, 31, 48, 63, 64, 100):
        for count in range(1, 65):
            expected = torch.linspace(0, size - 1, count).round().long().tolist()
            assert _spread(size, count) == expected


@pytest.mark.parametrize("numbered", [True, False])
def test_a_reply_about_two_pictures(tmp_path: Path, numbered: bool) -> None:
    """Beside each other, they share a canvas's beginning only if no number is between them."""
    case = minicpm_v4_7(tmp_path, numbered=numbered)
    with closing(opened(tmp_path)) as chat:
        reply = Reply(chat, [asked("Which?", (60, 40), (150, 130))])
    images = [picture(60, 40), picture(150, 130)]
    assert case.plain is not None
    ids = case.plain(reply.rendered.ids, images)
    assert max(ids) < FIRST_PICTURE_ID
    written, likely = by_transformers(case.model, ids, 6, eos_token_id=case.end, **case.inputs(images, ids))
    assert reply.ids == written
    for token, probabilities in zip(reply.tokens, likely, strict=True):
        for each in token.alternatives:
            assert each.raw_probability == pytest.approx(probabilities[each.id], rel=0.02, abs=2e-4)


@pytest.mark.slow_after(6)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"newline_id": None}, "newline_id"), ({"image_start_id": -1}, "image_start_id is -1"),
        ({"slice_end_id": 64}, "shape"), ({"merger_times": 2}, "merger_times to 2"),
        ({"downsample_mode": "8x"}, "downsample_mode"), ({"slice_start_id": "<slice>"}, "slice_start_id"),
    ],
)  # fmt: skip
def test_damaged_headers(pair: Any, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    folder = pair[2].path
    mode = json.loads((folder / "config.json").read_text("utf-8"))["downsample_mode"]
    settings = {"downsample_mode": mode}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings), "utf-8")
    assert_refused(folder, tmp_path, changes, words, "")
