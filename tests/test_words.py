"""The words of the house: each has one meaning, told in the docstrings of the two packages; words that
gave way do not come back.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

import desktop
import engine

ROOT = Path(__file__).resolve().parent.parent
GONE = {
    "desk": "controller", "door": "command (engine), api (desktop)",
    "doors": "commands (engine), api (desktop)", "shelf": "chat list", "farewell": "signal handler",
    "team": "thread pool", "walker": "decode loop", "emission": "step output", "heldtokens": "token buffer",
    "roomasker": "cpu yield", "engineroom": "engine controller", "tokenshelf": "token cache",
    "walkplan": "sampling plan", "deed": "action", "deeds": "actions", "taker": "handler",
    "takers": "handlers", "judge": "model library", "windowparts": "main window",
}  # fmt: skip
"""Words that no name of the program has any more, with those that took their place."""
GONE_IN_ENGINE = {
    "family": "architecture (models), weight layout (backends)",
    "families": "architectures, weight layouts",
    "outline": "weight spec, memory estimate",
    "phase": "stage",
    "phases": "stages",
    "tape": "program",
}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def words_of(name: str) -> set[str]:
    """A name's parts, and the whole of it."""
    parts = {part.lower() for piece in name.split("_") for part in _HUMP.split(piece)}
    return parts | {name.strip("_").lower()}


def found_in(paths: list[Path], gone: dict[str, str]) -> set[tuple[str, str]]:
    found = set()
    for path in paths:
        names = {path.stem} | {
            token.string
            for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
            if token.type == tokenize.NAME
        }
        for name in names:
            if words_of(name) & gone.keys():
                found.add((path.relative_to(ROOT).as_posix(), name))
    return found


def test_words_that_gave_way_do_not_come_back() -> None:
    assert found_in(sources("engine", "desktop", "resources"), GONE) == set()
    assert found_in([*sources("engine/backends"), *sources("engine/models")], GONE_IN_ENGINE) == set()


@pytest.mark.parametrize("name", ["SettingsDesk", "_team", "shelf_desk", "door", "make_doors"])
def test_what_is_looked_for(name: str) -> None:
    assert words_of(name) & GONE.keys()


@pytest.mark.parametrize("package", [engine, desktop])
def test_a_glossary_tells_each_word_once(package: object) -> None:
    text = package.__doc__ or ""
    told = re.findall(r"^([a-z][\w /-]*):\s", text.partition("Words\n")[2], re.MULTILINE)
    assert len(told) >= 15
    assert len(told) == len(set(told))
    assert told == sorted(told)
