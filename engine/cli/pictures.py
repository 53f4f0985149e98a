"""Pictures on the command line: the flag --image, the line /image of chats, and pictures among messages."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.core import Message, ModelInfo, Picture
from engine.errors import BadSetting
from engine.vision.pictures.picture_files import read_picture
from engine.words import _

LINE = "/image"
"""What a line in a chat begins with that names a picture."""


def add_images(parser: argparse.ArgumentParser, help: str) -> None:
    """Add --image, which can be given several times."""
    parser.add_argument("--image", metavar="FILE", type=Path, action="append", default=[], help=help)


def check_images(info: ModelInfo, pictures: Sequence[Picture]) -> None:
    """Raise `BadSetting` if the model does not read the pictures that there are."""
    if pictures and info.why_no_pictures:
        raise BadSetting(info.why_no_pictures)


def read_images(files: Sequence[Path]) -> tuple[Picture, ...]:
    """The pictures in these files. Raises `BadPicture`."""
    return tuple(map(read_picture, files))


def with_images(messages: Sequence[Message], pictures: Sequence[Picture]) -> tuple[Message, ...]:
    """The messages, of which the user's last one begins with pictures. Raises `BadSetting` if the user has
    none.
    """
    if not pictures:
        return tuple(messages)
    place = next((at for at in reversed(range(len(messages))) if messages[at].role == "user"), None)
    if place is None:
        raise BadSetting(_("--image needs a message of the user, but there is none among the messages."))
    message = messages[place]
    content = "\n".join([*(picture.words for picture in pictures), message.content])
    shown = replace(message, content=content, pictures=(*pictures, *message.pictures))
    return (*messages[:place], shown, *messages[place + 1 :])


def image_line(line: str) -> Path | None:
    """The file that a line of a chat names; None for another line. Quotation marks around it are left out."""
    command, _unused, name = line.strip().partition(" ")
    if command != LINE:
        return None
    name = name.strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        name = name[1:-1]
    if not name:
        raise BadSetting(_("{command} needs the path of a picture: {command} FILE.", command=LINE))
    return Path(name).expanduser()
