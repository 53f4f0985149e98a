"""The names of models that were not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from desktop.items.models.local_models import model_name

DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("manifest", "name"),
    [
        ("registry.ollama.ai/library/llama3.2/3b", "llama3.2:3b"),
        ("hf.co/someone/Model-GGUF/Q4_K_M", "hf.co/someone/Model-GGUF:Q4_K_M"),
        ("registry.ollama.ai/library/bad\nname/latest", "bad name:latest"),
    ],
)
def test_a_blob_of_ollamas_has_the_name_that_it_was_pulled_by(
    tmp_path: Path, manifest: str, name: str
) -> None:
    path = tmp_path / "manifests" / manifest
    path.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}"}
    path.write_text(json.dumps({"layers": [layer]}))
    assert model_name(tmp_path / "blobs" / f"sha256-{DIGEST}") == name


@pytest.mark.parametrize("name", [f"sha256-{DIGEST}", "plain", "model.gguf"])
def test_other_files_have_their_own_names(tmp_path: Path, name: str) -> None:
    assert model_name(tmp_path / "blobs" / name) == name.removesuffix(".gguf")
