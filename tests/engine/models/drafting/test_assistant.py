"""Gemma 4's assistants against `transformers`, in folders and GGUF files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cuda.backend import CudaBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.models.drafting.assistant import read_assistant
from engine.models.paged import PagedCache
from engine.settings import CacheSettings
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ids
from tests.engine.models.drafting.assistant_files import (
    LENGTHS,
    PAIRS,
    expected,
    write_assistant_file,
    write_pair,
)
from tests.engine.models.oracle import finish, load
from tests.simt.fake import FakeDevice

BACKENDS: dict[str, Callable[[], Backend]] = {
    "reference": ReferenceBackend, "cpu": lambda: CpuBackend(threads=2),
    "cuda": lambda: CudaBackend([FakeDevice()]),
}  # fmt: skip


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    made: dict[str, tuple[Path, Path]] = {}

    def get(name: str) -> tuple[Path, Path]:
        if name not in made:
            made[name] = write_pair(PAIRS[name], tmp_path_factory.mktemp("pair"))
        return made[name]

    return get


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("backend", "name", "form"),  # the last backend is a fake GPU
    [
        (backend, name, form)
        for backend in BACKENDS
        for form in ("folder", "gguf")
        for name, pair in PAIRS.items()
        if form == "folder" or pair.outer.get("tie_word_embeddings", True)  # as llama.cpp's are
    ],
)
def test_guesses(
    backend: str, name: str, form: str, pairs: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    main_path, path = pairs(name)
    if form == "gguf":
        path = write_assistant_file(path, tmp_path / "assistant.gguf")
    with ExitStack() as closing:
        main = load(main_path, BACKENDS[backend]())
        closing.callback(main.close)
        cache = PagedCache(main, CacheSettings(context_length=256, dtype="fp32"))
        closing.callback(cache.close)
        cache.keep_hidden(True)
        assistant = finish(read_assistant(open_checkpoint(path), main))
        assistant.attach(cache.store, cache.context_length)
        closing.callback(assistant.close)
        for length in LENGTHS:
            tokens = ids(length)
            with cache.table.open((), key=f"{length}") as lease:
                cache.run(lease, tokens[:-1])
                assert main.kept is not None
                state, pages = main.kept[length - 2], cache.pages_up_to(lease, length - 1)
                for token, logits, after in expected(name)[length]:
                    found, state = assistant.guess(token, state, length - 1, pages)
                    there = np.isfinite(logits)
                    if form == "folder":
                        assert (np.isfinite(found) == there).all()
                    largest = np.abs(logits[there]).max()
                    assert np.abs(found[there] - logits[there]).max() <= 1e-4 * largest
                    assert np.abs(state - after).max() <= 1e-4 * np.abs(after).max()
