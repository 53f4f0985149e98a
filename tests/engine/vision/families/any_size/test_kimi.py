"""Kimi-VL's and Kimi K2.5's vision encoder against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from engine.vision import Span
from engine.vision.families.any_size.kimi import Frame
from tests.engine.vision.tiny.converted import write_tower
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import Encoded, Floats, assert_close, picture
from tests.engine.vision.tiny.kimi_folders import (
    LONGEST,
    MOST,
    PATCH,
    SIDE,
    VISION,
    model,
    pixels,
    publish,
    size,
)

SIZES = ((300, 200), (10, 7), (7, 10), (20, 90), (190, 20), (640, 640), (84, 84), (97, 531), (900, 30))
WIDTH = 32


@pytest.fixture(scope="module")
def made() -> Any:
    return model()


@pytest.fixture(scope="module", params=["vl", "k2.5"])
def encoded(request: pytest.FixtureRequest, made: Any, tmp_path_factory: Any) -> Iterator[Encoded]:
    found = Encoded(publish(made, tmp_path_factory.mktemp("kimi"), vl=request.param == "vl"))
    yield found
    found.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(
    made: Any, encoded: Encoded, width: int, height: int
) -> None:
    if encoded.spec.family == "kimi_vl" and max(width, height) > LONGEST * PATCH:
        pytest.skip("Kimi-VL has no such limit of sides")
    inputs = pixels([picture(width, height)])
    with torch.no_grad():
        found = made.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    expected = torch.cat(list(found.pooler_output)).numpy()
    assert_close(encoded.states(picture(width, height)), expected)
    assert encoded.text(width, height) == "<|media_pad|>" * len(expected)


def gguf_tensors(folder: Path, *, split: bool) -> dict[str, Floats]:
    """The tensors of a folder as llama.cpp's converter writes them; `split` as for K2.5, with the pairs of
    columns before those of rows.
    """
    names = {
        "vision_tower.patch_embed.proj": "v.patch_embd",
        "vision_tower.patch_embed.pos_emb": "v.position_embd",
        "vision_tower.encoder.blocks": "v.blk", "vision_tower.encoder.final_layernorm": "v.post_ln",
        ".wo.": ".attn_out.", ".norm0.": ".ln1.", ".norm1.": ".ln2.", ".mlp.fc0.": ".ffn_up.",
        ".mlp.fc1.": ".ffn_down.", "mm_projector.pre_norm": "mm.input_norm", "mm_projector.proj.0": "mm.1",
        "mm_projector.proj.2": "mm.2", "multi_modal_projector.pre_norm": "mm.input_norm",
        "multi_modal_projector.linear_": "mm.",
    }  # fmt: skip
    found: dict[str, Floats] = {}
    for name, values in load_file(folder / "model.safetensors").items():
        for old, new in names.items():
            name = name.replace(old, new)
        if name == "v.position_embd.weight" and not split:
            values = values.reshape(SIDE**2, -1)
        if name.startswith(("v.", "mm.")) and "wqkv" not in name:
            found[name] = values
        elif "wqkv" in name:
            parts = np.split(values, 3)
            if split:
                parts[:2] = (
                    each.reshape(2, -1, 2, 2, *each.shape[1:]).swapaxes(1, 2).reshape(each.shape)
                    for each in parts[:2]
                )
            for part, kind in zip(parts, "qkv", strict=True):
                found[name.replace("wqkv", f"attn_{kind}")] = part
    return found


def write_gguf(folder: Path, into: Path, *, k2_5: bool, width: int = WIDTH) -> Path:
    """The folder's encoder in an mmproj file beside a model of this width, whose path is returned."""
    limits = {"image_max_pixels": MOST * PATCH**2} if k2_5 else {}
    return write_tower(
        into, "kimik25" if k2_5 else "kimivl", type("Vision", (), VISION), width,
        gguf_tensors(folder, split=k2_5), clip__use_gelu=True, projector__scale_factor=2,
        attention__layer_norm_epsilon=1e-5, image_size=SIDE * PATCH, image_mean=[0.5] * 3,
        image_std=[0.4] * 3, **limits,
    )  # fmt: skip


def test_an_mmproj_file_says_the_same(encoded: Encoded, tmp_path: Path) -> None:
    k2_5 = encoded.spec.family == "kimi_k2_5"
    same = Encoded(write_gguf(encoded.path, tmp_path, k2_5=k2_5))
    assert same.spec == encoded.spec
    bound = 2e-5 if k2_5 else 2e-3  # with room for many patches, keys and values are 16-bit numbers
    for width, height in ((90, 60), (10, 7), (100, 28)):
        np.testing.assert_allclose(
            same.states(picture(width, height)), encoded.states(picture(width, height)), atol=bound
        )
    same.close()


def test_sizes() -> None:
    frame = Frame(PATCH, 2, MOST, LONGEST, True)
    for width in (1, 13, 28, 29, 200, 281, 5000, 100_000):
        for height in (1, 27, 140, 333, 90_000):
            wide, high = frame.size(width, height)
            assert (wide, high) == size(width, height)[2:]
            assert wide * high <= frame.most_patches * PATCH**2


def test_what_is_too_much_is_cut_off_on_all_sides() -> None:
    """Without `pad_input`, of Kimi-VL's pictures."""
    frame, image = Frame(PATCH, 2, MOST, LONGEST, False), np.asarray(picture(70, 45))
    assert frame.size(70, 45) == (56, 28)
    np.testing.assert_array_equal(frame.fit(image), image[8 : 8 + 28, 7 : 7 + 56])
    small = np.asarray(picture(9, 60))
    assert frame.size(9, 60) == (28, 56)
    np.testing.assert_array_equal(frame.fit(small)[:, :9], small[2:58])
    assert not frame.fit(small)[:, 9:].any()


def test_a_long_picture_is_one_row(encoded: Encoded) -> None:
    wide = 40_000
    (span,) = encoded.layout(wide, 2)
    assert isinstance(span, Span)
    assert span.rows == 1
    assert span.tokens <= MOST + 2


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 5, "vt_num_attention_heads": 5}, {"patch_size": 0},
        {"init_pos_emb_height": 7}, {"merge_kernel_size": 3}, {"merge_kernel_size": [2, 4]},
        {"num_hidden_layers": 3, "vt_num_hidden_layers": 3}, {"hidden_act": 4},
        {"num_attention_heads": 32, "vt_num_attention_heads": 32},
    ],
)  # fmt: skip
def test_damaged_headers(encoded: Encoded, tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_refused(encoded.path, tmp_path, changes)
