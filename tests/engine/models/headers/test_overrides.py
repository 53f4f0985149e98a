"""Headers that are changed: what stands in the file afterwards, for both kinds of files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import BadSetting
from engine.models.headers.overrides import Overrides
from engine.models.headers.rope import ALPHA, STRETCH

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


@pytest.mark.parametrize("overrides", [Overrides(stretch=2.0, alpha=3.0), Overrides(experts=3)])
def test_the_scaling_of_a_file_stays_where_yarn_is_not_asked_for(overrides: Overrides) -> None:
    own = {"general.architecture": "owl", "owl.rope.scale_linear": 4.0, "owl.context_length": 100,
           "owl.expert_used_count": 2}  # fmt: skip
    found = changed(overrides, "gguf", own)
    assert found.items() >= {**own, "owl.expert_used_count": overrides.experts or 2}.items()
    assert (found["owl." + STRETCH], found["owl." + ALPHA]) == (overrides.stretch, overrides.alpha)
    assert len(found) == len(own) + 2
    table = {"rope_type": "linear", "factor": 8.0}
    config = changed(overrides, "safetensors", {"config": {"rope_scaling": table, "num_experts_per_tok": 2}})
    assert config["config"]["rope_scaling"] == table
    assert (config["config"][STRETCH], config["config"][ALPHA]) == (overrides.stretch, overrides.alpha)


def test_overrides_without_an_effect_and_out_of_range() -> None:
    checkpoint: Any = SimpleNamespace(format="gguf", metadata={})
    assert Overrides().on(checkpoint) is checkpoint
    for good in ({"stretch": 1e-3}, {"alpha": 1e6}, {"yarn": 1.0, "yarn_original": 1}):
        assert Overrides(**good) != Overrides()  # type: ignore[arg-type]
    for wrong in (
        {"stretch": 9e-4}, {"alpha": 1.1e6}, {"stretch": float("nan")}, {"yarn": 0.9, "yarn_original": 1},
        {"yarn": 2.0}, {"yarn": 1.1e6, "yarn_original": 1},
    ):  # fmt: skip
        with pytest.raises(BadSetting, match="it must be a number from"):
            Overrides(**wrong)  # type: ignore[arg-type]


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
