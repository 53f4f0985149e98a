"""The results of imports and exports, as they cross from their thread to the window."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from desktop.store.transfer.records import Broken, Event, Imported, LeftOut, Progress
from engine.lazy_dataclass import dataclass

__all__ = ["MOST_BROKEN", "Exported", "ImportReport"]

MOST_BROKEN = 2000
"""Damaged entries that are listed; the others are only counted."""
_NAMES = {"new": "new", "extended": "extended", "known": "known", "deleted": "trashed"}


@dataclass(frozen=True, slots=True)
class Exported:
    """`count` conversations are in `target`, a file or a folder; or `trouble` says why not."""

    target: Path
    count: int
    trouble: str = ""
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Counts of conversations by outcome, what could not be read, and the latest changes.

    `left_out` is what was read but has no counterpart here, summed over the files. `share` is the part of the
    files read so far (0 to 1). `changed` maps the ids of conversations added or extended since the last
    report to whether they are new; `first` is one to open, or 0.
    """

    files: int = 1
    share: float = 0.0
    new: int = 0
    extended: int = 0
    known: int = 0
    trashed: int = 0
    messages: int = 0
    broken: tuple[Broken, ...] = ()
    broken_count: int = 0
    left_out: tuple[LeftOut, ...] = ()
    changed: Mapping[int, bool] = field(default_factory=dict)
    first: int = 0
    trouble: str = ""
    cancelled: bool = False

    def with_event(self, event: Event, file: int) -> ImportReport:
        """The report after an event from the import of file number `file`."""
        if isinstance(event, Progress):
            return dataclasses.replace(
                self, share=(file + (event.done / event.total if event.total else 0.0)) / self.files
            )
        if isinstance(event, Broken):
            kept = (*self.broken, event) if len(self.broken) < MOST_BROKEN else self.broken
            return dataclasses.replace(self, broken=kept, broken_count=self.broken_count + 1)
        if isinstance(event, LeftOut):
            return dataclasses.replace(self, left_out=_added(self.left_out, event))
        return self._with_imported(event)

    def without_changes(self) -> ImportReport:
        """The same report without the changes."""
        return dataclasses.replace(self, changed={})

    def _with_imported(self, event: Imported) -> ImportReport:
        name = _NAMES[event.outcome]
        here = event.outcome != "deleted"
        is_new = event.outcome == "new"
        changed = (
            {**self.changed, event.conversation_id: is_new} if event.messages or is_new else self.changed
        )
        return dataclasses.replace(
            self, changed=changed, first=self.first or (event.conversation_id if here else 0),
            messages=self.messages + event.messages, **{name: getattr(self, name) + 1},
        )  # fmt: skip


def _added(found: tuple[LeftOut, ...], event: LeftOut) -> tuple[LeftOut, ...]:
    for place, known in enumerate(found):
        if (known.what, known.files) == (event.what, event.files):
            return (
                *found[:place],
                dataclasses.replace(known, count=known.count + event.count),
                *found[place + 1 :],
            )
    return (*found, event)
