"""DFlash drafters against plain torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.models.drafting.dflash import BLOCK, CONTEXT, read_dflash
from engine.models.paged import PagedCache
from engine.settings import CacheSettings
from engine.vision.describe import describe
from engine.weights import open_checkpoint
from tests.engine.models.drafting.dflash_files import (
    LAYOUTS,
    MASK,
    Oracle,
    tensors_of,
    write_drafter_file,
    write_pair,
)
from tests.engine.models.drafting.test_eagle3 import BACKENDS, TOKENS, close
from tests.engine.models.oracle import finish, load

MASKS = 5


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    made: dict[str, tuple[Path, Path]] = {}

    def get(name: str) -> tuple[Path, Path]:
        if name not in made:
            made[name] = write_pair(LAYOUTS[name], tmp_path_factory.mktemp("pair"))
        return made[name]

    return get


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("backend", BACKENDS)  # the last is a fake GPU
@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((name, "folder") for name in LAYOUTS),
        *((name, "gguf") for name in ("Qwen 3", "with causal windows", "with scales")),
        ("Qwen 3", "gguf with tables"),
    ],
)
def test_the_drafter(
    backend: str, name: str, form: str, pairs: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """Its logits of a block, whose context is read in pieces, the last one with the block."""
    layout, (main_path, path) = LAYOUTS[name], pairs(name)
    if form != "folder":
        path = write_drafter_file(layout, tmp_path / "drafter.gguf", form != "gguf")
        assert describe(path).kv_shapes == describe(pairs(name)[1]).kv_shapes
    oracle, last = Oracle(layout, tensors_of(layout)), len(TOKENS) - 1
    features = oracle.features(TOKENS)
    with ExitStack() as closing:
        main = load(main_path, BACKENDS[backend]())
        closing.callback(main.close)
        settings = CacheSettings(context_length=80, dtype="fp32")
        cache = PagedCache(main, settings)
        closing.callback(cache.close)
        drafter = finish(read_dflash(open_checkpoint(path), main))
        closing.callback(drafter.close)
        cache.keep_hidden(True, drafter.of_main)
        with cache.table.open(()) as lease:
            cache.run(lease, TOKENS)
        assert main.kept is not None
        close(main.kept[: len(TOKENS)], features)
        own = PagedCache(drafter, settings)
        closing.callback(own.close)
        with own.table.open(()) as lease:
            for first, end in ((0, 11), (11, 12), (12, 20)):
                drafter.given[: end - first, :-2] = main.kept[first:end]
                drafter.given[: end - first, -2:] = CONTEXT
                own.run(lease, TOKENS[first + 1 : end + 1])
            for start, end in ((20, 30), (30, last)):
                rows = end - start
                drafter.given[:rows, :-2], drafter.given[:rows, -2:] = main.kept[start:end], CONTEXT
                drafter.given[rows:, :-2], drafter.given[rows:, -2:] = 0, BLOCK
                tokens = [*TOKENS[start + 1 : end + 1], TOKENS[end], *[MASK] * MASKS]
                found = own.run(lease, tokens, MASKS + 1)[1:]
                close(found, oracle.logits(features[:end], TOKENS[end], MASKS))
                lease.truncate(end)


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_its_headers_say(name: str, pairs: Callable[[str], tuple[Path, Path]]) -> None:
    layout, (_, path) = LAYOUTS[name], pairs(name)
    info = describe(path)
    assert info.assistant
    assert info.architecture == "DFlash"
    assert info.kv_shapes == ((2, 24),) * 2
    assert "cannot write by itself" in info.why_no_text
    stored = sum(values.nbytes for values in tensors_of(layout).values())
    assert stored <= info.resident_bytes <= 1.1 * stored
