"""What is said about models of which a part is left out, or that others compute otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.vision.describe import describe
from tests.engine.models.architectures import write_case_gguf, write_checkpoint
from tests.engine.models.cases.stream import hrm_keys
from tests.engine.models.cases.table import BY_NAME
from tests.tiny import write_folder


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((), ()),
        (("vision_config",), ("The model also takes pictures, but only its text model runs here.",)),
        (("thinker_config",), ("The model also takes pictures, but only its text model runs here.",)),
        (("audio_config",), ("The model also takes sounds, but only its text model runs here.",)),
        (
            ("vision_config", "audio_config"),
            ("The model also takes pictures and sounds, but only its text model runs here.",),
        ),
    ],
)
def test_parts_that_are_left_out(tmp_path: Path, parts: tuple[str, ...], said: tuple[str, ...]) -> None:
    folder = write_folder(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    own = {"hidden_size": 8, "vision_config": {"hidden_size": 8}}
    (folder / "config.json").write_text(json.dumps(config | dict.fromkeys(parts, own)))
    assert describe(folder).remarks == said


def test_sparse_mixers_weights_are_the_authors(tmp_path: Path) -> None:
    """llama.cpp takes Phi-3.5-MoE's experts by a plain softmax."""
    case = BY_NAME["Phi-3.5-MoE"]
    folder = write_checkpoint(case, tmp_path / "m")
    (said,) = describe(write_case_gguf(case, folder, tmp_path / "m.gguf")).remarks
    assert "SparseMixer" in said
    assert "llama.cpp" in said
    assert describe(folder).remarks == ()


def test_prompts_attend_to_earlier_tokens_alone(tmp_path: Path) -> None:
    """HRM-Text, unless its config.json says that it was made so."""
    folder = write_checkpoint(BY_NAME["HRM-Text"], tmp_path / "m")
    (said,) = describe(folder).remarks
    assert "each attends to earlier ones alone" in said
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"prefix_lm": False}))
    assert describe(folder).remarks == ()


@pytest.mark.parametrize("ahead", [True, False])
def test_a_gguf_file_says_whether_prompts_would_be_read_ahead(tmp_path: Path, ahead: bool) -> None:
    case = BY_NAME["HRM-Text"]
    assert case.gguf is not None
    form = replace(case.gguf, keys=lambda config: {**hrm_keys(config), "hrm.prefix_lm": ahead})
    folder = write_checkpoint(case, tmp_path / "m")
    said = describe(write_case_gguf(replace(case, gguf=form), folder, tmp_path / "m.gguf")).remarks
    assert len(said) == ahead
