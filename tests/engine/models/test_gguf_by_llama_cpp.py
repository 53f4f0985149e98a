"""GGUF files against llama.cpp, where the `gguf` package or transformers does not know the architecture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

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
    "name",
    [
        "Hunyuan 3",
        "Granite with windows",
        "Granite with windows, experts, other layers",
        "Cohere 2 mixture of experts",
    ],
)
def test_logits(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    found = logits(load(file), ids(case.length), context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_deepseek_1_with_weights_as_they_are(tmp_path: Path) -> None:
    """llama.cpp never divides the chosen weights by their sum; the first layer is dense."""
    case = BY_NAME["DeepSeek 1"]
    folder = write_checkpoint(case, tmp_path / "m")
    path, at = folder / "config.json", "model.layers.0.mlp."
    config = json.loads(path.read_text("utf-8")) | {"norm_topk_prob": False, "first_k_dense_replace": 1}
    path.write_text(json.dumps(config), "utf-8")
    tensors = load_file(folder / "model.safetensors")
    dense = {name: tensors[name] for name in tensors if name.startswith(at + "experts.3.")}
    kept = {name: values for name, values in tensors.items() if not name.startswith(at)}
    kept |= {name.replace("experts.3.", ""): values for name, values in dense.items()}
    save_file(kept, folder / "model.safetensors")
    file = write_case_gguf(case, folder, tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    for found in (logits(load(made), ids(case.length), context=CONTEXT) for made in (file, folder)):
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
