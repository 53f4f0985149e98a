"""The pages of the settings, of every window, of the library and of the menus, for `tests.tools.pictures`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu, QMessageBox, QWidget

from desktop.services.transfer.transfer_report import ImportReport
from desktop.settings import PANES, PREFERENCES, Behaviour
from desktop.store.conversations.personas import Persona
from desktop.store.transfer.records import Broken
from desktop.views.application.error_report_dialog import ErrorReportDialog
from desktop.views.application.update_dialog import UpdateDialog
from desktop.views.widgets.collapsible import Group
from engine.settings import CacheSettings, SpeculationSettings
from engine.words import translate
from tests.desktop.fake_updates import FakeUpdates
from tests.tools.pictures.page_list import Page, act, page, top
from tests.tools.pictures.stage import Stage

# -- the inspector: each pane alone, at its full height


@page
def inspector(stage: Stage) -> QWidget:
    stage.show_inspector()
    stage.session.set_settings(dataclasses.replace(stage.session.settings(Behaviour), show_advanced=True))
    return stage.window.inspector


@page
def inspector_search(stage: Stage) -> QWidget:
    stage.window.inspector.query.setText("temperature")
    return stage.window.inspector


@page
def inspector_nothing(stage: Stage) -> QWidget:
    stage.window.inspector.query.setText("zeppelin")
    return stage.window.inspector


def _pane(number: int) -> Page:
    def taken(stage: Stage) -> QWidget:
        stage.window.inspector.query.clear()
        groups = stage.window.inspector.findChildren(Group)
        for group in groups:
            group.open(False)
        group = stage.window.inspector.group(PANES[number][1])
        group.open()
        stage.spin(0.3)
        return group

    taken.__name__ = "pane_" + PANES[number][0].lower().replace(" ", "_")
    return taken


for _number in range(len(PANES)):
    page(_pane(_number))


@page
def reload_strip(stage: Stage) -> QWidget:
    stage.session.set_settings(
        dataclasses.replace(stage.session.settings(CacheSettings), context_length=2048)
    )
    group = stage.window.inspector.group(CacheSettings)
    group.open()
    return group


# -- the Preferences, page by page


def _preferences(number: int) -> Page:
    def taken(stage: Stage) -> QWidget:
        if not number:
            stage.shut()
            act(stage, "preferences")
        shown = stage.window.preferences.preferences
        assert shown is not None
        shown.show_page(number)
        stage.spin(0.2)
        return stage.fit(shown)

    taken.__name__ = "preferences_" + PREFERENCES[number].title.lower().replace(" ", "_")
    return taken


for _number in range(len(PREFERENCES)):
    page(_preferences(_number))


@page
def preferences_search(stage: Stage) -> QWidget:
    shown = stage.window.preferences.preferences
    assert shown is not None
    shown.query.setText("chats")
    return stage.fit(shown)


# -- windows


@page
def origin(stage: Stage) -> QWidget:
    stage.open_talk()
    act(stage, "origin")
    stage.spin(0.5)
    return top(stage)


@page
def figures(stage: Stage) -> QWidget:
    stage.shut()
    stage.session.set_settings(SpeculationSettings(method="none"))
    act(stage, "figures")
    return top(stage)


@page
def figures_empty(stage: Stage) -> QWidget:
    stage.session.new_conversation()
    stage.window.context.open_figures()
    stage.spin()
    return top(stage)


@page
def personas_empty(stage: Stage) -> QWidget:
    stage.shut()
    stage.open_talk()
    act(stage, "personas")
    return top(stage)


@page
def personas(stage: Stage) -> QWidget:
    dialog = stage.window.personas.dialog
    assert dialog is not None
    service = stage.window.personas.service
    if not service.personas():
        for name, avatar in (("Ada Lovelace", ""), ("Cook", "🍲")):
            service._store.save(Persona(0, name, avatar, "You are " + name + "."))
    dialog.show_personas(service.personas()[0].id)
    return top(stage)


@page
def folder_settings(stage: Stage) -> QWidget:
    stage.shut()
    stage.window.sidebar_controller.open_folder(stage.folders[0])
    stage.spin()
    return top(stage)


@page
def export(stage: Stage) -> QWidget:
    stage.window.sidebar_controller.close_folder()
    stage.shut()
    act(stage, "export_chat")
    return top(stage)


@page
def export_running(stage: Stage) -> QWidget:
    dialog = stage.window.transfer.export_dialog
    assert dialog is not None
    dialog.export_requested.disconnect()
    dialog.begin("Markdown", stage.folder / "chat.md")
    dialog.show_progress(12, 40)
    return top(stage)


def _importing(stage: Stage) -> QWidget:
    from desktop.views.transfer.import_window import ImportWindow

    stage.shut()
    stage.window.transfer.close_window()
    stage.window.transfer.import_window = shown = ImportWindow("“conversations.json”", stage.window)
    shown.show()
    stage.spin()
    return shown


@page
def import_running(stage: Stage) -> QWidget:
    shown = _importing(stage)
    shown.show_report(ImportReport(share=0.4, new=120, known=3, messages=2310))  # type: ignore[attr-defined]
    return top(stage)


@page
def import_end(stage: Stage) -> QWidget:
    shown = _importing(stage)
    broken = tuple(Broken(f"conversations[{n}].mapping", "it has no messages") for n in (7, 31))
    report = ImportReport(
        share=1,
        new=412,
        extended=2,
        known=9,
        trashed=1,
        messages=9310,
        broken=broken,
        broken_count=2,
        first=1,
    )
    shown.show_end(report)  # type: ignore[attr-defined]
    return top(stage)


@page
def backups_empty(stage: Stage) -> QWidget:
    stage.window.transfer.close_window()
    act(stage, "restore_backup")
    stage.spin(0.3)
    return top(stage)


@page
def backups(stage: Stage) -> QWidget:
    dialog = stage.window.backups.dialog
    assert dialog is not None
    dialog.make.click()
    stage.until(lambda: dialog.list.count() > 0)
    return top(stage)


@page
def move_data(stage: Stage) -> QWidget:
    stage.shut()
    act(stage, "move_data")
    return top(stage)


@page
def move_refused(stage: Stage) -> QWidget:
    dialog = stage.window.data_folder.move_dialog
    assert dialog is not None
    dialog.offer(Path("/"))
    return top(stage)


@page
def move_question(stage: Stage) -> QWidget:
    dialog = stage.window.data_folder.move_dialog
    assert dialog is not None
    dialog.offer(stage.desktop.services.folder.with_name(f"{stage.desktop.services.folder.name}-new"))
    box = dialog.findChild(QMessageBox)
    assert box is not None
    return stage.fit(box)


@page
def updates_without_address(stage: Stage) -> QWidget:
    stage.shut()
    act(stage, "updates")
    return top(stage)


@page
def updates_found(stage: Stage) -> QWidget:
    stage.shut()
    stage.window.services.updates.api = FakeUpdates()
    act(stage, "updates")
    stage.until(lambda: update_dialog(stage).act.text() == translate("Install"))
    return top(stage)


@page
def updates_installed(stage: Stage) -> QWidget:
    update_dialog(stage).act.click()
    stage.until(lambda: update_dialog(stage).act.text() == translate("Restart now"))
    return top(stage)


def update_dialog(stage: Stage) -> UpdateDialog:
    dialog = stage.window.application_controller.update_dialog
    assert dialog is not None
    return dialog


@page
def report(stage: Stage) -> QWidget:
    stage.shut()
    words = (
        'Inglenook 0.9\nPython 3.11\nQt 6.11\n\nTraceback (most recent call last):\n  File "a.py", line '
        "3\nValueError: 3\n" * 4
    )
    ErrorReportDialog(
        "An error that nothing handled: ValueError: 3.", words, lambda: None, stage.window
    ).open()
    stage.spin()
    return top(stage)


@page
def log(stage: Stage) -> QWidget:
    stage.shut()
    (stage.folder / "logs").mkdir(exist_ok=True)
    lines = [
        ("INFO", "Inglenook starts"),
        ("WARNING", "The last model is not at its place any more"),
        ("ERROR", "Out of memory"),
    ]
    text = "".join(
        f"2026-03-04 10:1{n}:00,123 {level} desktop.app: {words}\n" for n, (level, words) in enumerate(lines)
    )
    (stage.folder / "logs" / "inglenook.log").write_text(text, encoding="utf-8")
    act(stage, "log")
    stage.spin(0.5)
    return top(stage)


@page
def applications_menu(stage: Stage) -> QWidget:
    stage.shut()
    act(stage, "menu_entry")
    return top(stage)


@page
def shortcuts(stage: Stage) -> QWidget:
    stage.shut()
    act(stage, "shortcuts")
    return top(stage)


@page
def palette(stage: Stage) -> QWidget:
    stage.shut()
    act(stage, "palette")
    QTest.keyClicks(stage.focus(), "pe")
    stage.spin(0.5)
    return stage.window


@page
def about(stage: Stage) -> QWidget:
    stage.shut()
    QTest.keyClick(stage.focus(), Qt.Key.Key_Escape)
    act(stage, "about")
    return top(stage)


# -- the library


def _library(stage: Stage) -> QWidget:
    shown = stage.window.model_controller.library
    assert shown is not None
    return stage.fit(shown)


@page
def library_empty(stage: Stage) -> QWidget:
    stage.shut()
    names, stage.echo.names = stage.echo.names, []
    act(stage, "library")
    stage.spin(0.6)
    stage.echo.names = names
    return _library(stage)


@page
def library(stage: Stage) -> QWidget:
    stage.window.model_controller.open_library()
    stage.spin(1.2)
    return _library(stage)


@page
def library_details(stage: Stage) -> QWidget:
    shown = stage.window.model_controller.library
    assert shown is not None
    shown.local.table.select(str(stage.folder / f"{stage.echo.names[1]}.gguf"))
    stage.spin(0.4)
    return stage.fit(shown)


@page
def picks(stage: Stage) -> QWidget:
    act(stage, "get_models")
    shown = stage.window.model_controller.library
    assert shown is not None
    stage.until(lambda: bool(shown.hub.picks.cards))
    return stage.fit(shown)


@page
def hub(stage: Stage) -> QWidget:
    shown = stage.window.model_controller.library
    assert shown is not None
    shown.hub.query.setText("qwen")
    shown.hub.search()
    stage.until(lambda: shown.hub.found.rowCount() > 0)
    shown.hub.results.setCurrentIndex(shown.hub.found.index(0))
    stage.until(lambda: shown.hub.choices.rowCount() > 0)
    return stage.fit(shown)


@page
def hub_download(stage: Stage) -> QWidget:
    shown = stage.window.model_controller.library
    assert shown is not None
    stage.gate()
    shown.hub.get.click()
    stage.spin(0.5)
    return stage.fit(shown)


# -- menus


def _menu(title: str) -> Page:
    def taken(stage: Stage) -> QWidget | None:
        stage.shut()
        bar = stage.window.menuBar()
        wanted = translate(title)
        found = next(each for each in bar.actions() if each.text().replace("&", "") == wanted)
        return stage.take_menu(lambda: _popup(stage, found))

    taken.__name__ = "menu_" + title.lower()
    return taken


def _popup(stage: Stage, action: QAction) -> None:
    menu = action.menu()
    assert isinstance(menu, QMenu)
    menu.popup(stage.window.mapToGlobal(QPoint(20, 40)))


for _title in ("File", "Edit", "Chat", "View", "Help"):
    page(_menu(_title))


@page
def model_menu(stage: Stage) -> QWidget | None:
    return stage.take_menu(stage.window.picker.showMenu)


@page
def persona_menu(stage: Stage) -> QWidget | None:
    return stage.take_menu(stage.window.personas.picker.open_menu)
