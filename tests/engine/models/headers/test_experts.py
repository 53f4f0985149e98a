"""How experts are chosen, as headers state it: the keys, what their absence means, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.backends.routing import SCORES
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.config.experts import Experts
from engine.models.headers.experts import gate_limits, gguf_experts, hf_experts, hf_groups, limited_groups
from engine.models.headers.keys import Keys

SHAPE = {"layers": 6, "ffn_width": 96}
LEAST = {"expert_count": 8, "expert_used_count": 2}


def experts(more: dict[str, Any] | None = None, **metadata: Any) -> Experts:
    found = gguf_experts(Keys({**LEAST, **metadata}, "the header"), SHAPE, **(more or {}))
    assert found is not None
    return found


def test_what_a_header_may_leave_out() -> None:
    found = experts()
    assert (found.count, found.used, found.width, found.normalise) == (8, 2, 96, True)
    assert (found.scores, found.scale, found.groups, found.used_groups) == ("softmax", 1.0, 1, 1)
    assert (found.shared_width, found.group_best, found.layers) == (0, 2, frozenset(range(6)))
    assert (found.corrected, found.router_bias, found.bias) == (None, None, None)
    for count in ({}, {"expert_count": 0}):
        assert gguf_experts(Keys(count, "the header"), SHAPE) is None
    with pytest.raises(BadCheckpoint, match="expert_used_count"):
        gguf_experts(Keys({"expert_count": 8}, "the header"), SHAPE)


def test_what_a_header_states() -> None:
    found = experts(
        expert_feed_forward_length=24, expert_shared_count=2, expert_weights_scale=2.5,
        expert_weights_norm=False, expert_group_count=4, expert_group_used_count=2,
    )  # fmt: skip
    assert (found.width, found.shared_width, found.scale, found.normalise) == (24, 48, 2.5, False)
    assert (found.groups, found.used_groups) == (4, 2)
    assert experts(expert_group_count=4).used_groups == 4
    assert experts(expert_group_count=4, expert_group_used_count=0).used_groups == 4
    assert experts(expert_shared_count=2, expert_shared_feed_forward_length=40).shared_width == 40
    assert experts(expert_weights_scale=0.0).scale == 1.0
    assert [experts(expert_gating_func=kind).scores for kind in (1, 2)] == list(SCORES[:2])
    assert experts(expert_gating_func=len(SCORES)).scores == SCORES[-1]
    with pytest.raises(UnsupportedModel, match=rf"expert_gating_func {len(SCORES) + 1}\)"):
        experts(expert_gating_func=len(SCORES) + 1)


def test_what_an_architecture_says_where_the_header_does_not() -> None:
    own = {"normalise": False, "scores": "sigmoid"}
    found = experts(own)
    assert (found.normalise, found.scores) == (False, "sigmoid")
    stated = experts(own, expert_weights_norm=True, expert_gating_func=1)
    assert (stated.normalise, stated.scores) == (True, "softmax")
    assert experts({"group_best": 1, "layers": frozenset({2})}, expert_count=4).layers == {2}


def test_which_layers_have_experts() -> None:
    """Those after the leading dense ones, the last of every few."""
    assert experts(leading_dense_block_count=2).layers == {2, 3, 4, 5}
    assert experts(interleave_moe_layer_step=2).layers == {1, 3, 5}
    assert experts(interleave_moe_layer_step=3, leading_dense_block_count=3).layers == {5}


def test_experts_of_a_folder() -> None:
    keys = Keys({"n": 8, "k": 2}, "config.json")
    found = hf_experts(keys, [1, 2], count="n", used="k", width=24, normalise=False, scale=2.0)
    assert found == Experts(8, 2, 24, False, frozenset({1, 2}), scale=2.0)
    assert hf_experts(keys, [], count="n", used="k", width=24, normalise=False) is None
    one = hf_experts(Keys({"n": 1, "k": 1}, "config.json"), [0], count="n", used="k", width=1, normalise=True)
    assert one is not None
    for wrong in ({"n": 0, "k": 0}, {"n": 8, "k": 0}):
        with pytest.raises(BadCheckpoint, match="is 0, but a whole number from 1 to 1024"):
            hf_experts(Keys(wrong, "config.json"), [0], count="n", used="k", width=1, normalise=True)


def test_groups_of_a_folder() -> None:
    assert hf_groups(Keys({}, "config.json")) == {"groups": 1, "used_groups": 1, "group_best": 2}
    own = {"groups": 8, "used_groups": 4, "group_best": 2}
    assert hf_groups(Keys({}, "config.json"), 8, 4) == own
    assert hf_groups(Keys({"n_group": 2}, "config.json"), 8, 4) == own | {"groups": 2, "used_groups": 2}
    stated = Keys({"n_group": 4, "topk_group": 3}, "config.json")
    assert hf_groups(stated, 8, 4, best=1) == {"groups": 4, "used_groups": 3, "group_best": 1}


def test_groups_that_only_some_methods_look_at() -> None:
    groups = {"n_group": 4, "topk_group": 3}
    assert limited_groups(Keys(groups, "config.json")) == {}
    assert limited_groups(Keys(groups | {"topk_method": "greedy"}, "config.json")) == {}
    limited = Keys(groups | {"topk_method": "group_limited_greedy"}, "config.json")
    assert limited_groups(limited) == {"groups": 4, "used_groups": 3, "group_best": 1}
    with pytest.raises(UnsupportedModel, match="by 'noaux_tc'; only greedy, group_limited_greedy"):
        limited_groups(Keys({"topk_method": "noaux_tc"}, "config.json"))


def test_limits_of_gates() -> None:
    """A gate of silu is at most silu(limit); below 0.5, silu's least value would be cut, too."""
    assert gate_limits("swiglu_limit", 7.0) == (pytest.approx(7 / (1 + math.exp(-7))), 7.0)
    assert gate_limits("swiglu_limit", 0.5)[1] == 0.5
    with pytest.raises(UnsupportedModel, match=r"sets swiglu_limit to 0\.49"):
        gate_limits("swiglu_limit", 0.49)
