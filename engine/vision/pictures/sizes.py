"""The sizes, in pixels, that processors give pictures whose number of patches depends on their shape."""

from __future__ import annotations

import math

MOST_TOKENS = 1280
"""The most tokens of a picture whose number depends on its size, if `LoadSettings.picture_tokens` does not
say: what the model cards of Qwen's models advise as an upper limit, since time and memory grow faster than
they. Files that allow more get no more.
"""
PAGE_TOKENS = 4096
"""The same for models that are made to read pages of text, whose published settings allow 3600 and more."""


def dynamic_size(width: int, height: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """The width and height of a picture of `least` to `most` pixels with sides that are multiples of
    `factor`, as near to the picture's shape as they can be (naive dynamic resolution, Qwen2-VL, arXiv
    2409.12191, section 2.1).

    A picture that would need more pixels with its short side at one `factor` loses its shape.
    """
    wide, high = (factor * round(side / factor) for side in (width, height))
    if wide * high > most:
        shrink = math.sqrt(width * height / most)
        wide, high = (max(factor, factor * math.floor(side / shrink / factor)) for side in (width, height))
    elif wide * high < least:
        grow = math.sqrt(least / (width * height))
        wide, high = (factor * math.ceil(side * grow / factor) for side in (width, height))
    longest = factor * max(1, most // factor**2)
    return min(wide, longest), min(high, longest)


def size_within(width: int, height: int, factor: int, longest: int) -> tuple[int, int]:
    """The width and height of a picture, made smaller where a side is longer than `longest`, with sides
    rounded up to multiples of `factor` (Pixtral, arXiv 2410.07073, section 2.2).
    """
    ratio = max(width / longest, height / longest)
    if ratio > 1:
        width, height = (max(1, math.floor(side / ratio)) for side in (width, height))
    return factor * -(-width // factor), factor * -(-height // factor)


def size_of_tokens(width: int, height: int, factor: int, most: int) -> tuple[int, int]:
    """The largest width and height of at most `most` squares with sides of `factor` pixels that have the
    picture's shape, rounded down (Gemma 4's image processor, in `transformers`). Small pictures are enlarged.
    """
    grow = math.sqrt(most * factor**2 / (width * height))
    wide, high = (math.floor(grow * side / factor) for side in (width, height))
    if high == 0:
        wide, high = min(width // height, most), 1
    elif wide == 0:
        wide, high = 1, min(height // width, most)
    return factor * wide, factor * high
