"""The shown paths of a few conversations, kept while they are true: a chat of thousands of messages is read
once, and of a change only the messages that it changes.
"""

from __future__ import annotations

from dataclasses import field

from desktop.store.conversations.messages import read_messages, read_nodes, read_shown_root, read_tree
from desktop.store.conversations.records import StoredMessage
from desktop.store.conversations.tree import Tree
from desktop.store.database.database import Database, StoreError
from desktop.store.database.row_changes import RowChanges
from engine.lazy_dataclass import dataclass

__all__ = ["MOST", "PathCache"]

MOST = 3
"""Conversations that are kept: replies are written in several at the same time."""


@dataclass
class _Kept:
    """What was read of one conversation, and the ids of messages, perhaps of other conversations, that have
    changed since.
    """

    tree: Tree
    found: dict[int, StoredMessage] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    path: tuple[StoredMessage, ...] | None = None


class PathCache:
    """Reads paths; those of the conversations asked for last cost only what has changed since."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes: RowChanges | None = None  # until the first path
        self._kept: dict[int, _Kept] = {}

    def path(self, conversation_id: int) -> tuple[StoredMessage, ...]:
        """The messages on the shown path, first to last. A message that has not changed is the same object
        as before. Raises `StoreError`.
        """
        self._note_changes()
        kept = self._kept.pop(conversation_id, None)  # which is forgotten if reading fails
        if kept is None:
            kept = _Kept(read_tree(self._database, conversation_id))
        else:
            self._renew(conversation_id, kept)
        if kept.path is None:
            ids = kept.tree.path()
            new = [number for number in ids if number not in kept.found]
            kept.found.update((each.id, each) for each in read_messages(self._database, new, kept.tree))
            kept.path = tuple(map(kept.found.__getitem__, ids))
        self._kept[conversation_id] = kept
        if len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]
        return kept.path

    def _note_changes(self) -> None:
        """Let all that is kept know which messages have changed; forget it if that is not known."""
        changed = self._changed()
        if changed is None:
            self._kept.clear()
            return
        for kept in self._kept.values():
            kept.changed |= changed

    def _changed(self) -> frozenset[int] | None:
        if self._changes is None:
            changes = RowChanges("messages")
            try:
                self._database.watch(changes)
            except StoreError:  # a connection that may not write can still read
                return None
            self._changes = changes
        return self._changes.take(self._database.execute("PRAGMA data_version").fetchone()[0])

    def _renew(self, conversation_id: int, kept: _Kept) -> None:
        """Bring the tree up to date; forget the changed messages and their siblings, whose counts differ."""
        tree, root = kept.tree, read_shown_root(self._database, conversation_id)
        if root != tree.shown_root:
            tree.shown_root, kept.path = root, None
        if not kept.changed:
            return
        nodes = read_nodes(self._database, conversation_id, sorted(kept.changed))
        present = {node.id: node for node in nodes}
        for number in [each for each in kept.changed if each in tree.nodes or each in present]:
            kept.path = None
            kept.found.pop(number, None)
            parent = tree.put(number, present.get(number))
            for sibling in tree.children.get(parent, ()):
                kept.found.pop(sibling, None)
        kept.changed.clear()
