"""The commands speak the user's language, and programs hear English."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QLocale

from desktop.__main__ import parser as desktop_parser
from engine.__main__ import main, parser
from engine.platform.folders import DATA_VARIABLE
from engine.platform.language import PREFERENCES, argparse_speaks, saved_choice, speak, wished
from engine.platform.terminal import padded, width_of, wrapped
from engine.units import number_text
from engine.words import _, dotted, language, languages, set_language

CODES = [code for code in languages() if code != "en"]


@pytest.fixture(autouse=True)
def english_after(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    yield
    set_language("en")


def prefer(folder: Path, choice: object) -> None:
    (folder / PREFERENCES).write_text(json.dumps({"settings": {"Appearance": {"language": choice}}}))


@pytest.mark.parametrize(
    ("environment", "wishes"),
    [
        ({}, []),
        ({"LANG": "de_AT.UTF-8"}, ["de_AT"]),
        ({"LANG": "de_AT.UTF-8", "LC_ALL": "C.UTF-8", "LANGUAGE": "es"}, []),
        ({"LANG": "de_AT.UTF-8", "LC_MESSAGES": "ja_JP", "LANGUAGE": "fr:ar"}, ["fr", "ar", "ja_JP"]),
        ({"LC_ALL": "de_DE@euro"}, ["de_DE"]),
    ],
)
def test_the_system_language_is_that_of_gettext(environment: dict[str, str], wishes: list[str]) -> None:
    assert wished(environment) == wishes


def test_the_preference_of_the_window_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LC_ALL": "es_MX.UTF-8", "LANGUAGE": "xx"}.items():
        monkeypatch.setenv(name, value)
    for choice, code in (("ja", "ja"), ("system", "es"), ("en", "en"), (["de"], "es"), ("../de", "es")):
        prefer(tmp_path, choice)
        speak()
        assert language() == code, choice
    (tmp_path / PREFERENCES).write_text("[]")
    assert saved_choice() == "system"


@pytest.mark.parametrize("code", CODES)
def test_numbers_are_written_as_in_the_window(code: str) -> None:
    speak(code)
    locale = QLocale({"ar": "ar_AE"}.get(code, code))
    assert number_text(1234567.5, ",.1f") == locale.toString(1234567.5, "f", 1)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("make", [parser, desktop_parser])
def test_help_is_translated_whole(code: str, make, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of the English help is left but the names of arguments; the environment is not touched."""
    monkeypatch.setenv("COLUMNS", "400")
    before, own = dict(os.environ), vars(argparse)["_"]
    kinds = make()
    names = ["info", "run", "serve", "bench", "selftest"] if make is parser else []
    english = {line.strip() for name in [None, *names] for line in helped(kinds, name)}
    speak(code)
    with argparse_speaks():
        assert dict(os.environ) == before
        kinds = make()
        spoken = {line.strip() for name in [None, *names] for line in helped(kinds, name)}
    left = {line for line in english & spoken if re.search(r"^[^-].*[a-z]{3} [a-z]{3}|:$", line)}
    assert left == set()
    assert vars(argparse)["_"] is own


def helped(kinds, name: str | None) -> list[str]:
    """The lines of the help text, of a command if it is named, without what argument names begin."""
    found = kinds if name is None else kinds._subparsers._group_actions[0].choices[name]
    about = found.format_help().partition("\n\n")[2]
    return [re.sub(r"^ *(-\S.*?|\w+)  +", "", line) for line in about.splitlines()]


def test_errors_are_translated_and_json_is_english(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefer(tmp_path, "de")
    with pytest.raises(SystemExit) as ended:
        main(["logits", "model.gguf"])
    assert ended.value.code == 2
    assert "Fehler: eines der Argumente --prompt --file --ids ist erforderlich" in capsys.readouterr().err
    missing = str(tmp_path / "missing.gguf")
    assert main(["info", missing]) == 1
    german = capsys.readouterr().err
    assert main(["info", missing, "--json"]) == 1
    plain = capsys.readouterr().err
    assert "There is no" in plain or "does not exist" in plain
    assert missing in german
    assert german != plain
    assert main(["settings", "--json"]) == 0
    assert "How the next token is drawn" in capsys.readouterr().out
    assert main(["settings"]) == 0
    assert "Wie das nächste Token gezogen wird" in capsys.readouterr().out


def test_a_terminal_gets_no_invisible_marks() -> None:
    speak("ar")
    assert "\u2068" not in _("{number} tokens/s", number=3)
    assert dotted("a", "b") == "a · b"
    set_language("ar")
    assert "\u2068" in _("{number} tokens/s", number=3)


def test_columns_of_wide_characters() -> None:
    assert width_of("ab漢字") == 6
    assert padded("漢字", 6) == "漢字  "
    assert padded("漢字", 6, right=True) == "  漢字"
    assert wrapped("模型的名称。GGUF 文件", 8) == ["模型的名", "称。GGUF", "文件"]
    assert wrapped("one two  three", 7) == ["one two", "three"]
    assert all(width_of(line) <= 10 for line in wrapped("クライアントが送るAPIキー、または新しいキー。", 10))
