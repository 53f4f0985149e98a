"""Every architecture's config.json with hostile values, and its tensors missing or of the wrong shape."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, EngineError
from engine.models.load import survey
from engine.tensors import RawTensor
from engine.weights import open_checkpoint
from tests.engine.models.architectures import transformers_config, write_case_gguf, write_checkpoint
from tests.engine.models.cases.table import BY_NAME

ARCHITECTURES = sorted({case.architecture: case.name for case in reversed(BY_NAME.values())}.values())
HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 40), 1 << 40),
    st.sampled_from([0, 1, 2, 3, 7, 1 << 12, 1 << 20, 1 << 24]),
    st.floats(allow_nan=True), st.text(max_size=5), st.lists(st.integers(-2, 9), max_size=4),
    st.lists(st.text(max_size=3), max_size=3),
    st.dictionaries(st.sampled_from(["rope_type", "factor", "rope_theta", "x"]),
    st.text(max_size=3) | st.integers(), max_size=3),
)  # fmt: skip
UNREAD = (".vqmodel.", ".vision_", ".visual.", ".audio_", ".projector.")
"""Parts of names of tensors that are not read: of pictures and of sounds."""
SOON = 2.0
"""Seconds of processor time that an answer may take, however busy the machine is."""


class Folders(dict[str, Path]):
    """The folder of each architecture, written when it is first asked for."""

    def __init__(self, places: pytest.TempPathFactory) -> None:
        super().__init__()
        self._places = places

    def __missing__(self, name: str) -> Path:
        self[name] = write_checkpoint(BY_NAME[name], self._places.mktemp("hostile") / "m")
        return self[name]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory)


@pytest.mark.slow_after(6)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_hostile_configs_end_in_one_sentence(folders: Folders, tmp_path: Path, name: str) -> None:
    """Keys of config.json with wrong types, absurd numbers or NaN give an `EngineError` or a model of these
    tensors, soon.
    """
    config = json.loads((folders[name] / "config.json").read_text())
    usual = type(transformers_config(BY_NAME[name]))().to_dict()
    (tmp_path / "model.safetensors").symlink_to(folders[name] / "model.safetensors")
    keys = st.sampled_from(
        sorted({*config, *usual, "rope_scaling", "rope_theta", "head_dim", "text_config", "layer_types"})
    )

    @settings(max_examples=60, database=None, suppress_health_check=list(HealthCheck))
    @given(st.dictionaries(keys, HOSTILE, min_size=1, max_size=3))
    def attack(changes: dict[str, Any]) -> None:
        begun = time.thread_time()
        (tmp_path / "config.json").write_text(json.dumps(config | changes), "utf-8")
        sentence = ""
        try:
            survey(open_checkpoint(tmp_path), ReferenceBackend())
        except EngineError as error:
            sentence = str(error)
        assert len(sentence) < 1000
        assert "\n" not in sentence
        assert time.thread_time() - begun < SOON

    attack()


@dataclass
class Altered:
    """A GGUF checkpoint with other metadata."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, RawTensor]
    format: str = "gguf"

    def close(self) -> None:
        """Nothing to close."""


# besides those that the file has
GGUF_KEYS = (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "attention.sliding_window",
    "attention.sliding_window_pattern", "attention.scale", "attn_logit_softcapping",
    "final_logit_softcapping", "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa",
    "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
    "rope.scaling.attn_factor", "expert_count", "expert_used_count", "expert_feed_forward_length",
    "logit_scale", "embedding_scale", "residual_scale",
)  # fmt: skip


@pytest.mark.slow_after(6)
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if BY_NAME[name].gguf is not None])
def test_hostile_metadata_ends_in_one_sentence(folders: Folders, tmp_path: Path, name: str) -> None:
    """The same for the keys of a GGUF file."""
    form = BY_NAME[name].gguf
    assert form is not None
    whole = open_checkpoint(write_case_gguf(BY_NAME[name], folders[name], tmp_path / "m.gguf"))
    own = {key for key in whole.metadata if key.startswith(f"{form.architecture}.")}
    keys = st.sampled_from(sorted(own | {f"{form.architecture}.{key}" for key in GGUF_KEYS}))

    @settings(max_examples=60, database=None, suppress_health_check=list(HealthCheck))
    @given(st.dictionaries(keys, HOSTILE, min_size=1, max_size=3))
    def attack(changes: dict[str, Any]) -> None:
        begun = time.thread_time()
        sentence = ""
        try:
            survey(Altered(whole.path, {**whole.metadata, **changes}, whole.tensors), ReferenceBackend())
        except EngineError as error:
            sentence = str(error)
        assert len(sentence) < 1000
        assert "\n" not in sentence
        assert time.thread_time() - begun < SOON

    attack()


@pytest.mark.slow_after(12)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_missing_and_misshapen_tensors(folders: Folders, tmp_path: Path, name: str) -> None:
    """Each tensor is missing once, and has a row too many once."""
    tensors = load_file(folders[name] / "model.safetensors")
    tensors = {key: values for key, values in tensors.items() if not any(part in key for part in UNREAD)}
    (tmp_path / "config.json").write_text((folders[name] / "config.json").read_text())
    rng = np.random.default_rng(1)
    for gone in rng.permutation(sorted(tensors))[:6]:
        save_file(
            {key: values for key, values in tensors.items() if key != gone}, tmp_path / "model.safetensors"
        )
        if not gone.endswith(".bias"):
            with pytest.raises(BadCheckpoint):
                survey(open_checkpoint(tmp_path), ReferenceBackend())
        longer = np.concatenate([tensors[gone], tensors[gone][:1]])
        save_file(tensors | {str(gone): longer}, tmp_path / "model.safetensors")
        with pytest.raises(BadCheckpoint, match="shape"):
            survey(open_checkpoint(tmp_path), ReferenceBackend())


@pytest.mark.parametrize("found", [None, 0])
def test_gemma_3n_without_embeddings_of_layers_is_told(
    folders: Folders, tmp_path: Path, found: int | None
) -> None:
    whole = open_checkpoint(write_case_gguf(BY_NAME["Gemma 3n"], folders["Gemma 3n"], tmp_path / "m.gguf"))
    key = "gemma3n.embedding_length_per_layer_input"
    with pytest.raises(BadCheckpoint, match="embedding_length_per_layer_input"):
        survey(Altered(whole.path, {**whole.metadata, key: found}, whole.tensors), ReferenceBackend())
