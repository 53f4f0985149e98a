"""Each word of the program has one meaning, given in two glossaries; words that were replaced stay out."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
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
_NAME = re.compile(r"\w+")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@functools.cache
def words_of(name: str) -> frozenset[str]:
    """The parts of a name, and the whole name."""
    parts = {part.lower() for piece in name.split("_") for part in _HUMP.split(piece)}
    return frozenset(parts | {name.strip("_").lower()})


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """The names in a file, and its own."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
    return frozenset({path.stem, *(token.string for token in tokens if token.type == tokenize.NAME)})


def found_in(paths: list[Path], gone: dict[str, str]) -> set[tuple[str, str]]:
    """Only a file that has such a word anywhere, in a comment for example, is cut into its tokens: that is
    slow.
    """
    found = set()
    for path in paths:
        anywhere = {path.stem, *_NAME.findall(path.read_text("utf-8"))}
        if any(words_of(name) & gone.keys() for name in anywhere):
            for name in names_in(path):
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


GONE_PHRASES = (
    r"\bTell of\b", r"\bmakers\b", r"\bwhat came of\b", r"\bwanted form\b", r"\bround in circles\b",
    r"\bSomebody\b", r"^So many\b", r"\bby themselves\b", r"\bsee what there is\b",
    r"\bhas these words\b", r"\bbegins with b'", r"\bwas not kept of\b", r"\bstands there\b",
    r"\b[Ww]rites? on\b",
    r"(?<![Tt]here )\bis no (?!longer|more)[a-z]", r"\bfor good\b", r"\bgo(es)? on (from|with)\b",
    r"\bin force\b", r"\bFigures\b", r"\b[Vv]ariant \{", r"\bLet .* speak\b", r"\bmeanwhile\b",
    r"\bmake room\b", r"\bswitch(ed)? (\w+ )?off\b", r"\b[Ll]oad(ed)? the model again\b", r"\bdrawn\b",
    r"\bthat (is|was) asked for\b", r"\bwas asked for\b", r"\bfetch (it|both|them|the \w+) again\b",
    r"\ba (line|token|time)[;,:.] ", r"\b[Ll]ikeliest\b", r"\btake it off\b", r"\btakes? .{0,30} away\b",
    r"\bare others\b", r"\bthere are others\b", r"\bKeeps? this one\b", r"\blooked for\b",
    r"\bput there\b", r"\bPut it\b", r"\bTake it\b", r"'s' \*",
    r"\b(your|another|other|several|saved|these|[Nn]ew) conversations?\b",
    r"\b[Ss]witch(ed)? [^.;]{1,40} off\b", r"\b[Tt]ake (it|another) (in|quantisation)\b",
    r"\bis there twice\b",
    r"\bdid not (take|give) the\b", r"\bwhich cannot be[;,.]", r"\bwere called for\b", r"\bKnows much\b",
    r"\b[Ll]ooking how\b", r"\btakes no pictures\b", r"\bof an unknown form\b", r", which is none\b",
    r"\bby itself$", r"\banother's\b", r"^(makers|Trouble)$",
    r": choose (a folder|another folder|an empty)\b",
)  # fmt: skip
"""Expressions that no text of the program may contain: no native speaker would write them, or another word is
the one used here (chat, version, model author, statistics, turn off, permanently, download, continue)."""
_ODD = re.compile("|".join(GONE_PHRASES))
_SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|FROM|WHERE|JOIN|PRAGMA|REFERENCES)\b")
_SENTENCE = re.compile(r"[A-Za-z]{2,} [A-Za-z{]|\} [a-z]|[a-z],? \{|^[A-Z][a-z]+…?$")


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of each literal of a module that reads like words for people; f-strings with their fields
    in braces. Docstrings and SQL are left out.
    """
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    skipped: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            skipped |= set(node.values)
    for node in nodes:
        if node in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                "{" + ast.unparse(part.value) + "}"
                if isinstance(part, ast.FormattedValue)
                else ast.literal_eval(part)
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if _SENTENCE.search(text) and not _SQL.search(text):
            yield node.lineno, text


def odd_phrases(text: str) -> list[str]:
    return [found.group() for found in _ODD.finditer(text)]


def test_odd_phrases_do_not_come_back() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{line}: {text[:80]!r} has {odd_phrases(text)}"
        for path in sources("engine", "desktop")
        for line, text in texts_of(path)
        if odd_phrases(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    ["Tell of long replies", "Sample as the makers advise", "End it and remove what came of it.",
     "stopped because it went round in circles", "Somebody has no name", "No setting has these words",
     "The file is no model file", "More was not kept of this reply", "Write on", "Delete for good",
     "Fetch it; fetch the model again.", "The reply is to go on from here", "Take it in another type",
     "It is a file: choose a folder.", "The keyring did not take the key", "switch “This computer only” off"],
)  # fmt: skip
def test_odd_phrases_are_found(text: str) -> None:
    assert odd_phrases(text)


def test_plain_sentences_are_not_odd(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Sample as the makers advise."""\nx = f"There is no file {x}"\ny = "SELECT a FROM b"\n'
    )
    assert list(texts_of(module)) == [(2, "There is no file {x}")]
    assert not odd_phrases("There is no file {path}; it is no longer in the list.")
