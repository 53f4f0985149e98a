"""Prompts with pictures whose tokens attend to each other, on models that read few tokens in a pass."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.core import FIRST_PICTURE_ID
from engine.generator.reading import Reading
from engine.models import Model, paged
from engine.models.paged import PagedCache, SequencePart
from engine.models.pictures import PicturePass
from engine.settings import CacheSettings
from engine.vision import PictureRows, Span, VisionSpec
from tests.engine.models.architectures import ids, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load

FIRST, LATER = Span(3, 4), Span(5, 6)
"""Two pictures, the second one with more tokens."""


class Pictures:
    """Both pictures, with random rows; their ids follow each other."""

    spec = VisionSpec("test", "<image>", "<image>", bidirectional=True)

    def __init__(self, width: int) -> None:
        draw = np.random.default_rng(5)
        self._rows = {
            FIRST_PICTURE_ID + at: (span, draw.standard_normal((span.tokens, width)).astype(np.float32))
            for at, span in ((0, FIRST), (FIRST.tokens, LATER))
        }

    def span(self, id: int) -> tuple[int, Span]:
        first = max(each for each in self._rows if each <= id)
        return first, self._rows[first][0]

    def rows(self, first: int) -> PictureRows:
        return PictureRows(self._rows[first][1])


def prompt() -> list[int]:
    text, own = ids(20), list(range(FIRST_PICTURE_ID, FIRST_PICTURE_ID + FIRST.tokens + LATER.tokens))
    return [*text[:7], *own[: FIRST.tokens], *text[7:9], *own[FIRST.tokens :], *text[9:]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = write_checkpoint(BY_NAME["Gemma 3"], tmp_path_factory.mktemp("few") / "model")
    model = load(folder, CpuBackend(threads=1))
    yield model
    model.close()


@pytest.mark.parametrize("keep", [False, True])
def test_a_picture_is_read_in_one_pass_of_more_rows_than_texts(
    model: Model, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    recorded, record = list[int](), model.record_pictures

    def recording(cache: Any, rows: int, *others: Any) -> PicturePass:
        recorded.append(rows)
        return record(cache, rows, *others)

    monkeypatch.setattr(model, "record_pictures", recording)
    for rows in (64, 4):
        monkeypatch.setattr(paged, "prefill_rows", lambda *_unused, rows=rows: rows)
        cache = PagedCache(model, CacheSettings(context_length=96, memory=1))
        cache.pictures = Pictures(model.config.width)
        cache.keep_hidden(keep)
        text, states = prompt(), list[Any]()
        passes = Reading(cache, text).planned(0, len(text))
        assert max(count for _start, count in passes) == LATER.tokens
        with cache.open(text) as lease:
            for start, count in passes:
                part = text[start : start + count]
                program, step = cache.pass_of([SequencePart(lease, part, 1)])
                logits = program.run(step).copy()
                lease.extend(part)
                if model.kept is not None:
                    states.append(model.kept[:count].copy())
        found.append([logits, *([np.concatenate(states)] if keep else [])])
        cache.keep_hidden(False)
        cache.close()
    assert recorded == [64, 16, 32], "a pass for both pictures, or one for each"
    for wide, narrow in zip(*found, strict=True):
        np.testing.assert_allclose(narrow, wide, rtol=0, atol=1e-4 * np.abs(wide).max())


def test_a_replayed_picture_is_read_in_one_pass(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "prefill_rows", lambda *_unused: 4)
    cache = PagedCache(model, CacheSettings(context_length=96, memory=1))
    cache.pictures = Pictures(model.config.width)
    reading = Reading(cache, prompt())
    assert [reading.most(at) for at in (0, 7, 10, 18, 19, 21, 50, 51)] == [4, 12, 9, 4, 4, 30, 4, 4]
    cache.close()


def reading(recurrent: bool, small: int = 8) -> Reading:
    """Of a text without pictures, for a model of which up to `small` rows are a small batch."""
    program = SimpleNamespace(batch_rows=small)
    cache: Any = SimpleNamespace(
        recurrent=recurrent, borders=lambda _ids: [], bidirectional_pictures=False, program=program, rows=64
    )
    return Reading(cache, range(50))


def test_a_replayed_pass_begins_earlier_only_where_states_can_go_back() -> None:
    ids = list(range(40))
    assert reading(recurrent=False).again(ids, [(0, 40)], 36, 64) == (31, 40)
    assert reading(recurrent=True).again(ids, [(0, 40)], 36, 64) == (36, 40)


@pytest.mark.parametrize(
    ("left", "chunk", "rows"),
    [(1, 4, 1), (17, 4, 17), (18, 4, 9), (40, 4, 9), (40, 20, 20), (30, 20, 20), (28, 20, 19), (20, 20, 20)],
)
def test_no_piece_of_a_large_pass_is_a_small_one(left: int, chunk: int, rows: int) -> None:
    ids = list(range(left + 1))
    assert reading(recurrent=False).size(ids, 0, 0, chunk) == rows
    assert reading(recurrent=False).size(ids, 0, left, chunk) == 1
