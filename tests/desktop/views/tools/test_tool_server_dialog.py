"""The dialog of one server of tools: what it refuses, and what it saves."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication, QPlainTextEdit, QWidget
from pytestqt.qtbot import QtBot

from desktop.services.tools.servers import ServerConfig
from desktop.views.tools.tool_server_dialog import ToolServerDialog
from tests.desktop.views.tools.conftest import FILES, WEATHER

pytestmark = pytest.mark.gui
Saved = list[ServerConfig]


def opened(parent: QWidget, config: ServerConfig | None) -> tuple[ToolServerDialog, Saved]:
    saved: Saved = []
    made = ToolServerDialog(config, saved.append, parent)
    made.open()
    return made, saved


def save(dialog: ToolServerDialog) -> None:
    dialog.buttons.button(dialog.buttons.StandardButton.Save).click()


@pytest.mark.parametrize("config", [FILES, WEATHER, ServerConfig("old", url="http://h/sse", transport="sse")])
def test_what_was_not_changed_is_saved_as_it_was(qtbot: QtBot, parent: QWidget, config: ServerConfig) -> None:
    dialog, saved = opened(parent, config)
    save(dialog)
    assert saved == [config]


def test_permissions_and_the_switch_stay(qtbot: QtBot, parent: QWidget) -> None:
    config = ServerConfig("a", "x", enabled=False, permissions=(("read", "always"),))
    dialog, saved = opened(parent, config)
    dialog.kind.setCurrentIndex(1)
    dialog.url.setText("https://example.org/mcp")
    save(dialog)
    assert saved == [
        ServerConfig("a", url="https://example.org/mcp", enabled=False, permissions=(("read", "always"),))
    ]


def test_each_kind_shows_its_own_fields(qtbot: QtBot, parent: QWidget) -> None:
    dialog, _ = opened(parent, None)
    program = (dialog.command, dialog.arguments, dialog.environment, dialog.folder)
    address = (dialog.url, dialog.headers)
    for kind, seen, unseen in ((0, program, address), (1, address, program), (2, address, program)):
        dialog.kind.setCurrentIndex(kind)
        assert all(field.isVisibleTo(dialog) for field in seen)
        assert not any(field.isVisibleTo(dialog) for field in unseen)


def test_free_space_is_below_the_fields(qtbot: QtBot, parent: QWidget) -> None:
    dialog = ToolServerDialog(None, lambda _config: None, parent)
    dialog.show()
    gaps = []
    for height in (700, 1200):
        dialog.resize(560, height)
        QApplication.processEvents()
        gaps.append(dialog.kind.y() - dialog.name.geometry().bottom())
    assert gaps[0] == gaps[1] <= 16


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [
        (0, {"name": "  "}, "The server has no name"),
        (0, {"command": ""}, "No program is given"),
        (0, {"environment": "HOME"}, "The variable “HOME” has no equals sign"),
        (0, {"environment": "=x"}, "The variable “=x” has no equals sign"),
        (1, {"url": "example.org"}, "does not begin with http:// or https://"),
        (1, {"url": "https://h", "headers": "Token x"}, "The header “Token x” has no colon"),
    ],
)
def test_a_wrong_field_is_a_sentence(
    qtbot: QtBot, parent: QWidget, kind: int, fields: dict[str, str], sentence: str
) -> None:
    dialog, saved = opened(parent, None)
    dialog.kind.setCurrentIndex(kind)
    for name, text in ({"name": "a", "command": "x"} | fields).items():
        field = getattr(dialog, name)
        field.setPlainText(text) if isinstance(field, QPlainTextEdit) else field.setText(text)
    save(dialog)
    assert saved == []
    assert dialog.isVisible()
    assert sentence in dialog.trouble.accessibleName()


def test_lines_become_pairs(qtbot: QtBot, parent: QWidget) -> None:
    dialog, saved = opened(parent, None)
    dialog.name.setText(" a ")
    dialog.command.setText(" npx ")
    dialog.arguments.setPlainText("-y\n\n--name=my server\n")
    dialog.environment.setPlainText("\nKEY=a=b \nEMPTY=\n")
    dialog.folder.setText(" /work ")
    save(dialog)
    environment = (("KEY", "a=b "), ("EMPTY", ""))
    assert saved == [ServerConfig("a", "npx", ("-y", "--name=my server"), environment, "/work")]


@pytest.mark.parametrize("config", [FILES, WEATHER])
def test_values_that_may_be_keys_are_seen_on_request(
    qtbot: QtBot, parent: QWidget, config: ServerConfig
) -> None:
    secret = (config.environment or config.headers)[0][1]
    dialog, saved = opened(parent, config)
    field = dialog.environment if config.environment else dialog.headers
    assert secret not in field.toPlainText()
    assert (config.environment or config.headers)[0][0] in field.toPlainText()
    assert field.isReadOnly()
    dialog.values.click()
    assert secret in field.toPlainText()
    assert not dialog.values.isEnabled()
    field.setPlainText(field.toPlainText() + "2")
    save(dialog)
    assert (saved[0].environment or saved[0].headers)[0][1] == f"{secret}2"


def test_a_value_of_several_lines_that_is_not_shown_stays(qtbot: QtBot, parent: QWidget) -> None:
    config = ServerConfig("a", "x", environment=(("KEY", "-----BEGIN\nkey\n"),))
    dialog, saved = opened(parent, config)
    save(dialog)
    assert saved == [config]


def test_without_values_there_is_nothing_to_show(qtbot: QtBot, parent: QWidget) -> None:
    for config in (None, ServerConfig("a", "x")):
        dialog, _ = opened(parent, config)
        assert not dialog.values.isVisibleTo(dialog)
        assert not dialog.environment.isReadOnly()
        dialog.reject()


def test_another_kind_can_be_filled_in_while_values_are_hidden(qtbot: QtBot, parent: QWidget) -> None:
    dialog, saved = opened(parent, FILES)
    dialog.kind.setCurrentIndex(1)
    dialog.url.setText("https://example.org/mcp")
    assert not dialog.headers.isReadOnly()
    dialog.headers.setPlainText("Authorization: Bearer y")
    dialog.values.click()
    save(dialog)
    assert saved == [
        ServerConfig("files", url="https://example.org/mcp", headers=(("Authorization", "Bearer y"),))
    ]
