"""GGUF files of architectures that the `gguf` package does not know yet, against llama.cpp, which does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.engine.models.all_cases import BY_NAME
from tests.engine.models.architectures import Floats, ids, write_case_gguf, write_checkpoint
from tests.engine.models.oracle import load, logits

pytestmark = pytest.mark.slow
CONTEXT = 256


def by_llama_cpp(path: Path, tokens: list[int]) -> Floats:
    """Logits (T, V) with a cache in float32."""
    llama = pytest.importorskip("llama_cpp")
    whole = {"type_k": llama.GGML_TYPE_F32, "type_v": llama.GGML_TYPE_F32}
    model = llama.Llama(str(path), n_ctx=CONTEXT, n_threads=2, logits_all=True, verbose=False, **whole)
    try:
        model.eval(tokens)
        return np.array(model.scores[: len(tokens)], np.float32)
    finally:
        model.close()


@pytest.mark.parametrize(
    "name", ["Hunyuan 3", "Granite with windows", "Granite with windows, experts, other layers"]
)
def test_logits(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    found = logits(load(file), ids(case.length), context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
