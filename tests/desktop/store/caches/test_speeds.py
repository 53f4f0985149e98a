"""Recent speeds: a median that survives a start, and a file whose damage costs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from desktop.store.caches.speeds import FILE_NAME, Speeds


def test_the_median_of_the_latest_five(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path / FILE_NAME)
    assert speeds.of("a") == 0.0
    for speed in (1000.0, 1.0, 2.0, 3.0, 4.0, 5.0):
        speeds.put(("a", speed), ("b", 7.0))
    assert speeds.of("a") == 3.0
    again = Speeds(tmp_path / FILE_NAME)
    assert again.medians() == {"a": 3.0, "b": 7.0}
    again.put(("a", 9.0))
    assert again.of("a") == 4.0


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"a": 1}', '{"a": ["x"]}', '{"a": [NaN]}', '{"a": [-1]}', '{"a": []}', "[" * 99_999]
)
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(text)
    assert Speeds(path).medians() == {}


def test_one_bad_entry_costs_no_other(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"a": [Infinity], "b": [2.5]}')
    assert Speeds(tmp_path / FILE_NAME).medians() == {"b": 2.5}


def test_the_oldest_keys_go_first(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path / FILE_NAME)
    speeds.put(*((str(i), 1.0) for i in range(1000)))
    speeds.put(("0", 2.0), ("new", 1.0))
    assert speeds.of("0") == 1.5
    assert speeds.of("1") == 0.0
    assert len(speeds.medians()) == 1000


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path / "file" / FILE_NAME)
    (tmp_path / "file").touch()
    speeds.put(("a", 2.0))
    assert speeds.of("a") == 2.0
