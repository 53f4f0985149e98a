"""The packaged program's folder, built and started on this machine with no Python in its path: the short form
of `python -m tests.packaging`, which needs a bare root.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import users_environ
from tests.packaging.proof import KEEPER, one_page_pdf
from tests.release import share
from tests.release.build import check_left_out
from tests.release.environment import copy_tree, make_environment
from tests.release.plan import Release, version
from tests.release.program import freeze

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real_model,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="the other systems' programs are started otherwise"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils is not installed"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    work = tmp_path_factory.mktemp("release")
    release = Release(work, work / "out", version(), 1_700_000_000)
    copy_tree(release)
    with users_environ():  # pip's settings
        make_environment(release)
    share.main(str(release.share), release.version, str(release.epoch))
    freeze(release)
    yield release.program
    shutil.rmtree(work)


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A user's variables: nothing of this process, and no folder with programs."""
    home = tmp_path_factory.mktemp("home")
    return {"HOME": str(home), "PATH": str(home), "LANG": "C.UTF-8", "QT_QPA_PLATFORM": "offscreen"}


def ran(program: Path, environ: dict[str, str], *words: str | Path) -> str:
    done = subprocess.run(
        [program / words[0], *words[1:]], env=environ, cwd="/", capture_output=True, text=True, timeout=300,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer(printed: str) -> str:
    """The reply, without the line about its speed."""
    return printed.rpartition("\n[")[0]


def compiled(environ: dict[str, str]) -> dict[str, int]:
    cache = Path(environ["HOME"], ".cache", "inglenook")
    return {str(path): path.stat().st_mtime_ns for path in cache.rglob("*.nb[ci]")}


def until(look: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_it_says_its_version_and_leaves_out_what_only_gpus_need(program, environ) -> None:
    check_left_out(program)
    assert ran(program, environ, "inglenook", "--version") == f"inglenook {version()}\n"
    assert "version" in ran(program, environ, "inglenook-engine", "info")


def test_it_answers_and_compiles_nothing_again_from_another_place(
    program, environ, tmp_path, starter_path
) -> None:
    asked = ("inglenook-engine", "run", starter_path, "--prompt", "The capital of France is")
    question = (*asked, "--max-tokens", "8", "--temperature", "0")
    reply = answer(ran(program, environ, *question))
    assert reply.strip()
    before = compiled(environ)
    assert before
    moved = tmp_path / "elsewhere é"
    program.rename(moved)
    try:
        assert answer(ran(moved, environ, *question)) == reply
    finally:
        moved.rename(program)
    assert compiled(environ) == before


def test_its_window_reads_a_pdf_in_a_process_of_its_own(program, environ, tmp_path) -> None:
    # not in `tmp_path`: the program listens in another folder where this one's path is too long for a socket
    pdf, data = tmp_path / "keeper.pdf", Path(environ["HOME"], "data")
    pdf.write_bytes(one_page_pdf(KEEPER))
    words = [program / "inglenook", "--data", data]
    window = subprocess.Popen(words, env=environ, cwd="/", stdin=subprocess.DEVNULL)
    try:
        until((data / "inglenook.socket").exists)
        assert subprocess.run([*words, pdf], env=environ, cwd="/", timeout=60, check=False).returncode == 0
        until(lambda: draft_files(data))
        assert draft_files(data) == [("keeper.pdf", KEEPER)]
        window.send_signal(signal.SIGTERM)
        assert window.wait(60) == 0
    finally:
        if window.poll() is None:
            window.kill()
            window.wait()


def draft_files(data: Path) -> list[tuple[str, str]]:
    file = f"file:{data / 'conversations.sqlite3'}?mode=ro"
    with contextlib.closing(sqlite3.connect(file, uri=True, timeout=10)) as database:
        return database.execute("SELECT name, text FROM draft_files").fetchall()
