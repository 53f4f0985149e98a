"""The parts of README.md that repeat the source: file tree, settings, doors.

    python -m tests.readme        writes them anew
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from desktop.preflight import DEBIAN_PACKAGES
from desktop.settings import PANES
from engine.doors import DOORS
from engine.settings import SettingInfo, setting_info

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
LONGEST_REMARK = 110

DATA_REMARKS = (
    ("resources/icons/", "the icon set, SVG"),
    ("resources/screenshots/", "pictures for this page"),
    ("resources/templates/", "chat templates for models that bring none"),
    ("resources/themes/", "colour tokens of the light and the dark theme, and the style sheet they fill"),
    ("resources/starter.json", "the starter model's manifest: package, version, file, SHA-256, licence"),
    ("tests/engine/, tests/desktop/", "tests, one file for each source file or theme"),
    ("tests/e2e/", "the whole program: typing in the window, killing it, the real model"),
    ("tests/golden/", "what llama.cpp says of the starter model: ids, log-probabilities, perplexity"),
    ("tests/bench/", "benchmarks, and the script that records the golden data"),
    ("tests/*.py", "the frame of all tests: guards, tiny models, borders, this page's tables"),
    (".ci/run", "everything that must be green: tests, lint, types, wheel, a clean installation"),
)


def remark(path: Path) -> str:
    """The first sentence of a module's docstring, cut at a clause when it is long."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=[^.][^.])\.(?: |$)", text, maxsplit=1)[0]
    while len(sentence) > LONGEST_REMARK and (cut := max(sentence.rfind(mark) for mark in ("; ", ": ", ", "))) > 0:
        sentence = sentence[:cut]
    return sentence


def tree() -> str:
    """Every module of the three floors with its remark, then what else there is."""
    lines: list[str] = []
    for floor in ("engine", "desktop", "resources"):
        lines += [*_folder(ROOT / floor, 0), *([""] if floor != "resources" else [])]
    for place, text in DATA_REMARKS:
        lines.append(f"{place:<34}{text}")
    return "```text\n" + "\n".join(line.rstrip() for line in lines) + "\n```"


def _folder(folder: Path, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth + folder.name + '/':<34}{remark(folder / '__init__.py')}"
    inner = "  " * (depth + 1)
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield f"{inner + path.name:<34}{remark(path)}"
    for below in sorted(path for path in folder.iterdir() if (path / "__init__.py").is_file()):
        yield from _folder(below, depth + 1)


def settings() -> str:
    """One table for each pane, from the dataclass fields."""
    parts = []
    for title, group in PANES:
        rows = [f"**{title}**\n", "| setting | default | range | what it does |", "|---|---|---|---|"]
        for field in dataclasses.fields(group):  # type: ignore[arg-type]
            info = setting_info(field)
            rows.append(f"| {info.label} (`{field.name}`) | {_value(field.default)} | {_range(info)} | {info.help} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def _value(value: Any) -> str:
    return "none" if value in (None, ()) else f"{value}"


def _range(info: SettingInfo) -> str:
    if info.choices:
        return ", ".join(value for value, _ in info.choices)
    unit = f" {info.unit}" if info.unit else ""
    if info.low is not None and info.high is not None:
        return f"{info.low:g} to {_bound(info.high)}{unit}"
    return f"from {info.low:g}{unit}" if info.low is not None else "any"


def _bound(number: float) -> str:
    """Powers of two far away are written as such."""
    whole = int(number)
    return f"2^{(whole + 1).bit_length() - 1}" if whole > 100_000 else f"{number:g}"


def doors() -> str:
    """The table of doors."""
    rows = ["| door | what it does | `--json` |", "|---|---|---|"]
    rows += [f"| `inglenook-engine {door.name}` | {door.help} | {'yes' if door.has_json else 'no'} |" for door in DOORS]
    return "\n".join(rows)


def packages() -> str:
    """The command that installs what Qt needs."""
    return f"```sh\nsudo apt install {DEBIAN_PACKAGES}\n```"


PARTS = {"tree": tree, "settings": settings, "doors": doors, "packages": packages}


def filled(text: str) -> str:
    """README.md with every generated part as the source says now."""
    for name, make in PARTS.items():
        begin, end = f"<!-- {name}: python -m tests.readme -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        assert rest, f"README.md has no mark {begin}"
        assert after, f"README.md has no mark {end}"
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text("utf-8")), "utf-8")
