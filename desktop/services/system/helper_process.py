"""Another Python process for work that would hold this one's interpreter lock and cost the window frames."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

__all__ = ["HelperEnded", "HelperProcess"]

log = logging.getLogger(__name__)


class HelperEnded(Exception):
    """The process ended at this question or answered with something other than JSON, or it was stopped or
    closed.
    """


class HelperProcess:
    """Runs `main()` of `module` in another process that answers each line of JSON with a line of JSON.

    One thread at a time starts it and asks; any thread may stop it.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._child: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._alone = False
        self._closed = False

    def start(self) -> bool:
        """Start it if necessary; False if processes cannot be started, and the work has to be done in this
        one.

        Raises `HelperEnded`.
        """
        with self._lock:
            if self._closed:
                raise HelperEnded("it was closed")
            if self._child is None and not self._alone:
                # not needed to start the window
                import subprocess

                from engine.platform.python_process import NO_WINDOW, python_command

                try:
                    self._child = subprocess.Popen(
                        python_command(self._module), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL, text=True, encoding="utf-8", creationflags=NO_WINDOW,
                    )  # fmt: skip
                except OSError as error:
                    log.warning("cannot start a process for %s: %s", self._module, error)
                    self._alone = True
            return self._child is not None

    def ask(self, question: Any) -> Any:
        """Its answer. Raises `HelperEnded`; the next `start` then begins a new process."""
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
        """End it at once, permanently."""
        self._closed = True
        self.stop()

    def stop(self) -> None:
        """End it at once, even while it works."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
