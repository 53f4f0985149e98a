"""A bare Debian or Ubuntu, made by debootstrap: a base system with the libraries that the .deb declares, and
no Python.

Its files are the lower layer of an overlay, so each run begins with the same ones.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["HOME", "USER", "Machine", "declared", "make_root"]

USER = 1000
HOME = "/home/ada"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_VARIANT = "minbase"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fuse")


def declared(deb: Path) -> list[str]:
    """The packages that a .deb depends on, without versions, the first of each alternative."""
    fields = subprocess.run(
        ["dpkg-deb", "--field", deb, "Depends"], check=True, capture_output=True, text=True
    ).stdout
    return [re.split(r"[\s|(]", need.strip())[0] for need in fields.split(",")]


def make_root(folder: Path, suite: str, mirror: str, components: str, packages: Sequence[str]) -> None:
    """Make the root, unless one with these packages is there. Needs root and a mirror of the suite."""
    stamp, wanted = folder / ".made", " ".join([suite, components, *sorted(packages)])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    command = [
        "debootstrap",
        f"--variant={_VARIANT}",
        f"--components={components}",
        suite,
        str(folder),
        mirror,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")
    inside = {"PATH": _PATH, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    install = ["apt-get", "install", "--quiet", "--quiet", "--yes", "--no-install-recommends", *packages]
    for words in (install, ["apt-get", "clean"]):
        subprocess.run(["chroot", folder, *words], check=True, env=inside, stdout=subprocess.DEVNULL)
    stamp.write_text(wanted, encoding="utf-8")


@dataclass
class Machine:
    """A running copy of a root, in the mount and network namespaces of this process.

    lower: the root's folder, never written; work: a folder for this copy; display: of an X server.
    """

    lower: Path
    work: Path
    display: str = ":0"
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Its files, as this process sees them."""
        return self.work / "root"

    @property
    def home(self) -> Path:
        """The user's folder."""
        return self.root / HOME.lstrip("/")

    def start(self) -> None:
        """Mount it, and create its user; ends with this process's mount namespace."""
        for name in ("root", "upper", "overlay"):
            (self.work / name).mkdir(parents=True)
        layers = f"lowerdir={self.lower},upperdir={self.work}/upper,workdir={self.work}/overlay"
        _mount("-t", "overlay", "overlay", "-o", layers, self.root)
        _mount("-t", "proc", "proc", self.root / "proc")
        _mount("-t", "tmpfs", "tmpfs", "-o", "mode=755", self.root / "dev")
        for name in _DEVICES:
            if Path("/dev", name).exists():
                device = self.root / "dev" / name
                os.mknod(device, stat.S_IFCHR, Path("/dev", name).stat().st_rdev)
                device.chmod(0o666)
        for name, mode in (("dev/shm", "1777"), ("tmp", "1777"), ("run", "755")):
            (self.root / name).mkdir(exist_ok=True)
            _mount("-t", "tmpfs", "tmpfs", "-o", f"mode={mode}", self.root / name)
        sockets = self.root / "tmp" / ".X11-unix"
        sockets.mkdir()
        Path("/tmp/.X11-unix").mkdir(exist_ok=True)
        _mount("--bind", "/tmp/.X11-unix", sockets)
        subprocess.run(
            ["chroot", self.root, "useradd", "--uid", str(USER), "--create-home", "ada"], check=True
        )
        runtime = self.root / "run" / "user" / str(USER)
        runtime.mkdir(parents=True, mode=0o700)
        os.chown(runtime, USER, USER)

    def stop(self) -> None:
        """Unmount everything, so that its folder can be removed."""
        subprocess.run(["umount", "--recursive", "--lazy", self.root], check=False)

    def command(self, *words: str, user: int = USER) -> list[str]:
        """The command that runs these words inside, as a session of that user has them."""
        variables = {
            "PATH": _PATH, "HOME": HOME if user else "/root", "DISPLAY": self.display, "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": f"/run/user/{user}", **self.environ,
        }  # fmt: skip
        given = [f"{name}={value}" for name, value in variables.items()]
        return ["chroot", f"--userspec={user}:{user}", str(self.root), "env", "-i", *given, *words]

    def run(
        self, *words: str, user: int = USER, check: bool = True, seconds: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end."""
        done = subprocess.run(
            self.command(*words, user=user), capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=seconds, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{words} ended with {done.returncode}: {done.stderr}"
        return done

    def give(self, source: Path, target: str) -> str:
        """Copy a file into the user's folder; returns its path inside."""
        place = self.home / target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
        for path in (place, *place.parents):
            if path == self.home:
                break
            os.chown(path, USER, USER)
        return f"{HOME}/{target}"


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)
