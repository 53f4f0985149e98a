"""The command line without its streams, with a pipe for a file, and interrupted while it starts."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

import engine.__main__ as program
from tests.tiny import TINY, write_gguf

main = program.main


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", TINY, "F16")


def test_closed_streams_are_empty_ones(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `inglenook-engine info MODEL <&- >&- 2>&-`: Python has None in their place."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    try:
        assert main(["tokenize", str(tiny), "--text", "a"]) == 0
        assert main(["tokenize", str(tiny), "--file", "-"]) == 0
        assert main(["tokenize", str(tiny / "none"), "--text", "a"]) == 1
    finally:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            assert stream is not None
            stream.close()


def test_a_text_comes_from_the_standard_input(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tokens(*arguments: str) -> tuple[int, str, str]:
        code = main(["tokenize", str(tiny), *arguments])
        return code, *capsys.readouterr()

    for given, expected in ((b"hello", "hello"), ("漢字".encode(), "漢字")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        piped = tokens("--file", "-", "--json")
        assert piped == tokens("--text", expected, "--json")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xff")))
    code, _, error = tokens("--file", "-")
    assert (code, error) == (1, "<stdin> is not UTF-8 text (byte 1); save it as UTF-8 first.\n")


def test_a_line_that_is_no_text_does_not_end_a_chat(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped = io.TextIOWrapper(io.BytesIO(b"h\xffi\nhello\n"), encoding="utf-8", errors="strict")
    monkeypatch.setattr(sys, "stdin", piped)
    assert main(["chat", str(tiny), "--backend", "reference", "--max-tokens", "2"]) == 0
    said, error = capsys.readouterr()
    assert said.count("[stopped at the token limit]") == 2
    assert error == ""


def test_an_interrupt_while_modules_load_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_given: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "parser", interrupted)
    assert main(["info", "x"]) == 130


RING = """
class Ring:
    def __del__(self): print("a ring was found")
ring = Ring()
ring.itself = ring
del ring
"""


@pytest.mark.parametrize("program_first", [False, True])
def test_the_end_does_not_wait_for_a_search_for_garbage(program_first: bool) -> None:
    first = "from engine.__main__ import main; main(['settings', '--json'])" if program_first else ""
    command = [sys.executable, "-c", first + RING]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found.endswith("a ring was found\n") != program_first
