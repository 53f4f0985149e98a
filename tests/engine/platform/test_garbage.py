"""What is made while garbage is rarely collected is not scanned right afterwards."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import gc
from engine.platform.garbage import few_collections
found = []
gc.callbacks.append(lambda phase, info: found.append(info["generation"]))
if {frozen}:
    gc.freeze()
with few_collections():
    kept = [[number] for number in range(100_000)]
print({frozen} or not found, gc.get_freeze_count() > 0)
old = {{id(each) for each in gc.get_objects(2)}}
print(sum(id(each) in old for each in kept))
"""


def run(frozen: bool) -> list[str]:
    """The lines of a new process, which may have frozen objects before."""
    command = [sys.executable, "-c", CODE.format(frozen=frozen)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_what_was_made_counts_as_old() -> None:
    assert run(False) == ["True False", "100000"]


def test_frozen_objects_stay_frozen() -> None:
    assert run(True) == ["True True", "0"]
