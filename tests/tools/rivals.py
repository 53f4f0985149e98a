"""Other engines as runners of a benchmark, each in its own process, which is stopped while it is not
measured.

So the threads of a rival cannot spin while we are measured, and one that never answers is killed after
`LIMIT_SECONDS`. A rival may be in another virtual environment, whose interpreter is given.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("rival_child.py")
LIMIT_SECONDS = 120.0
KINDS = (
    "llama.cpp",
    "llama.cpp batched",
    "transformers float32",
    "transformers bfloat16",
    "openvino",
    "openvino float32",
    "ik_llama.cpp",
    "ik_llama.cpp repacked",
)


class RivalFailed(RuntimeError):
    """The rival is not installed, cannot read the file, ended, or did not answer in time; the text says
    which.
    """


class Rival:
    """An engine of `KINDS` with one file; see `engine.cli.bench.Runner`."""

    def __init__(
        self, kind: str, path: Path, threads: int, context: int, interpreter: str = sys.executable
    ) -> None:
        self.name = kind
        command = [interpreter, str(CHILD), kind, str(path.resolve()), str(threads), str(context)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._buffer = b""
        try:
            said = self._answer()
            if "error" in said:
                raise RivalFailed(f"{kind} is left out for {path.name}: {said['error']}")
        except RivalFailed:
            self.close()
            raise
        self.version = str(said["version"])
        self._pause()

    def run(self, ids: Sequence[int], start: int, *, one_by_one: bool) -> float:
        """Run `ids` after the first `start` tokens, which were run before; seconds. Raises `RivalFailed`."""
        return self._asked(ids=[int(i) for i in ids], start=start, one_by_one=one_by_one)

    def run_batch(self, ids: Sequence[int], sequences: int) -> float:
        """Run `ids` one by one in this many sequences at once ("llama.cpp batched" only); seconds."""
        return self._asked(ids=[int(i) for i in ids], sequences=sequences)

    def _asked(self, **what: object) -> float:
        assert self._process.stdin is not None
        self._send(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
        except OSError as error:
            raise RivalFailed(f"{self.name} ended by itself ({error})") from error
        seconds = float(self._answer()["seconds"])
        self._pause()
        return seconds

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _answer(self) -> dict[str, Any]:
        """One line of its output."""
        assert self._process.stdout is not None
        while b"\n" not in self._buffer:
            if not select.select([self._process.stdout], [], [], LIMIT_SECONDS)[0]:
                self._process.kill()
                raise RivalFailed(f"{self.name} gave no answer in {LIMIT_SECONDS:.0f} s")
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                raise RivalFailed(f"{self.name} ended by itself (status {self._process.wait()})")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _pause(self) -> None:
        self._send(signal.SIGSTOP)

    def _send(self, what: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(what)


def open_rivals(
    stack: ExitStack,
    kinds: Sequence[str],
    path: Path,
    threads: int,
    context: int,
    interpreters: Mapping[str, str],
) -> list[Rival]:
    """The available ones of `kinds`, closed with the stack; a line is printed for each other. `interpreters`
    are the Pythons of those that are not in this one, by the first word of the kind.
    """
    found = []
    for kind in kinds:
        try:
            python = interpreters.get(kind.partition(" ")[0], sys.executable)
            rival = Rival(kind, path, threads, context, python)
        except RivalFailed as error:
            print(f"    {error}", flush=True)
            continue
        stack.callback(rival.close)
        found.append(rival)
    return found
