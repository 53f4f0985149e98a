"""Tries a tokenizer's normaliser and pre-tokeniser in a separate process, on texts that are hard for them.

The library matches by backtracking: an expression such as `(a+)+$` takes exponential time, and the library
panics when it gives up. This cannot be decided from an expression in general, so it is tried with runs and
repetitions of the expression's own parts, with and without a suffix that makes it fail. A separate process
can be killed, and limited in time and memory.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from engine.errors import BadCheckpoint
from engine.platform.python_process import NO_WINDOW, python_command
from engine.text.tokenizer.definition import tokenizer_json
from engine.words import N_, _, translate

__all__ = ["main", "try_definition"]

log = logging.getLogger(__name__)

_CPU_SECONDS, _WALL_SECONDS = 20, 90
"""The slowest published expression takes 3 seconds, most take a tenth of one; a hostile one takes years."""
_MEMORY = 2 << 30
_FAMILIAR = (
    "a", "A", "0", " ", "\n", "\t", "\r", "!", "'", "-", "_", "é", "漢", "\u0301", "ʰ", "\u3000", "😀",
    "α", "я", "א", "ع", "क", "ক", "ก", "한", "ひ", "カ", "ა", "ա",
)  # fmt: skip
"""One character of each class that expressions name."""
_COMMON = 10
"""How many of these are paired with one another."""
_MOST_UNITS, _RUN, _LONG_RUN, _MIXED = 40, 60, 1000, 500
_MOST_GROWTH = 64
_TAILS = ("", "\0", "a", " ")
_passed: set[str] = set()


def try_definition(definition: Mapping[str, Any], doubtful: Sequence[Mapping[str, Any]]) -> None:
    """Raise `BadCheckpoint` if a trial of `doubtful`, steps of this definition, fails.

    A definition that passed is not tried again. If no process can be started, nothing is tried.
    """
    parts = {name: definition.get(name) for name in ("normalizer", "pre_tokenizer")}
    units = _units(doubtful)
    key = json.dumps([parts, units])
    if key in _passed:
        return
    lines = "\n".join([json.dumps(parts), json.dumps(units)])
    try:
        done = subprocess.run(
            python_command(__name__), input=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, encoding="utf-8", timeout=_WALL_SECONDS, creationflags=NO_WINDOW, check=False,
        )  # fmt: skip
        answer = done.stdout.strip()
    except subprocess.TimeoutExpired:
        answer = ""
    except OSError as error:
        log.warning("no process for trying a tokenizer's expressions: %s", error)
        return
    if answer != "ok":
        what = ", ".join(_shown(step) for step in doubtful)
        raise BadCheckpoint(
            _(
                "The tokenizer cuts or replaces text by {what}, which {answer}; download the model again.",
                what=what,
                answer=answer or translate(_HANGS),
            )
        )
    _passed.add(key)


_HANGS = N_("takes too long or too much memory on some texts")
_UNREADABLE = "unreadable"
_GROWS = N_("makes texts too long")


def _shown(step: Mapping[str, Any]) -> str:
    return repr(str(next(iter(step["pattern"].values()))))[:60]


def _units(doubtful: Sequence[Mapping[str, Any]]) -> list[str]:
    """The parts of trial texts: each character, each escaped code and each run of letters in a pattern."""
    found: dict[str, None] = {}
    for step in doubtful:
        for kind, text in step["pattern"].items():
            if kind == "String":
                found[text[:_LONG_RUN]] = None
                continue
            codes = re.findall(r"\\x\{([0-9A-Fa-f]{1,5})\}|\\[xu]([0-9A-Fa-f]{2,4})", text)
            found.update(
                dict.fromkeys(
                    chr(code) for pair in codes if not 0xD800 <= (code := int("".join(pair), 16)) < 0xE000
                )
            )
            found.update(dict.fromkeys(re.findall(r"\\([^\w\s])", text)))
            plain = re.sub(r"\\.|\(\?[a-z<=!:]*|[{][0-9, ]*[}]", "\0", text)
            found.update(dict.fromkeys(re.findall(r"[^\0\[\](){}|*+?.^$\\]+", plain)))
            found.update(dict.fromkeys(re.findall(r"[^\W_]|[^\w\s\\\[\](){}|*+?.^$]", plain)))
    return [*itertools.islice((unit for unit in found if unit), _MOST_UNITS)]


def _texts(own: Sequence[str]) -> Iterator[str]:
    """Trial texts made of `own`, the definition's units, and of familiar characters.

    A character that makes an expression fail is followed by the expression's own units: a matcher could
    otherwise skip the search because a required character is missing.
    """
    units = list(dict.fromkeys([*own, *_FAMILIAR]))
    mixture = "".join(own)
    tails = [*_TAILS, "\0" + mixture, *own[:8]]
    for unit in units:
        yield unit
        for tail in tails:
            yield unit * _RUN + tail
        yield unit * (_RUN * 2 // 3) + "\0" + mixture
        yield unit + mixture + unit * _RUN
    for before, unit in itertools.product(own, units):
        yield before + unit * _RUN + "\0" + mixture
    for one, other in itertools.permutations(units[: len(own) + _COMMON], 2):
        yield (one + other) * (_RUN // 2) + "\0" + mixture
    draw = random.Random(0)
    for _unused in range(_MIXED):
        yield "".join(draw.choices(units, k=draw.randrange(2, 12)))
    for unit in units:
        run = unit * (_LONG_RUN // len(unit))
        yield from (run, run + "\0" + mixture, run + "a")


def main(lines: TextIO = sys.stdin, out: TextIO = sys.stdout) -> int:
    """Try the two parts with texts of the units, all read as JSON lines."""
    _bound()
    parts, units = json.loads(lines.readline()), json.loads(lines.readline())
    out.write(_tried(parts, units))
    out.flush()
    return 0


def _tried(parts: Mapping[str, Any], units: Sequence[str]) -> str:
    from tokenizers import Tokenizer

    try:
        library = Tokenizer.from_str(
            json.dumps(tokenizer_json({"type": "BPE", "vocab": {}, "merges": []}, **parts))
        )
    except Exception:  # noqa: BLE001 - the library raises nothing more precise
        return _UNREADABLE
    for text in _texts(units):
        try:
            changed = library.normalizer.normalize_str(text) if library.normalizer is not None else text
            if len(changed) > _MOST_GROWTH * (len(text) + _RUN):
                return translate(_GROWS)
            library.encode(text, add_special_tokens=False)
        except BaseException:  # noqa: BLE001 - a panic of the library is no Exception
            return translate(_HANGS)
    return "ok"


def _bound() -> None:
    """Limit CPU time and memory if the system supports it."""
    os.environ["RUST_BACKTRACE"] = "0"
    if sys.platform == "win32":
        return
    import resource

    for kind, most in (
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, _MEMORY),
    ):
        # macOS processes start with gigabytes of address space
        if kind == resource.RLIMIT_AS and sys.platform == "darwin":
            continue
        _unused, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
