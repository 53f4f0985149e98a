"""The way of a message: no more stations than are promised (tests/tools/walk_message.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import write_gguf
from tests.tools.walk_message import PROMISED, Station, Walk, walk_engine, walk_window


@pytest.mark.gui
def test_stations_from_enter_to_paint(qtbot, tmp_path: Path) -> None:
    walks = walk_window(tmp_path, qtbot)
    assert walks.keys() == {"Enter to the engine", "engine to paint"}
    for name, walk in walks.items():
        assert len(walk.stations) <= PROMISED[name], f"{name}\n{walk}"


@pytest.mark.slow
def test_frames_from_stream_to_replay(tmp_path: Path) -> None:
    frames = walk_engine(write_gguf(tmp_path / "tiny.gguf"))
    assert frames[0].module == "engine.chat.local"
    assert len(frames) <= PROMISED["stream() to replay, frames"], frames
    assert len({frame.module for frame in frames}) <= PROMISED["files"], frames


def test_calls_within_a_module_are_one_station() -> None:
    calls = [Station("a", "one"), Station("a", "two"), Station("b", "three"), Station("a", "four")]
    assert Walk.of(iter(calls)).stations == (calls[0], calls[2], calls[3])


def test_calls_of_an_object_are_one_station() -> None:
    calls = [Station("base", "one", 7), Station("derived", "two", 7), Station("other", "three", 8)]
    assert Walk.of(iter(calls)).stations == (calls[0], calls[2])
