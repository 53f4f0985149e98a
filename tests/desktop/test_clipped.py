"""No page cuts words off in a language whose texts are two fifths longer, from left to right or mirrored."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("direction", [(), ("--mirrored",)], ids=["longer", "mirrored"])
def test_no_label_or_button_is_cut_off_by_longer_words(direction: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.tools.clipped_pages", *direction],
        stdout=subprocess.PIPE, text=True, timeout=800, check=False,
    )  # fmt: skip
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found["reached"]) >= 90
    assert found["clipped"] == []
    assert found["untranslated"] == []
