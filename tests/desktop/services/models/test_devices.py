"""The devices of this computer, looked for off the GUI thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from desktop.services.models.devices import DeviceService
from engine.backends.choice import Usable

pytestmark = pytest.mark.gui


class Search:
    """A search that waits for `go`, and counts."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = 0
        self.found: list[Usable] = []

    def __call__(self) -> Usable:
        self.begun += 1
        assert self.go.wait(30)
        self.found.append(Usable(reason=f"Search {self.begun} has found none."))
        return self.found[-1]


@pytest.fixture
def search() -> Search:
    return Search()


@pytest.fixture
def devices(search: Search, qapp: object) -> Iterator[DeviceService]:
    service = DeviceService(search)
    yield service
    search.go.set()
    assert service.close()


def test_what_changes_during_a_search_is_found_by_one_more(devices, search, qtbot) -> None:
    heard: list[Usable] = []
    devices.found.connect(heard.append)
    assert devices.usable is None
    for _ in range(3):
        devices.look()
    search.go.set()
    qtbot.waitUntil(lambda: len(heard) == 2)
    qtbot.wait(50)
    assert heard == search.found
    assert len(heard) == 2
    assert devices.usable is heard[1]
    devices.look()
    qtbot.waitUntil(lambda: len(heard) == 3)
