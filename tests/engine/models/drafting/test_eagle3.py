"""EAGLE-3 drafters against plain torch, in each layout that they are published in."""

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
from engine.chat import finished, open_chat
from engine.models.drafting.eagle3 import read_eagle3
from engine.models.paged import PagedCache
from engine.settings import CacheSettings, LoadSettings
from engine.vision.describe import describe
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ids
from tests.engine.models.drafting.eagle3_files import (
    LAYOUTS,
    Oracle,
    tensors_of,
    write_drafter_file,
    write_pair,
)
from tests.engine.models.oracle import finish, load
from tests.simt.fake import FakeDevice

BACKENDS: dict[str, Callable[[], Backend]] = {
    "reference": ReferenceBackend, "cpu": lambda: CpuBackend(threads=2),
    "cuda": lambda: CudaBackend([FakeDevice()]),
}  # fmt: skip
TOKENS = ids(40)
GUESSES = 3


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    made: dict[str, tuple[Path, Path]] = {}

    def get(name: str) -> tuple[Path, Path]:
        if name not in made:
            made[name] = write_pair(LAYOUTS[name], tmp_path_factory.mktemp("pair"))
        return made[name]

    return get


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("backend", BACKENDS)  # the last is a fake GPU
@pytest.mark.parametrize(
    ("name", "form"),
    [*((name, "folder") for name in LAYOUTS), ("SafeAILab", "first gguf"), ("speculators", "gguf")],
)
def test_the_drafter(
    backend: str, name: str, form: str, pairs: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """Its states and logits for a text that is read in pieces, and then guess by guess."""
    layout, (main_path, path) = LAYOUTS[name], pairs(name)
    if form != "folder":
        path = write_drafter_file(layout, tmp_path / "drafter.gguf", form == "first gguf")
        assert describe(path).kv_shapes == describe(pairs(name)[1]).kv_shapes
    oracle = Oracle(layout, tensors_of(layout))
    given = oracle.features(TOKENS)
    states, last = given[:-1], len(TOKENS) - 1
    with ExitStack() as closing:
        main = load(main_path, BACKENDS[backend]())
        closing.callback(main.close)
        settings = CacheSettings(context_length=80, dtype="fp32")
        cache = PagedCache(main, settings)
        closing.callback(cache.close)
        drafter = finish(read_eagle3(open_checkpoint(path), main))
        closing.callback(drafter.close)
        runs = []
        for features in (None, drafter.of_main):  # what leaves a pass does not change it
            cache.keep_hidden(features is not None, features)
            with cache.table.open((), key=f"{features is None}") as lease:
                runs.append(cache.run(lease, TOKENS, len(TOKENS)).copy())
        np.testing.assert_array_equal(*runs)
        assert main.kept is not None
        close(main.kept[: len(TOKENS)], given)
        own = PagedCache(drafter, settings)
        closing.callback(own.close)
        tokens = TOKENS[1:]
        with own.table.open(()) as lease:
            expected, after = oracle.run(tokens, states)
            for first, end in ((0, 11), (11, 12), (12, last)):
                drafter.given[: end - first] = main.kept[first:end]
                found = own.run(lease, tokens[first:end], end - first)
                close(found, expected[first:end])
                close(drafter.kept[: end - first], after[first:end])
            for _ in range(GUESSES):
                found = drafter.widened(found[-1])
                there = np.isfinite(found)
                assert sorted(np.flatnonzero(there)) == sorted(oracle.targets())
                close(found[oracle.targets()], expected[-1])
                tokens = [*tokens, int(found.argmax())]
                drafter.given[0] = drafter.kept[end - first - 1]
                states = oracle.torch.cat([states, after[-1:]])
                expected, after = oracle.run(tokens, states)
                first, end = 0, 1
                found = own.run(lease, tokens[-1:])
                close(drafter.kept[:1], after[-1:])


@pytest.mark.parametrize(
    "quantise", ["q8", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("none", "q4"))]
)
def test_what_leaves_a_pass_does_not_change_it(
    quantise: str, pairs: Callable[[str], tuple[Path, Path]]
) -> None:
    """Also where a layer's rows would be packed for the next product at once."""
    main_path, path = pairs("SafeAILab")
    settings = LoadSettings(backend="cpu", threads=2, quantise=quantise, quantise_head="same")
    chat = finished(open_chat(main_path, settings, CacheSettings(context_length=256)))
    try:
        cache, found = chat.generator.cache, {}
        drafter = finish(read_eagle3(open_checkpoint(path), cache.model))
        for features in (None, drafter.of_main):
            cache.keep_hidden(features is not None, features)
            for rows in (1, 3, 8, 16, 17, 30):
                with cache.table.open((), key=f"{features is None}{rows}") as lease:
                    found[features, rows] = cache.run(lease, TOKENS[:rows], rows).copy()
        for rows in (1, 3, 8, 16, 17, 30):
            np.testing.assert_array_equal(found[drafter.of_main, rows], found[None, rows])
    finally:
        chat.close()


def close(found: np.ndarray, expected: object) -> None:
    """Equal but for float32's rounding."""
    wanted = np.asarray(expected)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_its_headers_say(name: str, pairs: Callable[[str], tuple[Path, Path]]) -> None:
    layout, (_, path) = LAYOUTS[name], pairs(name)
    info = describe(path)
    head = layout.key("head_dim") or layout.key("hidden_size") // 4
    assert info.assistant
    assert (info.architecture, info.vocab_size) == ("EAGLE-3", layout.vocabulary)
    assert info.kv_shapes == ((2, head),) * layout.key("num_hidden_layers")
    assert "cannot write by itself" in info.why_no_text
    stored = sum(values.nbytes for name, values in tensors_of(layout).items() if name not in ("d2t", "t2d"))
    assert stored <= info.resident_bytes <= 1.1 * stored + 4 * layout.drafted
