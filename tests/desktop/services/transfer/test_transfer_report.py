"""What a report of an import adds up, event by event."""

from __future__ import annotations

from functools import reduce

from desktop.services.transfer.transfer_report import MOST_BROKEN, ImportReport
from desktop.store.transfer.records import Broken, Event, Imported, LeftOut, Progress


def after(*events: Event, files: int = 1, file: int = 0) -> ImportReport:
    return reduce(lambda report, event: report.with_event(event, file), events, ImportReport(files))


def test_what_has_no_counterpart_is_summed_over_the_files() -> None:
    pictures, notes = LeftOut("picture", 2, True), LeftOut("note", 1)
    found = after(pictures, notes, LeftOut("picture", 3, True), LeftOut("picture", 5)).left_out
    assert found == (LeftOut("picture", 5, True), notes, LeftOut("picture", 5))


def test_conversations_are_counted_by_outcome() -> None:
    found = after(
        Imported(7, "a", "ChatGPT", "known", 0),
        Imported(8, "b", "ChatGPT", "extended", 2),
        Imported(9, "c", "ChatGPT", "new", 0),
        Imported(3, "d", "ChatGPT", "deleted", 0),
    )
    assert (found.new, found.extended, found.known, found.trashed, found.messages) == (1, 1, 1, 1, 2)
    assert found.changed == {8: False, 9: True}
    assert found.first == 7
    assert found.without_changes().changed == {}
    assert after(Imported(3, "d", "ChatGPT", "deleted", 0)).first == 0


def test_the_share_is_that_of_all_files() -> None:
    assert after(Progress(30, 60), files=2, file=1).share == 0.75
    assert after(Progress(0, 0), files=2, file=1).share == 0.5


def test_of_damaged_entries_the_first_are_listed_and_all_are_counted() -> None:
    broken = [Broken(f"entry {number}", "no text") for number in range(MOST_BROKEN + 2)]
    found = after(*broken)
    assert (found.broken, found.broken_count) == (tuple(broken[:MOST_BROKEN]), MOST_BROKEN + 2)
