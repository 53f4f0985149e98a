"""Passes with layers that look at pictures: random rows of pictures, on each backend as on the reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.core import FIRST_PICTURE_ID
from engine.errors import NotEnoughMemory
from engine.kv_cache.lease import Lease
from engine.models import Model
from engine.models.paged import PagedCache, SequencePart
from engine.settings import CacheSettings
from engine.vision import PictureRows, Span, VisionSpec
from tests.engine.backends.test_cross_attention import BACKENDS
from tests.engine.models.oracle import load
from tests.engine.vision.tiny.mllama_tiles import mllama
from tests.engine.vision.tiny.ollama_files import FORMS, written

ROWS = (17, 300, 5, 64, 256, 33)
"""Of each picture."""
TEXT = [4, 9, 100, 7, 33, 5, 61]


class Pictures:
    """Random rows of pictures, which count how often they are asked for."""

    def __init__(self, token: int) -> None:
        self.spec = VisionSpec("mllama", "<|image|>", "<|image|>", looked_at=token)
        self.asked: list[int] = []

    def span(self, id: int) -> tuple[int, Span]:
        return id, Span(1, 1)

    def rows(self, first: int) -> PictureRows:
        number = first - FIRST_PICTURE_ID
        self.asked.append(number)
        random = np.random.default_rng(number)
        return PictureRows(random.standard_normal((ROWS[number], 32)).astype(np.float32))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return mllama(tmp_path_factory.mktemp("mllama"))


@pytest.fixture(scope="module")
def exact(made: Any) -> Iterator[Model]:
    found = load(made.folder)
    yield found
    found.close()


def opened(model: Model, token: int) -> PagedCache:
    cache = PagedCache(model, CacheSettings(context_length=512, dtype="fp32", memory=64))
    cache.pictures = Pictures(token)
    return cache


def read(cache: PagedCache, *pictures: int) -> tuple[Lease, Any]:
    """A sequence with these pictures, a text between each two, and the logits of its last token."""
    lease, logits = cache.open([1, 2, 3, 4]), None
    parts = [TEXT]
    for number in pictures:
        parts += [[FIRST_PICTURE_ID + number], TEXT]
    for ids in parts:
        program, step = cache.pass_of([SequencePart(lease, ids, 1)])
        logits = program.run(step).copy()
        lease.extend(ids)
    return lease, logits


def close(found: Any, expected: Any) -> bool:
    return bool(np.abs(found - expected).max() < 2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "reference"])
def test_texts_with_pictures_and_without_run_together(made: Any, exact: Model, backend: str) -> None:
    """More of them than the cache has room for at first."""
    model = load(made.folder, BACKENDS[backend]())
    cache, oracle = opened(model, made.token), opened(exact, made.token)
    texts: list[tuple[int, ...]] = [(0, 1), (), (1,), (2, 3), (4,)]
    pairs = [(read(cache, *each), read(oracle, *each)) for each in texts]
    for (_lease, found), (_other, expected) in pairs:
        assert close(found, expected)
    step = [SequencePart(lease, [50 + number], 1) for number, ((lease, _), _other) in enumerate(pairs)]
    program, whole = cache.pass_of(step)
    together = program.run(whole).copy()
    for number, (_ours, (lease, _logits)) in enumerate(pairs):
        program, alone = oracle.pass_of([SequencePart(lease, [50 + number], 1)])
        assert close(together[number], program.run(alone)[0]), texts[number]
    cache.close()
    oracle.close()
    model.close()


def test_files_of_ollama_look_at_pictures_as_folders_do(made: Any, exact: Model, tmp_path: Path) -> None:
    model = load(written(FORMS["mllama"], made.folder, tmp_path / "m.gguf"))
    cache, oracle = opened(model, made.token), opened(exact, made.token)
    (_lease, found), (_other, expected) = read(cache, 0, 1), read(oracle, 0, 1)
    assert close(found, expected)
    cache.close()
    oracle.close()
    model.close()


def test_pictures_are_written_again_only_where_they_were_dropped(made: Any, exact: Model) -> None:
    cache = opened(exact, made.token)
    pictures = cache.pictures
    assert isinstance(pictures, Pictures)
    lease, _logits = read(cache, 1)
    for _unused in range(3):
        program, step = cache.pass_of([SequencePart(lease, [8], 1)])
        program.run(step)
        lease.extend([8])
    assert pictures.asked == [1]
    for number in (0, 2, 3, 4, 5):
        read(cache, number)
    pictures.asked.clear()
    program, step = cache.pass_of([SequencePart(lease, [8], 1)])
    program.run(step)
    assert pictures.asked == [1]
    cache.close()


def test_pictures_that_do_not_fit_into_memory(
    made: Any, exact: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = opened(exact, made.token)
    backend: Backend = exact.backend
    monkeypatch.setattr(backend, "free_memory", lambda: 2 * exact.cross_page_bytes())
    with pytest.raises(NotEnoughMemory, match="pictures of this chat need"):
        read(cache, 1)
    monkeypatch.undo()
    assert np.isfinite(read(cache, 1)[1]).all()
    cache.close()


def test_a_text_that_is_taken_back_sees_what_it_saw(made: Any, exact: Model) -> None:
    cache = opened(exact, made.token)
    lease, _logits = read(cache, 0, 1)
    assert cache.looks(lease)
    lease.truncate(len(TEXT) + 2)
    program, step = cache.pass_of([SequencePart(lease, [9], 1)])
    found = program.run(step).copy()
    other, _logits = read(cache, 0)
    other.truncate(len(TEXT) + 2)
    program, step = cache.pass_of([SequencePart(other, [9], 1)])
    assert np.array_equal(program.run(step), found)
    lease.truncate(3)
    assert not cache.looks(lease)
    cache.close()
