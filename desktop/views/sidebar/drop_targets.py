"""Where dragged chats and folders land: in a folder, between two, among the pinned chats, or outside all
folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from desktop.items.chats.chat_list import CHAT, FOLDER, HEADING, PINNED, ChatListModel
from engine.words import translate

__all__ = ["Landing", "land"]

_EDGE = 0.28
"""The share of a folder's row, at its top and bottom, that stands for the gap beside it."""


class Landing(NamedTuple):
    """What a drop does: "pin" or "move" to `folder` (0 is the top level); `position` among its folders, -1
    for last.

    `row` is shown as the target, or the gap beside it: `edge` -1 above, 1 below, 0 the row itself; row -1 is
    the empty space.
    """

    action: str
    folder: int = 0
    position: int = -1
    row: int = -1
    edge: int = 0


def land(
    model: ChatListModel, row: int, share: float, chats: Sequence[int], folders: Sequence[int]
) -> Landing | None:
    """What happens when these are dropped on `row` (-1: below all rows) at `share` of its height; None if
    they cannot be dropped there.
    """
    if folders:
        return _land_folder(model, row, share, folders[0]) if len(folders) == 1 and not chats else None
    if not chats:
        return None
    if row < 0:
        return Landing("move")
    place = model.shown()[row]
    if place.kind == FOLDER:
        return Landing("move", place.number, row=row)
    if place.text == translate(PINNED):
        return Landing("pin", row=row)
    if place.kind == CHAT and place.depth:
        inside = next(
            at
            for at in range(row, -1, -1)
            if model.shown()[at].kind == FOLDER and model.shown()[at].depth < place.depth
        )
        return Landing("move", model.shown()[inside].number, row=inside)
    return Landing("move", row=row)


def _land_folder(model: ChatListModel, row: int, share: float, moved: int) -> Landing | None:
    if row < 0:
        return Landing("move")
    place = model.shown()[row]
    if place.kind == HEADING or (place.kind == CHAT and not place.depth):
        return Landing("move", row=row) if place.text != translate(PINNED) else None
    if place.kind == CHAT:
        inside = next(
            at
            for at in range(row, -1, -1)
            if model.shown()[at].kind == FOLDER and model.shown()[at].depth < place.depth
        )
        return (
            None
            if _is_in(model, model.shown()[inside].number, moved)
            else Landing("move", model.shown()[inside].number, row=inside)
        )
    folder = model.folder(place.number)
    if folder is None or _is_in(model, folder.id, moved):
        return None
    siblings = [
        other.id for other in model.folders() if other.parent_id == folder.parent_id and other.id != moved
    ]
    if share < _EDGE:
        return Landing("move", folder.parent_id or 0, siblings.index(folder.id), row, -1)
    if share > 1 - _EDGE and folder.id not in model.open_folders:
        return Landing("move", folder.parent_id or 0, siblings.index(folder.id) + 1, row, 1)
    return Landing("move", folder.id, row=row)


def _is_in(model: ChatListModel, folder_id: int, outer: int) -> bool:
    """Whether a folder is `outer` or inside `outer`."""
    folder = model.folder(folder_id)
    while folder is not None:
        if folder.id == outer:
            return True
        folder = model.folder(folder.parent_id) if folder.parent_id is not None else None
    return False
