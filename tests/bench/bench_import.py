"""Imports a large file of conversations while the window writes: memory, progress, duplicates, cancelling,
waits.

    python -m tests.bench.bench_import [--megabytes 500]

A file in ChatGPT's format is imported on the import thread while this one adds a message to a chat every 50
ms, like a user in a hurry; then it is imported again, and a third time cancelled halfway. The last line is
one JSON object; the exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEventLoop, QTimer

from desktop.services.transfer.transfer import TransferService
from desktop.services.transfer.transfer_report import ImportReport
from desktop.store.conversations.stores import ConversationStores
from desktop.store.database.database import FILE_NAME, Database
from tests.desktop.store.transfer.importers.files import chatgpt

MEMORY_MB, CANCEL_S, WRITE_P99_MS, REPORTS_A_MINUTE = 200, 1.0, 50.0, 60
PAUSE_MS = 50
LETTERS = 4000


def resident() -> float:
    """The resident memory of this process in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def make_file(path: Path, megabytes: int, first: int = 0) -> int:
    """Write this many megabytes of conversations, numbered from `first`; returns how many."""
    draw, count = random.Random(1), 0
    words = [f"word{number}" for number in range(5000)]
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        while file.tell() < megabytes * 1_000_000:
            text = " ".join(draw.choices(words, k=LETTERS // 8))
            file.write(("," if count else "") + json.dumps(chatgpt(first + count, text)))
            count += 1
        file.write("]")
    return count


class Importing:
    """One import, and what was measured meanwhile."""

    def __init__(self, stores: ConversationStores, chat: int) -> None:
        self._stores, self._chat = stores, chat
        self.service = TransferService(stores)
        self.service.importing.connect(self._on_report)
        self.service.imported.connect(self._on_end)
        self._loop = QEventLoop()
        self._writer = QTimer()
        self._writer.setInterval(PAUSE_MS)
        self._writer.timeout.connect(self._write)
        self._cancel_at = 2.0
        self._cancelled = 0.0
        self.begin()

    def begin(self) -> None:
        """Reset the figures."""
        self.reports = 0
        self.peak = resident()
        self.writes: list[float] = []
        self.late: list[float] = []
        self._due = 0.0

    def run(self, path: Path, cancel_at: float = 2.0) -> tuple[ImportReport, float]:
        """Import `path`, cancelled at that share of it; returns the last report and the seconds since the
        start or the cancelling.
        """
        self.begin()
        self._cancel_at, self._cancelled = cancel_at, 0.0
        began = time.perf_counter()
        self.service.import_files([path])
        self._writer.start()
        self._loop.exec()
        self._writer.stop()
        return self._last, time.perf_counter() - (self._cancelled or began)

    def _on_report(self, report: ImportReport) -> None:
        self.reports += 1
        self.peak = max(self.peak, resident())
        if report.share >= self._cancel_at and not self._cancelled:
            self._cancelled = time.perf_counter()
            self.service.cancel_import()

    def _on_end(self, report: ImportReport) -> None:
        self._last = report
        self._loop.quit()

    def _write(self) -> None:
        now = time.perf_counter()
        if self._due:
            self.late.append(max(0.0, now - self._due))
        self._stores.kept.add_message(self._chat, None, "user", "what a person types meanwhile")
        self.writes.append(time.perf_counter() - now)
        self._due = time.perf_counter() + PAUSE_MS / 1000


def p99(values: list[float]) -> float:
    """The 99th percentile in milliseconds."""
    return 1000 * sorted(values)[min(len(values) - 1, len(values) * 99 // 100)] if values else 0.0


def main() -> int:
    """Run everything; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    options = parser.parse_args()
    app = QCoreApplication([])
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "conversations.json"
        count = make_file(path, options.megabytes)
        database = Database(Path(name) / FILE_NAME)
        stores = ConversationStores(database)
        importing = Importing(stores, stores.kept.create("Meanwhile").id)
        before = resident()
        first, seconds = importing.run(path)
        found: dict[str, object] = {
            "megabytes": options.megabytes, "conversations": count, "new": first.new,
            "seconds": round(seconds, 1),
            "grown_mb": round(importing.peak - before, 1),
            "reports_a_minute": round(60 * importing.reports / seconds),
            "write_ms": {"p99": round(p99(importing.writes), 1),
            "max": round(1000 * max(importing.writes), 1)},
            "late_ms": {"p99": round(p99(importing.late), 1), "max": round(1000 * max(importing.late), 1)},
        }  # fmt: skip
        missed = [f"{first.new} of {count} conversations came"] * (first.new != count)
        missed += ["memory grew by more"] * (importing.peak - before > MEMORY_MB)
        missed += ["progress was reported too rarely"] * (60 * importing.reports / seconds < REPORTS_A_MINUTE)
        missed += ["a write of the window took longer"] * (p99(importing.writes) > WRITE_P99_MS)
        again, again_seconds = importing.run(path)
        found["again_seconds"] = round(again_seconds, 1)
        missed += ["there are duplicates"] * (again.new + again.extended > 0 or again.known != count)
        other = Path(name) / "other.json"
        others = make_file(other, max(5, options.megabytes // 5), first=count)
        half, cancel_seconds = importing.run(other, cancel_at=0.5)
        found |= {"cancelled_after": round(half.new / others, 2), "cancel_seconds": round(cancel_seconds, 3)}
        missed += ["cancelling took longer"] * (not half.cancelled or cancel_seconds > CANCEL_S)
        importing.service.close()
        stores.close()
        database.close()
    app.quit()
    print("missed: " + "; ".join(missed) if missed else "all bars held")
    print(json.dumps({**found, "passed": not missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
