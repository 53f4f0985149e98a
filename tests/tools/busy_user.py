"""A user in a hurry, for the kill test and the soak: random acts in a real window over a model.

As a program (`python -m tests.tools.busy_user DATA LOG SEED FAVOURITE [MODEL]`) it acts until it is killed;
three of ten acts lead to the FAVOURITE one. Without a MODEL a fast fake one replies. LOG is a file opened for
appending. It receives a line for each act that the store has accepted, and the length and checksum of the
growing reply on the screen. Typed words in notebooks are `tNUMBER `; each is logged once and never deleted by
an act. The model's text follows some of them.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, QTimer, Slot
from PySide6.QtGui import QKeyEvent

from desktop.app import Desktop, EngineApi, make_application
from desktop.services.engine.stream_thread import StreamThread
from desktop.store.conversations.participants import Cast, Participant
from desktop.store.database.database import FILE_NAME, Database
from desktop.store.transfer.importers import import_conversations
from desktop.store.transfer.records import Imported
from desktop.views.notebook.page import NotebookPage
from engine.core import ChatRequest, Downloaded
from tests.desktop.fakes import EchoApi, EchoChat

__all__ = ["REPLY", "BusyUser", "checksum", "open_desktop"]

REPLY = " ".join(f"word{n}" + (".\n\n" if n % 40 == 39 else "") for n in range(900))
LONGEST_DOCUMENT = 150_000
CAST = (Participant("Ada", "Ada counts."), Participant("Bo"))
Tell = Callable[..., None]


class Unkept(list[ChatRequest]):
    """What a model was asked is not kept: in days that would be much."""

    def append(self, request: ChatRequest) -> None:
        pass


def open_desktop(app: Any, folder: Path, delay_s: float = 0.002, model: Path | None = None) -> Desktop:
    """A window over the file `model`, or over a fake model that writes `REPLY`, a word every `delay_s`."""
    if model is not None:
        desktop = Desktop(app, folder)
        desktop.start(model=model)
        return desktop
    api = EchoApi(EchoChat(requests=Unkept(), reply=REPLY, delay_s=delay_s))

    def fetch(_folder: Path, _stop: object) -> Any:
        yield Downloaded("")

    echo = folder / "echo.gguf"
    echo.touch()
    desktop = Desktop(app, folder, EngineApi(api.open_chat, api.describe, fetch, api.draft_problem))
    desktop.start(model=echo)
    return desktop


def checksum(text: str) -> int:
    """Tells beginnings of texts apart in the log."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


class BusyUser(QObject):
    """Acts on `desktop` every `pause_ms` and calls `tell(kind, **facts)` after each act. `favourite` is a
    kind of act that must happen soon: some acts are steps towards it.
    """

    def __init__(
        self, desktop: Desktop, seed: int, tell: Tell, pause_ms: int = 25, favourite: str = ""
    ) -> None:
        super().__init__()
        self.desktop, self.session = desktop, desktop.session
        self.acts = 0
        self._tell, self._draw, self._favourite = tell, random.Random(seed), favourite
        self._number = seed * 100_000
        # one in three writes and writes, as long as nobody disturbs
        self._stays = self._draw.choice((0.5, 0.5, 0.98))
        self._typed: tuple[int, int] = (0, 0)  # a document and the last word typed into it
        self._importer = StreamThread("import", self)
        self._importer.yielded.connect(self._imported)
        self._importing = False
        self._importer.finished.connect(self._import_ended)
        self._importer.failed.connect(self._import_ended)
        self._timer = QTimer(self)
        self._timer.setInterval(pause_ms)
        self._timer.timeout.connect(self.act)
        self._timer.start()

    def close(self) -> None:
        """Stop acting."""
        self._timer.stop()
        self._importer.close()

    @Slot()
    def act(self) -> None:
        """Do one random act, and read the screen."""
        session = self.session
        self.acts += 1
        self._look()
        if session.state != "no_model" and self._favourite and self._draw.random() < 0.3:
            self._towards(self._favourite)
            return
        page = self.desktop.window.notebooks.open_page
        if page is not None and self._draw.random() < self._stays:
            self._work_on(page)
            return
        items = session.messages.items()
        if items and items[-1].running and self._draw.random() < self._stays:
            return  # reads what the model writes
        acts = [
            (self._say, 8), (self._switch, 5), (self._search, 3), (self._rename, 2), (self._edit, 2),
            (self._import, 1), (self._stop, 1), (self._new, 1), (self._delete, 1), (self._scroll, 3),
            (self._new_notebook, 3), (self._cast, 4), (self._speak, 4),
        ]  # fmt: skip
        if session.state != "no_model":
            self._draw.choices([act for act, _ in acts], [weight for _, weight in acts])[0]()

    def _towards(self, kind: str) -> None:
        """An act of this `kind`, or one that it depends on."""
        page = self.desktop.window.notebooks.open_page
        items = self.session.messages.items()
        if kind in ("typed", "grown"):
            if page is None:
                self._new_notebook()
            elif (
                kind == "grown"
                and page.document is not None
                and page.editor.text()
                and self.session.state == "idle"
            ):
                self._write_on(page)
            else:
                self._work_on(page)
        elif kind in ("seen", "said", "cast", "edited") and self.session.notebook:
            self._new()
        elif kind in ("seen", "said") or (kind == "edited" and len(items) < 2):
            if not (items and items[-1].running):
                self._say()
        elif kind == "deleted" and len(self._chats()) <= 5:
            self._import()
        else:
            acts = {
                "edited": self._edit, "renamed": self._rename, "imported": self._import,
                "deleted": self._delete, "cast": self._cast, "notebook": self._new_notebook,
            }  # fmt: skip
            acts[kind]()

    def _look(self) -> None:
        items = self.session.messages.items()
        if items and items[-1].running:
            text = items[-1].text
            self._tell(
                "seen", id=items[-1].id, length=len(text), checksum=checksum(text), speaker=items[-1].author
            )
        page = self.desktop.window.notebooks.open_page
        if page is not None and page.document is not None and page.editor.streaming:
            self._tell("grown", id=page.document.message_id, length=page.editor.length)
        self._left(page)

    def _left(self, page: NotebookPage | None) -> None:
        """Log that text typed into a document is saved when the document is left."""
        document, number = self._typed
        here = page.document.message_id if page is not None and page.document is not None else 0
        if document and document != here:
            self._typed = (0, 0)
            if self.desktop.window.notebooks.saver.waiting(document) is None:
                self._tell("saved", id=document, number=number)

    def _work_on(self, page: NotebookPage) -> None:
        """Type a word at the beginning, after the first word or at the end, or let the model write there."""
        if page.editor.streaming or page.document is None:
            if self._draw.random() < 0.03:
                self.session.stop()
            return
        text = page.editor.text()
        first = text.find(" ") + 1
        if (
            text
            and self.session.state == "idle"
            and self._draw.random() < 0.1
            and len(text) < LONGEST_DOCUMENT
        ):
            self._write_on(page)
            return
        self._number += 1
        page.editor.put_cursor(self._draw.choice((0, first, len(text), len(text), len(text))))
        for sign in f"t{self._number} ":
            for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
                QCoreApplication.sendEvent(
                    page.editor, QKeyEvent(kind, 0, Qt.KeyboardModifier.NoModifier, sign)
                )
        self._typed = (page.document.message_id, self._number)
        self._tell("typed", id=page.document.message_id, number=self._number)

    def _write_on(self, page: NotebookPage) -> None:
        """Let the model write after the first word or at the end."""
        text = page.editor.text()
        page.editor.put_cursor(self._draw.choice((text.find(" ") + 1, len(text))))
        page.write_on()
        if page.editor.streaming and page.document is not None:
            self._tell("saved", id=page.document.message_id, number=self._typed[1] if self._typed[0] else 0)

    def _new_notebook(self) -> None:
        if self.session.new_notebook():
            self._tell("notebook", chat=self.session.conversation)

    def _cast(self) -> None:
        """Add two participants, and let the user write under a new name."""
        self._number += 1
        if self.session.notebook or self.session.state != "idle":
            return
        roles = Cast(CAST, (f"Cy{self._number}",), self._draw.choice(("turn", "named", "hand")), automatic=1)
        if self.session.set_cast(roles):
            self._tell("cast", chat=self.session.conversation, number=self._number)

    def _speak(self) -> None:
        participants = self.session.participants
        if participants and self.session.state == "idle" and not self.session.notebook:
            self.session.speak(self._draw.choice(participants).name)

    def _text(self) -> str:
        self._number += 1
        return f"question {self._number}"

    def _say(self) -> None:
        text, speaker = self._text(), self.session.cast.user if self.session.participants else ""
        if not self.session.notebook and self.session.state == "idle" and self.session.submit(text):
            self._tell("said", text=text, chat=self.session.conversation, speaker=speaker)

    def _chats(self) -> list[int]:
        return [row.id for row in self.session.stores.kept.list()[:30]]

    def _switch(self) -> None:
        chats = self._chats()
        if chats:
            self.desktop.window.navigation.open_chat(self._draw.choice(chats))

    def _search(self) -> None:
        self.session.search(self._draw.choice(("question", "word7", "words imported", "nothing like it")))

    def _rename(self) -> None:
        chats = self._chats()
        title = f"Title {self._text()}"
        if chats:
            chat = self._draw.choice(chats)
            if self.session.rename_conversation(chat, title):
                self._tell("renamed", chat=chat, title=title)

    def _edit(self) -> None:
        replies = [
            item for item in self.session.messages.items() if item.role == "assistant" and not item.running
        ]
        text = f"edited {self._text()}"
        if replies and self.session.edit(self._draw.choice(replies).id, text):
            self._tell("edited", text=text, chat=self.session.conversation)

    def _import(self) -> None:
        if self._importing:
            return
        self._importing = True
        folder = self.desktop.services.folder
        entries = [
            {
                "id": f"{self._text()}",
                "conversations": [
                    {"from": "human", "value": "words imported"},
                    {"from": "gpt", "value": "so be it"},
                ],
            }
            for _ in range(20)
        ]
        path = folder / "import.json"
        path.write_text(json.dumps(entries), encoding="utf-8")

        def work(_stop: object) -> Any:
            database = Database(folder / FILE_NAME)
            try:
                yield from import_conversations(database, path)
            finally:
                database.close()

        self._importer.start(work)

    @Slot(int, object)
    def _imported(self, _job: int, event: object) -> None:
        if isinstance(event, Imported) and event.outcome == "new":
            self._tell("imported", chat=event.conversation_id)

    @Slot()
    def _import_ended(self) -> None:
        self._importing = False

    def _stop(self) -> None:
        if self.session.state != "loading":  # without a model there would be little left to do
            self.session.stop()

    def _new(self) -> None:
        self.desktop.window.navigation.new_chat()

    def _delete(self) -> None:
        chats = self._chats()
        if len(chats) > 5:
            chat = self._draw.choice(chats)
            if self.session.delete_conversation(chat):
                self._tell("deleted", chat=chat)

    def _scroll(self) -> None:
        bar = self.desktop.window.chat.transcript.verticalScrollBar()
        bar.setValue(round(bar.maximum() * self._draw.random()))


def main(folder: Path, log: Path, seed: int, favourite: str, model: Path | None = None) -> None:
    """Act until killed."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(kind: str, **facts: object) -> None:
        os.write(out, (json.dumps({"time": time.time(), "kind": kind, **facts}) + "\n").encode())

    app = make_application(["inglenook"])
    desktop = open_desktop(app, folder, model=model)
    user = BusyUser(desktop, seed, tell, favourite=favourite)
    tell("ready", acts=user.acts)
    app.exec()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], *map(Path, sys.argv[5:]))
