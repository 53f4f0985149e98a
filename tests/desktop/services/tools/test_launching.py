"""Placeholders, programs, names: what is worked out before a server runs or a tool is offered."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from desktop.services.tools.launching import environment_for, filled, find_program, login_path
from desktop.services.tools.offered_names import names_for
from desktop.services.tools.servers import OfferedTool, ServerConfig
from desktop.services.tools.unusable import UnusableConfig

posix = pytest.mark.skipif(sys.platform == "win32", reason="shells and modes of POSIX")


def _program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_placeholders_are_filled_everywhere() -> None:
    config = ServerConfig(
        "a", "${A}/x", ("${env:B}", "$A", "${N:-none}"), (("K", "${A}${A}"),),
        "${userHome}", "http://${A}", (("H", "${B}"),),
    )  # fmt: skip
    found = filled(config, {"A": "1", "B": "${A}"})
    assert found.command == "1/x"
    assert found.arguments == ("${A}", "$A", "none")  # a value is not filled again
    assert found.environment == (("K", "11"),)
    assert found.folder == str(Path.home())
    assert found.url == "http://1"
    assert found.headers == (("H", "${A}"),)


@pytest.mark.parametrize(
    ("text", "words"),
    [("${NOT}", "NOT is not set"), ("${env:NOT}", "NOT is not set"), ("${input:key}", "has no meaning here")],
)
def test_placeholders_without_a_value_are_a_sentence(text: str, words: str) -> None:
    with pytest.raises(UnusableConfig, match=words):
        filled(ServerConfig("a", "x", (text,)), {})


@posix
def test_programs_are_found_on_the_path_of_the_login_shell_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _program(tmp_path / "elsewhere" / "tool")
    shell = _program(tmp_path / "shell", f'#!/bin/sh\necho "Hello"\nPATH="{program.parent}" ; eval "$3"\n')
    monkeypatch.setenv("SHELL", str(shell))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert login_path() == str(program.parent)
    assert find_program("tool") == (str(program), str(program.parent))
    found, path = find_program("sh")
    assert os.path.basename(found) == "sh"
    assert path == "/usr/bin:/bin"
    assert find_program("./tool", str(program.parent))[0] == str(program)
    for command, words in (
        ("npx", "Install Node.js"), ("uvx", "Install uv"), ("docker", "Install Docker"),
        ("other", "Install it"), (str(tmp_path), "not a program"),
    ):  # fmt: skip
        with pytest.raises(UnusableConfig, match=words):
            find_program(command, path=str(tmp_path))


@posix
@pytest.mark.parametrize("shell", ["", "sh", "/not/there", "/bin/false"])
def test_a_shell_that_does_not_answer_is_no_path(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("SHELL", shell)
    assert login_path() == ""


def test_a_server_gets_no_tokens_of_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hush")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("https_proxy", "http://proxy")
    found = environment_for(ServerConfig("a", environment=(("OWN", "1"), ("LC_ALL", "de"))), "/bin")
    assert "HF_TOKEN" not in found
    assert (found["OWN"], found["LC_ALL"], found["PATH"], found["https_proxy"]) == (
        "1",
        "de",
        "/bin",
        "http://proxy",
    )


def test_offered_names_are_valid_and_unique() -> None:
    pairs = [
        ("a", "get"), ("b b", "get"), ("a", "x.y"), ("a", "x_y"), ("a", "é" * 80), ("a", "n" * 80),
        ("a", "n" * 70), ("", ""), ("a", "a_get"), ("c", "ok-1"),
    ]  # fmt: skip
    names = names_for([OfferedTool(server, tool, tool) for server, tool in pairs])
    assert len(set(names)) == len(pairs)
    for name in names:
        assert 1 <= len(name) <= 64
        assert all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in name)
    assert names[1] == "b_b_get"
    assert names[-2:] == ("a_get", "ok-1")
    assert names[0] == "a_get_2"
