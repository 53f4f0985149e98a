"""Both archives in a folder, the wheel and the source, hold `desktop`, `engine`, `resources` and metadata,
and nothing else; every file of the three is there. `python .ci/archives.py FOLDER`, at the top of a tree.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

FLOORS = ("desktop", "engine", "resources")
METADATA = {"PKG-INFO", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"}


def main(dist: Path) -> None:
    wanted = {
        path.as_posix()
        for floor in FLOORS
        for path in Path(floor).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    for title, names in (("wheel", in_wheel), ("sdist", in_sdist)):
        lacking = wanted - names
        other = {
            name
            for name in names - wanted - METADATA
            if ".dist-info/" not in name and ".egg-info/" not in name
        }
        if lacking or other:
            sys.exit(f"the {title} lacks {sorted(lacking)} and has {sorted(other)}")
    print(f"{wheel.name}: {len(in_wheel)} files, {wheel.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
