"""What differs between two builds:  python -m tests.release.compare ONE OTHER

ONE and OTHER are folders: of packages (`--out`), or of the program (`dist/inglenook` in `--work`). The exit
code is 1 if anything differs.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["differences", "main"]


def differences(one: Path, other: Path) -> list[str]:
    """A line for each file, link or folder that differs in content, permissions or time, or has no twin."""
    first, second = _contents(one), _contents(other)
    lines = [f"only in {one}: {name}" for name in sorted(first.keys() - second.keys())]
    lines += [f"only in {other}: {name}" for name in sorted(second.keys() - first.keys())]
    for name in sorted(first.keys() & second.keys()):
        differ = [what for what, value in first[name].items() if second[name][what] != value]
        if differ:
            lines.append(f"{name}: {', '.join(differ)}")
    return lines


def _contents(folder: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        content: object = ""
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        kept = {"content": content, "permissions": state.st_mode, "time": int(state.st_mtime)}
        if path.is_file() and folder.joinpath("SHA256SUMS").is_file():
            del kept["time"]  # a package's own time is that of its build, and no part of it
        found[str(path.relative_to(folder))] = kept
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences."""
    one, other = map(Path, sys.argv[1:] if arguments is None else arguments)
    lines = differences(one, other)
    print("\n".join(lines) or "nothing differs")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
