"""From a search on the hub to a loaded model, over real HTTP on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from desktop.app import EngineApi
from tests.desktop.hand import Hand
from tests.engine.hub.conftest import hub, hub_home  # noqa: F401 (fixtures)
from tests.engine.hub.hub_server import Hub, Repo
from tests.tiny import TINY, write_gguf

pytestmark = [pytest.mark.gui, pytest.mark.loopback, pytest.mark.slow]


@pytest.fixture
def hand(qtbot, qapp, hub: Hub, tmp_path: Path) -> Iterator[Hand]:  # noqa: F811
    (tmp_path / "data").mkdir()
    found = Hand(qtbot, tmp_path / "data", api=EngineApi(measure=lambda threads: 40e9))
    yield found
    found.close()


def test_from_a_search_to_a_loaded_model(hand: Hand, hub: Hub, qtbot, tmp_path: Path) -> None:  # noqa: F811
    content = write_gguf(tmp_path / "tiny-Q4_1.gguf", TINY).read_bytes() + bytes(1 << 19)
    other = write_gguf(tmp_path / "tiny-Q8_0.gguf", TINY, "Q8_0").read_bytes()
    facts = {"tags": ["gguf", "license:mit"], "pipeline_tag": "text-generation", "downloads": 4321}
    hub.repos["maker/tiny-GGUF"] = Repo(
        {"tiny-Q4_1.gguf": content, "tiny-Q8_0.gguf": other, "README.md": b"# Tiny"}, facts=facts
    )
    hub.repos["maker/other-GGUF"] = Repo({"other.gguf": other}, facts={**facts, "downloads": 1})
    hand.window.model_controller.open_library()
    window = hand.window.model_controller.library
    assert window is not None
    page = window.hub
    window.tabs.setCurrentWidget(page)
    assert not hub.asked, "nothing is sent before one searches"

    QTest.keyClicks(page.query, "tiny")
    QTest.keyClick(page.query, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: page.found.rowCount() == 1)
    assert "4.3 k downloads" in page.found.index(0).data()
    assert "mit" in page.found.index(0).data()
    page.results.setCurrentIndex(page.found.index(0))
    qtbot.waitUntil(lambda: page.choices.rowCount() == 2)
    row = next(row for row in range(2) if page.choices.index(row).data().startswith("Q4_1"))
    page.options.setCurrentIndex(page.choices.index(row))
    assert page.get.text() == "Download Q4_1"

    hub.chunk, hub.chunk_pause = 16 << 10, 0.01
    hub.stalling(400_000)
    page.get.click()
    key = ("maker/tiny-GGUF", "Q4_1")
    qtbot.waitUntil(lambda: bool(page.downloads._rows) and page.downloads.row(key).bar.value() > 0)
    download = page.downloads.row(key)
    assert 0 < download.bar.value() < 1000
    download.pause.click()
    qtbot.waitUntil(download.resume.isVisible)
    assert "Paused" in download.text.text()
    assert not list((tmp_path / "data" / "models").rglob("*.gguf")), "half a model is no model"
    hub.going_on()
    hub.chunk_pause = 0.0

    download.resume.click()
    qtbot.waitUntil(download.load.isVisible)
    ranges = hub.ranges_asked("tiny-Q4_1.gguf")
    assert any(each and each != "bytes=0-" for each in ranges), "it went on where it was"
    path = hand.desktop.services.hub.downloads[0].path
    assert Path(path).read_bytes() == content

    qtbot.waitUntil(lambda: window.models.row_of(path) >= 0, timeout=30_000)
    entry = window.models.entry(path)
    assert entry is not None
    assert (entry.source, entry.info is not None and entry.info.quantisation) == ("Inglenook", "Q4_1")
    download.load.click()
    hand.wait_for("idle", timeout=300_000)
    assert hand.session.model is not None
    assert hand.session.model.path == path
    window.tabs.setCurrentWidget(window.local)
    assert window.models.index(window.models.row_of(path), 0).data().endswith("(loaded)")
