"""The command `serve`: one line when it listens, and a clean end by Ctrl+C or a request to terminate."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.__main__ import main
from tests.engine.server.served import TOKEN, WAIT, ask

ROOT = Path(__file__).parents[3]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Programs started here hear SIGINT, also where the tests run in the background of a script: a shell has
    such processes ignore it, and their children inherit that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.loopback
@pytest.mark.usefixtures("interruptible")
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise on Windows")
@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("given", "known"), [(("--token", TOKEN), True), ((), False), (("--no-token",), True)]
)
def test_one_line_and_a_clean_end(tiny_folder: Path, end: str, given: tuple[str, ...], known: bool) -> None:
    command = [
        sys.executable,
        "-m",
        "engine",
        "serve",
        str(tiny_folder),
        "--port",
        "0",
        "--name",
        "mine",
        *given,
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            assert run.stdout is not None
            line = run.stdout.readline()
            match = re.fullmatch(
                r"mine is served at http://127\.0\.0\.1:(\d+)/v1 with (?:the|no) token ?(\S*)\n", line
            )
            assert match is not None, line
            port = int(match[1])
            assert (match[2] == (TOKEN if "--token" in given else "")) == known
            assert (
                ask(port, "/v1/models", headers={"Authorization": f"Bearer {match[2]}"}).json["data"][0]["id"]
                == "mine"
            )
            if "--no-token" not in given:
                assert ask(port, "/v1/models", headers={"Authorization": "Bearer x"}).status == 401
            run.send_signal(getattr(signal, end))
            rest, errors = run.communicate(timeout=WAIT)
        finally:
            run.kill()
    assert (run.returncode, rest, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--port", "70000"), "70000"), (("--token", ""), "token is empty"), (("--token", "a b"), "token"),
        (("--allow-origin", "*"), "not an origin"),
    ],
)  # fmt: skip
def test_wrong_options_end_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], sentence: str
) -> None:
    assert main(["serve", "no-such-model", *flags]) == 1
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("flags", [(), ("--no-token",), ("--token", " a-token ")])
def test_a_model_that_does_not_exist_gets_its_sentence(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    assert main(["serve", "no-such-model.gguf", "--port", "0", *flags]) == 1
    found = capsys.readouterr().err
    assert "no-such-model.gguf" in found
    assert "Traceback" not in found
