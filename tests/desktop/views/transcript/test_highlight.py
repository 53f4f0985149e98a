"""Colours of code: found in small slices, exact to the UTF-16 unit, and cached."""

from __future__ import annotations

import re
from time import perf_counter

import pytest
from pygments.lexers import find_lexer_class_by_name
from pytestqt.qtbot import QtBot

from desktop.views.transcript.rendering.code_highlight import CodeColours, IdleRunner


def found(qtbot: QtBot, language: str, code: str) -> list[list[tuple[str, str]]]:
    runner = IdleRunner()
    colours = CodeColours(runner)
    done: list[bool] = []
    colours.find("key", language, code, lambda: done.append(True))
    qtbot.waitUntil(runner.idle)
    spans = colours.get(language, code)
    assert spans is not None
    assert done == [True]
    lines = code.split("\n")
    result = []
    for line, text in zip(spans, lines, strict=False):
        units = text.encode("utf-16-le")
        result.append(
            [
                (units[2 * start : 2 * (start + length)].decode("utf-16-le"), style)
                for start, length, style in line
            ]
        )
    return result


def test_styles_of_python(qtbot: QtBot) -> None:
    lines = found(qtbot, "python", "def f():\n    return 'a' + 12  # why")
    assert ("def", "keyword") in lines[0]
    assert ("f", "name") in lines[0]
    assert ("12", "number") in lines[1]
    assert ("# why", "comment") in lines[1]


def test_positions_after_emoji_are_correct(qtbot: QtBot) -> None:
    [line] = found(qtbot, "python", "x = '🎉🎉' + 34")
    assert ("34", "number") in line


def test_leading_empty_lines_do_not_shift_the_rest(qtbot: QtBot) -> None:
    lines = found(qtbot, "python", "\n\nreturn 1\n")
    assert ("return", "keyword") in lines[2]


def test_an_unknown_language_is_left_alone(qtbot: QtBot) -> None:
    runner = IdleRunner()
    colours = CodeColours(runner)
    colours.find("key", "no-such-language", "x", lambda: None)
    qtbot.waitUntil(runner.idle)
    assert colours.get("no-such-language", "x") is None


def test_the_expressions_of_a_lexer_are_compiled_one_by_one(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    compile_one = re._compiler.compile

    def counted(pattern: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(pattern)
        return compile_one(pattern, flags)

    monkeypatch.setattr(re._compiler, "compile", counted)
    find_lexer_class_by_name("fortran")  # its import compiles expressions, too
    job = CodeColours(IdleRunner())._lex("fortran", "do i = 1, 2", lambda: None)
    in_steps = []
    for _step in job:
        in_steps.append(len(compiled) - sum(in_steps))
    assert sum(in_steps) > 10
    assert max(in_steps[1:]) == 1


def test_work_is_sliced(qtbot: QtBot) -> None:
    runner = IdleRunner()
    steps: list[float] = []

    def job() -> object:
        for _ in range(40):
            end = perf_counter() + 0.0005
            while perf_counter() < end:
                pass
            steps.append(perf_counter())
            yield

    runner.run("slow", job())  # type: ignore[arg-type]
    runner._work()
    assert 1 <= len(steps) < 10
    qtbot.waitUntil(runner.idle)
    assert len(steps) == 40


def test_a_cancelled_job_stops(qtbot: QtBot) -> None:
    runner = IdleRunner()
    runner.run("endless", iter(lambda: None, 1))
    assert not runner.idle()
    runner.cancel("endless")
    assert runner.idle()
