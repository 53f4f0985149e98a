"""The catalogues of the languages: collects the texts of the source, updates every catalogue and compiles it.

    python -m tests.tools.languages            updates and compiles the catalogues in resources/languages
    python -m tests.tools.languages add CODE   begins one for the language CODE, such as fr or pt_BR
    python -m tests.tools.languages template FILE   writes the texts alone, as a template (.pot)

Texts are the literals of `_()`, `N_()` and `ngettext()` in desktop and engine, and what settings declare. An
entry that has lost its text is removed; a new one is empty until it is translated, which a test demands.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from desktop.settings import SAVED_SETTINGS
from engine.cli.settings import COMMAND_SETTINGS
from engine.words import DOMAIN, FOLDER, language_names

if TYPE_CHECKING:
    from babel.messages.catalog import Catalog

__all__ = ["MARKS", "Text", "calls", "main", "modules", "texts"]

ROOT = Path(__file__).resolve().parents[2]
MARKS = {"_": 1, "N_": 1, "ngettext": 2}
"""The functions that mark texts, and how many of their first arguments are texts."""
_ORDER = (
    "desktop/views", "desktop/settings", "desktop/items", "desktop/services", "desktop",
    "engine/settings", "engine/core", "engine/remote", "engine/hub", "engine",
)  # fmt: skip
"""What is read most comes first in a catalogue."""


class Text(NamedTuple):
    """A text of the source: `many` is its plural, if it has one."""

    one: str
    many: str = ""


@functools.cache
def modules() -> dict[str, list[ast.AST]]:
    """The modules whose texts are translated, each with all nodes of its syntax tree."""
    paths = [path for floor in ("desktop", "engine") for path in sorted((ROOT / floor).rglob("*.py"))]
    return {
        path.relative_to(ROOT).as_posix(): list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for path in paths
    }


def calls(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.Call]]:
    """The calls of marking functions in a module, with the function's name."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS:
            yield node.func.id, node


@functools.cache
def texts() -> dict[Text, list[str]]:
    """Every text with the places that it comes from, such as "desktop/views/main_window.py:12"."""
    found: dict[Text, list[str]] = {}
    for name, nodes in modules().items():
        for mark, call in calls(nodes):
            literals = [each.value for each in call.args[: MARKS[mark]] if isinstance(each, ast.Constant)]
            if name != "engine/words.py" and literals and all(isinstance(each, str) for each in literals):
                found.setdefault(Text(*literals), []).append(f"{name}:{call.lineno}")
    for text, place in _declared():
        found.setdefault(Text(text), []).append(place)
    singular = {text.one: text for text in found if text.many}
    for text in [text for text in found if not text.many and text.one in singular]:
        found[singular[text.one]] += found.pop(text)  # gettext has one entry for both
    return dict(sorted(found.items(), key=lambda item: _place(item[1])))


def _declared() -> Iterator[tuple[str, str]]:
    """What the settings' declarations say, with the setting's name."""
    for cls in dict.fromkeys((*SAVED_SETTINGS, *COMMAND_SETTINGS)):
        module = cls.__module__.replace(".", "/") + ".py"
        if cls in COMMAND_SETTINGS:
            yield (cls.__doc__ or "").split(".")[0], f"{module}:{cls.__name__}"
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            info = field.metadata["setting"]
            words = [info.label, info.help, info.group, info.unit, info.form]
            own = dict(language_names()) if field.name == "language" else {}
            words += [label for value, label in (*info.choices, *info.words) if value not in own]
            for text in words:
                if any(letter.isalpha() for letter in text):
                    yield text, f"{module}:{cls.__name__}.{field.name}"


def _place(places: list[str]) -> tuple[int, str, int]:
    ranked = []
    for each in places:
        file, _colon, line = each.partition(":")
        rank = next(number for number, start in enumerate(_ORDER) if file.startswith(start))
        ranked.append((rank, file, int(line) if line.isdigit() else 0))
    return min(ranked)


def template(code: str = "") -> Catalog:
    """A catalogue with all texts and no translations."""
    from babel.messages.catalog import Catalog

    made = Catalog(code or None, DOMAIN, project="Inglenook", fuzzy=False, header_comment="")
    for text, places in texts().items():
        locations = [(place.split(":")[0], int(place.split(":")[1])) for place in places if _has_line(place)]
        notes = [place.split(":")[1] for place in places if not _has_line(place)]
        flags = ["python-brace-format"] if "{" in text.one + text.many else []
        made.add(
            (text.one, text.many) if text.many else text.one,
            locations=locations, auto_comments=notes, flags=flags,
        )  # fmt: skip
    return made


def _has_line(place: str) -> bool:
    return place.partition(":")[2].isdigit()


def write_po(catalogue: Catalog, path: Path, *, places: bool = False) -> None:
    """Write a catalogue; `places`: with the lines that texts come from, which change too often to be kept."""
    from babel.messages.pofile import write_po as write

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        write(file, catalogue, width=100, no_location=not places, omit_header=False, ignore_obsolete=True)


def read_po(path: Path, code: str) -> Catalog:
    """Read the catalogue of the language `code`."""
    from babel.messages.pofile import read_po as read

    with path.open("rb") as file:
        return read(file, locale=code, domain=DOMAIN)


def compiled(catalogue: Catalog) -> bytes:
    """The catalogue as a .mo file."""
    import io

    from babel.messages.mofile import write_mo

    file = io.BytesIO()
    write_mo(file, catalogue)
    return file.getvalue()


def update(path: Path) -> tuple[int, int]:
    """Bring the catalogue at `path` up to date and compile it; how many texts it has, and how many of these
    are not translated.
    """
    code = path.parts[-3]
    catalogue = read_po(path, code)
    catalogue.update(template(code), no_fuzzy_matching=True)
    catalogue.obsolete.clear()
    write_po(catalogue, path)
    path.with_suffix(".mo").write_bytes(compiled(catalogue))
    missing = [
        message
        for message in catalogue
        if message.id and not all(message.string if message.pluralizable else (message.string,))
    ]
    return len(catalogue), len(missing)


def main(arguments: list[str] | None = None) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(description="Updates and compiles the catalogues of the languages.")
    parser.add_argument("what", nargs="?", choices=("update", "add", "template"), default="update")
    parser.add_argument("target", nargs="?", help="a language's code, or the template's file")
    options = parser.parse_args(arguments)
    if options.what == "template":
        write_po(template(), Path(options.target), places=True)
        return 0
    if options.what == "add":
        write_po(template(options.target), FOLDER / options.target / "LC_MESSAGES" / f"{DOMAIN}.po")
    for path in sorted(FOLDER.glob(f"*/LC_MESSAGES/{DOMAIN}.po")):
        count, missing = update(path)
        print(f"{path.parts[-3]}: {count} texts, {missing} not translated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
