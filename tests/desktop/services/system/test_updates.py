"""The weekly check, and the version before an update, which can be gone back to."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from desktop.services.system import updates
from desktop.services.system.updates import WEEK_S, UpdateApi, UpdateService
from desktop.settings import Behaviour
from engine.errors import DownloadError
from engine.hub.updates.install import before_of
from engine.hub.updates.manifest import Update
from tests.desktop.fake_updates import FakeUpdates


def test_only_a_program_file_with_an_earlier_one_beside_it_has_a_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image: Path | None = None
    monkeypatch.setattr(updates, "app_image", lambda: image)
    api = updates.UpdateApi()
    assert api.before() is None
    api.roll_back()  # nothing happens
    image = tmp_path / "Inglenook.AppImage"
    image.write_bytes(b"new")
    assert api.before() is None
    before_of(image).write_bytes(b"old")
    assert api.before() == before_of(image)
    api.roll_back()
    assert image.read_bytes() == b"old"


def test_the_weekly_check_is_made_where_it_is_wanted_and_due_and_tells_only_of_a_newer_version(
    harness,
) -> None:
    now = 1e9
    service = UpdateService(harness.session, clock=lambda: now)
    api = service.api = FakeUpdates()
    available: list[object] = []
    others: list[object] = []
    service.available.connect(available.append)
    for signal in (service.checked, service.failed):
        signal.connect(others.append)

    def looked(expected: int) -> None:
        """Look until the check that is expected is made."""
        harness.qtbot.waitUntil(lambda: bool(service.look()) or api.checks == expected)

    def nothing_due() -> None:
        before = api.checks
        service.look()
        harness.qtbot.wait(50)
        assert api.checks == before

    nothing_due()  # not wanted
    harness.session.set_settings(replace(harness.session.settings(Behaviour), weekly_check=True))
    api.source = False
    nothing_due()  # built without an address
    api.source, api.sentence = True, "No network."
    looked(1)
    looked(2)  # a failure is tried again
    api.sentence = ""
    looked(3)
    harness.qtbot.waitUntil(lambda: available == [api.update])
    now += WEEK_S - 1
    nothing_due()
    now += 1
    api.update = None
    looked(4)
    harness.qtbot.waitUntil(lambda: harness.session.preferences.updates_checked_at == now)
    now -= 100  # the clock was wrong
    looked(5)
    harness.qtbot.waitUntil(lambda: harness.session.preferences.updates_checked_at == now)
    assert len(available) == 1
    assert others == []
    assert service.close()


def test_a_clone_has_no_updates_and_says_how_it_is_brought_up_to_date() -> None:
    api = UpdateApi()
    assert not api.can_check()
    assert api.check(threading.Event()) is None
    assert f"{sys.executable} -m pip install --upgrade inglenook" in api.advice()
    with pytest.raises(DownloadError, match=r"Inglenook 9\.0 has no package"):
        api.install(Update("9.0", "2026-11-25", "", ()), threading.Event())
