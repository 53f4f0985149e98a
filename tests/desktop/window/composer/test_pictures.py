"""Pictures in the window: attached, shown, sent to a server that takes them, and to no other model."""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from sqlite3 import Cursor
from unittest import mock

import pytest
from PySide6.QtCore import QMimeData
from PySide6.QtGui import QGuiApplication, QImage

from desktop.services.composer import attachments as attachment_service
from desktop.store.attachments import pictures as picture_store
from desktop.store.attachments.picture_marks import marks
from desktop.store.attachments.pictures import PictureStore
from desktop.store.database.database import Database, DiskFull
from desktop.views.composer.picture_viewer import PictureViewer
from desktop.views.transcript.row_widgets.picture import COPY_PICTURE, SAVE_PICTURE, SentPictureRow
from desktop.views.transcript.rows import RowKind
from tests.conftest import WAIT_MS
from tests.desktop.picture_files import PLACE, bomb, drawn, jpeg_with_place, saved
from tests.desktop.remote_server import RemoteHand, remote_hand
from tests.engine.remote.fake_server import json_reply

pytestmark = pytest.mark.loopback
LOCAL = "reads text only. For pictures, choose a model with a vision encoder"


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    with remote_hand(qtbot, tmp_path) as found:
        found.echo_server.models[0]["architecture"] = {"input_modalities": ["text", "image"]}
        found.echo_server.script = lambda asked: found.echo_server.stream("a board")
        yield found


def blind(hand: RemoteHand) -> None:
    """Let the server's model take no pictures."""
    hand.echo_server.models[0]["architecture"] = {"input_modalities": ["text"]}


def files(hand: RemoteHand):
    return hand.window.composer_controller.files


def attach(hand: RemoteHand, **named: bytes) -> None:
    paths = []
    for name, data in named.items():
        paths.append(hand.folder / name.replace("_", "."))
        paths[-1].write_bytes(data)
    before = len(files(hand).held())
    hand.window.files.open(paths)
    hand.qtbot.waitUntil(lambda: len(files(hand).held()) == before + len(paths), timeout=WAIT_MS)


def refused(hand: RemoteHand, name: str, data: bytes, says: str) -> None:
    (hand.folder / name).write_bytes(data)
    hand.window.files.open([hand.folder / name])
    hand.qtbot.waitUntil(lambda: says in hand.notice(), timeout=WAIT_MS)
    assert files(hand).held() == []


def sent(hand: RemoteHand) -> None:
    before = len(hand.items())
    hand.press_send()
    hand.qtbot.waitUntil(lambda: len(hand.items()) == before + 2, timeout=WAIT_MS)
    hand.qtbot.waitUntil(lambda: hand.session.state == "idle", timeout=WAIT_MS)


def chips(hand: RemoteHand) -> list[str]:
    return [chip.face.accessibleName() for chip in files(hand).chips.chips]


def rows(hand: RemoteHand) -> list:
    transcript = hand.window.chat.transcript
    hand.qtbot.waitUntil(transcript.settled, timeout=WAIT_MS)
    found = [row for item in hand.items() for row in transcript.messages.rows_of(item.id)]
    return [row for row in found if row.kind is RowKind.PICTURE]


def test_pictures_are_attached_shown_and_sent_without_their_places(hand) -> None:
    hand.use()
    photo = jpeg_with_place(drawn(3000, 1000))
    attach(hand, beach_jpg=photo, boat_png=saved(drawn(640, 480)))
    assert chips(hand) == ["Picture: beach.jpg, 2048 by 682", "Picture: boat.png, 640 by 480"]
    assert [chip.count.text() for chip in files(hand).chips.chips] == ["~1,600 tokens", "~409 tokens"]
    hand.qtbot.waitUntil(
        lambda: all(chip.face.iconSize().width() > 25 for chip in files(hand).chips.chips), timeout=WAIT_MS
    )
    hand.type("Which is older?")
    hand.qtbot.waitUntil(lambda: hand.desktop.services.context_meter.measured.draft > 2009, timeout=WAIT_MS)
    assert not hand.desktop.services.context_meter.measured.exact
    sent(hand)
    assert (chips(hand), hand.session.title) == ([], "Which is older?")
    (body,) = hand.echo_server.replies
    first, second, text = body["messages"][-1]["content"]
    assert text == {"type": "text", "text": "Which is older?"}
    beach = base64.b64decode(first["image_url"]["url"].removeprefix("data:image/jpeg;base64,"))
    assert (QImage.fromData(beach).width(), PLACE in beach, PLACE in photo) == (2048, False, True)
    boat = base64.b64decode(second["image_url"]["url"].removeprefix("data:image/png;base64,"))
    assert QImage.fromData(boat).size() == drawn(640, 480).size()
    assert [row.text for row in rows(hand)] == ["beach.jpg", "boat.png"]
    hand.type("And now?")
    sent(hand)
    assert [part["type"] for part in hand.echo_server.replies[-1]["messages"][0]["content"]] == [
        "image_url", "image_url", "text",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_picture_in_the_transcript_is_opened_copied_and_saved(hand) -> None:
    hand.use()
    attach(hand, boat_png=saved(drawn(640, 480)))
    hand.type("What?")
    sent(hand)
    (row,) = rows(hand)
    transcript = hand.window.chat.transcript
    widget = transcript.pool.widget(row)
    assert isinstance(widget, SentPictureRow)
    hand.qtbot.waitUntil(lambda: widget.button.picture is not None, timeout=WAIT_MS)
    assert widget.button.width() <= transcript.viewport().width()
    assert [action.text() for action in widget.make_menu(widget).actions()] == [
        "Open picture", "Copy picture", "Save picture as…",
    ]  # fmt: skip
    hand.click("Picture: boat.png, 640 by 480")
    viewer = hand.window.findChild(PictureViewer)
    hand.qtbot.waitUntil(lambda: not viewer.label.pixmap().isNull(), timeout=WAIT_MS)
    assert "640 × 480" in " ".join(label.text() for label in viewer.findChildren(type(viewer.label)))
    viewer.close()
    widget._act(COPY_PICTURE)
    assert QGuiApplication.clipboard().image().size() == drawn(640, 480).size()
    with mock.patch("desktop.views.composer.picture_viewer.ask_save") as ask:
        widget._act(SAVE_PICTURE)
    assert ask.call_args.args[2] == "boat.png"
    ask.call_args.args[3]([hand.folder / "saved.png"])
    key = marks(hand.items()[0].text)[0].key
    assert (hand.folder / "saved.png").read_bytes() == PictureStore(hand.session.stores.database).get(
        key
    ).data
    transcript.act("copy", hand.items()[0].id)
    assert QGuiApplication.clipboard().text() == "[picture: boat.png]\n\nWhat?"


@pytest.mark.slow
def test_a_picture_is_kept_through_an_edit_and_a_restart(hand) -> None:
    hand.use()
    attach(hand, boat_png=saved(drawn()))
    sent(hand)
    assert hand.session.title == "boat.png"
    assert hand.session.edit(hand.items()[0].id, hand.items()[0].text + "\n\nAnd now?")
    hand.qtbot.waitUntil(lambda: len(hand.echo_server.replies) == 2, timeout=WAIT_MS)
    hand.qtbot.waitUntil(lambda: hand.session.state == "idle", timeout=WAIT_MS)
    assert len(hand.echo_server.replies[-1]["messages"][0]["content"]) == 2
    attach(hand, next_png=saved(drawn(20, 20)))
    chat = hand.session.conversation
    hand.restart()
    hand.session.open_conversation(chat)
    hand.qtbot.waitUntil(lambda: chips(hand) == ["Picture: next.png, 20 by 20"], timeout=WAIT_MS)


@pytest.mark.slow
def test_a_picture_from_the_clipboard_is_attached(hand) -> None:
    hand.use()
    data = QMimeData()
    data.setImageData(drawn(30, 20))
    assert hand.box.canInsertFromMimeData(data)
    hand.box.insertFromMimeData(data)
    hand.qtbot.waitUntil(lambda: chips(hand) == ["Picture: Pasted picture.png, 30 by 20"], timeout=WAIT_MS)
    data.setText("words of a cell")
    hand.box.insertFromMimeData(data)
    assert hand.box.toPlainText() == "words of a cell"
    assert len(chips(hand)) == 1


@pytest.mark.slow
def test_a_model_of_this_computer_takes_none_and_says_so(hand) -> None:
    hand.load()
    button = hand.window.chat.composer.picture
    assert not button.isEnabled()
    assert LOCAL in button.toolTip()
    assert LOCAL in button.accessibleDescription()
    assert not hand.window.actions_by_name["attach_pictures"].isEnabled()
    refused(hand, "boat.png", saved(drawn()), LOCAL)
    hand.use()
    assert button.isEnabled()
    assert hand.window.actions_by_name["attach_pictures"].isEnabled()


def test_a_server_without_pictures_gives_the_reason(hand) -> None:
    blind(hand)
    hand.use()
    assert hand.window.chat.composer.picture.toolTip() == "echo on Lab does not accept pictures."
    refused(hand, "boat.png", saved(drawn()), "does not accept pictures")


@pytest.mark.slow
def test_before_pictures_are_left_out_it_is_said_once(hand) -> None:
    hand.use()
    attach(hand, boat_png=saved(drawn()))
    hand.type("What?")
    sent(hand)
    blind(hand)
    hand.load()
    hand.type("And this?")
    hand.press_send()
    offers = hand.window.composer_controller.offers
    assert offers.words.text().startswith("1 picture of this chat is not sent; the model reads its name")
    assert LOCAL in offers.words.text()
    assert len(hand.items()) == 2
    hand.click("Send without pictures")
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 4, timeout=WAIT_MS)
    hand.qtbot.waitUntil(lambda: hand.session.state == "idle", timeout=WAIT_MS)
    first = hand.echo.chat.requests[-1].messages[0]
    assert first.content == "[picture: boat.png]\n\nWhat?"
    assert [picture.data for picture in first.pictures] == [b""]
    hand.say("Again")
    hand.session.regenerate(hand.items()[-1].id)
    assert "is not sent" in hand.notice()


def test_what_cannot_be_attached_is_refused_with_a_sentence(hand) -> None:
    hand.use()
    refused(hand, "bomb.png", bomb(), "50,000 × 50,000 pixels")
    refused(hand, "broken.png", saved(drawn())[:90], "is damaged")
    refused(hand, "photo.heic", b"\0\0\0\x18ftypheic" + b"\0" * 60, "HEIC")
    with mock.patch.object(PictureStore, "put", side_effect=DiskFull(hand.folder)):
        refused(hand, "boat.png", saved(drawn()), "The picture cannot be saved: ")
    with mock.patch.object(attachment_service, "MOST_STORED", -1):
        refused(hand, "boat2.png", saved(drawn()), "no more can be attached")
    with mock.patch.object(attachment_service, "MOST_PICTURES", 0):
        refused(hand, "boat3.png", saved(drawn()), "at most 0 pictures")
    assert picture_store.MOST_STORED == 4 << 30


def test_temporary_chats_leave_no_picture_on_the_disk(hand) -> None:
    hand.use()
    hand.session.new_temporary()
    attach(hand, boat_png=saved(drawn()))
    hand.type("What?")
    sent(hand)
    assert hand.echo_server.replies[-1]["messages"][0]["content"][0]["type"] == "image_url"
    database = hand.session.stores.database
    assert database.execute("SELECT count(*) FROM pictures").fetchone() == (0,)
    attach(hand, next_png=saved(drawn(20, 20)))
    hand.window.actions_by_name["keep"].trigger()
    hand.qtbot.waitUntil(lambda: chips(hand) == ["Picture: next.png, 20 by 20"], timeout=WAIT_MS)
    assert database.execute("SELECT count(*) FROM pictures").fetchone() == (2,)
    hand.type("And?")
    sent(hand)
    assert len(hand.echo_server.replies[-1]["messages"]) == 3


def test_a_chat_of_this_computer_sends_no_picture(hand) -> None:
    hand.use()
    attach(hand, boat_png=saved(drawn()))
    hand.window.actions_by_name["local_only"].trigger()
    hand.type("What?")
    hand.press_send()
    assert hand.echo_server.replies == []
    assert len(chips(hand)) == 1


def test_a_server_that_is_not_known_to_take_pictures_is_tried_once(hand) -> None:
    del hand.echo_server.models[0]["architecture"]
    hand.echo_server.server.routes["/props"] = lambda asked: json_reply({"modalities": {"vision": True}})
    address = hand.use()
    assert hand.providers.capabilities(address).pictures == "yes"
    asked = len(hand.echo_server.server.asked)
    hand.load()
    hand.use(hand.providers.servers[0].provider)
    assert len(hand.echo_server.server.asked) == asked


def test_pictures_are_saved_off_the_gui_thread(hand: RemoteHand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attached or pasted, its bytes go to the database on the thread that reads files; before it is held."""
    threads: list[tuple[str, int]] = []
    real = Database.execute

    def execute(self: Database, sql: str, values: Sequence[object] = ()) -> Cursor:
        if sql.lstrip().startswith("INSERT OR IGNORE INTO pictures"):
            threads.append((threading.current_thread().name, len(files(hand).held())))
        return real(self, sql, values)

    hand.use()
    monkeypatch.setattr(Database, "execute", execute)
    attach(hand, a_png=saved(drawn()), b_jpg=jpeg_with_place(drawn(20, 20)))
    data = QMimeData()
    data.setImageData(drawn(30, 30))
    hand.box.insertFromMimeData(data)
    hand.qtbot.waitUntil(lambda: len(files(hand).held()) == 3, timeout=WAIT_MS)
    assert len(threads) == 3
    assert threading.current_thread().name not in {name for name, _ in threads}
    assert [held for _, held in threads] == sorted(held for _, held in threads)
    pictures = PictureStore(hand.session.stores.database)
    for held in files(hand).held():
        assert held.attachment.picture is not None
        assert pictures.get(held.attachment.picture.key) is not None
