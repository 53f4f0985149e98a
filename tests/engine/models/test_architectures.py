"""Every architecture against transformers in float32: folder, GGUF file, older config.json, any split into
steps, both backends.

The default run takes each architecture's folder on the CPU backend, in steps, and its GGUF file on the
reference; further variants and the rest are slow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import (
    Case,
    Floats,
    cached_logits,
    case_folders,
    ids,
    older_config,
    write_case_gguf,
)
from tests.engine.models.cases.table import BY_NAME, CASES
from tests.engine.models.oracle import load, logits

Folder = Callable[[Case], Path]
every_case = pytest.mark.parametrize("name", BY_NAME)


def usual(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """These cases, of which further variants are slow."""
    names = [pytest.param(case.name, marks=[pytest.mark.slow] if case.variant else []) for case in cases]
    return pytest.mark.parametrize("name", names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The folder of a case, written once."""
    return case_folders(tmp_path_factory)


def assert_near(found: Floats, expected: Floats, share: float) -> None:
    """No difference exceeds this share of the largest logit."""
    assert expected.std() > 0.5  # lively logits, or agreement would say little
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


@pytest.mark.slow
@every_case
def test_folder_agrees_with_transformers(folder: Folder, name: str) -> None:
    case = BY_NAME[name]
    found = logits(load(folder(case)), ids(case.length), context=case.length)
    assert_near(found, cached_logits(name), case.tolerance)


@pytest.mark.slow
@every_case
def test_any_cut_into_steps_gives_the_same(folder: Folder, name: str) -> None:
    """Prefill at once, in chunks and token by token, across windows and scalings."""
    case = BY_NAME[name]
    model, tokens = load(folder(case)), ids(case.length)
    whole = logits(model, tokens, context=case.length)
    cuts = [1, 7, 8, 21, *range(case.length - 12, case.length)]
    assert_near(logits(model, tokens, cuts, context=case.length), whole, 2e-5)


@pytest.mark.slow_after(40)
@usual(case for case in CASES if case.gguf is not None)
def test_gguf_file_agrees_with_the_folder(folder: Folder, name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    file = load(write_case_gguf(case, folder(case), tmp_path / "m.gguf"))
    found = logits(file, ids(case.length), context=case.length)
    assert_near(found, cached_logits(name), case.tolerance)


@pytest.mark.slow
@every_case
def test_older_config_gives_the_same(folder: Folder, name: str, tmp_path: Path) -> None:
    """config.json as transformers 4 wrote it, without the defaults of the class."""
    case = BY_NAME[name]
    config = json.loads((folder(case) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(older_config(case, config)))
    (tmp_path / "model.safetensors").symlink_to(folder(case) / "model.safetensors")
    assert read_config(open_checkpoint(tmp_path)) == read_config(open_checkpoint(folder(case)))


@usual(CASES)
def test_cpu_agrees_with_the_reference(folder: Folder, name: str) -> None:
    """The same numbers on the CPU backend, in steps of many sizes."""
    case = BY_NAME[name]
    tokens = ids(case.length)
    model = load(folder(case), CpuBackend(threads=2))
    found = logits(model, tokens, [1, 7, 8, 21, 22], context=case.length)
    model.close()
    assert_near(found, cached_logits(name), 2 * case.tolerance)
