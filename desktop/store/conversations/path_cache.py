"""The shown path of one conversation, kept while it is true: a chat of thousands of messages is read once,
and of a change only the messages that it changes.
"""

from __future__ import annotations

from desktop.store.conversations.messages import read_messages, read_nodes, read_shown_root, read_tree
from desktop.store.conversations.records import StoredMessage
from desktop.store.conversations.tree import Tree
from desktop.store.database.database import Database, StoreError
from desktop.store.database.row_changes import RowChanges

__all__ = ["PathCache"]


class PathCache:
    """Reads paths; that of the conversation asked for last costs only what has changed since."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes: RowChanges | None = None  # until the first path
        self._conversation = 0
        self._tree = Tree()
        self._found: dict[int, StoredMessage] = {}
        self._path: tuple[StoredMessage, ...] | None = None

    def path(self, conversation_id: int) -> tuple[StoredMessage, ...]:
        """The messages on the shown path, first to last. A message that has not changed is the same object
        as before. Raises `StoreError`.
        """
        changed = self._changed()
        known, self._conversation = self._conversation, 0  # nothing is known if reading fails
        if changed is None or known != conversation_id:
            self._tree, self._found, self._path = read_tree(self._database, conversation_id), {}, None
        else:
            self._take(conversation_id, changed)
        if self._path is None:
            ids = self._tree.path()
            new = [number for number in ids if number not in self._found]
            self._found.update((each.id, each) for each in read_messages(self._database, new, self._tree))
            self._path = tuple(map(self._found.__getitem__, ids))
        self._conversation = conversation_id
        return self._path

    def _changed(self) -> frozenset[int] | None:
        if self._changes is None:
            changes = RowChanges("messages")
            try:
                self._database.watch(changes)
            except StoreError:  # a connection that may not write can still read
                return None
            self._changes = changes
        return self._changes.take(self._database.execute("PRAGMA data_version").fetchone()[0])

    def _take(self, conversation_id: int, changed: frozenset[int]) -> None:
        """Bring the tree up to date; forget the changed messages and their siblings, whose counts differ."""
        tree = self._tree
        root = read_shown_root(self._database, conversation_id)
        if not changed and root == tree.shown_root:
            return
        tree.shown_root, self._path = root, None
        present = {node.id: node for node in read_nodes(self._database, conversation_id, sorted(changed))}
        for number in changed:
            self._found.pop(number, None)
            parent = tree.put(number, present.get(number))
            for sibling in tree.children.get(parent, ()):
                self._found.pop(sibling, None)
