"""Passes over pictures' tokens: random rows in place of embeddings, against transformers' `inputs_embeds`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels import sample
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import UnsupportedModel
from engine.vision import Positions, VisionSpec
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load
from tests.engine.models.picture_passes import (
    AT_ONCE,
    KINDS,
    LENGTH,
    Made,
    Passes,
    Prompt,
    decode_ahead,
    made,
)

BACKENDS: dict[str, Callable[[], Backend]] = {
    "reference": ReferenceBackend,
    "cpu": lambda: CpuBackend(threads=2),
}
ERROR = 3e-5


@pytest.fixture(scope="module", params=KINDS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(request.param, tmp_path_factory.mktemp("pictures"))


@pytest.mark.slow_after(6)
@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_pictures_take_the_place_of_embeddings(whole: Made, backend: str) -> None:
    model = load(whole.folder, BACKENDS[backend]())
    whole.check(model, ERROR, same_bits=backend == "cpu")
    model.close()


@pytest.mark.slow_after(2)
def test_decoding_ahead_after_pictures(whole: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MIN_SCANNED", 1)
    model = load(whole.folder, CpuBackend(threads=2))
    assert decode_ahead(model, whole.kind) == (not model.config.state_shapes)
    model.close()


def recorded(name: str, tmp_path: Path, spec: VisionSpec) -> None:
    """Record the pass over such pictures with the model of a case."""
    model = load(write_checkpoint(BY_NAME[name], tmp_path / "m"))
    try:
        model.record_pictures(model.new_cache(64), 8, 64, spec).close()
    finally:
        model.close()


@pytest.mark.parametrize(
    ("name", "spec", "sentence"),
    [
        ("Gemma 3n", VisionSpec("x", "", "", deep=1), "cannot take the additional rows"),
        ("Llama", VisionSpec("x", "", "", deep=9), "cannot take the additional rows"),
        ("Llama", VisionSpec("x", "", "", positions=Positions((2, 1, 1))), r"has 8 pairs .* but 4 are"),
        ("GPT-2", VisionSpec("x", "", "", positions=Positions((2, 1, 1))), "do not fit pictures"),
        ("DeepSeek V2", VisionSpec("x", "", "", bidirectional=True), "cannot look at a whole picture"),
    ],
)
def test_pictures_that_a_model_cannot_take(
    name: str, spec: VisionSpec, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match=sentence):
        recorded(name, tmp_path, spec)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DeepSeek V4", "Qwen 4, n-grams"])
def test_layers_that_look_tokens_up(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="looks tokens up"):
        recorded(name, tmp_path, VisionSpec("x", "", ""))


def test_hidden_states_of_pictures_are_kept(tmp_path: Path) -> None:
    """As those of texts, of which drafters go on."""
    model = load(write_checkpoint(BY_NAME["Llama"], tmp_path / "m"), CpuBackend(threads=1))
    prompt, kept = Prompt(KINDS["llava"], model.config.width), []
    for states in (None, np.zeros((LENGTH, model.config.width), np.float32)):
        model.kept = states
        passes = Passes(model, prompt)
        kept.append(passes.run(AT_ONCE))
        passes.close()
    assert kept[0].tobytes() == kept[1].tobytes()
    assert states is not None
    assert states[:10].any(1).all()
    model.close()
