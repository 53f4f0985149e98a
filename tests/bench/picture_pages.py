"""Every page of the program that `tests.bench.pictures` takes a picture of: how it is reached from the open window."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QMessageBox, QWidget

from desktop.services.exchange_report import ImportReport
from desktop.settings import PANES, Appearance, Behaviour
from desktop.store.exchange import Broken
from desktop.store.personas import Persona
from desktop.store.prompts import Prompt
from desktop.views.attachment_preview import AttachmentPreview
from desktop.views.group import Group
from desktop.views.prompt_form import PromptForm
from desktop.views.report_dialog import ReportDialog
from desktop.views.transcript.token_row import TokenRow
from engine.settings import CacheSettings, SpeculationSettings
from tests.bench.picture_stage import Stage

__all__ = ["PAGES"]

Page = Callable[[Stage], QWidget | None]
PAGES: dict[str, Page] = {}
"""By name, in the order they are taken: what brings the page up and returns the widget to be pictured (None: the stage took it)."""


def page(found: Page) -> Page:
    PAGES[found.__name__] = found
    return found


def _action(stage: Stage, name: str) -> None:
    stage.window.actions_by_name[name].trigger()
    stage.spin()


def _top(stage: Stage) -> QWidget:
    """The window or popup that was opened last."""
    shown = [w for w in QApplication.topLevelWidgets() if w.isVisible() and w is not stage.window and not isinstance(w, QMenu)]
    assert shown, "nothing was opened"
    return stage.fit(shown[-1])


# -- before there is a model


@page
def first_run(stage: Stage) -> QWidget:
    stage.window.chat.welcome.show_first_run()
    return stage.window


@page
def first_run_download(stage: Stage) -> QWidget:
    stage.window.chat.welcome.show_download("Downloading SmolLM2: 41 of 98 MB", 41, 98)
    return stage.window


@page
def first_run_trouble(stage: Stage) -> QWidget:
    stage.window.chat.welcome.end_download("huggingface.co cannot be reached: look at the network connection, then try again.")
    return stage.window


@page
def first_run_found(stage: Stage) -> QWidget:
    stage.window.desk.look_for_models()
    stage.spin(0.5)
    stage.window.chat.welcome.end_download()
    return stage.window


@page
def loading(stage: Stage) -> QWidget:
    stage.window.chat.welcome.show_loading("Loading weights", 2, 5)
    return stage.window


@page
def ready(stage: Stage) -> QWidget:
    stage.load()
    stage.session.new_conversation()
    return stage.window


# -- the conversation


@page
def chat(stage: Stage) -> QWidget:
    stage.fill()
    stage.open_talk()
    return stage.window


@page
def chat_middle(stage: Stage) -> QWidget:
    bar = stage.window.chat.transcript.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    return stage.window


@page
def chat_top(stage: Stage) -> QWidget:
    stage.window.chat.transcript.verticalScrollBar().setValue(0)
    return stage.window


@page
def chat_hover(stage: Stage) -> QWidget:
    viewport = stage.window.chat.transcript.viewport()
    QTest.mouseMove(viewport, QPoint(viewport.width() // 2, viewport.height() // 2))
    return stage.window


@page
def editing(stage: Stage) -> QWidget:
    stage.window.chat.edit_last_own()
    return stage.window


@page
def finding(stage: Stage) -> QWidget:
    stage.open_talk()
    _action(stage, "find")
    QTest.keyClicks(QApplication.focusWidget(), "basin")
    return stage.window


@page
def tokens(stage: Stage) -> QWidget:
    stage.window.chat.transcript.finding.close()
    stage.session.set_settings(dataclasses.replace(stage.session.settings(Appearance), token_colours="probability"))
    stage.spin(0.5)
    return stage.window


@page
def token_popup(stage: Stage) -> QWidget:
    transcript = stage.window.chat.transcript
    transcript.flush()
    rows = [widget for widget in transcript.stage.live.values() if isinstance(widget, TokenRow)]
    rows = [row for row in rows if not row.visibleRegion().isEmpty()] or rows
    transcript.inspection.open(rows[0].row, 2, focus=True)
    stage.spin(0.3)
    return stage.window


@page
def tokens_entropy(stage: Stage) -> QWidget:
    stage.window.chat.transcript.inspection.close()
    stage.session.set_settings(dataclasses.replace(stage.session.settings(Appearance), token_colours="entropy"))
    return stage.window


@page
def temporary(stage: Stage) -> QWidget:
    stage.session.set_settings(dataclasses.replace(stage.session.settings(Appearance), token_colours="off"))
    _action(stage, "new_temporary")
    return stage.window


def _banner(stage: Stage, words: str, level: str, **more: object) -> QWidget:
    stage.open_talk()
    stage.window.chat.banner.show_notice(words, level, **more)  # type: ignore[arg-type]
    return stage.window


@page
def banner_info(stage: Stage) -> QWidget:
    return _banner(stage, "“A kitchen garden” was moved to the trash.", "info", undo=True)


@page
def banner_warning(stage: Stage) -> QWidget:
    words = "The last run of Inglenook ended unexpectedly, without a trace of why. What was written until then is saved."
    return _banner(stage, words, "warning", offer=("Show report…", lambda: None))


@page
def banner_error(stage: Stage) -> QWidget:
    words = "The graphics card ran out of memory: choose a shorter context or a smaller model, then load it again."
    return _banner(stage, words, "error", offer=("Load the model again", lambda: None))


@page
def drop_hint(stage: Stage) -> QWidget:
    stage.window.chat.banner.hide()
    stage.window.drop_hint.cover("Drop the files here to attach them to your message")
    return stage.window


@page
def context_popup(stage: Stage) -> QWidget:
    stage.window.drop_hint.hide()
    _action(stage, "context")
    return stage.window.findChild(QWidget, "contextPopup") or _top(stage)


# -- writing


@page
def attachments(stage: Stage) -> QWidget:
    stage.shut()
    files = {"garden plan.md": "# Plan\n\n- peas\n", "a very long name of a table with all the seeds of 2026.csv": "a;b\n1;2\n" * 90}
    for name, text in files.items():
        (stage.folder / name).write_text(text, encoding="utf-8")
        stage.window.files.take([stage.folder / name])
        stage.spin(0.3)
    stage.window.chat.composer.set_text("What should I sow first?\nAnd what can wait until May?")
    stage.window.chat.composer.setFocus()
    return stage.window


@page
def attachment_preview(stage: Stage) -> QWidget:
    stage.window.writing.files._open(stage.window.writing.files.held()[0].key)
    stage.spin()
    return stage.fit(stage.window.findChildren(AttachmentPreview)[-1])


@page
def too_long(stage: Stage) -> QWidget:
    stage.shut()
    words = "This message is 1,204 tokens too long: it has 5,300, the context holds 4,096."
    stage.window.writing.offers.offer("too long", words, "Trim to fit", lambda: None, "warning")
    return stage.window


@page
def opening(stage: Stage) -> QWidget:
    stage.window.writing.offers.hide()
    stage.window.chat.composer.set_opening("Sow the peas first, because")
    return stage.window


@page
def queue(stage: Stage) -> QWidget:
    writing = stage.window.services.writing
    writing.attachments.put((), stage.session.conversation)
    stage.window.chat.composer.set_opening("")
    stage.window.chat.composer.set_text("")
    stage.begin_reply()
    writing.queue.add("And how deep do carrots go?", "")
    writing.queue.add("Then write the whole plan once more as a table with one row for each week, and leave out what we said of herbs.", "")
    return stage.window


@page
def queue_held(stage: Stage) -> QWidget:
    stage.end_reply()
    return stage.window


@page
def slash_popup(stage: Stage) -> QWidget:
    queue = stage.window.services.writing.queue
    for waiting in queue.waiting(stage.session.conversation):
        queue.remove(waiting.id)
    stage.window.activateWindow()
    stage.window.chat.composer.box.setFocus()
    stage.spin(0.3)
    QTest.keyClicks(stage.window.chat.composer.box, "/")
    return stage.window


@page
def prompts_empty(stage: Stage) -> QWidget:
    stage.window.chat.composer.box.clear()
    _action(stage, "prompts")
    return _top(stage)


@page
def prompts(stage: Stage) -> QWidget:
    service = stage.window.services.writing.prompts
    for name, text in (("Translate", "Say {{text}} in {{language=French}}."), ("Shorten", "Make this shorter:\n\n{{text}}")):
        service.put(Prompt(0, name, text))
    return _top(stage)


@page
def prompt_form(stage: Stage) -> QWidget:
    stage.shut()
    stage.window.writing.prompts.insert(stage.window.services.writing.prompts.prompts()[-1])
    stage.spin()
    return stage.fit(stage.window.findChildren(PromptForm)[-1])


# -- the sidebar


def _side(stage: Stage) -> QWidget:
    """The pane at its own width in a picture as high as the window."""
    stage.show_sidebar()
    return stage.window.sidebar


@page
def sidebar(stage: Stage) -> QWidget:
    stage.shut()
    stage.show_sidebar()
    shelf = stage.window.services.shelf.rows
    shelf.set_open_folders(set(stage.folders))
    return _side(stage)


@page
def sidebar_selection(stage: Stage) -> QWidget:
    shown = stage.window.sidebar.list
    shown.setFocus()
    shown.setCurrentIndex(shown.model().index(3, 0))
    for _ in range(3):
        QTest.keyClick(shown, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    return _side(stage)


@page
def sidebar_rename(stage: Stage) -> QWidget:
    _action(stage, "rename")
    return _side(stage)


@page
def sidebar_hits(stage: Stage) -> QWidget:
    stage.window.sidebar.query.setFocus()
    stage.window.sidebar.query.setText("peas")
    stage.window.sidebar.find_now()
    stage.spin(0.5)
    return _side(stage)


@page
def sidebar_no_hits(stage: Stage) -> QWidget:
    stage.window.sidebar.query.setText("zeppelin")
    stage.window.sidebar.find_now()
    stage.spin(0.5)
    return _side(stage)


@page
def trash(stage: Stage) -> QWidget:
    stage.window.sidebar.query.clear()
    stage.spin()
    _action(stage, "trash")
    return _side(stage)


@page
def trash_empty(stage: Stage) -> QWidget:
    stage.window.sidebar.trash.show_rows((), 30)
    return _side(stage)


@page
def question(stage: Stage) -> QWidget:
    stage.window.sidebar.leave_trash()
    stage.window.shelf_desk.remove_folder(stage.folders[0])
    stage.spin()
    return stage.window.findChildren(QMessageBox)[-1]


@page
def chat_menu(stage: Stage) -> QWidget | None:
    stage.shut()
    shown = stage.window.sidebar.list
    place = shown.visualRect(shown.model().index(3, 0)).center()
    return stage.take_menu(lambda: stage.context(shown, place))


# -- the inspector: each pane by itself, so high as it is


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
    stage.session.set_settings(dataclasses.replace(stage.session.settings(CacheSettings), context_length=2048))
    group = stage.window.inspector.group(CacheSettings)
    group.open()
    return group


# -- windows


@page
def origin(stage: Stage) -> QWidget:
    stage.open_talk()
    _action(stage, "origin")
    stage.spin(0.5)
    return _top(stage)


@page
def figures(stage: Stage) -> QWidget:
    stage.shut()
    stage.session.set_settings(SpeculationSettings(method="none"))
    _action(stage, "figures")
    return _top(stage)


@page
def figures_empty(stage: Stage) -> QWidget:
    stage.session.new_conversation()
    stage.window.clarity.open_figures()
    stage.spin()
    return _top(stage)


@page
def personas_empty(stage: Stage) -> QWidget:
    stage.shut()
    stage.open_talk()
    _action(stage, "personas")
    return _top(stage)


@page
def personas(stage: Stage) -> QWidget:
    dialog = stage.window.personas.dialog
    assert dialog is not None
    service = stage.window.personas.service
    if not service.personas():
        for name, avatar in (("Ada Lovelace", ""), ("Cook", "🍲")):
            service._store.save(Persona(0, name, avatar, "You are " + name + "."))
    dialog.show_personas(service.personas()[0].id)
    return _top(stage)


@page
def folder_settings(stage: Stage) -> QWidget:
    stage.shut()
    stage.window.folders.open(stage.folders[0])
    stage.spin()
    return _top(stage)


@page
def export(stage: Stage) -> QWidget:
    stage.window.folders.close()
    stage.shut()
    _action(stage, "export_chat")
    return _top(stage)


@page
def export_running(stage: Stage) -> QWidget:
    dialog = stage.window.exchange.export_dialog
    assert dialog is not None
    dialog.show_progress(12, 40)
    return _top(stage)


def _importing(stage: Stage) -> QWidget:
    from desktop.views.import_window import ImportWindow

    stage.shut()
    stage.window.exchange.close_window()
    stage.window.exchange.import_window = shown = ImportWindow("“conversations.json”", stage.window)
    shown.show()
    stage.spin()
    return shown


@page
def import_running(stage: Stage) -> QWidget:
    shown = _importing(stage)
    shown.show_report(ImportReport(share=0.4, new=120, known=3, messages=2310))  # type: ignore[attr-defined]
    return _top(stage)


@page
def import_end(stage: Stage) -> QWidget:
    shown = _importing(stage)
    broken = tuple(Broken(f"conversations[{n}].mapping", "it has no messages") for n in (7, 31))
    told = ImportReport(share=1, new=412, extended=2, known=9, trashed=1, messages=9310, broken=broken, broken_count=2, first=1)
    shown.show_end(told)  # type: ignore[attr-defined]
    return _top(stage)


@page
def backups_empty(stage: Stage) -> QWidget:
    stage.window.exchange.close_window()
    _action(stage, "restore_backup")
    stage.spin(0.3)
    return _top(stage)


@page
def backups(stage: Stage) -> QWidget:
    dialog = stage.window.safety.dialog
    assert dialog is not None
    dialog.make.click()
    stage.until(lambda: dialog.list.count() > 0)
    return _top(stage)


@page
def report(stage: Stage) -> QWidget:
    stage.shut()
    words = 'Inglenook 0.9\nPython 3.11\nQt 6.11\n\nTraceback (most recent call last):\n  File "a.py", line 3\nValueError: 3\n' * 4
    ReportDialog("An error that nothing handled: ValueError: 3.", words, lambda: None, stage.window).open()
    stage.spin()
    return _top(stage)


@page
def log(stage: Stage) -> QWidget:
    stage.shut()
    (stage.folder / "logs").mkdir(exist_ok=True)
    lines = [("INFO", "Inglenook starts"), ("WARNING", "The last model is not at its place any more"), ("ERROR", "Out of memory")]
    text = "".join(f"2026-03-04 10:1{n}:00,123 {level} desktop.app: {words}\n" for n, (level, words) in enumerate(lines))
    (stage.folder / "logs" / "inglenook.log").write_text(text, encoding="utf-8")
    _action(stage, "log")
    stage.spin(0.5)
    return _top(stage)


@page
def applications_menu(stage: Stage) -> QWidget:
    stage.shut()
    _action(stage, "menu_entry")
    return _top(stage)


@page
def shortcuts(stage: Stage) -> QWidget:
    stage.shut()
    _action(stage, "shortcuts")
    return _top(stage)


@page
def about(stage: Stage) -> QWidget:
    stage.shut()
    _action(stage, "about")
    return _top(stage)


# -- the library


@page
def library_empty(stage: Stage) -> QWidget:
    stage.shut()
    names, stage.door.names = stage.door.names, []
    _action(stage, "library")
    stage.spin(0.6)
    stage.door.names = names
    return _top(stage)


@page
def library(stage: Stage) -> QWidget:
    stage.window.library.refresh()
    stage.spin(1.2)
    return _top(stage)


@page
def library_details(stage: Stage) -> QWidget:
    shown = stage.window.library.window
    assert shown is not None
    shown.local.table.select(str(stage.folder / f"{stage.door.names[1]}.gguf"))
    stage.spin(0.4)
    return _top(stage)


@page
def hub_empty(stage: Stage) -> QWidget:
    shown = stage.window.library.window
    assert shown is not None
    shown.tabs.setCurrentWidget(shown.hub)
    return _top(stage)


@page
def hub(stage: Stage) -> QWidget:
    shown = stage.window.library.window
    assert shown is not None
    shown.hub.query.setText("qwen")
    shown.hub.search()
    stage.until(lambda: shown.hub.found.rowCount() > 0)
    shown.hub.results.setCurrentIndex(shown.hub.found.index(0))
    stage.until(lambda: shown.hub.choices.rowCount() > 0)
    return _top(stage)


@page
def hub_download(stage: Stage) -> QWidget:
    shown = stage.window.library.window
    assert shown is not None
    stage.gate()
    shown.hub.get.click()
    stage.spin(0.5)
    return _top(stage)


# -- menus


def _menu(title: str) -> Page:
    def taken(stage: Stage) -> QWidget | None:
        stage.shut()
        bar = stage.window.menuBar()
        found = next(action for action in bar.actions() if action.text().replace("&", "") == title)
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
