"""The command `serve`: one line when it listens, and a clean end by Ctrl+C or a request to terminate."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.__main__ import main
from engine.cli.serve import _load
from engine.core import Loading
from engine.server.host import Outlet
from tests.engine.models.lora.test_lora import write_adapter
from tests.engine.server.served import TOKEN, WAIT, Served, ask

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


WAITING = """
import threading, time
from engine.cli.serve import _terminated_as_interrupted, _wait_for_interrupt

def busy():
    while True:
        time.sleep(0.001)

for _ in range(8):
    threading.Thread(target=busy, daemon=True).start()
with _terminated_as_interrupted():
    _wait_for_interrupt(lambda: print("waits", flush=True))
print("ended")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise on Windows")
def test_a_request_to_terminate_while_it_is_stopped_is_heard() -> None:
    """Any thread may take a signal that came while all were stopped: nine times in ten another."""
    runs = [
        subprocess.Popen([sys.executable, "-c", WAITING], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    try:
        for run in runs:
            assert run.stdout is not None
            assert run.stdout.readline() == "waits\n"
            for sent in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
                run.send_signal(sent)
                time.sleep(0.05)
        assert [run.communicate(timeout=60)[0] for run in runs] == ["ended\n"] * 4
    finally:
        for run in runs:
            run.kill()
            run.wait()


@pytest.mark.slow
@pytest.mark.loopback
@pytest.mark.usefixtures("interruptible")
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise on Windows")
def test_adapters_of_all_requests(tiny_folder: Path, tmp_path: Path, served: Served) -> None:
    """A request that names no adapter is answered with those of the command."""
    adapter = write_adapter(tmp_path / "pirate")
    command = [sys.executable, "-m", "engine", "serve", str(tiny_folder), "--port", "0", "--no-token"]
    command += ["--adapters", f"{adapter} = 2.5"]
    sent = {"prompt": "The quick brown", "max_tokens": 8, "temperature": 0}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            match = re.search(r"127\.0\.0\.1:(\d+)", run.stdout.readline())
            assert match is not None
            port = int(match[1])
            listed = ask(port, "/lora-adapters").json
            texts = [ask(port, "/v1/completions", sent).json["choices"][0]["text"] for _unused in range(2)]
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=WAIT)
        finally:
            run.kill()
    assert listed == [{"id": 0, "path": "pirate", "scale": 2.5}]
    assert texts[0] == texts[1] != ask(served, "/v1/completions", sent).json["choices"][0]["text"]


@pytest.mark.slow
def test_an_adapter_that_cannot_be_read_gets_its_sentence(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tiny_folder), "--port", "0", "--adapters", str(tmp_path)]) == 1
    found = capsys.readouterr().err
    assert "adapter_config.json" in found
    assert "Traceback" not in found


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


def test_loading_is_shown() -> None:
    class Host:
        def load(self, model: str, outlet: Outlet) -> Any:
            for done in (1, 2):
                outlet.put(Loading("reading", done, 2))
            outlet.end(None)
            return SimpleNamespace(cancel=lambda: None)

    shown = list[Loading]()
    asyncio.run(_load(cast(Any, Host()), "tiny", cast(Any, SimpleNamespace(loading=shown.append))))
    assert shown == [Loading("reading", 1, 2), Loading("reading", 2, 2)]
