"""Pictures for models that read them: vision encoders, and what their rows look like in a prompt.

A picture takes the place of token embeddings: its encoder makes of it one row of the model's width for each
of its tokens. What a prompt needs to know before any encoder runs is its `layout`.
"""

from __future__ import annotations

from engine.vision.base import (
    NUMBER,
    PictureRows,
    Piece,
    Positions,
    Span,
    VisionEncoder,
    VisionSpec,
    tokens_in,
)

__all__ = ["NUMBER", "PictureRows", "Piece", "Positions", "Span", "VisionEncoder", "VisionSpec", "tokens_in"]
