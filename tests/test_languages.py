"""Every text that users read can be translated, and every catalogue translates all of them."""

from __future__ import annotations

import ast
import gettext
import io
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.words import DOMAIN, FOLDER, language_names
from tests.tools.languages import MARKS, Text, calls, modules, texts

CODES = sorted(path.parts[-3] for path in FOLDER.glob(f"*/LC_MESSAGES/{DOMAIN}.mo"))
SHOWN = frozenset({
    "setText", "setToolTip", "setWindowTitle", "setAccessibleName", "setAccessibleDescription",
    "setPlaceholderText", "setStatusTip", "setInformativeText", "setSpecialValueText", "setSuffix",
    "setLabelText", "setHeaderLabels", "setTitle", "addAction", "addTab", "addMenu", "addButton", "addRow",
    "QAction", "QPushButton", "QLabel", "QCheckBox", "QRadioButton", "QGroupBox", "QToolButton",
    "WrappingCheckBox", "EmptyState", "announce", "Loading", "Downloading",
})  # fmt: skip
"""What shows all its arguments to the user."""
SHOWN_BESIDE_NAMES = frozenset({
    "ArgumentParser", "add_argument", "add_argument_group", "ArgumentTypeError",
    "QMessageBox", "IconButton", "IconMenuButton", "GrowingTextEdit", "ElidedLabel", "text_label",
    "show_notice", "offer", "ask_open", "ask_save", "ask_folder", "tip", "push_undo",
})  # fmt: skip
"""What shows some of them; the others are names of icons, tones and commands."""
ENGLISH = (
    "engine/server/", "engine/compat/", "engine/models/proof/", "engine/text/tools/",
    "engine/backends/cuda/proof/", "engine/backends/cuda/codegen/", "engine/backends/cpu/codegen/",
    "desktop/services/local_server/", "desktop/report.py",
)  # fmt: skip
"""What is read by programs and by developers stays English: the answers of
the local server, scripts for ExLlamaV2, proofs of kernels, prompts to models, bug reports.
"""
NAMES = {"Inglenook", "https://HOST/v1", "prompts.json", "Ctrl+Enter"}
"""Names and keys, which are no words of a language."""
UNSPACED = {"ja", "zh_CN"}
"""Languages whose punctuation needs no blank after it."""
OF_ARGPARSE = {"usage: ", "%(prog)s: error: %(message)s\n"}
"""Texts of Python's argument parser, which are looked up as they are."""
_TAG = re.compile(r"<[^<>]*>")
_NAME = re.compile(r"[a-z][a-z_-]*")
_WORD = re.compile(r"[A-Za-z]{2,}")
_OLD_FIELD = re.compile(r"%(?:\(\w+\))?[sr]")
"""A placeholder of Python's argument parser."""
_NUMBER = re.compile(r"[,_fFgGeE%n]")
"""In a format, what writes a number in the English way."""


@pytest.fixture(scope="module", autouse=True)
def _syntax_trees() -> Iterator[None]:
    """They are read once for all tests here; every later search for garbage would visit them."""
    yield
    modules.cache_clear()


def _literal(node: ast.AST) -> str:
    """The words of a literal or an f-string without its tags; "" for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return _TAG.sub("", "".join(part.value for part in node.values if isinstance(part, ast.Constant)))
    return ""


def _literals(node: ast.AST) -> Iterator[str]:
    """`_literal` of an argument, of what it chooses among, and of what stands in its braces."""
    yield _literal(node)
    parts: list[ast.expr] = []
    if isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, ast.BoolOp | ast.JoinedStr):
        parts = node.values
    elif isinstance(node, ast.FormattedValue):
        parts = [node.value]
    for part in parts:
        if not isinstance(node, ast.JoinedStr) or isinstance(part, ast.FormattedValue):
            yield from _literals(part)


def _help(call: ast.Call) -> list[ast.expr]:
    """What an argument parser is given to say about an argument, or about the whole."""
    return [each.value for each in call.keywords if each.arg in ("help", "description")]


def _errors() -> set[str]:
    """The errors with a sentence for the user: those of the engine and of the store."""
    bases = {
        node.name: {getattr(base, "id", "") for base in node.bases}
        for nodes in modules().values()
        for node in nodes
        if isinstance(node, ast.ClassDef)
    }
    found = {"EngineError", "StoreError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def test_what_users_read_is_marked() -> None:
    shown = SHOWN | SHOWN_BESIDE_NAMES | _errors()
    found = []
    for name, nodes in modules().items():
        if name.startswith(ENGLISH):
            continue
        for node in nodes:
            called = getattr(node, "func", None) if isinstance(node, ast.Call) else None
            function = getattr(called, "attr", getattr(called, "id", ""))
            if function in shown:
                found += [
                    f"{name}:{node.lineno} {function}({text!r})"
                    for argument in (*(node.args if function != "add_argument" else ()), *_help(node))
                    for text in _literals(argument)
                    if _WORD.search(text) and text not in NAMES
                    if function in SHOWN or not _NAME.fullmatch(text)
                ]
    assert found == []


def test_marked_texts_are_literals() -> None:
    """An f-string or a variable cannot be found by the tool; `translate` takes what `N_` has marked."""
    found = [
        f"{name}:{call.lineno}"
        for name, nodes in modules().items()
        if name != "engine/words.py"
        for mark, call in calls(nodes)
        if not all(
            isinstance(each, ast.Constant) and isinstance(each.value, str)
            for each in call.args[: MARKS[mark]]
        )
    ]
    assert found == []


def test_no_text_is_a_fragment() -> None:
    """One that begins or ends with white space, or begins with a comma, would be glued to others, which have
    another order in other languages; `paragraph` puts sentences side by side.
    """
    pieces = {piece for text in texts() for piece in text} - OF_ARGPARSE
    assert sorted(piece for piece in pieces if piece != piece.strip() or piece.startswith((",", ";"))) == []


def test_no_module_that_translates_binds_the_name_of_the_function() -> None:
    found = []
    for name, nodes in modules().items():
        imported = any(
            isinstance(node, ast.ImportFrom) and any(alias.name == "_" for alias in node.names)
            for node in nodes
        )
        for node in nodes if imported else ():
            stored = isinstance(node, ast.Name) and node.id == "_" and not isinstance(node.ctx, ast.Load)
            if stored or (isinstance(node, ast.arg) and node.arg == "_"):
                found.append(f"{name}:{node.lineno}")
    assert found == []


def test_placeholders_have_the_values_that_they_are_given() -> None:
    """A placeholder without a value would raise when its sentence is shown."""
    found = []
    for name, nodes in modules().items():
        for mark, call in calls(nodes):
            if name == "engine/words.py" or mark == "N_" or any(key.arg is None for key in call.keywords):
                continue
            given = {key.arg for key in call.keywords} | ({"n"} if mark == "ngettext" else set())
            if mark == "_" and not given:
                continue
            asked = set().union(*(_placeholders(_literal(each)) for each in call.args[: MARKS[mark]]))
            if not asked <= given or (mark == "_" and asked != given):
                found.append(f"{name}:{call.lineno} {sorted(asked ^ given)}")
    assert found == []


def _placeholders(text: str) -> set[str]:
    return {name for _text, name, _spec, _conversion in string.Formatter().parse(text) if name}


def test_a_singular_has_one_plural() -> None:
    """A catalogue has one entry for it."""
    plurals: dict[str, set[str]] = {}
    for text in texts():
        if text.many:
            plurals.setdefault(text.one, set()).add(text.many)
    assert {one: many for one, many in plurals.items() if len(many) > 1} == {}


FORMATTED = {
    "engine/units.py", "engine/words.py", "desktop/services/system/language.py",  # what formats for people
    "desktop/services/composer/spelling.py", "desktop/views/composer/spell_checker.py",  # whose dictionary
    "desktop/services/transfer/pdf/export.py", "desktop/services/transfer/pdf/outline.py",  # a sheet's size
    "desktop/store/attachments/documents/reading.py", "desktop/store/attachments/documents/sheets.py",
    "desktop/store/attachments/message_format.py",  # what models read
    "desktop/store/attachments/passages.py",  # likewise
    "desktop/store/backups.py", "desktop/store/database/data_folder.py",  # names of files
    "desktop/store/transfer/exporters/reading.py",  # dates in exported files, in the order of ISO 8601
    "desktop/views/settings/number_editor.py",  # how many decimals a step has
    "engine/hub/catalogue/picks.py", "engine/hub/catalogue/search.py",  # dates as programs write them
    "engine/text/template/sandbox.py",  # a function of chat templates
    "engine/weights/facts.py",  # names of formats
}  # fmt: skip
"""The modules that may format numbers and dates themselves, and why."""


def test_numbers_sizes_and_dates_are_formatted_in_one_place() -> None:
    """`engine/units.py` writes numbers as the language does, and `services/system/language.py` dates; a
    number that is only rounded, `float(f"{n:.2g}")`, is shown by others.
    """
    found = []
    for name, nodes in modules().items():
        if name.startswith(ENGLISH) or name in FORMATTED:
            continue
        rounded = {
            part
            for node in nodes
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "float" and node.args
            for part in ast.walk(node.args[0])
        }
        for node in nodes:
            formatted = isinstance(node, ast.FormattedValue) and node not in rounded
            spec = _literal(node.format_spec) if formatted and node.format_spec is not None else ""
            own = _NUMBER.search(spec) or getattr(node, "id", "") in ("QLocale", "QDateTime")
            if own or getattr(node, "attr", "") in ("strftime", "isoformat", "ctime", "asctime"):
                found.append(f"{name}:{node.lineno} {ast.unparse(node)}")
    assert found == []


# -- the catalogues


def _entries(code: str) -> dict[Text, list[str]]:
    """The compiled entries of a language: the text, and its forms."""
    import struct

    data = Path(FOLDER / code / "LC_MESSAGES" / f"{DOMAIN}.mo").read_bytes()
    count, ids, strings = struct.unpack_from("<3I", data, 8)
    found = {}
    for number in range(count):
        pair = []
        for table in (ids, strings):
            size, place = struct.unpack_from("<2I", data, table + 8 * number)
            pair.append(data[place : place + size].decode("utf-8").split("\0"))
        if pair[0] != [""]:
            found[Text(*pair[0])] = pair[1]
    return found


def test_every_catalogue_names_its_language() -> None:
    assert [code for code, name in language_names() if code == name] == []


@pytest.mark.parametrize("code", CODES)
def test_a_catalogue_has_every_text_and_no_other(code: str) -> None:
    wanted, found = set(texts()), set(_entries(code))
    assert (sorted(wanted - found)[:20], sorted(found - wanted)[:20]) == ([], [])


@pytest.mark.parametrize("code", CODES)
def test_translations_keep_placeholders_and_edges(code: str) -> None:
    """The same values in the same way, no empty form, and the blanks at the edges of the text."""
    with (FOLDER / code / "LC_MESSAGES" / f"{DOMAIN}.mo").open("rb") as file:
        rule = gettext.GNUTranslations(file).plural
    forms = len({rule(number) for number in range(1000)})
    wrong = []
    for text, translations in _entries(code).items():
        asked = _fields(text.many or text.one)
        if len(translations) != (forms if text.many else 1):
            wrong.append((text, "forms"))
        for each in translations:
            missing = asked - _fields(each) - ({("n", "", None)} if text.many else set())
            old = sorted(_OLD_FIELD.findall(each)) != sorted(_OLD_FIELD.findall(text.one))
            if _fields(each) - asked or missing or old or not each.strip():
                wrong.append((text, each))
            if code not in UNSPACED and _edges(text.one) != _edges(each):
                wrong.append((text, each))
    assert wrong[:20] == []


def _edges(text: str) -> tuple[bool, bool]:
    return text[:1].isspace(), text[-1:].isspace()


def _fields(text: str) -> set[tuple[str, str | None, str | None]]:
    return (
        {(name, spec, conversion) for _text, name, spec, conversion in string.Formatter().parse(text) if name}
        if _is_template(text)
        else set()
    )


def _is_template(text: str) -> bool:
    try:
        return any(name for _text, name, _spec, _conversion in string.Formatter().parse(text))
    except ValueError:  # a brace that is no placeholder's
        return False


@pytest.mark.parametrize("code", CODES)
def test_the_compiled_catalogue_is_that_of_its_source(code: str) -> None:
    pytest.importorskip("babel")
    from tests.tools.languages import compiled, read_po

    path = FOLDER / code / "LC_MESSAGES" / f"{DOMAIN}.po"
    catalogue = read_po(path, code)
    assert [message.id for message in catalogue if message.fuzzy and message.id] == []
    assert list(catalogue.obsolete) == []
    assert read_mo(compiled(catalogue)) == read_mo(path.with_suffix(".mo").read_bytes())


def read_mo(data: bytes) -> tuple[dict[object, str], dict[str, str]]:
    """The texts of a compiled catalogue, and what its header says but for the version of Babel."""
    found = gettext.GNUTranslations(io.BytesIO(data))
    texts: dict[object, str] = found._catalog  # type: ignore[attr-defined]
    header = found.info()
    del header["generated-by"]
    return {text: words for text, words in texts.items() if text}, header


@pytest.mark.parametrize(("code", "english"), [("de", r"\b(Ctrl|Shift|Del)\b"), ("es", r"\bShift\b")])
def test_keys_have_the_names_that_keyboards_of_the_language_have(code: str, english: str) -> None:
    found = [
        each for translated in _entries(code).values() for each in translated if re.search(english, each)
    ]
    assert found == []
