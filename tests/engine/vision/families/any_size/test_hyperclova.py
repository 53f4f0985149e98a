"""HyperCLOVA X SEED Think against transformers: Qwen2.5-VL's tower, and one more matrix behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import HyperCLOVAXVisionV2Config, HyperCLOVAXVisionV2ForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.models.headers.keys import Keys
from engine.vision.families import FAMILIES
from tests.engine.vision.tiny.chats import Reply, add_text, asked, by_transformers, opened, vocabulary
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture, randomise, save
from tests.engine.vision.tiny.whole_models import END, TEXT

IMAGE = "<|IMAGE_PAD|>"
TOKENS = ["<|image_start|>", "<|image_end|>", IMAGE, "<|VIDEO_PAD|>"]
SIZE, IDS = vocabulary([*TOKENS, END])
VISION = {
    "depth": 3, "hidden_size": 48, "intermediate_size": 72, "num_heads": 3, "out_hidden_size": 40,
    "fullatt_block_indexes": [1], "window_size": 112,
}  # fmt: skip
Made = tuple[Any, Any, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A model, its image processor, and their folder."""
    text = {
        **TEXT, "model_type": "hyperclovax", "num_key_value_heads": 1, "vocab_size": SIZE, "head_dim": 16,
        "embedding_multiplier": 3.0, "logits_scaling": 0.5, "residual_multiplier": 0.7,
    }  # fmt: skip
    config = HyperCLOVAXVisionV2Config(
        vision_config=VISION, text_config=text, image_token_id=IDS[IMAGE], video_token_id=IDS["<|VIDEO_PAD|>"]
    )
    model = randomise(HyperCLOVAXVisionV2ForConditionalGeneration(config))
    limits = {"shortest_edge": 4 * 28**2, "longest_edge": 30 * 28**2}
    processor = Qwen2VLImageProcessorPil(patch_size=14, size=limits)
    folder = save(model, processor, tmp_path_factory.mktemp("clova"))
    add_text(folder, TOKENS, "".join((TOKENS[0], IMAGE, TOKENS[1])))
    return model, processor, folder


@pytest.fixture(scope="module")
def encoded(made: Made) -> Iterator[Encoded]:
    found = Encoded(made[2])
    yield found
    found.close()


def given(processor: Any, width: int, height: int) -> dict[str, Any]:
    found = processor([picture(width, height)], return_tensors="pt")
    return {"pixel_values": found["pixel_values"], "image_grid_thw": found["image_grid_thw"]}


@pytest.mark.parametrize(("width", "height"), [(300, 200), (30, 40), (1, 190), (224, 112), (97, 531)])
def test_rows_and_layout_are_those_of_transformers(
    made: Made, encoded: Encoded, width: int, height: int
) -> None:
    model, processor, _folder = made
    with torch.no_grad():
        found = model.model.get_image_features(**given(processor, width, height))
    rows = torch.cat(list(found.pooler_output)).numpy()
    assert_close(encoded.states(picture(width, height)), rows)
    assert encoded.text(width, height) == IMAGE * len(rows)
    assert encoded.spec.positions is None
    assert encoded.spec.around == ("<|image_start|>", "<|image_end|>")


def assert_reply_is_that_of_transformers(made: Made, folder: Path) -> None:
    model, processor, _ = made
    with closing(opened(folder)) as chat:
        assert chat.info.vision_encoder == "hyperclovax_vision"
        reply = Reply(chat, [asked("What is this?", (60, 40))])
    ids = reply.plain_ids(IDS[IMAGE])
    written, likely = by_transformers(model, ids, 6, eos_token_id=IDS[END], **given(processor, 60, 40))
    assert reply.ids == written
    for token, probabilities in zip(reply.tokens, likely, strict=True):
        for each in token.alternatives:
            assert each.raw_probability == pytest.approx(probabilities[each.id], rel=0.02, abs=2e-4)


def test_a_reply_about_a_picture_is_that_of_transformers(made: Made) -> None:
    assert_reply_is_that_of_transformers(made, made[2])


def test_the_makers_folder(made: Made, tmp_path: Path) -> None:
    """Their class and the last matrix have other names, and the language model is a whole one of its own."""
    for file in made[2].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"architectures": ["HCXVisionV2ForCausalLM"], "model_type": "vlm"}
    config["vision_config"]["model_type"] = "qwen2_5_vl"
    (tmp_path / "config.json").write_text(json.dumps(config))
    language = "model.language_model."
    tensors = {
        name.replace(language, language + "model."): values
        for name, values in load_file(tmp_path / "model.safetensors").items()
    }
    tensors = {name.replace("vision_projector", "mm_projector"): tensors[name] for name in tensors}
    if head := {name for name in tensors if name.startswith("lm_head")}:
        tensors = {language + name if name in head else name: values for name, values in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    assert_reply_is_that_of_transformers(made, tmp_path)


def test_absent_settings() -> None:
    """Files that state all defaults, and files that state none, describe one encoder."""
    family = next(each for each in FAMILIES if each.name == "hyperclovax_vision")
    assert family.from_hf is not None
    config = json.loads(json.dumps(HyperCLOVAXVisionV2Config().to_dict(), default=str))
    full, bare = (family.from_hf(Keys(keys, "config.json"), Keys({}, ""), {}) for keys in (config, {}))
    assert repr(full) == repr(bare)


@pytest.mark.parametrize(
    ("changes", "words"), [({"out_hidden_size": 44}, "shape"), ({"out_hidden_size": 0}, "out_hidden_size")]
)
def test_damaged_headers(made: Made, tmp_path: Path, changes: dict[str, int], words: str) -> None:
    assert_refused(made[2], tmp_path, changes, words)
