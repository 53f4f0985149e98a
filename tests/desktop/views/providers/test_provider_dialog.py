"""The dialog of a server alone: what it refuses, what it asks for, and what it hands over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from desktop.views.providers.provider_dialog import ProviderDialog
from engine.remote import PRESETS, Provider

pytestmark = pytest.mark.gui


class Dialog(ProviderDialog):
    """Keeps what it hands over in `given`."""

    def __init__(self, provider: Provider | None, key_place: str, parent: QWidget) -> None:
        super().__init__(provider, key_place, parent)
        self.given: list[tuple[Provider, str | None, bool]] = []
        self.saved.connect(lambda *given: self.given.append(given))


@pytest.fixture
def dialog(qtbot) -> Iterator[Dialog]:
    parent = QWidget()
    qtbot.addWidget(parent)
    parent.resize(700, 700)
    parent.show()
    made = Dialog(None, "", parent)
    made.open()
    yield made
    if isValid(made):
        made.reject()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def save(dialog: ProviderDialog) -> None:
    dialog.buttons.button(dialog.buttons.StandardButton.Save).click()


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("name", "", "name of 1 to 60"), ("address", "", "names no host"), ("address", "ftp://x", "ftp"),
        ("headers", "no colon", "has no colon"), ("headers", "Bad Name: x", "cannot be a header"),
        ("address", "http://gpu.example.org", "not encrypted"),
    ],
)  # fmt: skip
def test_the_dialog_stays_open_with_a_sentence(dialog, field, text, sentence):
    if field == "headers":
        dialog.headers.setPlainText(text)
    else:
        getattr(dialog, field).setText(text)
    save(dialog)
    assert dialog.isVisible()
    assert sentence in dialog.trouble.text().replace("\u200b", "")
    assert dialog.trouble.isVisible()
    assert dialog.given == []


def test_unencrypted_addresses_need_consent_and_only_they_ask_for_it(dialog):
    seen = {}
    for address in (
        "http://gpu.example.org:8000",
        "https://gpu.example.org",
        "http://127.0.0.1:8",
        "nonsense://",
    ):
        dialog.address.setText(address)
        seen[address] = dialog.unencrypted.isVisible()
    assert list(seen.values()) == [True, False, False, False]
    dialog.address.setText("http://gpu.example.org:8000")
    dialog.unencrypted.setChecked(True)
    assert dialog._read().unencrypted
    dialog.address.setText("https://gpu.example.org")
    assert not dialog._read().unencrypted


def test_a_kind_brings_its_address_and_keeps_a_name_of_ones_own(dialog):
    for row, preset in enumerate(PRESETS):
        dialog.kind.setCurrentIndex(row)
        dialog.kind.activated.emit(row)
        assert dialog.address.text() == preset.base_url
    assert dialog.name.text() == ""
    dialog.name.setText("My own")
    dialog.kind.activated.emit(0)
    assert dialog.name.text() == "My own"


def test_what_was_typed_is_handed_over(dialog):
    dialog.name.setText("Lab")
    dialog.address.setText("gpu.example.org/v1/chat/completions")
    dialog.key.setText(" sk-1 ")
    dialog.in_keyring.setChecked(False)
    dialog.context.setValue(2048)
    dialog.counts.setChecked(True)
    dialog.headers.setPlainText("A: b:c\n\n  D :e ")
    given = dialog.given
    save(dialog)
    expected = Provider(
        "new", "Lab", "https://gpu.example.org/v1", False, 2048, True, (("A", "b:c"), ("D", "e"))
    )
    assert given == [(expected, "sk-1", False)]


def test_a_server_is_shown_as_it_is_and_its_key_stays(qtbot):
    parent = QWidget()
    qtbot.addWidget(parent)
    known = Provider("lab", "Lab", "http://gpu.example.org/v1", True, 9, True, (("A", "b"),))
    dialog = Dialog(known, "keyring", parent)
    assert dialog.in_keyring.isChecked()
    given = dialog.given
    save(dialog)
    assert given == [(known, None, True)]
