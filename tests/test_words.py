"""Each word of the program has one meaning, given in two glossaries; words that were replaced stay out."""

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
    "unturned": "nope_layers", "neighbours": "contention",
    "voice": "participant", "voices": "participants", "shaken": "needs reload",
    "settingslayers": "layered settings",
    "speaker": "author", "offerbar": "suggestion bar", "originstore": "provenance store",
    "descents": "baseline",
    "told": "reported", "wanted": "requested, needed, target", "coin": "random number",
}  # fmt: skip
"""Words that no name may contain, with those that replaced them."""
GONE_IN_ENGINE = {
    "family": "architecture (models), weight layout (backends)",
    "families": "architectures, weight layouts",
    "outline": "weight spec, memory estimate",
    "phase": "stage",
    "phases": "stages",
    "tape": "program",
    "turned": "rotated (rope), hadamard (Walsh-Hadamard)",
    "halves": "fp16",
    "letters": "signature",
    "forms": "variants",
}
GONE_IN_KERNELS = {"record": "packed activations, result", "records": "packed activations, results"}
"""In kernels and in the KV cache; elsewhere a record is a captured program or a stored row."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def words_of(name: str) -> set[str]:
    """The parts of a name, and the whole name."""
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


def test_replaced_words_do_not_come_back() -> None:
    assert found_in(sources("engine", "desktop", "resources"), GONE) == set()
    assert found_in([*sources("engine/backends"), *sources("engine/models")], GONE_IN_ENGINE) == set()
    kernels = [
        *sources("engine/backends/cpu/kernels", "engine/backends/cuda/kernels"),
        *sources("engine/kv_cache"),
    ]
    assert found_in(kernels, GONE_IN_KERNELS) == set()


@pytest.mark.parametrize("name", ["SettingsDesk", "_team", "shelf_desk", "door", "make_doors"])
def test_parts_of_names_are_found(name: str) -> None:
    assert words_of(name) & GONE.keys()


@pytest.mark.parametrize("package", [engine, desktop])
def test_a_glossary_lists_each_word_once_in_order(package: object) -> None:
    text = package.__doc__ or ""
    listed = re.findall(r"^([A-Za-z][\w /-]*):\s", text.partition("Words\n")[2], re.MULTILINE)
    assert len(listed) >= 15
    assert len(listed) == len(set(listed))
    assert listed == sorted(listed, key=str.lower)
