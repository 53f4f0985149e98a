"""CHANGELOG.md has the form of keepachangelog.com, and a merge has doubled nothing in it."""

from __future__ import annotations

import re
from collections import Counter

from tests.readme import ROOT

VERSIONS = (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")[1:]
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def test_what_is_not_released_is_grouped_by_kind() -> None:
    assert VERSIONS[0].startswith("Unreleased\n\n### ")
    found = re.findall(r"^### (.*)", VERSIONS[0], re.MULTILINE)
    assert found == [kind for kind in KINDS if kind in found]


def test_no_entry_is_there_twice() -> None:
    entries = Counter(re.findall(r"^- .*", "\n".join(VERSIONS), re.MULTILINE))
    assert [line for line, count in entries.items() if count > 1] == []
