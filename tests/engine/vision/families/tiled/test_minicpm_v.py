"""MiniCPM-V's vision encoder against a tower of transformers and a resampler of torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from engine.errors import EngineError
from engine.vision import NUMBER, Span
from engine.vision.families.tiled.minicpm_v import Slices
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.chats import Reply, add_text, asked, opened, vocabulary
from tests.engine.vision.tiny.converted import write_tower
from tests.engine.vision.tiny.encoding import Encoded, Floats, assert_close, picture
from tests.engine.vision.tiny.minicpm_folders import (
    MOST,
    PATCH,
    QUERIES,
    SIDE,
    TOWER,
    VISION,
    WIDTH,
    Model,
    crops,
    grid,
    qwen2,
    save,
)
from tests.engine.vision.tiny.whole_models import END

SIZES = ((300, 200), (10, 7), (56, 56), (20, 90), (190, 20), (640, 640), (57, 56), (97, 531), (400, 30))
TOKENS = "<unk>" * QUERIES


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Model, Encoded]]:
    model = Model()
    encoded = Encoded(save(model, tmp_path_factory.mktemp("minicpm")))
    yield model, encoded
    encoded.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_are_those_of_the_reference(pair: Any, width: int, height: int) -> None:
    model, encoded = pair
    image = picture(width, height)
    assert_close(encoded.states(image), np.concatenate([model.rows(crop) for crop in crops(image)]))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_layout(pair: Any, width: int, height: int) -> None:
    """As `MiniCPMVImageProcessor` writes it."""
    found = grid(width, height)
    expected = f"<image_id>{NUMBER}</image_id><image>{TOKENS}</image>"
    if found is not None:
        line = f"<slice>{TOKENS}</slice>" * found[0]
        expected += "\n".join([line] * found[1])
    assert pair[1].text(width, height) == expected


def test_the_layout_of_the_first_version() -> None:
    layout = Slices(SIDE, PATCH, MOST, 2, first=True, numbered=False).layout(112, 112)
    text = "".join(piece if isinstance(piece, str) else "+" * piece.tokens for piece in layout)
    line = "<image>++</image>" * 2
    assert text == f"<image>++</image><slice>{line}\n{line}</slice>"
    assert Slices(SIDE, PATCH, MOST, 2, True, False).layout(9, 9) == ("<image>", Span(1, 2), "</image>")


def test_a_chat_with_several_pictures(pair: Any, tmp_path: Path) -> None:
    """They are numbered; the reply is that of the text model with rows in place of embeddings."""
    marks = ["<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>", "<unk>"]
    size, ids = vocabulary([*marks, END])
    text = qwen2(size)
    tokenizer = add_text(save(pair[0], tmp_path, text=text), marks, "(<image>./</image>)")
    chat, sizes = opened(tmp_path), ((60, 40), (90, 60))
    reply = Reply(chat, [asked("What are these?", *sizes)])
    chat.close()
    written = reply.plain_ids(ids["<unk>"])
    starts = [at for at, id in enumerate(written) if id == ids["<image_id>"]]
    numbers = [f"<image_id>{number}</image_id>" for number in range(2)]
    assert [written[at : at + 3] for at in starts] == [tokenizer.encode(each).ids for each in numbers]
    prompt = torch.tensor(written)
    with torch.no_grad():
        embedded = text.get_input_embeddings()(prompt)
        rows = [pair[0].rows(crop) for each in sizes for crop in crops(picture(*each))]
        embedded[prompt == ids["<unk>"]] = torch.from_numpy(np.concatenate(rows))
        found = text.generate(
            inputs_embeds=embedded[None], attention_mask=torch.ones(1, len(prompt)), do_sample=False,
            max_new_tokens=len(reply.ids), min_new_tokens=len(reply.ids), eos_token_id=ids[END],
        )  # fmt: skip
    assert reply.ids == found[0].tolist()


def gguf_tensors(folder: Path) -> dict[str, Floats]:
    """The tensors of a folder as llama.cpp's converter writes them."""
    names = {
        "vpm.embeddings.patch_embedding": "v.patch_embd",
        "vpm.embeddings.position_embedding": "v.position_embd", "vpm.encoder.layers": "v.blk",
        "vpm.post_layernorm": "v.post_ln", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out", "layer_norm1": "ln1",
        "layer_norm2": "ln2", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "resampler.kv_proj": "resampler.kv",
        "attn.out_proj": "attn.out",
    }  # fmt: skip
    found: dict[str, Floats] = {"resampler.pos_embed_k": np.zeros((1, WIDTH), np.float32)}  # not used
    for name, values in load_file(folder / "model.safetensors").items():
        for old, new in names.items():
            name = name.replace(old, new)
        if "in_proj_" in name:
            end = name.rpartition("_")[2]
            for part, kind in zip(np.split(values, 3), "qkv", strict=True):
                found[f"resampler.attn.{kind}.{end}"] = part
        elif name == "resampler.proj":
            found["resampler.proj.weight"] = np.ascontiguousarray(values.T)
        else:
            found[name] = values
    return found


def write_gguf(folder: Path, into: Path, version: int = 3) -> Path:
    """The folder's encoder in an mmproj file beside a model, whose path is returned."""
    tower = type("Vision", (), {**VISION, "image_size": SIDE})
    return write_tower(
        into, "resampler", tower, WIDTH, gguf_tensors(folder), clip__use_gelu=True,
        clip__has_minicpmv_projector=True, clip__minicpmv_version=np.int32(version),
        clip__minicpmv_query_num=QUERIES, attention__layer_norm_epsilon=1e-6, image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )  # fmt: skip


def test_an_mmproj_file_says_the_same(pair: Any, tmp_path: Path) -> None:
    encoded = pair[1]
    same = Encoded(write_gguf(encoded.path, tmp_path))
    assert same.spec == encoded.spec
    for width, height in ((112, 56), (10, 7), (190, 20)):
        image = picture(width, height)
        assert_close(same.states(image), encoded.states(image))
        assert same.layout(width, height) == encoded.layout(width, height)
    many = same.layout(1000, 1000)
    assert sum(isinstance(piece, Span) for piece in many) == 10  # such files do not say how many
    same.close()
    (tmp_path / "first").mkdir()
    first = Encoded(write_gguf(encoded.path, tmp_path / "first", 2))
    assert first.text(9, 9) == f"<image>{TOKENS}</image>"
    first.close()


def test_long_pictures_have_no_more_patches_than_others(pair: Any) -> None:
    cutter = Slices(SIDE, PATCH, MOST, QUERIES)
    for width, height in ((3, 4000), (40_000, 2), (1, 1), (900, 1), (1, 70)):
        for crop in cutter.crops(np.zeros((height, width, 3), np.uint8)):
            high, wide = (side // PATCH for side in crop.shape[:2])
            assert crop.shape == (high * PATCH, wide * PATCH, 3)
            assert 0 < high * wide <= cutter.most_patches
    assert len(pair[1].states(picture(3, 4000))) == (1 + MOST) * QUERIES


def test_a_folder_without_slices(pair: Any, tmp_path: Path) -> None:
    encoded = Encoded(save(pair[0], tmp_path, slice_mode=False, use_image_id=False))
    assert encoded.text(500, 500) == f"<image>{TOKENS}</image>"
    encoded.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"query_num": 7}, {"hidden_size": 192}, {"hidden_size": 128}, {"query_num": 1 << 20},
        {"vision_config": VISION | {"num_attention_heads": 5}},
        {"vision_config": VISION | {"image_size": 141}}, {"vision_config": VISION | {"patch_size": 0}},
        {"vision_config": VISION | {"num_hidden_layers": 4}},
        {"vision_config": VISION | {"hidden_size": TOWER + 4}},
    ],
)  # fmt: skip
def test_damaged_headers(pair: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = pair[1].path
    config = json.loads((folder / "config.json").read_text("utf-8")) | changes
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(EngineError) as raised:
        vision_spec(open_checkpoint(tmp_path))
    assert "\n" not in str(raised.value)
