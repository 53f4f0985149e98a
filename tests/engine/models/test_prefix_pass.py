"""Prompts whose tokens all attend to each other, on each backend as on the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.core import FIRST_PICTURE_ID
from engine.models import Model
from engine.models.paged import PagedCache, SequencePart
from engine.settings import CacheSettings
from engine.vision import PictureRows, Span, VisionSpec
from tests.engine.backends.test_cross_attention import BACKENDS
from tests.engine.models.oracle import load
from tests.engine.vision.tiny.paligemma_prefix import KINDS

SPAN = Span(5, 7)
PROMPT = [*range(FIRST_PICTURE_ID, FIRST_PICTURE_ID + SPAN.tokens), 1, 5, 9, 33, 7]


class Pictures:
    """One picture of random rows."""

    spec = VisionSpec("paligemma", "<image>", "<image>", bidirectional=True, prefix=True)

    def span(self, id: int) -> tuple[int, Span]:
        return FIRST_PICTURE_ID, SPAN

    def rows(self, first: int) -> PictureRows:
        random = np.random.default_rng(first)
        return PictureRows(random.standard_normal((SPAN.tokens, 32)).astype(np.float32))


def logits(model: Model) -> list[Any]:
    """After the prompt, and after a token that sees it within its windows alone."""
    cache, found = PagedCache(model, CacheSettings(context_length=512, dtype="fp32", memory=64)), list[Any]()
    cache.pictures = Pictures()
    assert cache.borders(PROMPT) == [0, len(PROMPT)]
    lease = cache.open(PROMPT)
    for ids in (PROMPT, [8], [11]):
        program, step = cache.pass_of([SequencePart(lease, ids, 1)])
        found.append(program.run(step).copy())
        lease.extend(ids)
    cache.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", "cuda", "torch"])
def test_a_prefix_is_read_at_once(tmp_path: Path, backend: str) -> None:
    KINDS["paligemma2"](tmp_path)
    exact, model = load(tmp_path), load(tmp_path, BACKENDS[backend]())
    for found, expected in zip(logits(model), logits(exact), strict=True):
        assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()
    exact.close()
    model.close()
