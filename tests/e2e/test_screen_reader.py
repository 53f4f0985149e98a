"""A whole session by AT-SPI alone, in a process of its own, as a screen reader's user has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.accessible_tree import lacking, play

CONTROLS = ("push button", "check box", "radio button", "combo box", "text", "spin button", "slider", "table",
            "list", "tree", "dialog")  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(bool(lacking()), reason=lacking() or "-")
def test_a_whole_session_by_a_screen_reader_alone(tmp_path: Path) -> None:
    found = play(tmp_path)
    assert found["end"].startswith("The reply has ended: 41 tokens")
    assert "Generating the reply" in found["heard"]
    assert found["lines"] == [
        "Sowing peas", "Sow them when the soil is at 5 °C. Cover the bed with fleece.", "crop", "depth",
        "peas", "4 cm", "beans", "6 cm", "print(4)", "See the calendar.",
    ]  # fmt: skip
    assert found["words"][:5] == ["Sowing", "peas", "Sow", "them", "when"]
    assert (found["heading"], found["code"], found["link"]) == (
        "Heading level 1: Sowing peas", "Code block in python, 1 line", "Link: the calendar",
    )  # fmt: skip
    assert found["cells"] == [["crop", "depth"], ["peas", "4 cm"], ["beans", "6 cm"]]
    assert found["edited"] == "Carrots want warmer soil."
    assert found["regenerated"] == "Seven degrees are enough for carrots."
    temperatures = [line.split()[1] for line in found["printed"] if line.startswith("temperature")]
    assert temperatures == ["0.7", "0.7", "0.7", "0.25"]
    assert "Message in When should I sow peas?: When should I sow carrots?" in found["hits"]
    assert "When should I sow carrots?" in found["file"]
    assert "Seven degrees are enough" in found["file"]
    trees = found["trees"]
    assert list(trees) == ["main window", "preferences", "chat", "reply", "table", "export"]
    lines = [line.strip() for tree in trees.values() for line in tree.splitlines()]
    assert len(lines) > 100
    assert [line for line in lines if line.startswith(tuple(f"{role} ''" for role in CONTROLS))] == []
