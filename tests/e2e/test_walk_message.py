"""The way of a message: no more stations than were reached (tests/tools/walk_message.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import write_gguf
from tests.tools.walk_message import PROMISED, Station, Walk, walk_engine, walk_window

REACHED = {"Enter to the engine": 7, "engine to paint": 10}
"""Lower these numbers when a way becomes shorter, down to those that are promised."""


@pytest.mark.gui
def test_stations_from_enter_to_paint(qtbot, tmp_path: Path) -> None:
    walks = walk_window(tmp_path, qtbot)
    assert walks.keys() == REACHED.keys()
    for name, walk in walks.items():
        assert len(walk.stations) <= REACHED[name], f"{name}\n{walk}"
        assert REACHED[name] >= PROMISED[name]


def test_frames_from_stream_to_replay(tmp_path: Path) -> None:
    frames = walk_engine(write_gguf(tmp_path / "tiny.gguf"))
    assert frames[0].module == "engine.chat"
    assert len(frames) <= PROMISED["stream() to replay, frames"], frames
    assert len({frame.module for frame in frames}) <= PROMISED["files"], frames


def test_calls_within_a_module_are_one_station() -> None:
    calls = [Station("a", "one"), Station("a", "two"), Station("b", "three"), Station("a", "four")]
    assert Walk.of(iter(calls)).stations == (calls[0], calls[2], calls[3])
