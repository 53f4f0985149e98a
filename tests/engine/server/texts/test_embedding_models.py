"""Embedding models behind the server: pooling and dense layers as their files declare them; no replies."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from engine.errors import BadCheckpoint, ModelNotFound, UnsupportedModel
from engine.models.dense import Dense, dense_layers
from engine.tensors import Floats
from engine.weights import open_checkpoint
from tests.engine.models.cases.encoders import BY_NAME, encoder, write_encoder
from tests.engine.server.served import Served, ask
from tests.wordpiece import library_tokenizer, write_wordpiece

pytestmark = pytest.mark.loopback
TEXTS = ["The dog sleeps by the fire.", "Hello there! " * 20, "漢"]
OUTER, INNER = 40, 24
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
    {"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"},
    {"idx": 4, "name": "4", "path": "4_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def write_dense(folder: Path) -> list[dict[str, Floats]]:
    """Two dense layers, 64 -> OUTER -> INNER; the second with a bias and tanh, in a file of PyTorch."""
    (folder / "modules.json").write_text(json.dumps(MODULES))
    random, layers = np.random.default_rng(2), []
    for name, rows, columns, kind in (
        ("2_Dense", OUTER, 64, "linear.Identity"), ("3_Dense", INNER, OUTER, "activation.Tanh"),
    ):  # fmt: skip
        (folder / name).mkdir()
        tensors = {"linear.weight": (random.standard_normal((rows, columns)) / 8).astype("f4")}
        if kind.endswith("Tanh"):
            tensors["linear.bias"] = random.standard_normal(rows).astype("f4")
            pickled = {key: torch.from_numpy(value) for key, value in tensors.items()}
            torch.save(pickled, folder / name / "pytorch_model.bin")
        else:
            save_file(tensors, folder / name / "model.safetensors")
        settings = {"in_features": columns, "out_features": rows, "bias": len(tensors) > 1}
        settings["activation_function"] = "torch.nn.modules." + kind
        (folder / name / "config.json").write_text(json.dumps(settings))
        layers.append(tensors)
    return layers


def write_pooling(folder: Path, mode: str) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({mode: True}))


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, list[dict[str, Floats]]]]:
    folder = write_encoder(BY_NAME["EmbeddingGemma"], tmp_path_factory.mktemp("gemma") / "tiny")
    write_pooling(folder, "pooling_mode_mean_tokens")
    layers = write_dense(folder)
    served = Served(folder, context=320)
    served.record_headless()
    yield served, layers
    served.close()


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = write_encoder(BY_NAME["BERT"], tmp_path_factory.mktemp("bert") / "tiny")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).unlink()
    write_wordpiece(folder, library_tokenizer(lowercase=True))
    write_pooling(folder, "pooling_mode_cls_token")
    served = Served(folder, context=320)
    served.record_headless()
    yield served
    served.close()


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def embedded(served: Served, **fields: Any) -> list[Any]:
    answer = ask(served, "/v1/embeddings", {"input": TEXTS, **fields})
    assert answer.status == 200, answer.body
    return [item["embedding"] for item in answer.json["data"]]


def test_mean_and_dense_layers(gemma: tuple[Served, list[dict[str, Floats]]]) -> None:
    served, (first, second) = gemma
    model = encoder(BY_NAME["EmbeddingGemma"])
    for text, found in zip(TEXTS, embedded(served), strict=True):
        ids = served.on_model_thread(lambda chat, text=text: chat.tokenizer.encode(text))
        with torch.inference_mode():
            states = model(torch.tensor([ids])).last_hidden_state[0].numpy().astype(np.float64)
        inner = first["linear.weight"] @ states.mean(axis=0)
        expected = np.tanh(second["linear.weight"] @ inner + second["linear.bias"])
        np.testing.assert_allclose(found, unit(expected), atol=2e-3)


def test_fewer_dimensions(gemma: tuple[Served, list[dict[str, Floats]]]) -> None:
    """The first numbers of a vector, made to have length 1 again (matryoshka)."""
    served, _ = gemma
    whole, cut = embedded(served), embedded(served, dimensions=10)
    np.testing.assert_allclose(cut[0], unit(np.array(whole[0][:10])), atol=1e-6)
    answer = ask(served, "/v1/embeddings", {"input": "x", "dimensions": INNER + 1})
    assert answer.status == 400
    assert f"have {INNER} numbers" in answer.error["message"]


@pytest.mark.slow
def test_the_first_token_of_bert(bert: Served) -> None:
    model, tokenizer = encoder(BY_NAME["BERT"]), library_tokenizer(lowercase=True)
    texts = embedded(bert, encoding_format="base64")
    for text, found in zip(TEXTS, texts, strict=True):
        with torch.inference_mode():
            states = model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0].numpy()
        vector = np.frombuffer(base64.b64decode(found), "<f4")
        np.testing.assert_allclose(vector, unit(states[0]), atol=2e-3)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
        ("/v1/completions", {"prompt": "Hello"}),
        ("/v1/completions", {"prompt": "Hello", "echo": True, "logprobs": 1, "max_tokens": 0}),
    ],
)
def test_it_writes_nothing(bert: Served, path: str, body: dict[str, Any]) -> None:
    answer = ask(bert, path, body)
    assert answer.status == 400
    assert "is an embedding model" in answer.error["message"]
    assert bert.idle()


def test_a_text_beyond_the_context(bert: Served) -> None:
    answer = ask(bert, "/v1/embeddings", {"input": "dog " * 400})
    assert answer.status == 400
    assert answer.error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"path": "../2_Dense"}, BadCheckpoint, "beside it"),
        ({"path": 3}, BadCheckpoint, "beside it"),
        ({"activation_function": "torch.nn.GELU"}, UnsupportedModel, "GELU"),
        ({"weights": None}, ModelNotFound, "download the weights"),
        ({"weights": {"other": np.zeros((4, 64), np.float32)}}, BadCheckpoint, "lacks"),
        ({"weights": {"linear.weight": np.zeros((4, 63), np.float32)}}, BadCheckpoint, "64 columns"),
        ({"weights": {"linear.weight": np.zeros(64, np.float32)}}, BadCheckpoint, "a matrix"),
    ],
)
def test_damaged_dense_layers(
    change: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    folder = write_encoder(BY_NAME["BERT"], tmp_path / "m")
    write_dense(folder)
    file = folder / "2_Dense" / "model.safetensors"
    if "weights" in change:
        file.unlink()
        if change["weights"]:
            save_file(change["weights"], file)
    elif "path" in change:
        (folder / "modules.json").write_text(json.dumps([{**MODULES[2], **change}]))
    else:
        settings = json.loads((folder / "2_Dense" / "config.json").read_text())
        (folder / "2_Dense" / "config.json").write_text(json.dumps(settings | change))
    with pytest.raises(error, match=words):
        dense_layers(open_checkpoint(folder), 64)


def test_dense_layers_of_gguf_files(tmp_path: Path) -> None:
    from tests.engine.models.cases.encoders import write_encoder_gguf

    case = BY_NAME["EmbeddingGemma"]
    random = np.random.default_rng(4)
    more = {
        "dense_2.weight": random.standard_normal((OUTER, 64)).astype("f4"),
        "dense_3.weight": random.standard_normal((INNER, OUTER)).astype("f4"),
    }
    file = write_encoder_gguf(case, write_encoder(case, tmp_path / "m"), tmp_path / "m.gguf", more)
    found = dense_layers(open_checkpoint(file), 64)
    assert [type(layer) for layer in found] == [Dense, Dense]
    x = random.standard_normal(64)
    expected = more["dense_3.weight"] @ (more["dense_2.weight"] @ x)
    np.testing.assert_allclose(found[1](found[0](x)), expected, rtol=1e-6)


def test_a_pooling_that_is_not_known_is_refused_and_never_replaced(tmp_path: Path) -> None:
    folder = write_encoder(BY_NAME["BERT"], tmp_path / "tiny")
    write_pooling(folder, "pooling_mode_max_tokens")
    served = Served(folder, context=320)
    try:
        served.record_headless()
        answer = ask(served, "/v1/embeddings", {"input": TEXTS})
        assert answer.status == 400
        assert "ask for the pooling “max_tokens”, which is not supported" in answer.body.decode()
        assert embedded(served, pooling="mean")
    finally:
        served.close()
