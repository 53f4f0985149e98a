"""The page of servers and the menu of models, driven by hand over a scripted server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QLineEdit,
    QListWidget,
    QMessageBox,
    QPushButton,
    QWidget,
)

from desktop.views.providers.provider_dialog import ProviderDialog
from desktop.views.providers.servers_page import ServersPage
from tests.conftest import WAIT_MS
from tests.desktop.remote_server import CHAT, RemoteHand, remote_hand
from tests.engine.remote.fake_server import events, json_reply

pytestmark = [pytest.mark.gui, pytest.mark.loopback]


@pytest.fixture
def hand(qtbot, qapp, tmp_path) -> Iterator[RemoteHand]:
    with remote_hand(qtbot, tmp_path) as found:
        yield found


def opened(hand: RemoteHand, provider: str = "") -> ServersPage:
    hand.window.model_controller.open_servers(provider)
    library = hand.window.model_controller.library
    assert library is not None
    hand.qtbot.waitUntil(library.isVisible)
    return library.servers


def quiet(hand: RemoteHand, provider: str) -> None:
    hand.qtbot.waitUntil(lambda: not hand.providers.activity(provider), timeout=WAIT_MS)


def dialog_of(page: ServersPage) -> ProviderDialog:
    assert page.dialog is not None
    return page.dialog


def click(button: QWidget) -> None:
    assert button.isEnabled()
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def add(hand: RemoteHand, page: ServersPage, name: str = "Lab", key: str = "") -> str:
    click(page.add)
    dialog = dialog_of(page)
    for field, text in (
        (dialog.name, name),
        (dialog.address, hand.echo_server.server.url),
        (dialog.key, key),
    ):
        field.selectAll()
        QTest.keyClicks(field, text)
    click(dialog.buttons.button(dialog.buttons.StandardButton.Save))
    assert page.dialog is None
    provider = hand.providers.servers[-1].provider.id
    quiet(hand, provider)
    return provider


def names(view: QListWidget) -> list[str]:
    return [view.item(row).data(Qt.ItemDataRole.UserRole) for row in range(view.count())]


def test_each_command_opens_its_own_page(hand: RemoteHand) -> None:
    """The library's is that of the models on this computer, whatever page was seen last."""
    models = hand.window.model_controller
    page = opened(hand)
    library = models.library
    assert library is not None
    assert library.tabs.currentWidget() is page
    models.open_library()
    assert library.tabs.currentWidget() is library.local
    models.open_hub()
    assert library.tabs.currentWidget() is library.hub


def test_a_server_is_added_listed_tested_and_used(hand):
    page = opened(hand)
    provider = add(hand, page, key="sk-9")
    assert provider == "lab"
    assert names(page.models) == ["echo"]
    assert "on this computer" in page.about.text()
    assert not page.findings.isVisible()
    click(page.test)
    quiet(hand, provider)
    found = {page.findings.topLevelItem(row).text(0): page.findings.topLevelItem(row).text(1)
             for row in range(page.findings.topLevelItemCount())}  # fmt: skip
    assert found["Context"] == "4,096 tokens"
    assert found["Continues a reply"] == "no, it starts a new one"
    assert page.findings.isVisible()
    click(page.use)
    hand.wait_for("idle")
    assert hand.session.model.path == "remote:lab:echo"
    assert {asked.headers.get("authorization") for asked in hand.echo_server.server.asked} == {"Bearer sk-9"}


def test_the_page_and_the_menu_ask_nothing(hand):
    hand.add()
    opened(hand, "lab")
    hand.window.picker.entries_requested.emit()
    assert hand.echo_server.server.asked == []


@pytest.mark.slow
def test_models_are_filtered_and_others_can_be_typed(hand):
    hand.echo_server.models = [{"id": "Alpha-1"}, {"id": "beta"}, {"id": "alphabet"}]
    page = opened(hand)
    provider = add(hand, page)
    QTest.keyClicks(page.query, "alpha")
    assert names(page.models) == ["Alpha-1", "alphabet"]
    assert page.model() == "Alpha-1"
    page.query.setText("beta")
    assert page.model() == "beta"
    page.query.setText("unlisted")
    assert (names(page.models), page.model()) == ([], "unlisted")
    QTest.keyClick(page.query, Qt.Key.Key_Return)
    hand.wait_for("idle")
    assert hand.session.model.path == f"remote:{provider}:unlisted"
    page.query.clear()
    assert names(page.models) == ["Alpha-1", "beta", "alphabet"]


@pytest.mark.slow
def test_a_test_can_be_stopped(hand):
    page = opened(hand)
    provider = add(hand, page)
    hand.echo_server.server.routes[CHAT] = lambda asked: events(threading.Event())
    click(page.test)
    hand.qtbot.waitUntil(lambda: "first token" in page.state.text(), timeout=WAIT_MS)
    assert page.test.text() == "Stop"
    assert not page.refresh.isEnabled()
    click(page.test)
    quiet(hand, provider)
    assert page.test.text() == "Test"
    assert page.refresh.isEnabled()
    assert not page.findings.isVisible()
    assert hand.echo_server.server.closed.acquire(timeout=10)


def test_a_server_at_another_address_gets_no_answer_of_the_old_one(hand):
    page = opened(hand)
    provider = add(hand, page)
    answer = threading.Event()
    hand.echo_server.server.routes["/v1/models"] = lambda asked: events(answer)
    click(page.refresh)
    assert page.state.text()
    click(page.change)
    dialog = dialog_of(page)
    dialog.address.selectAll()
    QTest.keyClicks(dialog.address, hand.echo_server.server.url.replace("127.0.0.1", "localhost"))
    click(dialog.buttons.button(dialog.buttons.StandardButton.Save))
    assert not hand.providers.activity(provider)
    assert page.refresh.isEnabled()
    assert names(page.models) == []


def test_what_goes_wrong_is_said_and_goes_away(hand):
    hand.echo_server.server.routes["/v1/models"] = lambda asked: json_reply({"error": {"message": "no"}}, 401)
    page = opened(hand)
    provider = add(hand, page)
    assert "key" in page.state.text()
    assert page.state.property("tone") == "danger"
    hand.echo_server.server.routes["/v1/models"] = lambda asked: json_reply({"data": [{"id": "echo"}]})
    click(page.refresh)
    quiet(hand, provider)
    assert page.state.property("tone") == "muted"
    assert names(page.models) == ["echo"]


def test_a_server_without_models_says_so(hand):
    hand.echo_server.models = []
    page = opened(hand)
    add(hand, page)
    assert "lists no models" in page.state.text()
    assert not page.use.isEnabled()


@pytest.mark.slow
def test_a_change_keeps_the_key_and_is_used_at_once(hand):
    page = opened(hand)
    provider = add(hand, page, key="sk-9")
    hand.use(hand.providers.server(provider).provider)
    click(page.change)
    dialog = dialog_of(page)
    assert (dialog.name.text(), dialog.key.text()) == ("Lab", "")
    dialog.headers.setPlainText("X-Team: blue\n\n")
    dialog.context.setValue(1234)
    click(dialog.buttons.button(dialog.buttons.StandardButton.Save))
    hand.qtbot.waitUntil(lambda: hand.session.model is not None and hand.session.model.context_length == 1234)
    hand.wait_for("idle")
    hand.session.submit("hello")
    hand.qtbot.waitUntil(lambda: bool(hand.echo_server.replies), timeout=WAIT_MS)
    last = hand.echo_server.server.asked[-1].headers
    assert (last["x-team"], last["authorization"]) == ("blue", "Bearer sk-9")
    hand.wait_for("idle")


@pytest.mark.slow
def test_the_model_and_the_longest_wait_of_a_server_are_set(hand):
    hand.echo_server.models = [{"id": "alpha"}, {"id": "echo"}]
    page = opened(hand)
    provider = add(hand, page)
    assert page.model() == "alpha"
    hand.use(hand.providers.server(provider).provider, "alpha")
    asked = len(hand.echo_server.server.asked)
    click(page.change)
    dialog = dialog_of(page)
    assert (dialog.model.text(), dialog.wait.text()) == ("", "as long as it takes")
    QTest.keyClicks(dialog.model, "own/model")
    click(dialog.buttons.button(dialog.buttons.StandardButton.Save))
    assert names(page.models) == ["own/model", "alpha", "echo"]
    hand.window.picker.entries_requested.emit()
    (menu,) = hand.window.servers.menus.menus
    assert [action.text() for action in menu.actions()][:1] == ["own/model"]
    assert len(hand.echo_server.server.asked) == asked  # the loaded model stays as it is
    click(page.change)
    dialog = dialog_of(page)
    dialog.wait.setValue(90)
    click(dialog.buttons.button(dialog.buttons.StandardButton.Save))
    found = hand.providers.server(provider).provider
    assert (found.model, found.longest_wait) == ("own/model", 90)
    hand.wait_for("idle")
    hand.restart()
    assert hand.providers.server(provider).provider == found


@pytest.mark.slow
def test_a_key_is_removed_or_moved_only_as_asked(hand):
    page = opened(hand)
    provider = add(hand, page, key="sk-9")
    hand.qtbot.waitUntil(lambda: hand.providers.key_place(provider) == "this run", timeout=WAIT_MS)
    click(page.change)
    dialog = dialog_of(page)
    dialog.in_keyring.setChecked(True)
    click(dialog.buttons.button(dialog.buttons.StandardButton.Save))
    assert "again" in dialog.trouble.text()
    dialog.in_keyring.setChecked(False)
    dialog.forget_key.setChecked(True)
    click(dialog.buttons.button(dialog.buttons.StandardButton.Save))
    hand.qtbot.waitUntil(lambda: hand.providers.key_place(provider) == "", timeout=WAIT_MS)
    assert "No key is saved" in page.about.text()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("sure", [False, True])
def test_removing_asks_first_and_takes_the_model_away(hand, sure):
    provider = hand.add()
    hand.use(provider)
    page = opened(hand)
    click(page.remove)
    hand.qtbot.waitUntil(lambda: hand.window.findChild(QMessageBox) is not None)
    box = hand.window.findChild(QMessageBox, "removeServer")
    words = "Remove server" if sure else "Keep server"
    click(next(button for button in box.buttons() if button.text() == words))
    if sure:
        hand.wait_for("no_model")
        assert page.servers.count() == 0
        assert not page.change.isEnabled()
    else:
        assert names(page.servers) == [provider.id]
        assert hand.session.model is not None


@pytest.mark.slow
def test_the_menu_has_a_submenu_for_each_server(hand):
    provider = hand.add()
    hand.echo_server.models = [{"id": f"m{number}"} for number in range(30)]
    hand.providers.list_models(provider.id)
    quiet(hand, provider.id)
    hand.window.picker.entries_requested.emit()
    (menu,) = hand.window.servers.menus.menus
    listed = [action.text() for action in menu.actions() if not action.isSeparator()]
    assert listed == [*(f"m{number}" for number in range(24)), "All models…"]
    menu.actions()[2].trigger()
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: hand.session.model is not None, timeout=WAIT_MS)
    assert hand.session.model.path == "remote:lab:m2"
    hand.window.picker.entries_requested.emit()
    (menu,) = hand.window.servers.menus.menus
    assert [action.text() for action in menu.actions() if action.isChecked()] == ["m2"]
    assert menu.actions()[0].text() == "m2"
    menu.actions()[-1].trigger()
    library = hand.window.model_controller.library
    assert library.tabs.currentWidget() is library.servers
    hand.providers.remove(provider.id)
    hand.window.picker.entries_requested.emit()
    assert hand.window.servers.menus.menus == ()


def test_the_status_line_says_where_messages_go(hand):
    status = hand.window.chat.status
    assert status.destination.isHidden()
    hand.use()
    assert status.destination.text() == f"to 127.0.0.1:{hand.echo_server.server.port}"
    assert status.destination.isVisible()
    assert status.destination.accessibleName() == f"Where messages go: {status.destination.text()}"
    hand.load()
    hand.qtbot.waitUntil(lambda: status.destination.isHidden())


def test_models_of_servers_can_be_chosen_in_the_palette(hand):
    provider = hand.add()
    hand.providers.list_models(provider.id)
    quiet(hand, provider.id)
    found = hand.desktop.services.local_models.choices
    assert [(entry.path, entry.name, entry.source) for entry in found if entry.source == "Lab"] == [
        ("remote:lab:echo", "echo", "Lab")
    ]
    assert hand.window.palette_controller._models()._titles[-1] == "echo"


@pytest.mark.slow
def test_the_keyboard_reaches_everything_and_all_has_names(hand):
    page = opened(hand)
    add(hand, page)
    click(page.test)
    quiet(hand, "lab")
    library = page.window()
    with hand.qtbot.waitActive(library):
        library.activateWindow()
    page.servers.setFocus()
    reached: list[QWidget] = []
    for _ in range(40):
        focus = QApplication.focusWidget()
        assert focus is not None
        if focus in reached:
            break
        if page.isAncestorOf(focus):
            reached.append(focus)
        QTest.keyClick(focus, Qt.Key.Key_Tab)
    expected = (page.servers, page.models, page.add, page.change, page.remove, page.query, page.refresh,
                page.test, page.use, page.findings)  # fmt: skip
    assert set(expected) <= set(reached)
    click(page.change)
    for widget in (*page.findChildren(QWidget), *dialog_of(page).findChildren(QWidget)):
        if isinstance(widget, QPushButton | QLineEdit | QListWidget | QCheckBox) and widget.isVisible():
            spin_part = widget.objectName().startswith("qt_")
            assert spin_part or widget.accessibleName() or widget.text(), widget
    dialog_of(page).reject()


@pytest.mark.slow
def test_hostile_names_are_shown_as_plain_text_on_one_line(hand):
    name = "<img src=x>\nmodel\u202e & co"
    hand.echo_server.models = [{"id": name}]
    page = opened(hand)
    provider = add(hand, page, name="<b>Lab</b> & co")
    assert names(page.models) == [name]
    assert "\n" not in page.models.item(0).text()
    assert "\u202e" not in page.models.item(0).text()
    assert page.models.item(0).toolTip().startswith("<p>&lt;img")
    hand.window.picker.entries_requested.emit()
    (menu,) = hand.window.servers.menus.menus
    assert menu.title() == "<b>Lab</b> && co"
    assert menu.actions()[0].toolTip().startswith("<p>&lt;img")
    click(page.use)
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: hand.session.model is not None, timeout=WAIT_MS)
    hand.session.submit("hi")
    hand.qtbot.waitUntil(lambda: bool(hand.echo_server.replies), timeout=WAIT_MS)
    assert hand.echo_server.replies[-1]["model"] == name
    assert hand.providers.server(provider).models[0].name == name
    hand.wait_for("idle")
