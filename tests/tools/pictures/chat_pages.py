"""The pages of the conversation, the composer and the sidebar in all their states, for
`tests.tools.pictures`.
"""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox, QWidget

from desktop.settings import Appearance
from desktop.store.conversations.tool_calls import NOT_ALLOWED, StoredCall
from desktop.store.settings.saved_prompts import Prompt
from desktop.views.composer.attachment_preview import AttachmentPreview
from desktop.views.composer.saved_prompt_form import SavedPromptForm
from desktop.views.transcript.tokens.row import TokenRow
from engine.words import _
from tests.tools.pictures.page_list import act, page, top
from tests.tools.pictures.stage import Stage

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
    stage.window.chat.welcome.end_download(
        "huggingface.co cannot be reached: look at the network connection, then try again."
    )
    return stage.window


@page
def first_run_found(stage: Stage) -> QWidget:
    stage.window.model_controller.look_for_models()
    stage.until_found()
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
def chattop(stage: Stage) -> QWidget:
    stage.window.chat.transcript.verticalScrollBar().setValue(0)
    return stage.window


@page
def chat_hover(stage: Stage) -> QWidget:
    viewport = stage.window.chat.transcript.viewport()
    QTest.mouseMove(viewport, QPoint(viewport.width() // 2, viewport.height() // 2))
    return stage.window


@page
def calls(stage: Stage) -> QWidget:
    session = stage.session
    session.new_conversation()
    store, chat = session.stores.kept, session.conversation
    above = store.add_message(chat, None, "user", "How much rain fell in the basin this year?").id
    above = store.add_message(chat, above, "assistant", "I look at the measurements first.").id
    call = StoredCall("1", "list", '{"folder": "measurements"}', "files", "list_directory")
    for state, text in (("complete", "rain-2026.csv"), ("failed", "No such folder."), ("running", "")):
        above = store.add_message(chat, above, "tool", text, state, call=call).id
    above = store.add_message(chat, above, "tool", NOT_ALLOWED, "stopped", call=call).id
    wanted = StoredCall(
        "2", "read", '{"path": "rain-2026.csv", "rows": [1, 400]}', "files", "read_file", waiting=True
    )
    store.add_message(chat, above, "tool", "", "stopped", call=wanted)
    session.open_conversation(chat)
    return stage.window


@page
def editing(stage: Stage) -> QWidget:
    stage.window.chat.message_commands.edit_last_own()
    return stage.window


@page
def finding(stage: Stage) -> QWidget:
    stage.open_talk()
    act(stage, "find")
    QTest.keyClicks(stage.focus(), "basin")
    return stage.window


@page
def tokens(stage: Stage) -> QWidget:
    stage.window.chat.transcript.finding.close()
    stage.session.set_settings(
        dataclasses.replace(stage.session.settings(Appearance), token_colours="probability")
    )
    stage.spin(0.5)
    return stage.window


@page
def token_popup(stage: Stage) -> QWidget:
    transcript = stage.window.chat.transcript
    transcript.flush()
    rows = [widget for widget in transcript.pool.live.values() if isinstance(widget, TokenRow)]
    rows = [row for row in rows if not row.visibleRegion().isEmpty()] or rows
    row = rows[0].row
    assert row is not None
    transcript.inspection.open(row, 2, focus=True)
    stage.spin(0.3)
    return stage.window


@page
def tokens_entropy(stage: Stage) -> QWidget:
    stage.window.chat.transcript.inspection.close()
    stage.session.set_settings(
        dataclasses.replace(stage.session.settings(Appearance), token_colours="entropy")
    )
    return stage.window


@page
def temporary(stage: Stage) -> QWidget:
    stage.session.set_settings(dataclasses.replace(stage.session.settings(Appearance), token_colours="off"))
    act(stage, "new_temporary")
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
    words = _(
        "Inglenook ended unexpectedly the last time it ran, and the cause is unknown. Everything "
        "written until then was saved."
    )
    return _banner(stage, words, "warning", offer=(_("Show report…"), lambda: None))


@page
def banner_error(stage: Stage) -> QWidget:
    words = (
        "The graphics card ran out of memory: choose a shorter context or a smaller model, then load it "
        "again."
    )
    return _banner(stage, words, "error", offer=(_("Reload the model"), lambda: None))


@page
def drop_hint(stage: Stage) -> QWidget:
    stage.window.chat.banner.hide()
    stage.window.drop_hint.cover(_("Drop the files here to attach them to your message"))
    return stage.window


@page
def context_popup(stage: Stage) -> QWidget:
    stage.window.drop_hint.hide()
    act(stage, "context")
    return stage.window.findChild(QWidget, "contextPopup") or top(stage)


# -- writing


@page
def attachments(stage: Stage) -> QWidget:
    stage.shut()
    files = {
        "garden plan.md": "# Plan\n\n- peas\n",
        "a very long name of a table with all the seeds of 2026.csv": "a;b\n1;2\n" * 90,
    }
    for name, text in files.items():
        (stage.folder / name).write_text(text, encoding="utf-8")
        stage.window.files.open([stage.folder / name])
        stage.spin(0.3)
    stage.window.chat.composer.set_text("What should I sow first?\nAnd what can wait until May?")
    stage.window.chat.composer.setFocus()
    return stage.window


@page
def attachment_preview(stage: Stage) -> QWidget:
    stage.window.composer_controller.files._open(stage.window.composer_controller.files.held()[0].key)
    stage.spin()
    return stage.fit(stage.window.findChildren(AttachmentPreview)[-1])


@page
def too_long(stage: Stage) -> QWidget:
    stage.shut()
    words = "This message is 1,204 tokens too long: it has 5,300, the context holds 4,096."
    stage.window.composer_controller.offers.offer(
        "too long", words, _("Trim to fit"), lambda: None, "warning"
    )
    return stage.window


@page
def opening(stage: Stage) -> QWidget:
    stage.window.composer_controller.offers.hide()
    stage.window.chat.composer.set_opening("Sow the peas first, because")
    return stage.window


@page
def queue(stage: Stage) -> QWidget:
    writing = stage.window.services.composer
    writing.attachments.put((), stage.session.conversation)
    stage.window.chat.composer.set_opening("")
    stage.window.chat.composer.set_text("")
    stage.begin_reply()
    writing.queue.add("And how deep do carrots go?", "")
    writing.queue.add(
        "Then write the whole plan once more as a table with one row for each week, and leave out what we "
        "said of herbs.",
        "",
    )
    return stage.window


@page
def queue_held(stage: Stage) -> QWidget:
    stage.end_reply()
    return stage.window


@page
def several_chats(stage: Stage) -> QWidget:
    """Three chats are answered; the one in front has a reply of its own."""
    for chat in stage.session.conversations.summaries()[2:4]:
        stage.session.open_conversation(chat.id)
        stage.begin_reply()
    stage.open_talk()
    stage.show_sidebar()
    stage.begin_reply()
    return stage.window


@page
def several_chats_one_stopped(stage: Stage) -> QWidget:
    stage.session.stop()
    stage.until(lambda: stage.session.state == "idle")
    return stage.window


@page
def several_chats_ended(stage: Stage) -> QWidget:
    stage.session.stop_all()
    stage.until(lambda: not stage.session.busy)
    stage.echo.chat.delay_s = 0.0
    return stage.window


@page
def slash_popup(stage: Stage) -> QWidget:
    queue = stage.window.services.composer.queue
    for waiting in queue.waiting(stage.session.conversation):
        queue.remove(waiting.id)
    stage.window.activateWindow()
    stage.window.panes.leave_side()  # in a narrow window it covers the message box
    stage.window.chat.composer.box.setFocus()
    stage.spin(0.3)
    QTest.keyClicks(stage.window.chat.composer.box, "/")
    return stage.window


@page
def prompts_empty(stage: Stage) -> QWidget:
    stage.window.chat.composer.box.clear()
    act(stage, "prompts")
    return top(stage)


@page
def prompts(stage: Stage) -> QWidget:
    service = stage.window.services.composer.prompts
    for name, text in (
        ("Translate", "Say {{text}} in {{language=French}}."),
        ("Shorten", "Make this shorter:\n\n{{text}}"),
    ):
        service.put(Prompt(0, name, text))
    return top(stage)


@page
def prompt_form(stage: Stage) -> QWidget:
    stage.shut()
    stage.window.prompts.insert(stage.window.services.composer.prompts.prompts()[-1])
    stage.spin()
    return stage.fit(stage.window.findChildren(SavedPromptForm)[-1])


# -- the sidebar


def _side(stage: Stage) -> QWidget:
    """The pane at its own width, as high as the window."""
    stage.show_sidebar()
    return stage.window.sidebar


@page
def sidebar(stage: Stage) -> QWidget:
    stage.shut()
    stage.show_sidebar()
    chat_list = stage.window.services.chat_list.rows
    chat_list.set_open_folders(set(stage.folders))
    return _side(stage)


@page
def sidebar_selection(stage: Stage) -> QWidget:
    shown = stage.window.sidebar.list
    shown.setFocus()
    shown.setCurrentIndex(shown.model().index(3, 0))
    for _step in range(3):
        QTest.keyClick(shown, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    return _side(stage)


@page
def sidebar_rename(stage: Stage) -> QWidget:
    act(stage, "rename")
    return _side(stage)


@page
def sidebar_hits(stage: Stage) -> QWidget:
    QTest.keyClick(stage.focus(), Qt.Key.Key_Escape)
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
    act(stage, "trash")
    return _side(stage)


@page
def trash_empty(stage: Stage) -> QWidget:
    stage.window.sidebar.trash.show_rows((), 30)
    return _side(stage)


@page
def question(stage: Stage) -> QWidget:
    stage.window.sidebar.leave_trash()
    stage.window.sidebar_controller.remove_folder(stage.folders[0])
    stage.spin()
    return stage.window.findChildren(QMessageBox)[-1]


@page
def chat_menu(stage: Stage) -> QWidget | None:
    stage.shut()
    shown = stage.window.sidebar.list
    place = shown.visualRect(shown.model().index(3, 0)).center()
    return stage.take_menu(lambda: stage.context(shown, place))
