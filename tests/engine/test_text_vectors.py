"""Vectors of queries and documents, with the prompts that embedding models ask for."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.chat import LocalChat, finished, open_chat, text_vector
from engine.chat.embedding import unit
from engine.drain import drain
from engine.errors import BadSetting
from engine.models.embedding_prompts import embedding_prompts
from engine.settings import CacheSettings, LoadSettings
from engine.weights import open_checkpoint
from tests.engine.models.cases.encoders import BY_NAME, encoder, write_encoder, write_encoder_gguf

PROMPTS = "config_sentence_transformers.json"


def opened(path: Path) -> LocalChat:
    return finished(open_chat(path, LoadSettings(backend="cpu"), CacheSettings(context_length=256)))


def expected(chat: LocalChat, text: str) -> Any:
    """What transformers make of the whole text: the mean of its states, of length 1."""
    ids = chat.tokenizer.encode(text)[:256]
    with torch.inference_mode():
        states = encoder(BY_NAME["EmbeddingGemma"])(torch.tensor([ids])).last_hidden_state[0]
    mean = states.numpy().astype(np.float64).mean(axis=0)
    return mean / np.linalg.norm(mean)


def test_the_prompt_of_its_role_comes_before_a_text(tmp_path: Path) -> None:
    folder = write_encoder(BY_NAME["EmbeddingGemma"], tmp_path / "tiny")
    (folder / PROMPTS).write_text(json.dumps({"prompts": {"query": "ask: ", "document": "tell: "}}))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    chat = opened(folder)
    try:
        for text in ("The dog sleeps by the fire.", "Hello there! " * 200):  # the second is cut
            query = drain(text_vector(chat, text, "query"))
            document = drain(text_vector(chat, text, "document"))
            np.testing.assert_allclose(query, expected(chat, "ask: " + text), atol=2e-3)
            np.testing.assert_allclose(document, expected(chat, "tell: " + text), atol=2e-3)
        chat.prompts = ("", "")
        assert not drain(text_vector(chat, "", "query")).any()
    finally:
        chat.close()


def test_a_vector_of_zeros_has_no_length() -> None:
    np.testing.assert_array_equal(unit(np.zeros(3)), np.zeros(3))
    np.testing.assert_array_equal(unit(np.array([3.0, -4.0])), [0.6, -0.8])


def test_a_pooling_that_is_not_supported(tmp_path: Path) -> None:
    folder = write_encoder(BY_NAME["BERT"], tmp_path / "tiny")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    chat = opened(folder)
    try:
        with pytest.raises(BadSetting, match="“max_tokens”, which is not supported"):
            drain(text_vector(chat, "Hello", "query"))
    finally:
        chat.close()


@pytest.mark.parametrize(
    ("prompts", "found"),
    [
        ({"query": "q: ", "passage": "p: "}, ("q: ", "p: ")),
        ({"search_document": "d: "}, ("", "d: ")),
        ({"query": 3, "Retrieval-query": "r: "}, ("r: ", "")),
        ({"STS": "same: "}, ("search_query: ", "search_document: ")),
        ([], ("search_query: ", "search_document: ")),
    ],
)
def test_the_prompts_in_the_files_come_first(tmp_path: Path, prompts: Any, found: tuple[str, str]) -> None:
    folder = write_encoder(BY_NAME["BERT"], tmp_path / "tiny")
    (folder / PROMPTS).write_text(json.dumps({"prompts": prompts}))
    with closing(open_checkpoint(folder)) as checkpoint:
        assert embedding_prompts(checkpoint, "nomic-bert", "tiny") == found


def test_the_prompts_of_a_gguf_file_are_its_architectures(tmp_path: Path) -> None:
    case = BY_NAME["EmbeddingGemma"]
    path = write_encoder_gguf(case, write_encoder(case, tmp_path / "folder"), tmp_path / "tiny.gguf")
    chat = opened(path)
    try:
        assert chat.prompts == ("task: search result | query: ", "title: none | text: ")
    finally:
        chat.close()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("multilingual-e5-small", ("query: ", "passage: ")),
        ("bge-small-en-v1.5", ("Represent this sentence for searching relevant passages: ", "")),
        ("bge-m3", ("", "")),
        ("snowflake-arctic-embed-l-v2.0", ("query: ", "")),
        ("all-MiniLM-L6-v2", ("", "")),
    ],
)
def test_the_prompts_of_models_without_any_in_their_files(
    tmp_path: Path, name: str, found: tuple[str, str]
) -> None:
    with closing(open_checkpoint(write_encoder(BY_NAME["BERT"], tmp_path / "tiny"))) as checkpoint:
        assert embedding_prompts(checkpoint, "bert", name) == found
