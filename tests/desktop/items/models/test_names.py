"""The names of models that were not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from desktop.items.models.local_models import count_text, entry, model_name, starter_size, starter_words
from engine.words import set_language
from tests.desktop.fakes import ECHO_INFO

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


def test_a_title_takes_the_place_of_a_models_own_name() -> None:
    assert entry(ECHO_INFO).name == ECHO_INFO.name
    assert entry(ECHO_INFO, title="Owl\n3B").name == "Owl 3B"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [(0, ""), (-1, ""), (135_000_000, "135 M"), (999_499_999, "999 M"), (999_500_000, "1 B"),
     (1_000_000_000, "1 B"), (8_030_000_000, "8.03 B")],
)  # fmt: skip
def test_parameters_are_counted_in_three_digits(parameters: int, words: str) -> None:
    assert count_text(parameters) == words


def test_the_size_of_the_starter_is_written_in_the_language_in_use(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr("desktop.items.models.local_models.starter_inside", lambda: False)
    assert starter_size() == "98.4 MB"
    request.addfinalizer(lambda: set_language("en"))
    set_language("de", ".", ",")
    assert starter_words() == "Startmodell herunterladen (98,4 MB)"
