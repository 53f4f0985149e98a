"""What a person does with the program on a bare machine, and what is found on its disk afterwards."""

from __future__ import annotations

import contextlib
import re
import shlex
import sqlite3
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import psutil

from tests.packaging.root import HOME, Machine
from tests.packaging.screen import Screen, until

__all__ = ["DATA", "TITLE", "Program", "compiled", "double_click", "last_model", "messages"]

TITLE = "Inglenook$"
DATA = ".local/share/inglenook"
_ENTRY = "applications/inglenook.desktop"
_FILE_TYPES = "mime/packages/inglenook.xml"
_SAVED_S, _STARTED_S = 0.5, 240.0
_LONG_REPLY_S = 60.0
"""After which a reply is stopped: a small model may repeat itself without end."""
_MIME = "{http://www.freedesktop.org/standards/shared-mime-info}"


def double_click(machine: Machine, *files: str, share: str = "usr/share") -> list[str]:
    """The command that a desktop runs for the entry below `share`, or for files of a type that it opens.

    Exec: https://specifications.freedesktop.org/desktop-entry-spec/latest/exec-variables.html
    """
    lines = (machine.root / share / _ENTRY).read_text(encoding="utf-8").splitlines()
    entry = dict(line.split("=", 1) for line in lines if "=" in line)
    types = ElementTree.parse(machine.root / share / _FILE_TYPES).getroot()
    for file in files:
        found = [
            str(kind.get("type"))
            for kind in types.iter(f"{_MIME}mime-type")
            if any(file.endswith(glob.get("pattern", "?").lstrip("*")) for glob in kind.iter(f"{_MIME}glob"))
        ]
        assert set(found) & set(entry["MimeType"].split(";")), f"no program opens {file}"
    words = shlex.split(entry["Exec"])
    assert words[-1] == "%F", entry["Exec"]
    return [*words[:-1], *files]


def messages(machine: Machine, data: str = DATA) -> list[tuple[str, str, str]]:
    """The role, state and text of all messages, in their order; none before the first start."""
    file = machine.home / data / "conversations.sqlite3"
    if not file.is_file():
        return []
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)) as database:
        return database.execute("SELECT role, state, text FROM messages ORDER BY id").fetchall()


def compiled(machine: Machine) -> list[str]:
    """The files of code that was compiled on the machine, in the cache or a portable folder; not those that a
    package brings.
    """
    found = [path.relative_to(machine.home) for path in machine.home.rglob("*.nb[ci]")]
    return sorted(str(path) for path in found if "_internal" not in path.parts)


def last_model(machine: Machine, data: str = DATA) -> str:
    """The model that the window has loaded last, below the home."""
    file = machine.home / data / "preferences.json"
    found = (
        re.search(r'"last_model": "([^"]*)"', file.read_text(encoding="utf-8")) if file.is_file() else None
    )
    return found[1].removeprefix(f"{HOME}/") if found else ""


class Program:
    """A started program whose window is there; `log` gets what it prints."""

    def __init__(self, machine: Machine, screen: Screen, words: list[str], log: Path) -> None:
        self.machine, self.screen, self._log = machine, screen, log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                machine.command(*words), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )
        try:
            screen.wait_for(TITLE, _STARTED_S)
            until(screen.is_painted, "the first picture", _STARTED_S)
        except AssertionError as error:
            printed = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise AssertionError(f"{words}: {error}; it printed: {printed}") from error

    def choose(self, command: str) -> None:
        """Choose a command in the palette."""
        self.screen.settle()
        self.screen.keys(TITLE, "ctrl+k")
        self.screen.settle()
        self.screen.write(TITLE, f">{command}")
        self.screen.settle()
        self.screen.keys(TITLE, "Return")

    def get_starter(self, data: str = DATA) -> None:
        """Choose the starter model; returns when it is loaded."""
        self.choose("Use starter model")
        until(lambda: last_model(self.machine, data), "the starter model", 300)

    def say(self, text: str, data: str = DATA) -> str:
        """Send a message; returns the whole reply."""
        before = len(self.said(data))
        self.screen.write(TITLE, text)
        until(lambda: self._sends(before, data), f"“{text}” to be sent", 120)
        long = time.monotonic() + _LONG_REPLY_S
        reply = until(lambda: self._reply(before, data, long), f"the reply to “{text}”", 240)
        assert reply.strip(), f"an empty reply to “{text}”"
        return reply

    def said(self, data: str = DATA) -> list[tuple[str, str, str]]:
        """The messages so far; none before the first start has made the database."""
        with contextlib.suppress(sqlite3.OperationalError):
            return messages(self.machine, data)
        return []  # the tables are being made

    def quit(self) -> None:
        """Quit by the keyboard; nothing of the program may be left, and it must end well."""
        self.screen.keys(TITLE, "ctrl+q")
        assert self.process.wait(60) == 0, self._log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def helpers(self) -> list[psutil.Process]:
        """The processes that the program has started and that have not ended."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self) -> None:
        """End the program and all that it started as a power failure would."""
        for one in [*self.helpers(), psutil.Process(self.process.pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait()
        self.screen.wait_gone(TITLE)

    def _sends(self, before: int, data: str) -> bool:
        """Press Return, which leaves the text where it is while a model is loaded; whether it was sent."""
        self.screen.keys(TITLE, "Return")
        time.sleep(_SAVED_S)
        return len(self.said(data)) > before

    def _reply(self, before: int, data: str, long: float) -> str:
        new = self.said(data)[before:]
        if len(new) < 2 or new[-1][0] != "assistant":
            return ""
        if new[-1][1] == "running":
            if time.monotonic() > long and new[-1][2].strip():
                self.screen.keys(TITLE, "Escape")
            return ""
        assert new[-1][1] in ("complete", "stopped"), new
        return new[-1][2] or " "
