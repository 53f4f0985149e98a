"""Orders and places of patches: as `transformers` has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.vision_utils import (
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from engine.vision.layers.grid import Axial, block_order, frequencies, windows
from engine.vision.pictures.interpolation import (
    corners,
    cubic,
    linear,
    resampled,
    smooth_cubic,
    smooth_linear,
)

GRIDS = [(2, 2), (4, 6), (16, 2), (2, 18), (22, 36)]


@pytest.mark.parametrize(("rows", "columns"), GRIDS)
def test_blocks_and_angles(rows: int, columns: int) -> None:
    """Patches of a block follow one another; angles are those of their rows and columns."""
    order = block_order(rows, columns, 2)
    places = get_vision_position_ids(torch.tensor([[1, rows, columns]]), 2).numpy()
    assert np.array_equal(np.stack(np.divmod(order, columns), 1), places)
    own = frequencies(4, 8, 10000.0)
    assert own.tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001])
    angles = Axial(own, 2 * own).angles(order, columns)
    assert np.allclose(angles, np.concatenate([places[:, :1] * own, places[:, 1:] * 2 * own], 1))


@pytest.mark.parametrize(("rows", "columns"), GRIDS)
def test_windows(rows: int, columns: int) -> None:
    """The windows of Qwen2.5-VL, whole ones first."""
    found = windows(rows // 2, columns // 2, 4)
    index, bounds = get_vision_window_index(torch.tensor([[1, rows, columns]]), 2, 112, 14)
    parts = np.split(index.numpy(), np.asarray(bounds)[1:-1] // 4)
    mine = np.split(found.order, np.cumsum(found.lengths)[:-1])
    assert {tuple(each) for each in parts} == {tuple(each) for each in mine}
    assert sorted(found.lengths, reverse=True) == list(found.lengths)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 5), (6, 6), (12, 4), (7, 30)])
def test_resampled_positions(rows: int, columns: int) -> None:
    """Linear interpolation that keeps the corners, also of the table's own shape and of one row."""
    table = np.random.default_rng(1).standard_normal((36, 5)).astype(np.float32)
    taps, weights = get_vision_interpolation_indices_and_weights(
        torch.tensor([[1, rows, columns]]), 6, align_corners=True
    )
    expected = (torch.from_numpy(table)[taps] * weights[:, :, None]).sum(1).numpy()
    found = resampled(table, rows, columns, corners)
    assert np.abs(found - expected).max() < 1e-5
    taps, weights = get_vision_interpolation_indices_and_weights(
        torch.tensor([[1, rows, columns]]), 6, mode="bicubic"
    )
    expected = (torch.from_numpy(table)[taps] * weights[:, :, None]).sum(1).numpy()
    assert np.abs(resampled(table, rows, columns, cubic) - expected).max() < 1e-5
    if (rows, columns) == (6, 6):
        assert np.allclose(found, table, atol=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 5), (6, 6), (12, 4), (7, 30)])
def test_other_weights(rows: int, columns: int) -> None:
    """As torch interpolates, with and without antialiasing."""
    table = np.random.default_rng(2).standard_normal((36, 5)).astype(np.float32)
    grid = torch.from_numpy(table).reshape(1, 6, 6, 5).permute(0, 3, 1, 2)
    for weights, mode, smooth in (
        (linear, "bilinear", False), (smooth_linear, "bilinear", True), (smooth_cubic, "bicubic", True),
    ):  # fmt: skip
        made = torch.nn.functional.interpolate(grid, (rows, columns), mode=mode, antialias=smooth)
        expected = made[0].permute(1, 2, 0).reshape(rows * columns, 5).numpy()
        assert np.abs(resampled(table, rows, columns, weights) - expected).max() < 1e-5
