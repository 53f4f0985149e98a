"""Command `chat`: a conversation in the terminal. Ctrl+C stops the reply, Ctrl+D quits. Of a file that is
piped into it, each line is a message.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import add_model, add_reply_settings, read_request
from engine.cli.opening import opened
from engine.cli.pictures import check_images, image_line, with_images
from engine.cli.run import collect
from engine.core import ChatRequest, Message, ModelInfo, Picture
from engine.core.reasons import reason_words
from engine.errors import BadPicture, BadSetting, BadTemplate, ContextTooLong, NotEnoughMemory, NothingAllowed
from engine.printable import printable
from engine.vision.pictures.picture_files import read_picture
from engine.words import N_, _

if TYPE_CHECKING:
    from engine.chat import LocalChat


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", help=_("a system prompt"))
    add_reply_settings(parser)


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    read_request(options, ())  # report a bad setting before loading the model
    messages = [Message("system", options.system)] if options.system else []
    with opened(options, console) as chat:
        console.write(_greeting(chat.info) + "\n")
        pictures: list[Picture] = []
        while (line := _ask()) is not None:
            if not line.strip() or _adds_picture(line, chat.info, pictures, console):
                continue
            asked = with_images((*messages, Message("user", line)), pictures)
            pictures = []
            messages = _turn(chat, read_request(options, asked), console)
    return {}


def _greeting(info: ModelInfo) -> str:
    if info.reads_pictures:
        return _("{model}. Ctrl+C stops a reply, Ctrl+D leaves, /image FILE adds a picture.", model=info.name)
    return _("{model}. Ctrl+C stops a reply, Ctrl+D leaves.", model=info.name)


def _adds_picture(line: str, info: ModelInfo, pictures: list[Picture], console: Console) -> bool:
    """Whether a line names a picture, which is added to those for the next message."""
    try:
        if (file := image_line(line)) is None:
            return False
        picture = read_picture(file)
        check_images(info, [picture])
    except (BadPicture, BadSetting) as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        return True
    pictures.append(picture)
    console.write(
        _(
            "{path} ({width} × {height} pixels) is sent with your next message.",
            path=picture.name,
            width=picture.width,
            height=picture.height,
        )
        + "\n"
    )
    return True


def _ask() -> str | None:
    """The next line typed, or None at the end of input; Ctrl+C discards the line."""
    while True:
        try:
            return input("\n> " if sys.stdin.isatty() else "")
        except EOFError:
            return None
        except KeyboardInterrupt:
            sys.stdout.write("\n")


def _turn(chat: LocalChat, request: ChatRequest, console: Console) -> list[Message]:
    """Answer one message; returns the new conversation, without the message if it failed."""
    with _stopped_by_ctrl_c() as stop:
        try:
            answer = collect(chat.stream(request, stop), console)
        except (BadPicture, BadTemplate, ContextTooLong, NotEnoughMemory, NothingAllowed) as error:
            sys.stderr.write(f"{error}\n")
            return list(request.messages[:-1])
    ended = answer["reason"] in ("stop_token", "stop_string")
    console.write("\n" if ended else f"\n[{reason_words(answer['reason'], answer['trigger'])}]\n")
    return [*request.messages, Message("assistant", answer["text"])]


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[threading.Event]:
    """An event that Ctrl+C sets, instead of raising an exception in the middle of a step."""
    stop = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_signal: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


CHAT = Command(
    "chat",
    N_("chat in the terminal; each line of piped text is a message"),
    _arguments,
    _answer,
    lambda answer: "",
    has_json=False,
)
