"""Threads share two arenas, according to the C library's own report."""

from __future__ import annotations

import subprocess
import sys

import pytest

POOLS = """
import ctypes, sys, tempfile, threading
from pathlib import Path
from desktop.services.system.malloc_trim import share_arenas
library = ctypes.CDLL(None)
library.fdopen.restype = library.malloc.restype = ctypes.c_void_p
if sys.argv[1] == "share":
    share_arenas()
barrier = threading.Barrier(9)
def take():
    library.malloc(50_000)
    barrier.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads:
    thread.start()
barrier.wait()
with tempfile.TemporaryFile() as file:
    stream = library.fdopen(file.fileno(), b"w")
    library.malloc_info(0, ctypes.c_void_p(stream))
    library.fflush(ctypes.c_void_p(stream))
    file.seek(0)
    print(file.read().count(b"<heap nr="))
"""


def _pools(how: str) -> int:
    return int(
        subprocess.run(
            [sys.executable, "-c", POOLS, how], capture_output=True, text=True, check=True, timeout=60
        ).stdout
    )


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_threads_share_two_arenas() -> None:
    assert _pools("leave") > 2
    assert _pools("share") == 2
