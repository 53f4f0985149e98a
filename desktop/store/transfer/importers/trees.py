"""Turns the nodes of a format into a tree for the store: parents first, no cycles, split replies merged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from desktop.store.conversations.bulk_insert import chain_key
from desktop.store.transfer.importers.parts import join
from desktop.store.transfer.importers.protocol import Note
from desktop.store.transfer.records import MessageRecord
from engine.lazy_dataclass import dataclass
from engine.words import _

__all__ = ["Shaped", "chained", "shape"]

_OTHER_SIDE = ("assistant", "tool")
_MOST_SYSTEM = 16


@dataclass(frozen=True, slots=True)
class Shaped:
    """The messages as `ConversationRecord` needs them, and a system prompt that was at the top."""

    messages: tuple[MessageRecord, ...]
    shown_root: str | None
    system_prompt: str


def chained(messages: Iterable[MessageRecord]) -> list[MessageRecord]:
    """A sequence of messages as a chain; those without a key get one from their content."""
    found: list[MessageRecord] = []
    parent: str | None = None
    for message in messages:
        key = message.key or chain_key(parent, message.role, message.text)
        found.append(dataclasses.replace(message, key=key, parent=parent))
        parent = key
    return found


def shape(
    messages: Iterable[MessageRecord],
    note: Note,
    current: str | None = None,
    skipped: Mapping[str, str | None] | None = None,
) -> Shaped:
    """Build the tree of `messages`, given in the order they were created (parents and children in any order).

    `skipped` maps nodes that are not messages to their parents: their children move up to those. `current` is
    the last message on display; the path to it is shown, and elsewhere the newest child of each node.
    Messages that cannot be reached from the top are reported to `note`.
    """
    tree = _Tree(messages, dict(skipped or {}))
    ordered = tree.ordered()
    for key in tree.nodes.keys() - {message.key for message in ordered}:
        note(
            _("message {key}", key=key), _("it replies to itself in a circle, so it has no place in the chat")
        )
    on_path = tree.path_to(current)
    merged, renamed = _merged(ordered)
    system_prompt, merged = _without_system_prompt(merged)
    keys = {message.key for message in merged}
    children: dict[str | None, list[str]] = {}
    for message in merged:
        children.setdefault(message.parent, []).append(message.key)
    marked = {renamed.get(key, key) for key in on_path} & keys
    pick = {
        parent: next((key for key in below if key in marked), below[-1]) for parent, below in children.items()
    }
    return Shaped(
        tuple(
            dataclasses.replace(message, shown_child=pick.get(message.key), part=False,
            stats=_stats(message)) for message in merged
        ),
        pick.get(None), system_prompt,
    )  # fmt: skip


def _stats(message: MessageRecord) -> Mapping[str, object]:
    """A stopped reply says that it was cancelled; without that, it would look cut off by the end of this
    program.
    """
    return message.stats if message.stats or message.state != "stopped" else {"reason": "cancelled"}


class _Tree:
    """Nodes by key, with parents resolved past skipped nodes."""

    def __init__(self, messages: Iterable[MessageRecord], skipped: dict[str, str | None]) -> None:
        self.nodes: dict[str, MessageRecord] = {}
        self._skipped = skipped
        for message in messages:
            self.nodes.setdefault(message.key, message)
        self._resolved: dict[str, str | None] = {}
        self.children: dict[str | None, list[str]] = {}
        for key, message in self.nodes.items():
            self.children.setdefault(self._above(message.parent), []).append(key)

    def _above(self, parent: str | None) -> str | None:
        """The nearest message at or above `parent`; None if there is none."""
        way: list[str] = []
        seen: set[str] = set()
        while parent is not None and parent not in self.nodes and parent not in self._resolved:
            if parent in seen:
                parent = None
                break
            seen.add(parent)
            way.append(parent)
            parent = self._skipped.get(parent)
        found = self._resolved[parent] if parent is not None and parent in self._resolved else parent
        self._resolved.update(dict.fromkeys(way, found))
        return found

    def ordered(self) -> list[MessageRecord]:
        """Parents before children, breadth first: siblings and consecutive messages keep their order."""
        found: list[MessageRecord] = []
        row: list[str | None] = [None]
        while row:
            below: list[str | None] = []
            for parent in row:
                for key in self.children.get(parent, ()):
                    found.append(dataclasses.replace(self.nodes[key], parent=parent))
                    below.append(key)
            row = below
        return found

    def path_to(self, current: str | None) -> set[str]:
        """The keys from the top to `current`."""
        found: set[str] = set()
        key = self._above(current)
        while key is not None and key not in found:
            found.add(key)
            key = self._above(self.nodes[key].parent)
        return found


def _merged(ordered: list[MessageRecord]) -> tuple[list[MessageRecord], dict[str, str]]:
    """Merge thoughts and tool calls with the single reply that continues them; also map old keys to new ones.

    The last key of such a run stands for it: if the run is longer in a later file, that one is added beside
    it.
    """
    count: dict[str | None, int] = {}
    for message in ordered:
        count[message.parent] = count.get(message.parent, 0) + 1
    rows: dict[str, list[MessageRecord]] = {}
    begin: dict[str, str] = {}
    for message in ordered:
        above = rows[begin[message.parent]][-1] if message.parent in begin else None
        joins = (
            above is not None and count[above.key] == 1 and above.role in _OTHER_SIDE
            and message.role in _OTHER_SIDE
            and (above.part or message.part)
        )  # fmt: skip
        begin[message.key] = begin[above.key] if joins and above is not None else message.key
        rows.setdefault(begin[message.key], []).append(message)
    renamed = {message.key: row[-1].key for row in rows.values() for message in row}
    found = [_joined(row, renamed) for row in rows.values()]
    return found, renamed


def _joined(row: list[MessageRecord], renamed: dict[str, str]) -> MessageRecord:
    first, last = row[0], row[-1]
    parent = renamed[first.parent] if first.parent is not None else None
    if len(row) == 1:
        return dataclasses.replace(first, parent=parent)
    raw = [message.raw for message in row if message.raw is not None]
    stats: dict[str, object] = {}
    for message in row:
        stats |= {name: value for name, value in message.stats.items() if value not in (None, "")}
    role = "assistant" if any(message.role == "assistant" for message in row) else first.role
    return dataclasses.replace(
        first, key=last.key, parent=parent, role=role, text=join([message.text for message in row]),
        stats=stats, state=last.state, raw=raw or None,
    )  # fmt: skip


def _without_system_prompt(messages: list[MessageRecord]) -> tuple[str, list[MessageRecord]]:
    """Take system messages off the top of the tree, as long as they have no siblings."""
    texts: list[str] = []
    for _unused in range(_MOST_SYSTEM):
        top = [message for message in messages if message.parent is None]
        if len(top) != 1 or top[0].role != "system":
            break
        texts.append(top[0].text)
        messages = [
            dataclasses.replace(message, parent=None) if message.parent == top[0].key else message
            for message in messages
            if message is not top[0]
        ]
    return join(texts), messages
