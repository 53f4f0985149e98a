"""Encoders against transformers in float32: folders, as makers and as transformers publish them, GGUF files,
both backends; and what headers are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.paged import PagedCache
from engine.settings import CacheSettings
from engine.vision.describe import describe
from tests.engine.models.architectures import Floats, ids
from tests.engine.models.cases.encoders import (
    BY_NAME,
    LENGTH,
    expected_states,
    jina_config,
    jina_states,
    jina_tensors,
    write_encoder,
    write_encoder_gguf,
)
from tests.engine.models.families.nomic_mixture_files import (
    nomic_states,
    nomic_tensors,
    without_biases,
    write_nomic,
    write_nomic_gguf,
)
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load
from tests.tiny import write_tokenizer

SHORT = 6
"""Tokens of a text that is a small batch."""
LIKE_THE_FOLDER = [name for name, case in BY_NAME.items() if case.gguf is not None]
DECODERS = [name for name in BY_NAME if "without a head" in name]


def states(path: Path, tokens: list[int], backend: Backend) -> Floats:
    """The last hidden states of a text."""
    model = load(path, backend)
    cache = PagedCache(model, CacheSettings(context_length=LENGTH + 8, dtype="fp32"))
    try:
        with cache.table.open(()) as lease:
            parts = [
                cache.hidden_states(lease, tokens[at : at + cache.rows]).copy()
                for at in range(0, len(tokens), cache.rows)
            ]
        with cache.table.open(()) as lease, pytest.raises(UnsupportedModel, match="no scores"):
            cache.run(lease, tokens)
    finally:
        cache.close()
        model.close()
    return np.concatenate(parts)


def assert_near(found: Floats, expected: Floats, share: float = 5e-5) -> None:
    assert expected.std() > 0.3
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


@pytest.mark.slow_after(6)
@pytest.mark.parametrize("name", BY_NAME)
def test_folders(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    folder = write_encoder(case, tmp_path / "m")
    expected = expected_states(case)
    assert_near(states(folder, ids(LENGTH), CpuBackend(threads=2)), expected)
    assert_near(states(folder, ids(SHORT), CpuBackend(threads=2)), expected_states(case, SHORT))
    info = describe(folder)
    assert info.embedding
    assert info.cpu_only == ("" if name in DECODERS else "bidirectional attention")
    assert "is an embedding model" in info.why_no_text


@pytest.mark.parametrize("name", LIKE_THE_FOLDER)
def test_gguf_files(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    file = write_encoder_gguf(case, write_encoder(case, tmp_path / "m"), tmp_path / "m.gguf")
    assert_near(states(file, ids(LENGTH), ReferenceBackend()), expected_states(case))
    assert describe(file).embedding


def write_jina(folder: Path, later: bool, **changes: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(jina_config(later) | changes))
    save_file(jina_tensors(later), folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


@pytest.mark.parametrize("later", [False, True])
def test_jina_bert(later: bool, tmp_path: Path) -> None:
    folder, tokens = write_jina(tmp_path / "m", later), ids(LENGTH)
    expected = jina_states(jina_tensors(later), tokens, later)
    assert_near(states(folder, tokens, CpuBackend(threads=2)), expected)
    assert_near(states(folder, tokens, ReferenceBackend()), expected)


@pytest.mark.parametrize("apart", [False, True])
def test_jina_bert_as_gguf(apart: bool, tmp_path: Path) -> None:
    """The gate is together with what it multiplies, or apart as in the first files."""
    tensors, tokens = jina_tensors(False), ids(LENGTH)

    def change(config: Any, tensors: Any) -> Any:
        if not apart:
            return tensors
        named = {}
        for name, values in tensors.items():
            gate, up = (name.replace("gated_layers", "gated_layers_" + end) for end in "wv")
            named |= {gate: values[:96], up: values[96:]} if gate != name else {name: values}
        return named

    form = GgufForm("jina-bert-v2", keys=lambda config: {"attention.causal": False}, change=change)
    file = write_gguf(tmp_path / "m.gguf", form, jina_config(False), tensors)
    found = states(file, tokens, ReferenceBackend())
    assert_near(found, jina_states(tensors, tokens, False))


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(ReferenceBackend, id="reference"),
        pytest.param(lambda: CpuBackend(threads=2), id="cpu", marks=pytest.mark.slow),
    ],
)
def test_nomic_mixture(backend: Callable[[], Backend], tmp_path: Path) -> None:
    folder, file = write_nomic(tmp_path / "m"), write_nomic_gguf(tmp_path / "m.gguf")
    for path, tensors in ((folder, nomic_tensors()), (file, without_biases(nomic_tensors()))):
        assert_near(states(path, ids(LENGTH), backend()), nomic_states(tensors, ids(LENGTH)))
        assert_near(states(path, ids(SHORT), backend()), nomic_states(tensors, ids(SHORT)))


def test_adapters_inside_are_told(tmp_path: Path) -> None:
    """Jina v3's own are for tasks, and a text is embedded without them."""
    folder = write_encoder(BY_NAME["Jina v3, by its makers"], tmp_path / "m")
    assert ["separation, text-matching" in remark for remark in describe(folder).remarks] == [True]
    assert describe(write_encoder(BY_NAME["XLM-RoBERTa"], tmp_path / "x")).remarks == ()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"position_embedding_type": "relative_key"}, UnsupportedModel, "positions of the kind"),
        ({"is_decoder": True}, UnsupportedModel, "used as a decoder"),
        ({"hidden_act": "mish"}, UnsupportedModel, "activation"),
        ({"architectures": ["JinaBertModel"]}, UnsupportedModel, "feed-forward part"),
        (
            {"architectures": ["JinaEmbeddingsV3Model"], "position_embedding_type": "absolute"},
            UnsupportedModel,
            "positions of the kind",
        ),
        ({"architectures": ["RobertaModel"], "pad_token_id": 400}, BadCheckpoint, "whole number"),
        ({"architectures": ["NomicBertModel"], "moe_every_n_layers": 2}, BadCheckpoint, "num_experts"),
        ({"architectures": ["NomicBertModel"], "num_shared_experts": 1}, UnsupportedModel, "num_shared"),
        ({"architectures": ["NomicBertModel"], "prenorm": True}, UnsupportedModel, "prenorm"),
        ({"architectures": ["NomicBertModel"], "rotary_emb_fraction": 0.0}, UnsupportedModel, "rotary"),
        ({"architectures": ["NomicBertModel"], "activation_function": "relu"}, UnsupportedModel, "swiglu"),
        ({"architectures": ["NewModel"], "logn_attention_scale": True}, UnsupportedModel, "logn_attention"),
        (
            {"architectures": ["NewModel"], "rope_scaling": {"type": "ntk", "factor": 8, "mixed_b": 1}},
            UnsupportedModel,
            "'ntk'",
        ),
        (
            {"architectures": ["MPNetModel"], "relative_attention_num_buckets": 8},
            BadCheckpoint,
            "num_buckets",
        ),
        ({"architectures": ["MPNetModel"]}, BadCheckpoint, "relative_attention_bias"),
        ({"type_vocab_size": 3}, BadCheckpoint, "token_type"),
        ({"max_position_embeddings": 100}, BadCheckpoint, "position_embeddings"),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], words: str, tmp_path: Path) -> None:
    folder = write_encoder(BY_NAME["BERT"], tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(error, match=words):
        describe(folder)
