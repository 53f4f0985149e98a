"""`kill -9` under load, also while a reply grows: at most half a second of the running text may be lost.

    python -m tests.tools.kill [--kills 200] [--seed 1] [--model FILE]

The busy user works in a window over the same data until it is killed; then the store is compared with the
user's log, an O_APPEND file that survives the kill. Half of the kills wait for a reply that grows on the
screen, the others for each other act in rotation, and they happen at a random moment afterwards. The starter
model (or FILE) replies in half of the rounds, a fast fake one in the others. Running text is a growing reply,
a notebook that the model writes in, or what is being typed into a notebook; what was typed before a notebook
was left is logged as saved. The last line is one JSON object. The exit code is 1 if something was lost, or if
an act or a growing reply was met too rarely to prove anything.
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

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.participants import Cast
from desktop.store.database.database import FILE_NAME, Database
from desktop.store.database.open import open_conversations
from tests.tools.busy_user import REPLY, checksum
from tests.tools.starter import starter_model

__all__ = ["Killing", "main"]

PROMISE_S = 0.5
ACTS = ("said", "edited", "renamed", "imported", "deleted", "cast", "notebook", "typed", "grown")
"""What a kill waits for when it does not wait for a growing reply ("seen")."""
PATIENCE_S = 60
JUST_NOW_S = 0.1
"""A reply that was seen to run so shortly before the kill was growing on the screen when it came."""
ROOT = Path(__file__).resolve().parents[2]


class Killing:
    """Kills over one data folder; `model` replies in every other pair of rounds (None: always a fake one).
    `lost` lists what was lost, `counts` what was done, `met` how many kills followed the act that they waited
    for, and "growing" those with a growing reply on the screen.
    """

    def __init__(self, folder: Path, seed: int, model: Path | None = None) -> None:
        self.folder, self._draw, self._first, self._model = folder, random.Random(seed), seed * 1000, model
        self._kills = 0
        self.lost: list[str] = []
        self.met: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.longest_s: dict[str, float] = {"reply": 0.0, "notebook": 0.0, "typing": 0.0}

    def once(self) -> None:
        """Start, wait for an act, kill at a random moment after it, compare."""
        number, self._kills = self._kills, self._kills + 1
        awaited = "seen" if number % 2 == 0 else ACTS[number // 2 % len(ACTS)]
        real = self._model is not None and number // 2 % 2 == 0
        # the fake one's words are known, so its text is judged word by word
        folder = self.folder / ("real" if real else "fake")
        folder.mkdir(exist_ok=True)
        log = self.folder / f"log{self._first + number}"
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "INGLENOOK_DATA": str(folder)}
        command = [
            sys.executable,
            "-m",
            "tests.tools.busy_user",
            str(folder),
            str(log),
            str(self._first + number),
            awaited,
        ]
        user = subprocess.Popen(
            [*command, *([str(self._model)] if real else [])],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait(user, log, "ready")
            met = self._wait(user, log, awaited)
            time.sleep(self._draw.uniform(0.0, 1.0))
        finally:
            killed = time.time()
            user.kill()
            user.wait(30)
        if user.returncode != -signal.SIGKILL:
            self.lost.append(f"run {self._first + number} ended by itself with {user.returncode}")
        entries = [json.loads(line) for line in log.read_text(encoding="utf-8").split("\n")[:-1]]
        self.met[awaited] += met
        seen = [line["time"] for line in entries if line["kind"] == "seen"]
        self.met["growing"] += bool(seen) and seen[-1] > killed - JUST_NOW_S
        self.met["real"] += real
        self._compare(folder, entries, killed, real)

    def _wait(self, user: subprocess.Popen[bytes], log: Path, kind: str) -> bool:
        """Whether the log reports such an act in time. Fails if the window is never ready."""
        end = time.monotonic() + PATIENCE_S
        sign = f'"kind": "{kind}"'.encode()
        while not log.exists() or sign not in log.read_bytes():
            if kind == "ready" and (user.poll() is not None or time.monotonic() > end):
                raise SystemExit("the busy user did not start")
            if user.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def too_seldom(self) -> list[str]:
        """The acts that were met too rarely, one sentence each."""
        bars = {
            "seen": self._kills // 3,
            "growing": self._kills // 5,
            **dict.fromkeys(ACTS, self._kills // (4 * len(ACTS))),
        }
        return [
            f"{what}: met in {self.met[what]} kills of at least {bar}"
            for what, bar in bars.items()
            if self.met[what] < bar
        ]

    def _compare(self, folder: Path, entries: list[dict[str, Any]], killed: float, real: bool) -> None:
        self.counts.update(line["kind"] for line in entries)
        database = open_conversations(folder / FILE_NAME)
        try:
            if database.notices:
                self.lost.append(f"the store says {database.notices}")
            sound = database.execute("PRAGMA integrity_check").fetchone()[0]
            if sound != "ok":
                self.lost.append(f"the database is not sound: {sound}")
            ConversationStore(database)  # marks the reply that was cut as stopped
            self._compare_acts(database, entries)
            self._compare_reply(database, entries, killed, real)
            self._compare_notebooks(database, entries, killed, real)
        finally:
            database.close()

    def _compare_acts(self, database: Database, entries: list[dict[str, Any]]) -> None:
        titles: dict[int, str] = {}
        for line in entries:
            kind = line["kind"]
            if kind in ("said", "edited"):
                sql = "SELECT speaker FROM messages WHERE conversation_id = ? AND text = ?"
                row = database.execute(sql, (line["chat"], line["text"])).fetchone()
                if row is None:
                    self.lost.append(f"{kind}: {line['text']!r} is gone")
                elif row[0] != line.get("speaker", row[0]):
                    self.lost.append(f"{line['text']!r} was said by {line['speaker']!r}, not by {row[0]!r}")
            elif kind in ("imported", "notebook", "cast"):
                row = database.execute(
                    "SELECT roles FROM conversations WHERE id = ?", (line["chat"],)
                ).fetchone()
                if row is None:
                    self.lost.append(f"the chat {line['chat']} is gone: {kind}")
                elif kind == "cast" and int(Cast.read(row[0]).user.removeprefix("Cy") or 0) < line["number"]:
                    self.lost.append(f"the cast {line['number']} of chat {line['chat']} is gone")
            elif kind == "renamed":
                titles[line["chat"]] = line["title"]
            elif kind == "deleted":
                row = database.execute(
                    "SELECT deleted FROM conversations WHERE id = ?", (line["chat"],)
                ).fetchone()
                if row is not None and not row[0]:
                    self.lost.append(f"the deleted chat {line['chat']} is back")
        for chat, title in titles.items():
            row = database.execute("SELECT title FROM conversations WHERE id = ?", (chat,)).fetchone()
            if row is None or (row[0] != title and not row[0].startswith("Title ")):
                self.lost.append(f"the title {title!r} is gone")

    def _compare_reply(
        self, database: Database, entries: list[dict[str, Any]], killed: float, real: bool
    ) -> None:
        for message, lines in _by_id(entries, "seen").items():
            row = database.execute(
                "SELECT text, state, speaker FROM messages WHERE id = ?", (message,)
            ).fetchone()
            if row is None or row[1] == "running":
                self.lost.append(f"the reply {message} is gone or still runs")
                continue
            text, speaker = row[0], row[2]
            # The fake model leaves out as many words as the begun name before a role's reply has.
            known = real or REPLY.startswith(text) or (speaker and text in REPLY)
            if not known or any(
                checksum(text[: line["length"]]) != line["checksum"]
                for line in lines
                if line["length"] <= len(text)
            ):
                self.lost.append(f"the reply {message} has text that nobody wrote")
            if speaker != lines[-1]["speaker"]:
                self.lost.append(f"the reply {message} is by {speaker!r}, not by {lines[-1]['speaker']!r}")
            self._judge(
                "reply", message, [line["time"] for line in lines if line["length"] > len(text)], killed
            )

    def _compare_notebooks(
        self, database: Database, entries: list[dict[str, Any]], killed: float, real: bool
    ) -> None:
        typed, grown, saved = _by_id(entries, "typed"), _by_id(entries, "grown"), _by_id(entries, "saved")
        for message in typed.keys() | grown.keys():
            row = database.execute("SELECT text FROM messages WHERE id = ?", (message,)).fetchone()
            if row is None:
                self.lost.append(f"the document {message} is gone")
                continue
            if not real and (problem := wrong_in(row[0])):
                self.lost.append(f"the document {message} has text that nobody wrote: {problem}")
            there = {int(number) for number in re.findall(r"t(\d+) ", row[0])}
            missing = [line for line in typed.get(message, ()) if line["number"] not in there]
            last = max((line["number"] for line in saved.get(message, ())), default=0)
            self.lost += [
                f"the word {line['number']} was logged as saved and is gone"
                for line in missing
                if line["number"] <= last
            ]
            self._judge("typing", message, [line["time"] for line in missing], killed)
            short = [line["time"] for line in grown.get(message, ()) if line["length"] > len(row[0])]
            self._judge("notebook", message, short, killed)

    def _judge(self, what: str, message: int, missing: list[float], killed: float) -> None:
        """Find text that was on the screen but is not in the store."""
        if missing:
            self.longest_s[what] = max(self.longest_s[what], killed - min(missing))
            if min(missing) < killed - PROMISE_S:
                self.lost.append(f"{what} {message}: {killed - min(missing):.2f} s were lost")


def wrong_in(document: str) -> str:
    """Text in a document that neither the user nor the model wrote; empty if there is none."""
    rest = re.sub(r"word\d+|t\d+ |[\s.]", "", document)
    before = -1
    for number in map(int, re.findall(r"word(\d+)", document)):
        if number not in (0, before + 1):
            return f"word{number} after word{before}"
        before = number
    return rest[:40]


def _by_id(entries: list[dict[str, Any]], kind: str) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for line in entries:
        if line["kind"] == kind:
            found.setdefault(line["id"], []).append(line)
    return found


def main() -> int:
    """Run everything; 1 when something was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--model", type=Path, help="a model file; without it the starter model, fetched when it is not there"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        killing = Killing(Path(name), options.seed, options.model or starter_model())
        for number in range(options.kills):
            killing.once()
            if number % 20 == 19:
                print(f"{number + 1} kills, {len(killing.lost)} losses, met {dict(killing.met)}", flush=True)
    seldom = killing.too_seldom()
    for sentence in [*killing.lost[:20], *seldom]:
        print(sentence)
    passed = not killing.lost and not seldom
    longest = {what: round(seconds, 3) for what, seconds in killing.longest_s.items()}
    print(f"{options.kills} kills; the most that was lost, in seconds: {longest}; passed: {passed}")
    result = {"kills": options.kills, "lost": len(killing.lost), "longest_s": longest, "passed": passed}
    print(json.dumps({**result, "met": dict(killing.met), "acts": dict(killing.counts)}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
