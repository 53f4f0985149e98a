"""Multi-section rotary positions against transformers' `get_rope_index` and rotary embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import RotaryTable
from engine.models.layers.positions.mrope import (
    axes_of_pairs,
    counted_positions,
    fill_table,
    sequence_positions,
)
from engine.models.layers.positions.rope import RopeConfig, rotary_table
from tests.engine.models.architectures import ROPE
from tests.engine.models.whole_models import DELTA, QWEN_EYES, SECTIONS, Whole, tiny_model

LENGTH = 60
SEVERAL = ([], [(0, 4, 5)], [(3, 2, 7)], [(5, 1, 6), (12, 6, 3), (31, 4, 4)], [(1, 3, 3), (40, 2, 10)])
KINDS: dict[str, tuple[dict[str, Any], tuple[int, int, int], bool]] = {
    "qwen2_vl": ({ROPE: SECTIONS}, (2, 3, 3), False),
    "qwen3_vl": ({"head_dim": 24, ROPE: {**SECTIONS, "mrope_section": [6, 3, 3]}}, (6, 3, 3), True),
    "qwen3_5": (
        {**DELTA, ROPE: {**SECTIONS, "mrope_section": [6, 5, 5], "partial_rotary_factor": 1.0}}, (6, 5, 5),
        True,
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[Any, tuple[int, int, int], bool]:
    text, sections, interleaved = KINDS[request.param]
    return tiny_model(request.param, Whole(text, {"vision_config": QWEN_EYES})), sections, interleaved


def test_positions_are_those_of_transformers(kind: tuple[Any, tuple[int, int, int], bool]) -> None:
    model, sections, interleaved = kind
    merge = QWEN_EYES["spatial_merge_size"]
    for spans in SEVERAL:
        kinds = torch.zeros((1, LENGTH), dtype=torch.int32)
        for first, rows, columns in spans:
            kinds[0, first : first + rows * columns] = 1
        grids = torch.tensor([[1, merge * rows, merge * columns] for _, rows, columns in spans])
        expected, delta = model.model.get_rope_index(
            torch.zeros((1, LENGTH), dtype=torch.long), kinds, grids if spans else None
        )
        found, shift = sequence_positions(spans, LENGTH)
        assert found.tolist() == expected[:, 0].T.tolist()
        assert shift == -int(delta)
        # the angles of those positions, pair by pair
        rotary = model.model.language_model.rotary_emb
        dim = 2 * sum(sections)
        source = rotary_table(RopeConfig(700.0, dim, False, (1.0,) * (dim // 2)), LENGTH)
        made = RotaryTable(*(np.zeros((LENGTH + 3, dim // 2), np.float32) for _ in range(2)), False, True)
        fill_table(made, source, found, axes_of_pairs(sections, interleaved))
        for ours, theirs in zip((made.cos, made.sin), rotary(torch.zeros(1), expected), strict=True):
            np.testing.assert_allclose(ours[:LENGTH], theirs[0, :, : dim // 2], rtol=0, atol=1e-5)
            assert not ours[LENGTH:].any()


@pytest.mark.parametrize("axes", [3, 4])
def test_counted_positions_of_each_part_are_those_of_the_whole(axes: int) -> None:
    """Of two pictures, with a token before and after each as a span of its own."""
    spans = [(4, 1, 1), (5, 2, 3), (11, 1, 1), (20, 1, 1), (21, 3, 2), (27, 1, 1)]
    whole = counted_positions(spans, 0, 40, axes)
    assert [at for at in range(40) if whole[at].tolist() != [at] * axes] == [*range(5, 11), *range(21, 27)]
    assert whole[5:11, -3:].tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0], [1, 1, 0], [2, 1, 0]]
    assert whole[21:27, -3:].tolist() == [[0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1], [0, 2, 1], [1, 2, 1]]
    assert whole[5:11, : axes - 3].tolist() == [[at] * (axes - 3) for at in range(5, 11)]
    for start, end in ((0, 7), (7, 24), (24, 40), (30, 31)):
        assert np.array_equal(counted_positions(spans, start, end, axes), whole[start:end])


def test_pictures_that_do_not_fit() -> None:
    for spans in ([(5, 2, 3), (10, 2, 2)], [(55, 2, 3)], [(-1, 2, 2)], [(4, 0, 3)]):
        with pytest.raises(AssertionError, match="overlap"):
            sequence_positions(spans, LENGTH)
