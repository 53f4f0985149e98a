"""Every family's config.json with hostile values, and its tensors missing or of the wrong shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from engine.backends.reference import ReferenceBackend
from engine.errors import BadCheckpoint, EngineError
from engine.models.load import survey
from engine.weights import open_checkpoint
from tests.engine.models.all_cases import BY_NAME
from tests.engine.models.architectures import transformers_config, write_checkpoint

FAMILIES = sorted({case.family: case.name for case in reversed(BY_NAME.values())}.values())
HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 40), 1 << 40), st.sampled_from([0, 1, 2, 3, 7, 1 << 12, 1 << 20, 1 << 24]),
    st.floats(allow_nan=True), st.text(max_size=5), st.lists(st.integers(-2, 9), max_size=4), st.lists(st.text(max_size=3), max_size=3),
    st.dictionaries(st.sampled_from(["rope_type", "factor", "rope_theta", "x"]), st.text(max_size=3) | st.integers(), max_size=3),
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each family."""
    return {name: write_checkpoint(BY_NAME[name], tmp_path_factory.mktemp("hostile") / "m") for name in FAMILIES}


@pytest.mark.parametrize("name", FAMILIES)
def test_hostile_configs_end_in_one_sentence(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Any keys of config.json with wrong types, absurd numbers, NaN: an `EngineError` or a model of these very tensors, soon."""
    config = json.loads((folders[name] / "config.json").read_text())
    usual = type(transformers_config(BY_NAME[name]))().to_dict()
    (tmp_path / "model.safetensors").symlink_to(folders[name] / "model.safetensors")
    keys = st.sampled_from(sorted({*config, *usual, "rope_scaling", "rope_theta", "head_dim", "text_config", "layer_types"}))

    @settings(max_examples=60, deadline=2000, database=None, suppress_health_check=list(HealthCheck))
    @given(st.dictionaries(keys, HOSTILE, min_size=1, max_size=3))
    def attack(changes: dict[str, Any]) -> None:
        (tmp_path / "config.json").write_text(json.dumps(config | changes), "utf-8")
        sentence = ""
        try:
            survey(open_checkpoint(tmp_path), ReferenceBackend())
        except EngineError as error:
            sentence = str(error)
        assert len(sentence) < 1000
        assert "\n" not in sentence

    attack()


@pytest.mark.parametrize("name", FAMILIES)
def test_missing_and_misshapen_tensors(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Each tensor left out in turn, and each with a row too many."""
    tensors = load_file(folders[name] / "model.safetensors")
    (tmp_path / "config.json").write_text((folders[name] / "config.json").read_text())
    rng = np.random.default_rng(1)
    for gone in rng.permutation(sorted(tensors))[:6]:
        save_file({key: values for key, values in tensors.items() if key != gone}, tmp_path / "model.safetensors")
        if not gone.endswith(".bias"):
            with pytest.raises(BadCheckpoint):
                survey(open_checkpoint(tmp_path), ReferenceBackend())
        longer = np.concatenate([tensors[gone], tensors[gone][:1]])
        save_file(tensors | {str(gone): longer}, tmp_path / "model.safetensors")
        with pytest.raises(BadCheckpoint, match="shape"):
            survey(open_checkpoint(tmp_path), ReferenceBackend())
