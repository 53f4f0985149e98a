"""Another Python process for work that would keep this one's interpreter lock, and so cost the window its
frames.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

__all__ = ["HelperEnded", "HelperProcess"]

log = logging.getLogger(__name__)

_BOOT = "import json, sys; sys.path[:] = json.loads(sys.stdin.readline()); from {} import main; main()"
"""What it runs (`python -c`); the first line it reads is the list of folders to import from."""


class HelperEnded(Exception):
    """The process ended at this question, or answered something else than JSON; or it was stopped, or
    closed for good.
    """


class HelperProcess:
    """`main()` of `module` in a process of its own, which answers each line of its input, a question in JSON,
    with a line of JSON.

    One thread starts and asks it at a time; any may stop it.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._child: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._alone = bool(getattr(sys, "frozen", False)) or not sys.executable
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether there is one now."""
        return self._child is not None

    def start(self) -> bool:
        """Have one run; False where no process can be started: then its work is to be done in this one.

        Raises `HelperEnded`.
        """
        with self._lock:
            if self._closed:
                raise HelperEnded("it was closed")
            if self._child is None and not self._alone:
                import subprocess  # not for the window's start

                try:
                    self._child = subprocess.Popen(
                        [sys.executable, "-I", "-c", _BOOT.format(self._module)], stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
                        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                    )  # fmt: skip
                    assert self._child.stdin is not None
                    self._child.stdin.write(json.dumps(sys.path) + "\n")
                except OSError as error:
                    log.warning("no process for %s: %s", self._module, error)
                    self._alone = True
            return self._child is not None

    def ask(self, question: Any) -> Any:
        """Its answer. Raises `HelperEnded`; the next `start` begins with a new one."""
        child = self._child
        try:
            if child is None or child.stdin is None or child.stdout is None:
                raise ValueError("it does not run")
            child.stdin.write(json.dumps(question) + "\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())
        except (OSError, ValueError) as error:
            self.stop()
            raise HelperEnded(str(error)) from error

    def close(self) -> None:
        """End it at once, for good."""
        self._closed = True
        self.stop()

    def stop(self) -> None:
        """End it at once, also while it works."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
