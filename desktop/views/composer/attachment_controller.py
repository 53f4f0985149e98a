"""Serves the files of the next message: chips, paperclip, drops, pastes, previews."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QWidget

from desktop.services.composer.attachments import AttachmentService, Held
from desktop.services.composer.folder_files import holds_files
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.pictures import not_sent
from desktop.store.attachments.files import MOST_BYTES, too_large
from desktop.store.attachments.message_format import Attachment, split
from desktop.store.attachments.picture_marks import PictureMark, marks
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.commands.actions import no_pictures
from desktop.views.composer.attachment_chips import AttachmentChips, count_words
from desktop.views.composer.suggestion_bar import SuggestionBar
from desktop.views.dialogs.file_dialogs import ask_open
from desktop.views.transcript.row_widgets.attachment import ATTACHMENT_ACTION
from desktop.views.transcript.row_widgets.picture import COPY_PICTURE, OPEN_PICTURE, SAVE_PICTURE
from desktop.views.widgets.listening import listen
from engine.words import N_, _, translate

__all__ = ["AttachmentController"]

_KINDS = N_("Text, code, documents and pictures (*)")
_PICTURES = N_("Pictures (*.png *.jpg *.jpeg *.webp *.gif *.bmp);;All files (*)")
_PASTED, _LEFT_OUT = "pasted", "pictures"


class AttachmentController(QObject):
    """Serves the chips in the composer of `chat`; `offers` offers to attach a long paste as a file."""

    def __init__(
        self,
        service: AttachmentService,
        session: ChatSession,
        chat: ChatPane,
        offers: SuggestionBar,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._service, self._session, self._chat, self._offers, self._window = (
            service,
            session,
            chat,
            offers,
            window,
        )
        self._reading, self._pasted = 0, ""
        self._warned: set[tuple[int, str]] = set()
        listen(self, session.model_changed, lambda _model: offers.withdraw(_LEFT_OUT))
        self.chips = AttachmentChips()
        chat.composer.add_inside(self.chips)
        chat.composer.attach_requested.connect(self.ask)
        chat.composer.box.files_pasted.connect(self.take)
        chat.composer.box.long_pasted.connect(self._offer_pasted)
        chat.composer.box.huge_pasted.connect(self._hold_huge)
        chat.composer.box.textChanged.connect(self._check_pasted)
        chat.transcript.action.connect(self._show_sent)
        chat.composer.pictures_requested.connect(self.ask_pictures)
        chat.composer.box.picture_pasted.connect(self._paste)
        chat.transcript.pictures.read = self._bytes_of
        self.chips.show_pictures_of(chat.transcript.pictures)
        for changed in (session.model_changed, session.conversation_changed):
            listen(self, changed, lambda _what: chat.composer.set_pictures(no_pictures(session)))
        listen(self, service.changed, lambda _conversation: self._show_changed())
        service.reading.connect(self._show_reading)
        listen(self, service.refused, lambda sentence: chat.show_notice(sentence, "warning"))
        listen(self, session.conversation_changed, lambda _conversation: self._changed())
        self.chips.opened.connect(self._open)
        self.chips.removed.connect(self._remove)
        self.chips.stopped.connect(service.stop_reading)

    def held(self) -> Sequence[Held]:
        """The files of the open chat's next message."""
        return self._service.held(self._session.conversation)

    def tells_pictures(self, message: str, send: Callable[[], object]) -> bool:
        """Say which pictures the model will not get, once in each chat with each model, and offer to `send`
        all the same; whether it was said.
        """
        session = self._session
        key = (session.conversation, session.model.path if session.model is not None else "")
        texts = [message, *(item.text for item in session.messages.items())]
        words = not_sent(texts, session.model) if key not in self._warned else ""
        if not words:
            return False

        def confirmed() -> None:
            self._warned.add(key)
            self._offers.withdraw(_LEFT_OUT)
            send()

        self._offers.offer(_LEFT_OUT, words, _("Send without pictures"), confirmed, "warning")
        return True

    def accepts(self, path: Path) -> bool:
        """Whether a file, or all of a folder, can be attached now: a notebook is sent as it is, without."""
        return (os.path.isfile(path) or holds_files(path)) and not self._session.notebook

    def take(self, paths: Sequence[Path]) -> None:
        """Attach files, and those in folders."""
        self._service.read(paths, self._session.conversation)
        self._chat.composer.setFocus()

    def ask(self) -> None:
        """Let the user choose files, and attach them."""
        ask_open(self._window, _("Attach files"), self.take, translate(_KINDS), several=True)

    def ask_pictures(self) -> None:
        """Let the user choose pictures, and attach them."""
        ask_open(self._window, _("Attach pictures"), self.take, translate(_PICTURES), several=True)

    def show(self) -> None:
        """Update the chips."""
        held = self.held()
        self.chips.show_held(held, self._reading)
        self._chat.composer.set_laden(bool(held))

    def _show_changed(self) -> None:
        self._offers.withdraw(_LEFT_OUT)  # the pictures may be other ones
        self.show()

    def _changed(self) -> None:
        self._offers.hide()
        self.show()

    def _show_reading(self, files: int) -> None:
        self._reading = files
        self.show()

    def _remove(self, key: int) -> None:
        self._service.remove(key, self._session.conversation)
        self._chat.composer.setFocus()

    def _open(self, key: int) -> None:
        found = next((held for held in self.held() if held.key == key), None)
        if found is not None and found.attachment.picture is not None:
            self._open_picture(found.attachment.picture)
        elif found is not None:
            from desktop.views.composer.attachment_preview import AttachmentPreview  # only when needed

            AttachmentPreview(found.attachment, count_words(found), self._window).open()

    def _paste(self, image: QImage) -> None:
        self._service.paste(image, self._session.conversation)

    def _bytes_of(self, key: str) -> bytes:
        found = self._service.picture(key, self._session.conversation)
        return found.data if found is not None else b""

    def _open_picture(self, mark: PictureMark) -> None:
        picture = self._service.picture(mark.key, self._session.conversation)
        if picture is not None:
            from desktop.views.composer.picture_viewer import PictureViewer  # only when needed

            PictureViewer(mark, picture, self._chat.transcript.pictures, self._window).open()

    def _act_on_picture(self, action: str, key: str, message: int) -> None:
        """What was chosen of a picture in the transcript."""
        text = self._session.messages.item(message).text
        mark = next((mark for mark in marks(text) if mark.key == key), None)
        picture = self._service.picture(key, self._session.conversation)
        if mark is None or picture is None:
            return
        if action == OPEN_PICTURE:
            self._open_picture(mark)
            return
        from desktop.views.composer.picture_viewer import ask_and_save_picture, copy_picture

        if action == COPY_PICTURE:
            copy_picture(picture)
        else:
            ask_and_save_picture(self._window, mark, picture)

    def _show_sent(self, action: str, message: int) -> None:
        """A file or picture in the transcript was clicked."""
        for known in (OPEN_PICTURE, COPY_PICTURE, SAVE_PICTURE):
            if action.startswith(known):
                self._act_on_picture(known, action.removeprefix(known), message)
        if action.startswith(ATTACHMENT_ACTION):
            files, _unused = split(self._session.messages.item(message).text)
            place = int(action.removeprefix(ATTACHMENT_ACTION))
            if place < len(files):
                # only when needed
                from desktop.views.composer.attachment_preview import AttachmentPreview

                AttachmentPreview(files[place][1], "", self._window).open()

    def _offer_pasted(self, text: str) -> None:
        self._pasted = _plain(text)
        self._offers.offer(
            _PASTED,
            _(
                "The pasted text has {count:,} characters. You can attach it as a file instead.",
                count=len(text),
            ),
            _("Attach as a file"),
            self._attach_pasted,
        )

    def _check_pasted(self) -> None:
        """Withdraw the offer when the pasted text was deleted or edited."""
        if self._pasted and _in_box(self._pasted) not in self._chat.composer.text():
            self._pasted = ""
            self._offers.withdraw(_PASTED)

    def _attach_pasted(self) -> None:
        """Move the pasted text from the box into a file."""
        composer, text = self._chat.composer, self._pasted
        place = _utf16(composer.text().partition(_in_box(text))[0])
        cursor = composer.box.textCursor()
        cursor.setPosition(place)
        cursor.setPosition(place + _utf16(text), cursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        self._hold_text(text)

    def _hold_huge(self, text: str) -> None:
        """Attach a pasted text that is too long for the box, if a file of its size may be attached."""
        if (size := len(text.encode("utf-8", "replace"))) > MOST_BYTES:
            self._chat.show_notice(too_large(_("Pasted text.txt"), size), "warning")
            return
        self._hold_text(_plain(text))
        self._chat.show_notice(
            _("The pasted text has {count:,} characters, so it is attached as a file.", count=len(text)),
            "info",
        )

    def _hold_text(self, text: str) -> None:
        taken = {held.attachment.name for held in self.held()}
        numbers = range(1, len(taken) + 2)
        name = next(
            name
            for number in numbers
            if (name := _("Pasted text {number}.txt", number=number) if number > 1 else _("Pasted text.txt"))
            not in taken
        )
        self._service.hold(Attachment(name, text.strip("\n")), self._session.conversation)
        self._chat.composer.setFocus()


def _plain(text: str) -> str:
    """Pasted text with the ends of lines that the box gives them."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2029", "\n")


def _in_box(plain: str) -> str:
    """As the box tells such a text."""
    return plain.replace("\xa0", " ").replace("\u2028", "\n")


def _utf16(text: str) -> int:
    """The number of UTF-16 units, by which Qt counts text positions."""
    return len(text.encode("utf-16-le")) // 2
