"""From the start of the process to the first paint of the window, with 10,000 chats in the store; the bar is
one second.

    python -m tests.bench.bench_start [--chats 10000] [--runs 5]

Each run is a new process with warm files, with cached bytecode as in an installation (in a folder of this
script, whatever PYTHONDONTWRITEBYTECODE says), after the previous window was closed properly. The child notes
the time of its first paint and the heavy modules imported by then, of which there must be none. The import
times are printed. The last line is one JSON object; the exit code is 1 if the bar or that rule is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from desktop.store.database.database import FILE_NAME, Database

__all__ = ["fill", "main"]

BAR_S = 1.0
_INSERT = (
    "INSERT INTO messages (conversation_id, parent_id, role, text, state, created_at) VALUES (?, ?, ?, ?, "
    "'complete', ?)"
)
HEAVY = (
    "torch",
    "numba",
    "numpy",
    "transformers",
    "ziamath",
    "llvmlite",
    "scipy",
    "pypdf",
    "tokenizers",
    "huggingface_hub",
)
ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import sys, time, json, os, resource
from desktop import __main__ as program
set_language = program.set_language
def noted_from_now(code):  # called by `main` just before it imports the window
    from desktop import app as desktop_app
    class Noted(desktop_app.FirstPaint):
        def __init__(self, window, then):
            super().__init__(window, self.note)
            self.window = window
        def note(self):
            used = resource.getrusage(resource.RUSAGE_SELF)
            packages = {name.split(".")[0] for name in sys.modules}
            heavy = sorted(packages & set(json.loads(os.environ["HEAVY"])))
            rows = self.window.sidebar.list.model().rowCount() if hasattr(self.window.sidebar, "list") else 0
            child = {"painted": time.time(), "cpu": used.ru_utime + used.ru_stime}
            child |= {"heavy": heavy, "modules": len(sys.modules), "rows": rows}
            print(json.dumps(child), flush=True)
            self.window.close()
    desktop_app.FirstPaint = Noted
    set_language(code)
program.set_language = noted_from_now
sys.exit(program.main(["--data", sys.argv[1]]))
"""


def fill(folder: Path, chats: int) -> None:
    """A store with this many chats of four messages."""
    database = Database(folder / FILE_NAME)
    now = time.time()
    with database.transaction():
        for number in range(chats):
            values = (
                f"Chat {number} about the weather and other things",
                now - number * 60,
                now - number * 60,
            )
            chat = database.execute(
                "INSERT INTO conversations (title, created_at, updated_at) VALUES (?, ?, ?)", values
            ).lastrowid
            parent = None
            for turn in range(4):
                text = f"Message {turn} of chat {number}: " + "words and words " * 12
                row = (chat, parent, "assistant" if turn % 2 else "user", text, now - number * 60)
                parent = database.execute(_INSERT, row).lastrowid
    database.close()


def start(folder: Path, caches: Path, *options: str) -> tuple[dict[str, object], float, str]:
    """One start: the child's report, seconds from the start of its process to the first paint, and its
    errors.
    """
    environment = {
        **os.environ,
        "HEAVY": json.dumps(HEAVY),
        "QT_QPA_PLATFORM": os.environ.get("QT_QPA_PLATFORM", "offscreen"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(caches)
    began = time.time()
    done = subprocess.run(
        [sys.executable, *options, "-c", CHILD, str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"the window was not painted: {done.stderr[-2000:]}")
    child = json.loads(lines[-1])
    return child, child["painted"] - began, done.stderr


def imports(report: str) -> list[tuple[str, float]]:
    """(package, milliseconds of its own modules) from the report of `-X importtime`, the slowest first."""
    spent: dict[str, float] = {}
    for own, name in re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)", report):
        parts = name.split(".")
        package = ".".join(parts[:2]) if parts[0] in ("desktop", "engine", "PySide6") else parts[0]
        spent[package] = spent.get(package, 0.0) + int(own) / 1000
    return sorted(spent.items(), key=lambda item: -item[1])


def main() -> int:
    """Run everything; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, caches = Path(name, "data"), Path(name, "bytecode")
        folder.mkdir()
        fill(folder, options.chats)
        start(folder, caches)  # what is compiled and cached once
        runs = [start(folder, caches)[:2] for _ in range(options.runs)]
        report = start(folder, caches, "-X", "importtime")[2]
    seconds, cpu = median(run[1] for run in runs), median(float(str(run[0]["cpu"])) for run in runs)
    child = runs[0][0]
    for package, spent in imports(report)[:12]:
        print(f"{spent:7.1f} ms  import of {package}")
    passed = seconds < BAR_S and not child["heavy"]
    print(
        f"first paint after {seconds:.3f} s ({cpu:.3f} s of processor), {child['modules']} modules, passed: "
        f"{passed}"
    )
    if child["heavy"]:
        print(f"imported before the first paint: {child['heavy']}")
    result = {
        "seconds": round(seconds, 3),
        "all": [round(run[1], 3) for run in runs],
        "cpu_seconds": round(cpu, 3),
        "chats": options.chats,
    }
    print(json.dumps({**result, "heavy": child["heavy"], "modules": child["modules"], "passed": passed}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
