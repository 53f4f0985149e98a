"""The steps of the proof; each prints what it has seen, and raises AssertionError where that is wrong."""

from __future__ import annotations

import gettext
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from engine.words import DOMAIN, FOLDER, languages
from tests.packaging.root import HOME, USER, Machine
from tests.packaging.screen import Screen, until
from tests.packaging.session import DATA, TITLE, Program, compiled, double_click, last_model, messages

__all__ = ["Proof"]

QUESTION, PDF_QUESTION = "What is the capital of France?", "Who keeps the lighthouse?"
KEEPER = "The keeper of the lighthouse is called Ada."
_FOLDERS = ("Downloads", "My Programs/Füchse & Co", "portable")
_PORTABLE = "portable/inglenook-data"


@dataclass
class Proof:
    """Packages on one bare machine; `pictures` is the folder of screenshots and logs."""

    machine: Machine
    screen: Screen
    image: Path
    pictures: Path

    def bare(self) -> None:
        """Nothing but the base system and the declared libraries is there, and no network."""
        found = [
            path for folder in ("bin", "usr/bin", "usr/local/bin", "usr/lib", "opt")
            for path in (self.machine.root / folder).glob("*python*")
        ]  # fmt: skip
        assert not found, found
        system = (self.machine.root / "etc" / "os-release").read_text(encoding="utf-8")
        (name,) = re.findall(r'^PRETTY_NAME="(.*)"$', system, re.MULTILINE)
        links = [path.name for path in Path("/sys/class/net").iterdir()]
        listed = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
        assert len(listed.splitlines()) == 1, f"{listed} {links}"
        assert " lo:" in listed, listed
        say(f"{name}, no Python, no network")

    def install(self, deb: Path) -> None:
        """The .deb, by dpkg: all that it declares is there."""
        place = self.machine.root / "tmp" / deb.name
        shutil.copy(deb, place)
        self.machine.run("dpkg", "--install", f"/tmp/{deb.name}", user=0)
        place.unlink()
        self.machine.run("dpkg", "--verify", "inglenook", user=0)
        shown = self.machine.run("inglenook-engine", "info").stdout.splitlines()[0]
        say(f"{deb.name} installed; inglenook-engine info: {shown}")

    def first_chat(self) -> None:
        """From the menu: a window, the starter, a reply, a PDF, another model by double click."""
        program, seconds = self._started(double_click(self.machine))
        self.screen.settle()
        self.picture("1-first-start")
        say(f"first start: the window is there after {seconds:.1f} s")
        program.get_starter()
        reply = program.say(QUESTION)
        say(f"the starter answers: {shortened(reply)}")
        pdf = self.machine.give(self._made_pdf(), "Papers/keeper.pdf")
        assert self.machine.run("inglenook", pdf).returncode == 0
        self.screen.settle()
        until(lambda: not program.helpers(), "the end of reading the PDF")
        self.screen.settle()
        self.picture("2-pdf-attached")
        reply = program.say(PDF_QUESTION)
        sent = messages(self.machine)[-2]
        assert sent[0] == "user", sent
        assert "Attached file: keeper.pdf" in sent[2], sent
        assert KEEPER in sent[2], sent
        say(f"with a PDF, whose text is in the message: {shortened(reply)}")
        self.screen.settle()
        self.picture("3-answers")
        started = next((self.machine.home / DATA / "models").glob("*.gguf"))
        second = self.machine.give(started, "Models/Second.gguf")
        done = self.machine.run(*double_click(self.machine, second))
        until(lambda: last_model(self.machine) == "Models/Second.gguf", "the second model")
        assert len(self.screen.windows(TITLE)) == 1
        assert program.process.poll() is None
        say(f"a double-clicked model is loaded in the same window (the second start: exit {done.returncode})")
        program.say(QUESTION)
        program.quit()
        self._compiled_nothing()
        say("the first start compiled nothing")

    def second_start(self) -> None:
        """The chat is kept, and nothing is compiled."""
        kept = messages(self.machine)
        program, seconds = self._started(double_click(self.machine))
        self.screen.settle()
        self.picture("4-second-start")
        assert messages(self.machine) == kept
        program.say(QUESTION)
        program.quit()
        self._compiled_nothing()
        assert len(messages(self.machine)) == len(kept) + 2
        say(
            f"second start: the window is there after {seconds:.1f} s, {len(kept)} messages kept, "
            "nothing compiled"
        )

    def in_languages(self) -> None:
        """The window in each language that the system may be set to."""
        for code in languages():
            words = gettext.translation(DOMAIN, FOLDER, [code], fallback=code == "en")
            self.machine.environ["LANGUAGE"] = code
            program, _ = self._started(double_click(self.machine))
            self.screen.settle()
            self.picture(f"language-{code}")
            title = words.gettext("Preferences")
            self.screen.keys(TITLE, "ctrl+comma")
            self.screen.wait_for(f"^{title}$")
            self.screen.settle()
            self.picture(f"language-{code}-preferences")
            self.screen.keys(f"^{title}$", "Escape")
            self.screen.wait_gone(f"^{title}$")
            program.quit()
            say(f"in the language {code}, the preferences are called “{title}”")
        del self.machine.environ["LANGUAGE"]

    def unpacked(self, archive: Path) -> None:
        """The archive in a folder of the user, portable, by the entry that it makes itself.

        It is unpacked from outside, since a bare system has no zstd.
        """
        apps = self.machine.home / "Apps"
        apps.mkdir()
        subprocess.run(["tar", "--zstd", "--extract", "--file", archive, "--directory", apps], check=True)
        (top,) = apps.iterdir()
        (top / "inglenook-data").mkdir()
        for path in [apps, *apps.rglob("*")]:
            os.chown(path, USER, USER, follow_symlinks=False)
        data, share = f"Apps/{top.name}/inglenook-data", f"{HOME.lstrip('/')}/.local/share"
        others = len(messages(self.machine))
        self.machine.run(f"{HOME}/Apps/{top.name}/inglenook", "--install-desktop-entry")
        program, seconds = self._started(double_click(self.machine, share=share))
        program.get_starter(data)
        reply = program.say(QUESTION, data)
        self.screen.settle()
        self.picture("8-archive")
        program.quit()
        self._compiled_nothing()
        assert len(messages(self.machine, data)) == 2
        assert len(messages(self.machine)) == others
        self.machine.run(f"{HOME}/Apps/{top.name}/inglenook", "--uninstall-desktop-entry")
        assert not list((self.machine.root / share).rglob("inglenook.desktop"))
        say(
            f"{archive.name} unpacked and started by its own entry: the window is there after {seconds:.1f} "
            f"s; the starter answers: {shortened(reply)}; all is kept in {data}; nothing compiled"
        )

    def from_folders(self) -> None:
        """The AppImage from three folders, one of them with a portable data folder."""
        (self.machine.home / _PORTABLE).mkdir(parents=True)
        for folder in (self.machine.home / "portable", self.machine.home / _PORTABLE):
            os.chown(folder, USER, USER)
        for number, place in enumerate(_FOLDERS, 5):
            data = _PORTABLE if place == "portable" else DATA
            kept, others = len(messages(self.machine, data)), len(messages(self.machine))
            image = self.machine.give(self.image, f"{place}/{self.image.name}")
            program, seconds = self._started([image])
            if not last_model(self.machine, data):
                program.get_starter(data)
            program.say(QUESTION, data)
            self.screen.settle()
            self.picture(f"{number}-appimage-{place.partition('/')[0]}")
            program.quit()
            assert len(messages(self.machine, data)) == kept + 2
            assert data == DATA or len(messages(self.machine)) == others
            left = [path.name for path in (self.machine.root / "tmp").glob("inglenook*")]
            assert not left, f"left in /tmp: {left}"
            self._compiled_nothing()
            (self.machine.home / place / self.image.name).unlink()
            say(
                f"AppImage in {HOME}/{place}: the window is there after {seconds:.1f} s; a reply is kept in "
                f"{data}; nothing compiled"
            )

    def remove(self) -> None:
        """Uninstalling leaves the chats."""
        self.machine.run("dpkg", "--purge", "inglenook", user=0)
        assert not (self.machine.root / "usr" / "lib" / "inglenook").exists()
        assert messages(self.machine)
        say("the .deb is removed; the chats are still there")

    def _compiled_nothing(self) -> None:
        made = compiled(self.machine)
        assert not made, f"compiled: {made}"

    def picture(self, name: str) -> None:
        """A screenshot."""
        self.screen.picture(self.pictures / f"{name}.png")

    def _started(self, words: list[str]) -> tuple[Program, float]:
        begin = time.monotonic()
        program = Program(self.machine, self.screen, words, self.pictures / "program.log")
        return program, time.monotonic() - begin

    def _made_pdf(self) -> Path:
        path = self.pictures / "keeper.pdf"
        path.write_bytes(one_page_pdf(KEEPER))
        return path


def one_page_pdf(text: str) -> bytes:
    """A PDF with this line."""
    content = f"BT /F 12 Tf 72 700 Td ({text}) Tj ET".encode()
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F "
        b"5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]  # fmt: skip
    data, places = b"%PDF-1.7\n", []
    for number, part in enumerate(parts, 1):
        places.append(b"%010d 00000 n \n" % len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    end = b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(data)
    return data + b"xref\n0 6\n0000000000 65535 f \n" + b"".join(places) + end


def shortened(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else f"{line[:79]}…")


def say(text: str) -> None:
    """Print a line of the proof."""
    print(f"proven: {text}", flush=True)
