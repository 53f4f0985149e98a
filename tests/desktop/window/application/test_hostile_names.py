"""Names from files: no line end, direction mark or control character reaches a label."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from desktop.diagnostics import Diagnostics
from desktop.items.models.local_models import entry, model_name
from desktop.store.attachments.files import Unreadable, read_attachment
from desktop.store.database.errors import DiskFull, StoreError
from desktop.store.transfer.importers import protocol
from desktop.store.transfer.importers.sources import SourceFile
from desktop.views.models.model_picker import ModelPicker
from desktop.views.widgets.banner import Banner
from engine.hub.catalogue.models import HubChoice
from tests.desktop.fakes import EchoApi

EVIL = "a\x1b[2Jb\u202egnp.\u2067c\nFAKE\x9bd"
UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_names_of_models_and_files(tmp_path: Path) -> None:
    folder = tmp_path / EVIL
    folder.mkdir()
    text = tmp_path / f"{EVIL}.txt"
    text.write_text("words")
    info = EchoApi().describe(Path("good.gguf"))
    shown = [
        model_name(f"/models/{EVIL}.gguf"), model_name(folder), entry(info, title=EVIL).name,
        read_attachment(text, threading.Event()).name, SourceFile(text, None, None, 5).name,
        HubChoice("a/b", "1", EVIL, "gguf", (), 1).title, str(StoreError(EVIL)), str(DiskFull(EVIL)),
        str(protocol.Unreadable(EVIL)),
    ]  # fmt: skip
    with pytest.raises(Unreadable) as found:
        read_attachment(folder, threading.Event())
    for name in (*shown, str(found.value)):
        assert not UNFIT.search(name), repr(name)
        assert "FAKE" in name


def test_paths_in_tooltips_and_in_the_log(qtbot: QtBot, tmp_path: Path) -> None:
    picker = ModelPicker()
    qtbot.addWidget(picker)
    for show in (
        lambda: picker.show_model(f"/m/{EVIL}.gguf", "good"),
        lambda: picker.show_loading(f"/m/{EVIL}.gguf"),
    ):
        show()
        first, path = picker.toolTip().split("\n")
        assert not UNFIT.search(first)
        assert not UNFIT.search(path)
    hooks = Diagnostics(tmp_path)
    try:
        logging.getLogger("desktop").warning("the model %s is odd", EVIL)
    finally:
        hooks.close()
    assert not UNFIT.search(hooks.log_file.read_text("utf-8").replace("\n", ""))


def test_a_notice_is_one_line_whatever_it_quotes(qtbot: QtBot) -> None:
    banner = Banner()
    qtbot.addWidget(banner)
    banner.show_notice(f"The preset was saved as {EVIL}.", "warning")
    for text in (banner.text.text(), banner.text.accessibleName()):
        assert not UNFIT.search(text)
        assert r"\u202egnp" in text
