"""The message tree of one conversation, without texts: siblings, and the path that is shown."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple

from engine.lazy_dataclass import dataclass

__all__ = ["Node", "Tree"]


class Node(NamedTuple):
    """The place of one message: `parent` None is the top; `shown_child` is the variant chosen below it, if
    any.
    """

    id: int
    parent: int | None
    shown_child: int | None


@dataclass
class Tree:
    """The present (not deleted) nodes of a conversation; children in the order they were created.

    A node below a deleted one cannot be reached from the top, so it is on no path.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    children: dict[int | None, list[int]] = field(default_factory=dict)
    shown_root: int | None = None

    @classmethod
    def build(cls, nodes: Iterable[Node], shown_root: int | None) -> Tree:
        """Build the tree from `nodes` in the order of their ids."""
        tree = cls(shown_root=shown_root)
        for node in nodes:
            tree.nodes[node.id] = node
            tree.children.setdefault(node.parent, []).append(node.id)
        return tree

    def put(self, number: int, node: Node | None) -> int | None:
        """The message `number` is now `node`, or (None) no longer present. Returns its parent, None too if it
        was unknown.
        """
        known = self.nodes.pop(number, None)
        if known is not None:
            self.children[known.parent].remove(number)
        if node is not None:
            self.nodes[number] = node
            bisect.insort(self.children.setdefault(node.parent, []), number)
        place = node or known
        return place.parent if place is not None else None

    def path(self) -> tuple[int, ...]:
        """The shown messages, first to last. Where the chosen variant is gone, the newest one is shown."""
        found: list[int] = []
        parent: int | None = None
        chosen = self.shown_root
        while siblings := self.children.get(parent):
            parent = chosen if chosen in siblings else siblings[-1]
            assert parent is not None
            found.append(parent)
            chosen = self.nodes[parent].shown_child
        return tuple(found)

    def variants(self, message_id: int) -> tuple[int, ...]:
        """The message and its siblings, oldest first. Raises KeyError for an unknown message."""
        return tuple(self.children[self.nodes[message_id].parent])

    def reachable(self, message_id: int) -> bool:
        """Whether neither the message nor anything above it is deleted."""
        node = self.nodes.get(message_id)
        while node is not None and node.parent is not None:
            node = self.nodes.get(node.parent)
        return node is not None
