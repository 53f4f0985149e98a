"""Cyclic garbage is collected on the GUI thread, and a full collection waits while a reply runs."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.system.garbage_collection import GarbageCollector


@pytest.fixture(autouse=True)
def _as_at_a_start() -> Iterator[None]:
    """Python's own collector is on, as it is until the program replaces it; in other tests it is off."""
    gc.enable()
    yield
    gc.disable()


class Knot:
    def __init__(self) -> None:
        self.itself = self


def tie() -> weakref.ref[Knot]:
    return weakref.ref(Knot())


def make_many() -> None:
    """Like another thread that creates many objects which stay for a while."""
    kept = [[] for _ in range(5000)]
    assert len(kept) == 5000


def test_only_this_thread_collects(qtbot: QtBot) -> None:
    where: list[int] = []
    collector = GarbageCollector(lambda: False, lambda: False)
    try:
        knot = tie()
        weakref.finalize(knot(), lambda: where.append(threading.get_ident()))
        other = threading.Thread(target=make_many)
        other.start()
        other.join()
        assert knot() is not None
        kept = [[] for _ in range(5000)]
        qtbot.waitUntil(lambda: knot() is None)
        assert where == [threading.get_ident()]
        del kept
    finally:
        collector.close()
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("counts", "busy", "searched"),
    [
        ((10_000, 0, 11), True, 0),
        ((10_000, 0, 11), False, 2),
        ((10_000, 0, 1000), True, 2),
        ((10_000, 2, 0), True, 0),
        ((10_000, 2, 0), False, 1),
    ],
)
def test_older_objects_are_collected_in_a_pause(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int, int, int], busy: bool, searched: int
) -> None:
    """A full collection waits long, but not forever; in a pause a few middle-aged objects are enough."""
    found: list[int] = []
    collector = GarbageCollector(lambda: busy, lambda: False)
    try:
        monkeypatch.setattr(gc, "get_count", lambda: counts)
        monkeypatch.setattr(gc, "collect", found.append)
        collector.look()
        assert found == [searched]
    finally:
        monkeypatch.undo()
        collector.close()


def test_free_memory_is_returned_only_in_a_pause(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    busy = True
    monkeypatch.setattr("desktop.services.system.garbage_collection.TRIM_S", 0.0)
    monkeypatch.setattr(
        "desktop.services.system.garbage_collection.find_trim", lambda: lambda: given.append(1)
    )
    collector = GarbageCollector(lambda: busy, lambda: False)
    try:
        collector.look()
        assert not given
        busy = False
        collector.look()
        assert given
    finally:
        collector.close()


@pytest.mark.parametrize(("young", "searched"), [(10_000, []), (300_000, [0])])
def test_nothing_is_collected_while_the_user_acts(
    monkeypatch: pytest.MonkeyPatch, young: int, searched: list[int]
) -> None:
    """Unless a very large number of objects has accumulated."""
    found: list[int] = []
    collector = GarbageCollector(lambda: False, lambda: True)
    try:
        monkeypatch.setattr(gc, "get_count", lambda: (young, 0, 0))
        monkeypatch.setattr(gc, "collect", found.append)
        collector.look()
        assert found == searched
    finally:
        monkeypatch.undo()
        collector.close()
