"""Imports a ChatGPT export with thousands of pictures from its zip archive: seconds, memory, disk space,
reads.

    python -m tests.bench.bench_archive [--megabytes 5000] [--pictures 20000] [--text 250]

The archive has about that size: pictures of random bytes, and `conversations.json` of `--text` megabytes
(`tests/tools/chatgpt_export.py`). The last line is one JSON object, with CPU time in `cpu_seconds`. The exit
code is 1 if a bar is missed: one minute for 5 GB with 20,000 pictures and 250 MB of text, less in proportion
for smaller archives; 200 MB of memory; nothing unpacked to the disk; the directory of the archive read once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from desktop.store.database.database import FILE_NAME, Database
from desktop.store.transfer.importers import import_conversations
from desktop.store.transfer.records import Broken, Imported, LeftOut
from tests.bench.bench_import import resident
from tests.tools.chatgpt_export import write_export

SECONDS, MEMORY_MB = 60.0, 200.0
WHOLE_TEXT, WHOLE_PICTURES = 250, 20_000


def make_archive(path: Path, megabytes: int, pictures: int, text: int) -> int:
    """Write the archive; returns the number of conversations."""
    draw = random.Random(2)
    data = b"\x89PNG\r\n\x1a\n" + draw.randbytes(max(64, (megabytes - text) * 1_000_000 // max(pictures, 1)))
    chats = path.with_name("conversations.json")
    count = write_export(chats, text)
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(chats, chats.name, zipfile.ZIP_DEFLATED, 1)
        for number in range(pictures):
            archive.writestr(f"file-{draw.getrandbits(96):024x}-photo {number}.png", data)
    chats.unlink()
    return count


class Counted(zipfile.ZipFile):
    """An archive that counts how often its directory is read."""

    reads = 0

    def _RealGetContents(self) -> None:  # as the library calls it
        Counted.reads += 1
        super()._RealGetContents()  # type: ignore[misc]


def main() -> int:
    """Run everything; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=5000)
    parser.add_argument("--pictures", type=int, default=WHOLE_PICTURES)
    parser.add_argument("--text", type=int, default=WHOLE_TEXT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "export.zip"
        count = make_archive(path, options.megabytes, options.pictures, options.text)
        zipfile.ZipFile = Counted  # type: ignore[misc]
        scratch = Path(name) / "scratch"
        scratch.mkdir()
        tempfile.tempdir = str(scratch)
        window = Database(Path(name) / FILE_NAME)
        database = Database.second(window.path)  # as the program imports
        before = peak = resident()
        new = broken = others = most_scratch = 0
        began, spent = time.perf_counter(), time.process_time()
        for event in import_conversations(database, path):
            peak = max(peak, resident())
            most_scratch = max(most_scratch, sum(file.stat().st_size for file in scratch.rglob("*")))
            new += isinstance(event, Imported)
            broken += isinstance(event, Broken)
            others += event.count if isinstance(event, LeftOut) and event.of == "file" else 0
        seconds, spent = time.perf_counter() - began, time.process_time() - spent
        database.close()
        window.close()
        found = {
            "megabytes": round(path.stat().st_size / 1e6), "pictures": options.pictures,
            "conversations": count, "new": new, "seconds": round(seconds, 1), "cpu_seconds": round(spent, 1),
            "grown_mb": round(peak - before, 1), "unpacked_mb": round(most_scratch / 1e6, 1),
            "directory_reads": Counted.reads, "passed_over": others,
        }  # fmt: skip
        allowed = SECONDS * max(options.text / WHOLE_TEXT, options.pictures / WHOLE_PICTURES)
        missed = [f"{new} of {count} conversations came, {broken} were reported as broken"] * (
            new != count or broken > 0
        )
        missed += [f"it took longer than {allowed:.0f} s"] * (seconds > allowed)
        missed += ["memory grew by more"] * (peak - before > MEMORY_MB)
        missed += ["something was unpacked"] * (most_scratch > 0)
        missed += ["the directory was read more than once"] * (Counted.reads != 1)
        missed += ["files without chats were not reported"] * (others != options.pictures)
    print("missed: " + "; ".join(missed) if missed else "all bars held")
    print(json.dumps({**found, "passed": not missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
