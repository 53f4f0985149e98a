"""A tiny model under ExLlamaV2's names, loaded once for each module."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.compat.exllamav2 import ExLlamaV2, ExLlamaV2Config, ExLlamaV2Tokenizer
from tests.tiny import write_gguf


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("exllamav2") / "tiny.gguf")


@pytest.fixture(scope="module")
def model(tiny_file):
    model = ExLlamaV2(ExLlamaV2Config(str(tiny_file)))
    model.load()
    yield model
    model.unload()


@pytest.fixture(scope="module")
def tokenizer(model):
    return ExLlamaV2Tokenizer(model.config)
