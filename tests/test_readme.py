"""README.md is true: its files exist, its tables equal the source, its commands are those of CI."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.readme import README, ROOT, filled

TEXT = README.read_text("utf-8")


def test_it_is_short() -> None:
    assert TEXT.count("\n") <= 250


def test_generated_parts_are_current() -> None:
    """After a change of a command or a format, run `python -m tests.readme`."""
    assert filled(TEXT) == TEXT


FILE = re.compile(r"[\w./]+\.(py|md|toml|json|png)|(desktop|engine|resources|tests|\.ci)/[\w./]*")


def named_files() -> set[str]:
    """Paths in links and in backticks outside code blocks."""
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    found = set(re.findall(r"\]\(([^)#:]+)\)", prose))
    for code in re.findall(r"`([^`]+)`", prose):
        found |= {word for word in code.split() if FILE.fullmatch(word)}
    return found


def test_named_files_exist() -> None:
    names = named_files()
    assert {"tests/conftest.py", ".ci/run", "engine/chat/local.py"} <= names
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("command", re.findall(r"`python -m (tests\.[\w.]+)`", TEXT))
def test_named_modules_exist(command: str) -> None:
    place = ROOT / Path(*command.split("."))
    assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()


def test_two_lines_install_and_start() -> None:
    """One line installs and starts a chat, one installs and tests. CI runs the second one."""
    shell = re.findall(r"```sh\n(.*?)\n```", TEXT, re.DOTALL)
    assert [block for block in shell if "\n" in block] == []
    test = '.venv/bin/python -m pip install -e ".[test]" && .venv/bin/python -m pytest -n 3 --dist loadfile'
    assert f"python3 -m venv .venv && {test}" in shell
    assert (
        "python3 -m venv .venv && .venv/bin/python -m pip install . && .venv/bin/inglenook --starter" in shell
    )
    assert "the test command: .ci/run takes it from here" in (ROOT / ".ci" / "run").read_text("utf-8")
