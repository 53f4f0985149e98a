"""For all tests: a temporary home, no network, nothing left over, and the starter model on request."""

from __future__ import annotations

import collections
import faulthandler
import gc
import hashlib
import itertools
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis
import platformdirs
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from _pytest.logging import catching_logs
from filelock import FileLock
from pytestqt.qtbot import QtBot

from tests.early_imports import import_backwards
from tests.guards import Network, environ_kept, nothing_left_over, search_garbage_here, watch_threads
from tests.kept_kernels import keep_kernels, kernels_name, take_kernels

ROOT = Path(__file__).resolve().parent.parent
WAIT_MS = 30_000
"""How long a test waits for what should come at once: on a loaded machine it comes late."""
_HANDED_ON = "INGLENOOK_TESTS_ENVIRON"
"""The user's own variables, from the process that shares the tests out to those that run them
(pytest-xdist).
"""
_REAL_ENVIRON: dict[str, str] = json.loads(os.environ.get(_HANDED_ON, "null")) or dict(os.environ)
_network = Network()
# Examples are counted, not timed: on a loaded machine each takes as long as it takes. They are the same in
# every run, which tells whether a change broke something; --hypothesis-profile=search looks for new ones.
_EVERY = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("search", **_EVERY)
hypothesis.settings.register_profile("inglenook", derandomize=True, **_EVERY)
hypothesis.settings.load_profile("inglenook")
_numbers = itertools.count()
_home: tempfile.TemporaryDirectory[str]
_watched_at: float | None = None
"""When the watchdog for tests that hang was last set."""
_kept: Path | None = None
"""Where the process that shares the tests out, or the only one, keeps compiled kernels for later runs."""


def pytest_configure(config: pytest.Config) -> None:
    """Before any import of the program: a temporary home, and one kernel cache for the whole run."""
    global _home, _kept
    caches = platformdirs.user_cache_path("inglenook-tests", appauthor=False)
    os.environ[_HANDED_ON] = json.dumps(_REAL_ENVIRON)
    _home = tempfile.TemporaryDirectory(prefix="inglenook-tests-", ignore_cleanup_errors=True)
    home = Path(_home.name)
    for name in (
        "HOME",
        "USERPROFILE",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
    ):
        os.environ[name] = str(home / name.lower())
        (home / name.lower()).mkdir()
    # this process, those that run the tests and those that tests start read the bytecode that an earlier one
    # has written, assertions included: compiling everything anew takes each of them half a minute
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if "INGLENOOK_CACHE" not in os.environ:
        os.environ["INGLENOOK_CACHE"] = str(home / "kernels")
        _kept = caches / "kernels" / kernels_name(ROOT)
        with suppress(OSError):  # where nothing can be kept, everything is compiled
            take_kernels(_kept, home / "kernels")
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["LC_ALL"], os.environ["LANGUAGE"] = "C.UTF-8", "en"  # the program speaks the system's language
    # NumPy and PyTorch compute on one thread: their matrices are small here, and threads that wait for each
    # other do so at work, on the cores where other processes run tests
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for wait in (
        QtBot.waitUntil,
        QtBot.waitSignal,
        QtBot.waitSignals,
        QtBot.waitActive,
        QtBot.waitExposed,
        QtBot.waitCallback,
    ):
        wait.__kwdefaults__["timeout"] = WAIT_MS  # type: ignore[index]
    if hasattr(catching_logs, "attached_loggers"):
        catching_logs.__enter__ = _catch_at_the_root  # type: ignore[method-assign]
    gc.disable()  # `search_garbage_here` takes its place
    watch_threads()
    _network.install()


def _catch_at_the_root(logs: Any) -> Any:
    """Catch what is logged, except by loggers that hand nothing on, as fifty of PyTorch's: pytest would look
    for these among all loggers six times in each test, and add its handlers to each.
    """
    root = logging.getLogger()
    if logs.level is not None:
        logs.handler.setLevel(logs.level)
        logs.orig_level = root.level
        root.setLevel(min(root.level, logs.level))
    root.addHandler(logs.handler)
    logs.attached_loggers.append(root)
    return logs.handler


def pytest_unconfigure(config: pytest.Config) -> None:
    """Keep the compiled kernels, and remove the temporary home."""
    faulthandler.cancel_dump_traceback_later()
    if _kept is not None:
        with suppress(OSError):
            keep_kernels(Path(_home.name) / "kernels", _kept)
    _home.cleanup()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have a test that hangs in machine code, which `timeout` cannot end, show all stacks after four minutes.

    pytest's own setting for this waits for the end of a thread after each test, which takes long on a busy
    machine.
    """
    global _watched_at
    now = time.monotonic()
    if _watched_at is None or now - _watched_at > 20:
        _watched_at = now
        faulthandler.dump_traceback_later(240, file=item.config.stash[fault_handler_stderr_fd_key])


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """The second process of a whole run meets the first in the middle of the tests' modules, and the third
    goes from there to the first.
    """
    worker = getattr(session.config, "workerinput", {"workerid": ""})["workerid"]
    share = {"gw1": 1.0, "gw2": 0.5}.get(worker)
    if share and session.config.args == session.config.getini("testpaths"):
        import_backwards(ROOT, "tests", share)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases after the first few are slow where the test says so. GPU tests need a GPU; all others run
    everywhere.
    """
    cases: collections.Counter[str] = collections.Counter()
    for item in items:
        if mark := item.get_closest_marker("slow_after"):
            name = item.nodeid.partition("[")[0]
            cases[name] += 1
            if cases[name] > mark.args[0]:
                item.add_marker(pytest.mark.slow)
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    from engine.backends.cuda.runtime.driver import find_gpus

    reason = find_gpus().reason
    if reason:
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Leave what the modules hold out of every later search for garbage: a whole one would take a second.

    To count these objects Python goes through all of them, which takes a tenth of a run: `few_collections`
    asks whether there are any whenever a model is loaded. Nothing thaws them.
    """
    gc.freeze()
    frozen = gc.get_freeze_count()
    gc.get_freeze_count = lambda: frozen


@pytest.fixture
def _kept_environ() -> Iterator[None]:
    with environ_kept():
        yield


@pytest.fixture(autouse=True)
def _guards(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    _kept_environ: None,  # before `monkeypatch`: it looks after that has undone its changes
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """A separate data folder for each test; no network; nothing left over."""
    # `mktemp` would look through all those before
    data = tmp_path_factory.getbasetemp() / "data" / str(next(_numbers))
    monkeypatch.setenv("INGLENOOK_DATA", str(data))
    allowed = "loopback" if request.node.get_closest_marker("loopback") else "none"
    _network.refused.clear()
    with nothing_left_over(), _network.allowing(allowed):
        yield
    search_garbage_here()
    if _network.refused:
        pytest.fail("\n".join(_network.refused), pytrace=False)


@pytest.fixture
def allow_network() -> Iterator[None]:
    """Let this test use the network, with the user's settings for proxies and package indexes."""
    with _network.allowing("all"), users_environ():
        yield


@pytest.fixture(scope="session")
def starter_path() -> Path:
    """The file of the starter model: `INGLENOOK_STARTER`, or downloaded once into the user's cache. Its hash
    is checked.
    """
    given = _REAL_ENVIRON.get("INGLENOOK_STARTER")
    if given:
        expected = json.loads((ROOT / "resources" / "starter.json").read_text("utf-8"))["sha256"]
        with open(given, "rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == expected, (
                "INGLENOOK_STARTER is not the starter model"
            )
        return Path(given)
    from engine.core import Downloaded
    from engine.hub import fetch_starter

    with _fetching() as cache:
        last = list(fetch_starter(cache))[-1]
    assert isinstance(last, Downloaded)
    return Path(last.path)


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """The file of Gemma 3 270M: `INGLENOOK_GEMMA`, or downloaded once into the user's cache. Its hash is
    checked.
    """
    from tests.gemma import fetch_gemma, manifest, sha256

    given = _REAL_ENVIRON.get("INGLENOOK_GEMMA")
    if given:
        assert sha256(Path(given)) == manifest()["sha256"], "INGLENOOK_GEMMA is not that model"
        return Path(given)
    with _fetching() as cache:
        return fetch_gemma(cache)


@contextmanager
def _fetching() -> Iterator[Path]:
    """The user's cache of test models, with the network, for one process at a time."""
    with users_environ():
        cache = platformdirs.user_cache_path("inglenook-tests", appauthor=False)
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / "fetch.lock"), _network.allowing("all"):
            yield cache


@contextmanager
def users_environ() -> Iterator[None]:
    """The environment variables that locate the user's settings and caches, as before this run."""
    with mock.patch.dict(os.environ):
        for name in ("HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
            os.environ.pop(name, None)
            if name in _REAL_ENVIRON:
                os.environ[name] = _REAL_ENVIRON[name]
        yield
