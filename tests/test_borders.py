"""The borders of the house: floors, cycles, Qt, light imports, file sizes.

A new file that breaks one fails here by name.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Set
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(
    path for floor in ("desktop", "engine", "resources") for path in (ROOT / floor).rglob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_LINES, MAX_FUNCTION_LINES, MAX_ARGUMENTS = 400, 60, 8
LONG_FUNCTIONS = {"_attend_plain", "_product", "_route_scored", "_scan"}
"""Kernels of one loop: what its parts share lies in registers, which a call would spill."""


Nodes = Mapping[Path, list[ast.AST]]


@pytest.fixture(scope="module")
def nodes() -> Nodes:
    """All nodes of the syntax tree of each source, the module first; read once for all tests here."""
    return {path: list(ast.walk(ast.parse(path.read_text("utf-8")))) for path in SOURCES}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python(code: str, **environ: str) -> str:
    """Output of a fresh interpreter."""
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_floors() -> None:
    """The import contracts of pyproject.toml."""
    code = (
        "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache', '--no-logo'])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "8 kept, 0 broken" in run.stdout


def imports_of(nodes: Iterable[ast.AST], modules: Set[str]) -> set[str]:
    """The `modules` that a file imports, those in functions and under `TYPE_CHECKING` included."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(member if member in modules else node.module for member in members)
    return found & modules


def cycles(imports: Mapping[str, Set[str]]) -> list[list[str]]:
    """Every group of modules that import each other, as a shortest way from its first one back to itself."""
    reached = {start: shortest_ways(imports, start) for start in imports}
    groups = {frozenset(m for m in ways if start in reached[m]) for start, ways in reached.items()}
    return sorted(reached[min(group)][min(group)] for group in groups if group)


def shortest_ways(imports: Mapping[str, Set[str]], start: str) -> dict[str, list[str]]:
    """Each module that `start` leads to, with the modules from `start` to it."""
    ways: dict[str, list[str]] = {}
    waiting = deque([[start]])
    while waiting:
        way = waiting.popleft()
        for module in sorted(imports[way[-1]]):
            if module not in ways:
                ways[module] = [*way, module]
                waiting.append(ways[module])
    return ways


def test_no_file_imports_itself_in_a_circle(nodes: Nodes) -> None:
    """Imports for types only, and those in functions, count too."""
    names = {
        name(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in SOURCES
    }
    imports = {module: imports_of(nodes[path], names.keys()) - {module} for module, path in names.items()}
    assert cycles(imports) == []


def test_no_class_has_its_methods_compiled_before_they_are_needed(nodes: Nodes) -> None:
    """`dataclass` comes from `engine.lazy_dataclass`, a seventh of a start."""
    eager = {"dataclasses.dataclass"}
    found = {name(path) for path, each in nodes.items() if imports_of(each, eager)}
    found |= {name(path) for path in SOURCES if "@dataclasses.dataclass" in path.read_text("utf-8")}
    assert found == {"engine/lazy_dataclass.py"}


def test_cycles_are_named_in_order() -> None:
    imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set(), "f": {"g"}, "g": {"f"}}
    assert cycles(imports) == [["a", "b", "c", "a"], ["f", "g", "f"]]
    code = "import a\ndef f():\n    from b.c import D, e\nif TYPE_CHECKING:\n    from f import g\n"
    assert imports_of(ast.walk(ast.parse(code)), {"a", "b.c", "b.c.e", "f.g", "f"}) == {
        "a",
        "b.c",
        "b.c.e",
        "f.g",
    }


@pytest.mark.parametrize(
    ("file", "allowed"),
    [
        ("desktop/views/new.py", True),
        ("desktop/app.py", True),
        ("desktop/services/new.py", False),
        ("desktop/items/new.py", False),
    ],
)
@pytest.mark.parametrize(
    "line",
    ["from PySide6.QtWidgets import QWidget", "from PySide6 import QtWidgets", "import PySide6.QtWidgets"],
)
def test_widgets_only_in_views(file: str, allowed: bool, line: str) -> None:
    """Ruff reports a planted import of widgets outside the views."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--select",
        "TID251",
        "--no-cache",
        "--stdin-filename",
        file,
        "-",
    ]
    run = subprocess.run(command, cwd=ROOT, input=line + "\n", capture_output=True, text=True, check=False)
    assert ("TID251" not in run.stdout) == allowed, run.stdout + run.stderr


@pytest.mark.parametrize(
    "package", ["engine", "desktop", "engine.hub", "engine.settings", "desktop.__main__", "engine.__main__"]
)
def test_light_imports(package: str) -> None:
    """A window must stand before torch is read, and `--version` needs no Qt."""
    heavy = ["torch", "numba", "llvmlite", "transformers", "tokenizers", "PySide6.QtWidgets", "sqlite3"]
    assert python(f"import sys, {package}; print([m for m in {heavy} if m in sys.modules])") == "[]\n"


def test_engine_modules_without_qt() -> None:
    """Every module of engine and resources can be imported where PySide6 does not exist."""
    code = """
import importlib, pkgutil, sys
class NoQt:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("PySide6", "shiboken6", "qasync"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoQt())
import engine, resources
names = [m.name for p in (engine, resources) for m in pkgutil.walk_packages(p.__path__, p.__name__ + ".")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""
    assert int(python(code)) > 50


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_engine_tests_without_qt(tmp_path: Path) -> None:
    """A cross-section of the engine's tests, one file a floor, passes where PySide6 and pytest-qt do not
    exist.
    """
    import tomllib

    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    lines = ["[pytest]", f"pythonpath = {ROOT}"]
    for key, value in options.items():
        if not key.startswith(("qt_", "pythonpath", "testpaths")):
            items = [shlex.quote(item) for item in value] if key == "addopts" else value
            lines += (
                [f"{key} =", *[f"    {item}" for item in items]]
                if isinstance(value, list)
                else [f"{key} = {value}"]
            )
    (tmp_path / "pytest.ini").write_text("\n".join(lines) + "\n", "utf-8")
    code = """
import sys
class NoQt:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("PySide6", "shiboken6", "qasync", "pytestqt"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoQt())
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""
    arguments = [
        "-c",
        str(tmp_path / "pytest.ini"),
        "--rootdir",
        str(ROOT),
        "-p",
        "no:pytest-qt",
        "-p",
        "no:cacheprovider",
        "-q",
    ]
    # All modules are imported without Qt by the test above; here whole turns run, on every floor that a turn
    # goes through.
    parts = (
        "test_chat.py", "compat/test_tinychat.py", "generator/test_streaming.py",
        "speculation/test_draft_model.py", "models/test_llama.py", "weights/gguf/test_file.py",
        "kv_cache/test_pages.py", "backends/reference/test_reference.py", "constraint/test_closing.py",
        "text/stops/test_matcher.py", "sampling/test_steps.py",
    )  # fmt: skip
    arguments += [
        "-m",
        "not slow and not real_model and not gpu",
        *(f"tests/engine/{part}" for part in parts),
    ]
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


@pytest.mark.gui
def test_signals_keep_reference_counts() -> None:
    """PySide6 6.12.0 on Python 3.11 loses a reference to True at each emission and ends the process; ours
    must not.
    """
    code = """
import sys
from PySide6.QtCore import QCoreApplication, QObject, Signal
app = QCoreApplication([])
class Source(QObject):
    fired = Signal(object, bool)
source, seen = Source(), []
source.fired.connect(lambda value, flag: seen.append(flag) if len(seen) < 3 else None)
for value in (None, True, False):
    source.fired.emit(value, True)
before = [sys.getrefcount(thing) for thing in (None, True, False)]
for i in range(5000):
    source.fired.emit((None, True, False)[i % 3], bool(i & 1))
after = [sys.getrefcount(thing) for thing in (None, True, False)]
print(max(abs(a - b) for a, b in zip(after, before)))
"""
    assert int(python(code)) < 50


def test_the_top_level_holds_nothing_else() -> None:
    floors = {"desktop", "engine", "resources", "tests"}
    files = {"pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE"}
    patterns = [
        line.rstrip("/")
        for line in (ROOT / ".gitignore").read_text().splitlines()
        if not line.startswith("#")
    ]
    found = {
        path.name
        for path in ROOT.iterdir()
        if not (path.name.startswith(".") or any(fnmatch(path.name, pattern) for pattern in patterns))
    }
    assert found == floors | files


def test_every_folder_is_a_package() -> None:
    """A folder of modules without `__init__.py` would be missing from the wheel."""
    assert [name(path.parent) for path in SOURCES if not (path.parent / "__init__.py").exists()] == []


def test_files_are_short_and_say_their_job(nodes: Nodes) -> None:
    """At most 400 lines, unless line one says why not (`# Long: ...`); a docstring in every module."""
    texts = {name(path): path.read_text("utf-8") for path in SOURCES}
    long = [
        file
        for file, text in texts.items()
        if len(text.splitlines()) > MAX_LINES and not text.startswith("# Long: ")
    ]
    silent = [name(path) for path, (module, *_) in nodes.items() if not ast.get_docstring(module)]
    assert (long, silent) == ([], [])


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_functions_are_short(nodes: Nodes) -> None:
    """At most 60 lines of a function without its docstring, and 8 arguments of a constructor besides self."""
    long, wide = set(), []
    for path in SOURCES:
        for node in nodes[path]:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                where = f"{name(path)}:{node.lineno} {node.name}"
                lines = _height(node) - (_height(node.body[0]) if ast.get_docstring(node) is not None else 0)
                long |= {node.name} if lines > MAX_FUNCTION_LINES else set()
                wide += (
                    [where]
                    if node.name == "__init__"
                    and len(node.args.args + node.args.kwonlyargs) > MAX_ARGUMENTS + 1
                    else []
                )
    assert (long, wide) == (LONG_FUNCTIONS, [])


def test_nothing_is_left_half_done() -> None:
    """No note about work to do, no placeholder that raises."""
    marks = [
        "".join(parts)
        for parts in (("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("raise NotImpl", "ementedError"))
    ]
    found = [
        (name(path), mark) for path in (*SOURCES, *TESTS) for mark in marks if mark in path.read_text("utf-8")
    ]
    assert found == []


def test_no_machine_path_in_the_tree() -> None:
    """Nothing names a folder of one person's machine."""
    roots = tuple("/" + folder for folder in ("work/", "root/"))
    files = [*SOURCES, *TESTS, *ROOT.glob("*.md"), *ROOT.glob(".ci/*"), ROOT / "pyproject.toml"]
    texts = {name(path): path.read_text("utf-8") for path in files}
    found = [
        (file, root)
        for file, text in texts.items()
        for root in roots
        if f'"{root}' in text or f" {root}" in text
    ]
    assert found == []
