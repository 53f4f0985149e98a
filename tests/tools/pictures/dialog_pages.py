"""The pages of servers, comparisons, pictures, emoji and keys, for `tests.tools.pictures`."""

from __future__ import annotations

import dataclasses

from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QWidget

from desktop.services.tools.servers import (
    OfferedPrompt,
    OfferedResource,
    OfferedTool,
    PromptArgument,
    ServerConfig,
    ServerState,
)
from desktop.settings import LocalServerSettings
from desktop.store.attachments.picture_marks import mark_of
from desktop.store.attachments.pictures import PictureStore, StoredPicture
from desktop.views.commands.shortcuts_dialog import ShortcutsDialog
from desktop.views.comparison.page import ComparisonPage
from desktop.views.composer.emoji_picker import EmojiPicker
from desktop.views.composer.picture_viewer import PictureViewer
from desktop.views.local_server.server_window import LocalServerWindow
from desktop.views.providers.servers_page import ServersPage
from desktop.views.tools.tools_window import ToolsWindow
from engine.remote import Provider
from engine.server.service import Visit
from engine.words import _
from tests.desktop.picture_files import drawn, saved
from tests.desktop.views.local_server.test_server_window import Server
from tests.tools.pictures.page_list import act, page, top
from tests.tools.pictures.stage import Stage

_LAB = Provider("lab", "The computer in the laboratory", "http://gpu.example.org:8000/v1", unencrypted=True)

# -- servers


def _servers(stage: Stage) -> ServersPage:
    stage.shut()
    stage.window.model_controller.open_servers()
    shown = stage.window.model_controller.library
    assert shown is not None
    stage.until(shown.isVisible)
    return shown.servers


@page
def servers_empty(stage: Stage) -> QWidget:
    _servers(stage)
    return top(stage)


@page
def provider_new(stage: Stage) -> QWidget:
    _servers(stage).add.click()
    return top(stage)


@page
def provider_refused(stage: Stage) -> QWidget:
    """The address needs consent, and the dialog says what is wrong."""
    library = stage.window.model_controller.library
    shown = library.servers.dialog if library is not None else None
    assert shown is not None
    shown.name.setText(_LAB.name)
    shown.address.setText(_LAB.base_url)
    shown.key.setText("sk-1")
    shown.buttons.button(shown.buttons.StandardButton.Save).click()
    assert shown.trouble.isVisible()
    return stage.fit(shown)


@page
def servers(stage: Stage) -> QWidget:
    shown = _servers(stage)
    stage.window.services.providers.save(_LAB)
    shown.servers.setCurrentRow(0)
    return top(stage)


@page
def provider_change(stage: Stage) -> QWidget:
    _servers(stage).change.click()
    return top(stage)


@page
def local_server_off(stage: Stage) -> QWidget:
    stage.shut()
    stage.window.services.providers.remove(_LAB.id)
    act(stage, "local_server")
    return top(stage)


@page
def local_server(stage: Stage) -> QWidget:
    """Of a server that listens nowhere."""
    stage.shut()
    fake = Server()
    fake.who = (
        Visit(1, "127.0.0.1", "/v1/chat/completions", 12.4, 180, 31.5),
        Visit(2, "192.168.178.24", "/v1/messages", 0.8, 0, 0.0),
    )
    fake.change(LocalServerSettings(on=True, network=True, token="ink-" + "7" * 32))
    shown = LocalServerWindow(fake, stage.window)  # type: ignore[arg-type]
    fake.setParent(shown)
    shown.show()
    shown.visits.selectRow(0)
    return stage.fit(shown)


# -- tools


def _tools(stage: Stage) -> ToolsWindow:
    stage.shut()
    stage.window.tools.show_window()
    shown = stage.window.tools.window
    assert isinstance(shown, ToolsWindow)
    stage.until(shown.isVisible)
    return shown


@page
def tools_empty(stage: Stage) -> QWidget:
    _tools(stage)
    return top(stage)


@page
def tools_json(stage: Stage) -> QWidget:
    _tools(stage).paste.click()
    return top(stage)


@page
def tools_new(stage: Stage) -> QWidget:
    _tools(stage).add.click()
    return top(stage)


def _with_tools(stage: Stage) -> None:
    """Two servers, in states that no program is needed for."""
    service = stage.window.services.tools
    names = ("read_file", "write_file", "list_directory", "search_files")
    about = "Reads the complete contents of a file as text."
    ready = ServerConfig("files", "npx", ("-y", "@modelcontextprotocol/server-filesystem", "~/Documents"))
    found = tuple(OfferedTool("files", name, name.replace("_", " ").capitalize(), about) for name in names)
    failed = ServerConfig("weather", url="https://weather.example.org/mcp")
    for config in (ready, failed):
        service.add(dataclasses.replace(config, enabled=False))
    why = _("The tool server cannot be reached. Check its address and whether it runs.")
    values = (PromptArgument("text", "Text", "What is to be reviewed", True), PromptArgument("tone", "Tone"))
    prompts = (
        OfferedPrompt("files", "review", "Review a text", "Asks for a short and kind review.", values),
        OfferedPrompt("files", "sum_up", "Sum up a folder", "Asks what the files of a folder are about."),
    )
    resources = tuple(
        OfferedResource("files", f"file:///{name}", name, "A file of your documents.")
        for name in ("notes.md", "letter.txt", "house.png")
    )
    log = "Secure MCP Filesystem Server running on stdio"
    service._states = {
        "files": ServerState(ready, "ready", "", found, log, prompts, resources),
        "weather": ServerState(failed, "failed", why),
    }
    service.set_permission("files", "read_file", "always")


@page
def tools(stage: Stage) -> QWidget:
    window = _tools(stage)
    _with_tools(stage)
    window.show_log.setChecked(True)
    return top(stage)


@page
def tools_failed(stage: Stage) -> QWidget:
    _tools(stage).select("weather")
    return top(stage)


@page
def tools_sign_in(stage: Stage) -> QWidget:
    service = stage.window.services.tools
    failed = service._states["weather"]
    why = _("The tool server wants you to sign in.")
    service._states["weather"] = dataclasses.replace(failed, sentence=why, wants_sign_in=True)
    service.changed.emit()
    return top(stage)


@page
def tools_menu(stage: Stage) -> QWidget | None:
    stage.shut()
    stage.load()
    stage.session.new_conversation()
    return stage.take_menu(stage.window.chat.composer.tools.showMenu)


@page
def tools_prompts(stage: Stage) -> QWidget:
    stage.window.chat.composer.tools.prompts_requested.emit()
    return top(stage)


@page
def tools_resources(stage: Stage) -> QWidget:
    stage.shut()
    stage.window.chat.composer.tools.resources_requested.emit()
    return top(stage)


# -- replies side by side


def _comparison(stage: Stage) -> ComparisonPage:
    shown = stage.window.comparisons.page
    assert shown is not None
    return shown


@page
def comparison_dialog(stage: Stage) -> QWidget:
    stage.shut()
    stage.open_talk()
    act(stage, "compare")
    return top(stage)


@page
def comparison_running(stage: Stage) -> QWidget:
    stage.shut()
    stage.echo.chat.reply, stage.echo.chat.delay_s = "Sow the peas first, then the beans. " * 20, 0.02
    act(stage, "several")
    stage.until(lambda: len(_comparison(stage).columns) > 1)
    stage.spin(0.8)
    return stage.window


@page
def comparison(stage: Stage) -> QWidget:
    stage.echo.chat.delay_s = 0.0
    stage.until(lambda: not stage.session.busy)
    stage.spin(0.4)
    return stage.window


# -- pictures, emoji and keys


@page
def picture_viewer(stage: Stage) -> QWidget:
    stage.shut()
    _comparison(stage).leave()
    data = saved(drawn(1200, 800))
    picture = StoredPicture("image/png", 1200, 800, data)
    key = PictureStore(stage.session.stores.database).put(picture)
    transcript = stage.window.chat.transcript
    mark = mark_of("the bed behind the house in May.png", key, 1200, 800)
    shown = PictureViewer(mark, picture, transcript.pictures, stage.window)
    shown.open()
    stage.until(lambda: not shown.label.pixmap().isNull())
    return stage.fit(shown)


def _emoji(stage: Stage) -> EmojiPicker:
    shown = stage.window.composer_controller.emoji
    assert shown is not None
    return shown


@page
def emoji(stage: Stage) -> QWidget:
    stage.shut()
    act(stage, "emoji")
    return stage.fit(_emoji(stage))


@page
def emoji_none(stage: Stage) -> QWidget:
    _emoji(stage).query.setText("zeppelinn")
    return stage.fit(_emoji(stage))


def _edited(stage: Stage, key: str) -> QWidget:
    stage.shut()
    act(stage, "shortcuts")
    shown = top(stage)
    assert isinstance(shown, ShortcutsDialog)
    shown.rows["several"].add.click()
    shown.editor.keys.setKeySequence(QKeySequence(key))
    stage.spin()
    return shown


@page
def shortcut_editor(stage: Stage) -> QWidget:
    return _edited(stage, "Ctrl+Alt+Shift+G")


@page
def shortcut_taken(stage: Stage) -> QWidget:
    """The key belongs to another command, and would type a letter."""
    return _edited(stage, "Ctrl+K")
