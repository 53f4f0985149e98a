"""`LoadSettings.picture_tokens`: the most tokens of a picture, its default, and the memory that it takes."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.chat import finished, open_chat
from engine.cli.pictures import with_images
from engine.core import ChatRequest, Message, Picture
from engine.drain import drain
from engine.errors import NotEnoughMemory
from engine.settings import CacheSettings, LoadSettings
from engine.vision.base import tokens_in
from engine.vision.encoders.grid_encoder import GridDesign
from engine.vision.opening import open_vision, vision_layouts, vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.encoding import Encoded, picture
from tests.engine.vision.tiny.families import FAMILIES

SIDES = {
    "qwen2_5_vl": 28, "qwen3_vl": 32, "glm4v": 28, "glm_ocr": 28, "kimi_vl": 28, "lfm3_vl": 32,
    "paddle_ocr": 28,
}  # fmt: skip
"""Families whose pictures have a number of tokens by their size; pixels of a token's side."""
PAGE = 1654, 2339
"""Pixels of A4 at 200 dots an inch."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def made(folders: Path, family: str) -> Path:
    folder = folders / family
    if not folder.exists():
        folder.mkdir()
        FAMILIES[family](folder)
    return folder


def allowing(folder: Path, tokens: int, side: int, target: Path) -> Path:
    """A copy whose files allow so many tokens."""
    shutil.copytree(folder, target)
    path = target / "preprocessor_config.json"
    settings = json.loads(path.read_text())
    if "in_token_limit" in settings:  # of patches
        settings["in_token_limit"] = 4 * tokens
    else:
        frames = 2 if "glm" in folder.name else 1  # whose files count the pixels of both
        settings["size"]["longest_edge"] = frames * tokens * side**2
        settings.pop("max_pixels", None)
    path.write_text(json.dumps(settings))
    return target


def tokens_of(folder: Path, tokens: int = 0, size: tuple[int, int] = PAGE) -> int:
    with closing(open_checkpoint(folder)) as checkpoint:
        layouts = vision_layouts(checkpoint, tokens)
    assert layouts is not None
    return tokens_in(layouts.layout(*size))


@pytest.mark.parametrize("family", SIDES)
def test_the_setting_is_as_a_limit_of_the_files(folders: Path, tmp_path: Path, family: str) -> None:
    """Both give the same rows, so that they are those of transformers, with which the files' are compared."""
    whole, side = made(folders, family), SIDES[family]
    wide = allowing(whole, 40, side, tmp_path / "wide")
    image = picture(300, 200)
    with (
        closing(Encoded(wide, 12)) as limited,
        closing(Encoded(allowing(whole, 12, side, tmp_path / "narrow"))) as expected,
    ):
        assert limited.layout(300, 200) == expected.layout(300, 200)
        assert np.array_equal(limited.states(image), expected.states(image))
    assert tokens_of(wide, 12, (300, 200)) < tokens_of(wide, size=(300, 200))
    # never more than the files allow
    assert tokens_of(wide, 4096) == tokens_of(wide) < 60


@pytest.mark.parametrize("family", SIDES)
def test_pages_are_read_in_detail_by_models_for_pages_or_when_chosen(
    folders: Path, tmp_path: Path, family: str
) -> None:
    wide = allowing(made(folders, family), 16384, SIDES[family], tmp_path / "wide")
    usual, more = tokens_of(wide), tokens_of(wide, 8192)
    cells = PAGE[0] * PAGE[1] / SIDES[family] ** 2
    assert (usual > 4000) == (family in ("glm_ocr", "paddle_ocr"))
    assert usual > 4000 or 1150 < usual < 1350  # Kimi-VL counts no padding
    assert 0.95 * cells < more < 1.1 * cells


@pytest.mark.parametrize(("family", "side"), [("pixtral", 14), ("mistral3", 28)])
def test_pixtral_has_a_longest_side(folders: Path, tmp_path: Path, family: str, side: int) -> None:
    """That of the square of so many tokens, as if the files gave it."""
    wide, narrow = made(folders, family), tmp_path / "narrow"
    shutil.copytree(wide, narrow)
    path = narrow / "preprocessor_config.json"
    settings = json.loads(path.read_text())
    settings["size"]["longest_edge"] = 3 * side
    path.write_text(json.dumps(settings))
    for width, height in ((300, 200), (40, 300), (50, 20)):
        image = picture(width, height)
        with closing(Encoded(wide, 11)) as limited, closing(Encoded(narrow)) as expected:
            assert limited.layout(width, height) == expected.layout(width, height)
            assert np.array_equal(limited.states(image), expected.states(image))
    assert tokens_of(wide, 11) <= 9 < tokens_of(wide) == tokens_of(wide, 4096)


def test_gemma_4_has_budgets() -> None:
    """Of these the largest that is not above the setting, which its files do not limit."""
    from tests.engine.vision.test_defaults import design

    stated = design("Gemma4", {}, {"max_soft_tokens": 280})
    assert isinstance(stated, GridDesign)
    for asked, budget in ((70, 70), (279, 140), (280, 280), (1119, 560), (1120, 1120), (4096, 1120)):
        found, same = stated.limited(asked), design("Gemma4", {}, {"max_soft_tokens": budget})
        assert found.layout(*PAGE) == same.layout(*PAGE)
        assert 0.8 * budget < tokens_in(found.layout(*PAGE)) <= budget
        assert isinstance(same, GridDesign)
        assert found.most_patches == same.most_patches
    assert tokens_in(stated.limited(20).layout(*PAGE)) <= 20


def test_gemma_4_reads_by_its_budget(folders: Path) -> None:
    """No more than it has positions for: here those of 100 tokens in a row."""
    folder, image = made(folders, "gemma4"), picture(300, 200)
    with closing(Encoded(folder, 1120)) as limited, closing(Encoded(folder)) as expected:
        assert np.array_equal(limited.states(image), expected.states(image))
    with closing(Encoded(folder, 24)) as limited:
        assert 12 < len(limited.states(image)) <= 24


def test_pictures_of_one_size_are_not_affected(folders: Path) -> None:
    folder = made(folders, "idefics3")
    assert tokens_of(folder) == tokens_of(folder, 1) == tokens_of(folder, 16384) > 1


def test_a_model_is_loaded_with_the_setting(folders: Path, tmp_path: Path) -> None:
    folder = allowing(made(folders, "qwen3_vl"), 40, 32, tmp_path / "wide")
    cache = CacheSettings(context_length=256)
    asked = ChatRequest(with_images([Message("user", "a")], [Picture("a.png", width=300, height=200)]))
    prompts = []
    for tokens in (0, 12):
        load = LoadSettings(backend="cpu", threads=1, picture_tokens=tokens)
        with closing(finished(open_chat(folder, load, cache))) as chat:
            prompts.append(chat.size(asked).prompt)
    difference = tokens_of(folder, size=(300, 200)) - tokens_of(folder, 12, (300, 200))
    assert prompts[0] - prompts[1] == difference > 0


def test_memory_for_large_pictures_is_asked_before(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No weights are read if the largest picture does not fit, and the sentence says what to do."""
    folder = allowing(made(folders, "qwen3_vl"), 16384, 32, tmp_path / "wide")
    with closing(open_checkpoint(folder)) as checkpoint:
        spec = vision_spec(checkpoint)
        assert spec is not None
        monkeypatch.setattr(CpuBackend, "free_memory", lambda _backend: spec.nbytes + 64 * 2**20)
        with closing(drain(open_vision(checkpoint, 1, 64))):
            pass
        with pytest.raises(NotEnoughMemory, match="lower “Tokens per picture”"):
            drain(open_vision(checkpoint, 1, 16384))
