"""Other processes that run a module of this program.

They do what has to be killed or limited, or would hold this process's interpreter lock. A frozen program has
no Python to start: it starts itself, and its first lines call `run_asked_module`.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

__all__ = ["NO_WINDOW", "python_command", "run_asked_module"]

NO_WINDOW: int = getattr(subprocess, "CREATE_NO_WINDOW", 0)
"""The `creationflags` without which Windows opens a console for each process."""
_RUN_MODULE = "--run-module"
_BOOT = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); del sys.argv[:2]; "
    "sys.exit(importlib.import_module(sys.argv[0]).main())"
)


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs `main()` of `module`, which finds the arguments in `sys.argv[1:]`.

    What `main` returns is the exit code. Raises OSError if this program cannot be started again, as inside
    another program.
    """
    if not sys.executable:
        raise OSError("this interpreter has no executable file")
    if getattr(sys, "frozen", False):
        return [_console_program(), _RUN_MODULE, module, *arguments]
    return [sys.executable, "-I", "-c", _BOOT, json.dumps(sys.path), module, *arguments]


def _console_program() -> str:
    """This frozen program; on Windows the one beside it that has standard streams, which a window's has not.

    https://pyinstaller.org/en/stable/common-issues-and-pitfalls.html
    """
    if sys.platform == "win32":
        return str(Path(sys.executable).with_name("inglenook-engine.exe"))
    return sys.executable


def run_asked_module() -> None:
    """Run the module that `python_command` of a frozen program named, and exit; otherwise do nothing."""
    if sys.argv[1:2] == [_RUN_MODULE] and len(sys.argv) > 2:
        del sys.argv[:2]
        sys.exit(importlib.import_module(sys.argv[0]).main())
