"""The message tree of one conversation, without texts: which children stand side by side, and which path
is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Node", "Tree"]


@dataclass(frozen=True, slots=True)
class Node:
    """One message's place: `parent` None is the top; `shown_child` is the variant asked for below it, if
    any.
    """

    id: int
    parent: int | None
    shown_child: int | None


@dataclass
class Tree:
    """The present (not deleted) nodes of a conversation. Children stand in the order they were made.

    A node below a deleted one is not reachable from the top, and so on no path.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    children: dict[int | None, list[int]] = field(default_factory=dict)
    shown_root: int | None = None

    @classmethod
    def build(cls, nodes: Iterable[Node], shown_root: int | None) -> Tree:
        """A tree of `nodes`, given in the order of their ids."""
        tree = cls(shown_root=shown_root)
        for node in nodes:
            tree.nodes[node.id] = node
            tree.children.setdefault(node.parent, []).append(node.id)
        return tree

    def path(self) -> tuple[int, ...]:
        """The shown messages from the top to the last one.

        Where the variant asked for is gone, the newest is shown.
        """
        found: list[int] = []
        parent: int | None = None
        wanted = self.shown_root
        while beside := self.children.get(parent):
            parent = wanted if wanted in beside else beside[-1]
            assert parent is not None
            found.append(parent)
            wanted = self.nodes[parent].shown_child
        return tuple(found)

    def variants(self, message_id: int) -> tuple[int, ...]:
        """The message and those beside it, oldest first. Raises KeyError for a message that is not here."""
        return tuple(self.children[self.nodes[message_id].parent])

    def reachable(self, message_id: int) -> bool:
        """Whether nothing above the message is deleted, nor it itself."""
        node = self.nodes.get(message_id)
        while node is not None and node.parent is not None:
            node = self.nodes.get(node.parent)
        return node is not None
