"""Encoders in GGUF files against llama.cpp, which approximates GELU and rounds some products to 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from tests.engine.models.architectures import Floats, ids
from tests.engine.models.cases.encoders import (
    BY_NAME,
    TYPED,
    jina_config,
    jina_tensors,
    write_encoder,
    write_encoder_gguf,
)
from tests.engine.models.families.nomic_mixture_files import write_nomic_gguf
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.test_encoders import states
from tests.tiny import TINY
from tests.tiny import write_gguf as write_tiny

pytestmark = pytest.mark.slow
LENGTH = 40
NAMES = [name for name, case in BY_NAME.items() if case.gguf is not None]


def of_case(name: str) -> Callable[[Path], Path]:
    return lambda folder: write_encoder_gguf(
        BY_NAME[name], write_encoder(BY_NAME[name], folder / "m"), folder / "m.gguf"
    )


def of_jina(folder: Path) -> Path:
    form = GgufForm("jina-bert-v2", keys=lambda config: TYPED)
    return write_gguf(folder / "m.gguf", form, jina_config(False), jina_tensors(False))


def of_nomic(folder: Path) -> Path:
    return write_nomic_gguf(folder / "m.gguf")


def of_llama(folder: Path) -> Path:
    """A decoder whose file says that its attention is not causal."""
    return write_tiny(folder / "m.gguf", TINY, "F32", llama__attention__causal=False)


def by_llama_cpp(path: Path, tokens: list[int]) -> Floats:
    """The last hidden states (T, E)."""
    llama = pytest.importorskip("llama_cpp")
    model = llama.Llama(
        str(path), embedding=True, n_ctx=64, n_threads=2, verbose=False,
        pooling_type=llama.LLAMA_POOLING_TYPE_NONE,
    )  # fmt: skip
    try:
        model.tokenize = lambda *_, **__: tokens
        return np.array(model.embed("x"), np.float32)
    finally:
        model.close()


@pytest.mark.parametrize(
    "written",
    [
        *(pytest.param(of_case(name), id=name) for name in NAMES),
        pytest.param(of_jina, id="Jina"),
        pytest.param(of_nomic, id="Nomic"),
        pytest.param(of_llama, id="Llama, not causal"),
    ],
)
def test_hidden_states(written: Callable[[Path], Path], tmp_path: Path) -> None:
    file, tokens = written(tmp_path), ids(LENGTH)
    expected = by_llama_cpp(file, tokens)
    found = states(file, tokens, CpuBackend(threads=2))
    assert found.shape == expected.shape
    products = (found * expected).sum(1)
    cosines = products / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.999
