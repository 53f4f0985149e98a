"""Which layers have an indexer of their own."""

from __future__ import annotations

from typing import Any

import pytest

from engine.models.headers.keys import Keys
from engine.models.headers.sparse import full_layers


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"index_topk_freq": 0}, [0, 1, 2, 3, 4, 5]),
        ({"index_topk_freq": 2}, [0, 1, 3, 5]),
        ({"index_topk_freq": 3, "index_skip_topk_offset": 1}, [0, 3]),
        ({"index_topk_freq": 2, "index_topk_pattern": "FSSSFS"}, [0, 4]),
        ({"index_topk_pattern": "FSSSFS", "indexer_types": ["full"] * 2 + ["shared"] * 4}, [0, 1]),
    ],
)
def test_a_list_stands_above_a_pattern_above_every_few(config: dict[str, Any], layers: list[int]) -> None:
    assert full_layers(Keys(config, "config.json"), 6) == layers
