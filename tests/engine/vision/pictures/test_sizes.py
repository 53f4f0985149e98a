"""Sizes of pictures: as the processors of `transformers` choose them."""

from __future__ import annotations

import random

import pytest
from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size
from transformers.models.pixtral.image_processing_pil_pixtral import _num_image_tokens
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from engine.vision.pictures.sizes import dynamic_size, size_of_tokens, size_within

_RANDOM = random.Random(3)
PICTURES = [
    (1, 1), (28, 28), (640, 480), (1, 150), (150, 1), (3000, 20), (4000, 3000), (8000, 41), (13, 2500),
    *((_RANDOM.randint(1, 5000), _RANDOM.randint(1, 5000)) for _ in range(300)),
]  # fmt: skip


@pytest.mark.parametrize(("factor", "least", "most"), [(28, 56 * 56, 1003520), (32, 65536, 16777216)])
def test_dynamic_sizes(factor: int, least: int, most: int) -> None:
    """Those of Qwen2-VL's processor, for all shapes that it takes and that fit."""
    compared = 0
    for width, height in PICTURES:
        found = dynamic_size(width, height, factor, least, most)
        assert all(side % factor == 0 < side for side in found)
        assert found[0] * found[1] <= most
        if max(width, height) <= 200 * min(width, height):
            high, wide = smart_resize(height, width, factor, least, most)
            if wide * high <= most:
                assert found == (wide, high)
                compared += 1
    assert compared > 280


def test_extreme_shapes_fit() -> None:
    """A picture one pixel high still gets no more pixels than allowed."""
    assert dynamic_size(1_000_000, 1, 28, 3136, 28 * 28 * 100) == (2800, 28)
    assert dynamic_size(1, 60_000, 28, 3136, 28 * 28 * 100) == (28, 2800)
    assert size_within(1, 1_000_000, 16, 1024) == (16, 1024)
    assert size_of_tokens(1, 1_000_000, 48, 280) == (48, 280 * 48)


@pytest.mark.parametrize(("factor", "longest"), [(28, 1540), (16, 1024), (32, 100)])
def test_sizes_within_a_square(factor: int, longest: int) -> None:
    """Those of Pixtral's processor: made smaller by whole pixels, then rounded up to patches."""
    for width, height in PICTURES:
        ratio = max(height / longest, width / longest)
        wide, high = (int(side / ratio) if ratio > 1 else side for side in (width, height))
        if wide and high:
            rows, columns = _num_image_tokens((high, wide), (factor, factor))
            assert size_within(width, height, factor, longest) == (columns * factor, rows * factor)


@pytest.mark.parametrize(("tokens", "pooling"), [(70, 3), (280, 3), (1120, 2)])
def test_sizes_of_tokens(tokens: int, pooling: int) -> None:
    """Those of Gemma 4's processor."""
    for width, height in PICTURES:
        high, wide = get_aspect_ratio_preserving_size(height, width, 16, tokens * pooling**2, pooling)
        assert size_of_tokens(width, height, 16 * pooling, tokens) == (wide, high)
