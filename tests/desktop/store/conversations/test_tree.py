"""The tree of a chat's messages: what is shown, siblings, and what lies below a deleted one."""

from __future__ import annotations

import pytest

from desktop.store.conversations.tree import Node, Tree


def made() -> Tree:
    """1 and 5 on top; below 1 are 2 and 3, below 3 is 4. Shown: 1, 3, 4."""
    nodes = [Node(1, None, 3), Node(2, 1, None), Node(3, 1, 4), Node(4, 3, None), Node(5, None, None)]
    return Tree.build(nodes, 1)


def test_the_shown_path() -> None:
    tree = made()
    assert tree.path() == (1, 3, 4)
    tree.shown_root = 5
    assert tree.path() == (5,)
    tree.shown_root = None
    assert tree.path() == (5,)  # the newest one
    assert Tree().path() == ()


def test_where_the_chosen_variant_is_gone_the_newest_is_shown() -> None:
    tree = made()
    tree.put(3, None)
    assert tree.path() == (1, 2)
    tree.put(6, Node(6, 1, None))
    assert tree.path() == (1, 6)


def test_variants_are_siblings_in_their_order() -> None:
    tree = made()
    assert (tree.variants(3), tree.variants(5), tree.variants(4)) == ((2, 3), (1, 5), (4,))
    with pytest.raises(KeyError):
        tree.variants(9)
    tree.put(3, None)
    tree.put(7, Node(7, 1, None))
    tree.put(3, Node(3, 1, 4))
    assert tree.variants(2) == (2, 3, 7)


def test_a_change_tells_the_parent() -> None:
    tree = made()
    assert tree.put(2, Node(2, 1, None)) == 1
    assert tree.put(2, None) == 1
    assert tree.put(2, None) is None
    assert tree.put(8, Node(8, 5, None)) == 5
    assert tree.put(5, Node(5, None, 8)) is None
    assert tree.variants(1) == (1, 5)


def test_what_is_below_a_deleted_message_cannot_be_reached() -> None:
    tree = made()
    assert [tree.reachable(number) for number in (1, 2, 4, 5, 9)] == [True, True, True, True, False]
    tree.put(1, None)
    assert [tree.reachable(number) for number in (1, 2, 3, 4, 5)] == [False, False, False, False, True]
