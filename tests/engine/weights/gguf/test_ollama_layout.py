"""Texts of models that Ollama's own converter wrote under other names than llama.cpp's."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ids, write_case_gguf, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits
from tests.engine.vision.tiny.mmproj import write_file


def as_ollama_wrote(path: Path, out: Path) -> Path:
    """A file of GPT-OSS as llama.cpp's converter writes it in the form of Ollama's first one."""
    with closing(open_checkpoint(path)) as checkpoint:
        keys = {
            name.replace("gpt-oss.", "gptoss."): value
            for name, value in checkpoint.metadata.items()
            if not name.startswith("general.")
        }
        tensors = {
            name.replace(".attn_output.", ".attn_out.")
            .replace(".attn_sinks.weight", ".attn_sinks")
            .replace(".post_attention_norm.", ".ffn_norm."): tensor.dequantise()
            for name, tensor in checkpoint.tensors.items()
        }
    return write_file(out, "gptoss", {**keys, "tokenizer.ggml.pre": "default"}, tensors)


def test_gpt_oss(tmp_path: Path) -> None:
    case = BY_NAME["GPT-OSS"]
    path = write_case_gguf(case, write_checkpoint(case, tmp_path / "folder"), tmp_path / "plain.gguf")
    own = as_ollama_wrote(path, tmp_path / "sha256-0")
    with closing(open_checkpoint(own)) as checkpoint:
        assert read_config(checkpoint).architecture == "gpt-oss"
        assert checkpoint.metadata["tokenizer.ggml.pre"] == "gpt-4o"
    np.testing.assert_array_equal(logits(load(own), ids(40)), logits(load(path), ids(40)))
