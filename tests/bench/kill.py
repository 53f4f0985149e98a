"""`kill -9` at random moments under load: at most half a second of the running reply is lost, and nothing else.

    python -m tests.bench.kill [--kills 200] [--seed 1]

Each time the busy user works in a window over the same data until it is killed; then the store is compared with the user's own log,
which an O_APPEND file keeps through the kill. The last line is one JSON object; the exit code is 1 when something was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from desktop.store.conversations import ConversationStore
from desktop.store.database import FILE_NAME, Database
from tests.bench.busy_user import REPLY

__all__ = ["Killing", "main"]

PROMISE_S = 0.5
ROOT = Path(__file__).resolve().parents[2]


class Killing:
    """Kills over one data folder; `lost` says what was lost, one sentence each, and `counts` what was done meanwhile."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self._draw, self._round = folder, random.Random(seed), seed * 1000
        self.lost: list[str] = []
        self.counts: Counter[str] = Counter()
        self.longest_s = 0.0

    def once(self) -> None:
        """Start, kill at a random moment, compare."""
        self._round += 1
        log = self.folder / f"log{self._round}"
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "INGLENOOK_DATA": str(self.folder)}
        command = [sys.executable, "-m", "tests.bench.busy_user", str(self.folder), str(log), str(self._round)]
        user = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not log.exists() or not log.read_bytes():
            if user.poll() is not None or time.monotonic() > end:
                user.kill()
                raise SystemExit("the busy user did not start")
            time.sleep(0.02)
        time.sleep(self._draw.uniform(0.0, 2.0))
        killed = time.time()
        user.send_signal(signal.SIGKILL)
        user.wait(30)
        if user.returncode != -signal.SIGKILL:
            self.lost.append(f"run {self._round} ended by itself with {user.returncode}")
        lines = log.read_text(encoding="utf-8").split("\n")[:-1]
        self._compare([json.loads(line) for line in lines], killed)

    def _compare(self, told: list[dict[str, Any]], killed: float) -> None:
        self.counts.update(line["kind"] for line in told)
        database = Database(self.folder / FILE_NAME)
        try:
            if database.notices:
                self.lost.append(f"the store says {database.notices}")
            sound = database.execute("PRAGMA integrity_check").fetchone()[0]
            if sound != "ok":
                self.lost.append(f"the database is not sound: {sound}")
            ConversationStore(database)  # marks the reply that was cut as stopped
            self._compare_acts(database, told)
            self._compare_reply(database, told, killed)
        finally:
            database.close()

    def _compare_acts(self, database: Database, told: list[dict[str, Any]]) -> None:
        titles: dict[int, str] = {}
        for line in told:
            kind = line["kind"]
            if kind in ("said", "edited"):
                found = database.execute("SELECT 1 FROM messages WHERE conversation_id = ? AND text = ?", (line["chat"], line["text"]))
                if found.fetchone() is None:
                    self.lost.append(f"{kind}: {line['text']!r} is gone")
            elif kind == "imported" and database.execute("SELECT 1 FROM conversations WHERE id = ?", (line["chat"],)).fetchone() is None:
                self.lost.append(f"the imported chat {line['chat']} is gone")
            elif kind == "renamed":
                titles[line["chat"]] = line["title"]
            elif kind == "deleted":
                row = database.execute("SELECT deleted FROM conversations WHERE id = ?", (line["chat"],)).fetchone()
                if row is not None and not row[0]:
                    self.lost.append(f"the deleted chat {line['chat']} is back")
        for chat, title in titles.items():
            row = database.execute("SELECT title FROM conversations WHERE id = ?", (chat,)).fetchone()
            if row is None or (row[0] != title and not row[0].startswith("Title ")):
                self.lost.append(f"the title {title!r} is gone")

    def _compare_reply(self, database: Database, told: list[dict[str, Any]], killed: float) -> None:
        seen: dict[int, list[tuple[float, int]]] = {}
        for line in told:
            if line["kind"] == "seen":
                seen.setdefault(line["id"], []).append((line["time"], line["length"]))
        for message, lengths in seen.items():
            row = database.execute("SELECT text, state FROM messages WHERE id = ?", (message,)).fetchone()
            if row is None or row[1] == "running":
                self.lost.append(f"the reply {message} is gone or still runs")
                continue
            if not REPLY.startswith(row[0]):
                self.lost.append(f"the reply {message} has text that nobody wrote")
            missing = [moment for moment, length in lengths if length > len(row[0])]
            self.longest_s = max(self.longest_s, killed - missing[0] if missing else 0.0)
            if missing and missing[0] < killed - PROMISE_S:
                self.lost.append(f"of the reply {message} {killed - missing[0]:.2f} s were lost")


def main() -> int:
    """Run everything; 1 when something was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        killing = Killing(Path(name), options.seed)
        for number in range(options.kills):
            killing.once()
            if number % 20 == 19:
                print(f"{number + 1} kills, {len(killing.lost)} losses", flush=True)
    for sentence in killing.lost[:20]:
        print(sentence)
    passed = not killing.lost
    print(f"{options.kills} kills; the most that was lost of a reply: {killing.longest_s:.2f} s; passed: {passed}")
    result = {"kills": options.kills, "lost": len(killing.lost), "longest_s": round(killing.longest_s, 3), "passed": passed}
    print(json.dumps({**result, "acts": dict(killing.counts)}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
