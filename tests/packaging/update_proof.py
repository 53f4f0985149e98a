"""Updates of an AppImage from a local server: killed at ten places, then taken."""

from __future__ import annotations

import hashlib
import itertools
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.packaging.proof import say
from tests.packaging.root import Machine
from tests.packaging.screen import Screen, until
from tests.packaging.session import Program
from tests.packaging.update_site import UpdateSite
from tests.release.app_image import make_image
from tests.release.updates import main as sign

__all__ = ["NEWER", "UpdateProof", "make_newer"]

NEWER = "99.0.0"
_PLACES = (
    "asked inglenook-updates.txt", "asked {file}", "sent {file} 1", "sent {file} 20", "sent {file} 50",
    "sent {file} 80", "sent {file} 99", "sent {file} 100", "kept", "replaced",
)  # fmt: skip
"""Where the program is killed: what the server was asked or has sent, what lies on the disk."""
_DIALOG = "^Updates$"
_INSTALL, _ROLL_BACK = (-118, -29), (60, -29)
"""Where these buttons are in the dialog, in pixels."""
_SHOWN_S = 2.0
"""From the sent list to its picture, on a busy machine."""


def make_newer(image: Path, work: Path, key: Path) -> Path:
    """A signed site with an AppImage like `image`, of version `NEWER`; returns its folder."""
    site, root = work / "site", work / "squashfs-root"
    site.mkdir(parents=True)
    subprocess.run(
        [image, "--appimage-extract"], cwd=work, check=True, stdout=subprocess.DEVNULL, umask=0o022
    )
    inside = root / "usr/lib/inglenook/_internal"
    found = (inside.glob(f"inglenook*-info/{name}") for name in ("METADATA", "PKG-INFO"))
    metadata = next(itertools.chain.from_iterable(found))
    lines = metadata.read_text(encoding="utf-8").splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("Version: "))
    old = lines[place].removeprefix("Version: ")
    lines[place] = f"Version: {NEWER}"
    metadata.write_text("\n".join(lines) + "\n", encoding="utf-8")
    runtime = work / "runtime"
    size = int(subprocess.run([image, "--appimage-offset"], check=True, capture_output=True).stdout)
    with image.open("rb") as file:
        runtime.write_bytes(file.read(size))
    made = site / image.name.replace(old, NEWER)
    make_image(root, runtime, made, int(image.stat().st_mtime), level=1)
    shutil.rmtree(root)
    notes = work / "notes.md"
    notes.write_text("- A newer version, to prove updates\n", encoding="utf-8")
    assert sign(["sign", "--key", str(key), "--notes", str(notes), str(site)]) == 0
    return site


def digest(file: Path) -> str:
    """Its SHA-256."""
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


@dataclass
class UpdateProof:
    """An AppImage on a machine, and a site with a newer one."""

    machine: Machine
    screen: Screen
    image: Path
    site: UpdateSite
    pictures: Path

    def __post_init__(self) -> None:
        self._inside = self.machine.give(self.image, "Programs/Inglenook.AppImage")
        self._installed = self.machine.home / "Programs" / "Inglenook.AppImage"
        self._before = self._installed.with_name("Inglenook.AppImage.before")
        self._published = next(self.site.folder.glob("*.AppImage"))
        self._old, self._new = digest(self.image), digest(self._published)

    def put_back(self) -> None:
        """Put the old version in the program's place, and nothing beside it. The file is a new one: what ran
        may still be mounted for a moment, and cannot be written to.
        """
        if digest(self._installed) != self._old:
            self.machine.give(self.image, "Programs/Old.AppImage")
            self._installed.with_name("Old.AppImage").replace(self._installed)
        self._before.unlink(missing_ok=True)

    def killed(self) -> None:
        """At ten places; the program in its place is whole each time, and starts."""
        assert len(_PLACES) == 10
        self.site.pause_s = 0.01
        for place in _PLACES:
            where = place.format(file=self._published.name)
            self.put_back()
            self._kill_at(where)
            found = digest(self._installed)
            assert found in (self._old, self._new), f"killed at “{where}”: a broken program"
            if self._before.exists():
                assert digest(self._before) == self._old, f"killed at “{where}”: a broken previous version"
            version = self._version()
            assert version == (NEWER if found == self._new else self._version_of_old), version
            say(f"killed at “{where}”: {version} is whole and starts")
        assert any(begin > 0 for begin in self.site.ranges), "no download was resumed"

    def taken(self) -> None:
        """The update, with its notes; the version before stays beside it."""
        self.put_back()
        self.site.pause_s, self.site.at = 0.0, lambda _point: None
        self.site.listed.clear()
        program = self._asking()
        self.screen.settle()
        self.screen.picture(self.pictures / "9-update-found.png")
        self._install()
        until(lambda: digest(self._installed) == self._new, "the update", 120)
        self.screen.settle()
        self.screen.picture(self.pictures / "10-update-installed.png")
        assert digest(self._before) == self._old
        self.screen.keys(_DIALOG, "Escape")
        self.screen.wait_gone(_DIALOG)
        program.quit()
        assert self._version() == NEWER
        program = self._asking()
        self.screen.settle()
        self.screen.picture(self.pictures / "11-newest.png")
        say(f"the update to {NEWER} is taken, the version before is kept beside it")
        self._roll_back(program)

    def _roll_back(self, program: Program) -> None:
        """From the dialog, which says that this is the latest version."""
        self.screen.click_in(_DIALOG, *_ROLL_BACK)
        self.screen.settle()
        self.screen.picture(self.pictures / "12-roll-back.png")
        self.screen.keys(_DIALOG, "Return")
        until(lambda: digest(self._installed) == self._old, "the version before")
        self.screen.settle()
        self.screen.picture(self.pictures / "13-rolled-back.png")
        self.screen.keys(_DIALOG, "Escape")
        self.screen.wait_gone(_DIALOG)
        program.quit()
        assert self._version() == self._version_of_old
        say(f"rolled back to {self._version_of_old}")

    @property
    def _version_of_old(self) -> str:
        return self.image.name.split("-")[1]

    def _version(self) -> str:
        return self.machine.run(self._inside, "--version").stdout.split()[-1]

    def _asking(self) -> Program:
        program = Program(self.machine, self.screen, [self._inside], self.pictures / "program.log")
        program.choose("Check for updates")
        self.screen.wait_for(_DIALOG)
        return program

    def _install(self) -> None:
        """Once the newer version is shown, press the button left of Close."""
        assert self.site.listed.wait(60), "the list of updates was not asked for"
        time.sleep(_SHOWN_S)
        self.screen.settle()
        self.screen.click_in(_DIALOG, *_INSTALL)

    def _kill_at(self, where: str) -> None:
        reached = threading.Event()
        hold = threading.Event()

        def at(point: str) -> None:
            if point == where:
                reached.set()
                hold.wait(10)

        self.site.at = at
        self.site.listed.clear()
        inode = self._installed.stat().st_ino
        if where in ("kept", "replaced"):
            look: Callable[[], bool] = (
                self._before.exists if where == "kept" else lambda: self._installed.stat().st_ino != inode
            )
            threading.Thread(target=_watch, args=(look, reached), daemon=True).start()
        program = Program(self.machine, self.screen, [self._inside], self.pictures / "program.log")
        killer = threading.Thread(target=self._kill_when, args=(reached, program), daemon=True)
        killer.start()
        program.choose("Check for updates")
        if where != _PLACES[0]:
            self.screen.wait_for(_DIALOG)
            self._install()
        killer.join(120)
        assert reached.is_set(), f"“{where}” was never reached"
        hold.set()
        for left in (self.machine.root / "tmp").glob(
            "inglenook*"
        ):  # what a power failure leaves, until the next boot
            shutil.rmtree(left)

    @staticmethod
    def _kill_when(reached: threading.Event, program: Program) -> None:
        if reached.wait(110):
            program.kill()


def _watch(look: Callable[[], bool], reached: threading.Event) -> None:
    """Set `reached` as soon as `look` is true, within two minutes."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if look():
            reached.set()
            return
        time.sleep(0.0005)
