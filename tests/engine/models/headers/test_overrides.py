"""Headers that are changed: what stands in the file afterwards, for both kinds of files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import BadSetting
from engine.models.headers.overrides import Overrides

YARN = Overrides(yarn=2.0, yarn_original=64)


def changed(overrides: Overrides, format: str, metadata: dict[str, Any]) -> dict[str, Any]:
    checkpoint: Any = SimpleNamespace(format=format, metadata=metadata)
    return dict(overrides.on(checkpoint).metadata)


@pytest.mark.parametrize(("before", "after"), [(512, 512), (100, 128), (None, 128)])
def test_yarn_makes_the_context_of_a_gguf_file_longer_and_never_shorter(
    before: int | None, after: int
) -> None:
    found = changed(
        YARN, "gguf",
        {"general.architecture": "owl", "owl.context_length": before, "owl.rope.scale_linear": 4.0},
    )  # fmt: skip
    assert found["owl.context_length"] == after
    assert found["owl.rope.scaling.type"] == "yarn"
    assert (found["owl.rope.scaling.factor"], found["owl.rope.scaling.original_context_length"]) == (2.0, 64)
    assert "owl.rope.scale_linear" not in found


@pytest.mark.parametrize("nested", [False, True])
def test_yarn_takes_the_place_of_a_folders_scaling_and_keeps_its_base(nested: bool) -> None:
    own = {"rope_parameters": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}, "hidden_size": 8}
    found = changed(YARN, "safetensors", {"config": {"text_config": own} if nested else own})["config"]
    place = found["text_config"] if nested else found
    assert "rope_parameters" not in place
    assert place["hidden_size"] == 8
    assert place["rope_scaling"] == {
        "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64, "rope_theta": 5e5
    }  # fmt: skip
    assert "rope_parameters" in own  # what was read stays as it is


def test_several_tables_of_positions_are_refused() -> None:
    tables = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    with pytest.raises(BadSetting, match="several tables of rope settings"):
        changed(YARN, "safetensors", {"config": {"rope_parameters": tables}})


def test_experts_are_those_of_a_model_that_has_them() -> None:
    gguf = {"general.architecture": "owl", "owl.expert_used_count": 2}
    assert changed(Overrides(experts=3), "gguf", gguf)["owl.expert_used_count"] == 3
    found = changed(
        Overrides(experts=3), "safetensors", {"config": {"text_config": {"experts_per_token": 2}}}
    )
    assert found["config"]["text_config"] == {"experts_per_token": 3}
    for format, metadata in (("gguf", {"general.architecture": "owl"}), ("safetensors", {"config": {}})):
        with pytest.raises(BadSetting, match="no experts"):
            changed(Overrides(experts=3), format, metadata)
