"""The first lines of the packaged programs: `inglenook-engine` by that name, otherwise `inglenook`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from engine.platform.python_process import run_asked_module


def _restore_library_path() -> None:
    """Let programs that are started from here find the system's libraries, not those of this folder."""
    for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"):
        before = os.environ.pop(f"{name}_ORIG", None)
        if before is not None:
            os.environ[name] = before
        else:
            os.environ.pop(name, None)


if __name__ == "__main__":
    _restore_library_path()
    run_asked_module()
    if Path(sys.argv[0]).stem == "inglenook-engine":
        from engine.__main__ import main
    else:
        from desktop.__main__ import main
    sys.exit(main())
