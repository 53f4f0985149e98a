"""Threads share two arenas, and unused memory goes back to the system."""

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

UNUSED = """
import ctypes, resource
from desktop.services.system.malloc_trim import find_trim
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
def megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20
trim = find_trim()
blocks = [ctypes.c_void_p(library.malloc(4000)) for _ in range(20_000)]
for block in blocks:
    ctypes.memset(block, 1, 4000)
for block in blocks[:-1]:  # the last one keeps the C library from returning the others
    library.free(block)
before = megabytes()
trim()
print(before - megabytes())
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


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_unused_memory_is_returned() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(ended.stdout) > 60
