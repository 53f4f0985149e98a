"""`kill -9` at random moments under load: at most half a second of the running text is lost, and nothing else.

    python -m tests.bench.kill [--kills 200] [--seed 1]

Each time the busy user works in a window over the same data until it is killed; then the store is compared with the user's own log,
which an O_APPEND file keeps through the kill. Running text is a reply that grows, of one of several named roles too, a notebook that
the model writes on, and what is being typed into one; what was typed before a notebook was left is told as saved. The last line is
one JSON object; the exit code is 1 when something was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
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
from desktop.store.roles import Roles
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
        self.longest_s: dict[str, float] = {"reply": 0.0, "notebook": 0.0, "typing": 0.0}

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
            self._compare_notebooks(database, told, killed)
        finally:
            database.close()

    def _compare_acts(self, database: Database, told: list[dict[str, Any]]) -> None:
        titles: dict[int, str] = {}
        for line in told:
            kind = line["kind"]
            if kind in ("said", "edited"):
                sql = "SELECT speaker FROM messages WHERE conversation_id = ? AND text = ?"
                row = database.execute(sql, (line["chat"], line["text"])).fetchone()
                if row is None:
                    self.lost.append(f"{kind}: {line['text']!r} is gone")
                elif row[0] != line.get("speaker", row[0]):
                    self.lost.append(f"{line['text']!r} was said by {line['speaker']!r}, not by {row[0]!r}")
            elif kind in ("imported", "notebook", "cast"):
                row = database.execute("SELECT roles FROM conversations WHERE id = ?", (line["chat"],)).fetchone()
                if row is None:
                    self.lost.append(f"the chat {line['chat']} is gone: {kind}")
                elif kind == "cast" and int(Roles.read(row[0]).user.removeprefix("Cy") or 0) < line["number"]:
                    self.lost.append(f"the cast {line['number']} of chat {line['chat']} is gone")
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
        for message, lines in _by_id(told, "seen").items():
            row = database.execute("SELECT text, state, speaker FROM messages WHERE id = ?", (message,)).fetchone()
            if row is None or row[1] == "running":
                self.lost.append(f"the reply {message} is gone or still runs")
                continue
            text, speaker = row[0], row[2]
            # The fake model leaves out as many words as the begun name before a role's reply has.
            if not (REPLY.startswith(text) or (speaker and text in REPLY)):
                self.lost.append(f"the reply {message} has text that nobody wrote")
            if speaker != lines[-1]["speaker"]:
                self.lost.append(f"the reply {message} is by {speaker!r}, not by {lines[-1]['speaker']!r}")
            self._judge("reply", message, [line["time"] for line in lines if line["length"] > len(text)], killed)

    def _compare_notebooks(self, database: Database, told: list[dict[str, Any]], killed: float) -> None:
        typed, grown, saved = _by_id(told, "typed"), _by_id(told, "grown"), _by_id(told, "saved")
        for message in typed.keys() | grown.keys():
            row = database.execute("SELECT text FROM messages WHERE id = ?", (message,)).fetchone()
            if row is None:
                self.lost.append(f"the document {message} is gone")
                continue
            if problem := wrong_in(row[0]):
                self.lost.append(f"the document {message} has text that nobody wrote: {problem}")
            there = {int(number) for number in re.findall(r"t(\d+) ", row[0])}
            missing = [line for line in typed.get(message, ()) if line["number"] not in there]
            last = max((line["number"] for line in saved.get(message, ())), default=0)
            self.lost += [f"the word {line['number']} was told as saved and is gone" for line in missing if line["number"] <= last]
            self._judge("typing", message, [line["time"] for line in missing], killed)
            short = [line["time"] for line in grown.get(message, ()) if line["length"] > len(row[0])]
            self._judge("notebook", message, short, killed)

    def _judge(self, what: str, message: int, missing: list[float], killed: float) -> None:
        """Moments at which something was on the screen that is not in the store."""
        if missing:
            self.longest_s[what] = max(self.longest_s[what], killed - min(missing))
            if min(missing) < killed - PROMISE_S:
                self.lost.append(f"{what} {message}: {killed - min(missing):.2f} s were lost")


def wrong_in(document: str) -> str:
    """What of a document neither the user typed nor the model wrote; empty when all is as it should be."""
    rest = re.sub(r"word\d+|t\d+ |[\s.]", "", document)
    before = -1
    for number in map(int, re.findall(r"word(\d+)", document)):
        if number not in (0, before + 1):
            return f"word{number} behind word{before}"
        before = number
    return rest[:40]


def _by_id(told: list[dict[str, Any]], kind: str) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for line in told:
        if line["kind"] == kind:
            found.setdefault(line["id"], []).append(line)
    return found


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
    longest = {what: round(seconds, 3) for what, seconds in killing.longest_s.items()}
    print(f"{options.kills} kills; the most that was lost, in seconds: {longest}; passed: {passed}")
    result = {"kills": options.kills, "lost": len(killing.lost), "longest_s": longest, "passed": passed}
    print(json.dumps({**result, "acts": dict(killing.counts)}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
