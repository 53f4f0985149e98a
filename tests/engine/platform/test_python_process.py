"""Other processes of this program, as an installed one and as a frozen one starts them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from engine.platform import python_process
from engine.platform.python_process import python_command, run_asked_module

MODULE = "tests.engine.platform.print_arguments"


def test_the_module_gets_its_arguments_and_gives_the_exit_code() -> None:
    done = subprocess.run(
        python_command(MODULE, "one", "--two", ""), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert json.loads(done.stdout) == [["one", "--two", ""], sys.path]


def test_a_program_that_cannot_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(OSError, match="no executable"):
        python_command(MODULE)


def test_a_frozen_program_starts_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", "/opt/inglenook/inglenook")
    command = python_command(MODULE, "one", "--two")
    assert command[0] == "/opt/inglenook/inglenook"
    monkeypatch.setattr(sys, "argv", list(command))
    with pytest.raises(SystemExit) as ended:
        run_asked_module()
    assert ended.value.code == 3
    assert json.loads(capsys.readouterr().out)[0] == ["one", "--two"]


def test_on_windows_the_program_with_standard_streams_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "executable", "/programs/inglenook.exe")
    assert python_command(MODULE, "one") == ["/programs/inglenook-engine.exe", "--run-module", MODULE, "one"]


@pytest.mark.parametrize(
    "words", [[], ["model.gguf"], [python_process._RUN_MODULE], ["x", "--run-module", "y"]]
)
def test_other_arguments_are_the_programs_own(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["inglenook", *words]
    monkeypatch.setattr(sys, "argv", given)
    run_asked_module()
    assert sys.argv == ["inglenook", *words]
