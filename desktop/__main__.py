"""The program `inglenook`: reads the arguments, looks whether a window is possible, and starts the desktop."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from desktop import preflight

__all__ = ["main"]


def version() -> str:
    """The version of the installed distribution, or of pyproject.toml when run from a clone."""
    try:
        return importlib.metadata.version("inglenook")
    except importlib.metadata.PackageNotFoundError:
        project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
        return str(project["project"]["version"])


def parser() -> argparse.ArgumentParser:
    """The arguments of `inglenook`."""
    result = argparse.ArgumentParser(
        prog="inglenook", description="Chat with language models that run on your own machine.", allow_abbrev=False
    )
    result.add_argument("--starter", action="store_true", help="download the starter model (98 MB, once) and chat with it")
    result.add_argument("--model", type=Path, metavar="PATH", help="a GGUF file or a model folder to chat with")
    result.add_argument("--data", type=Path, metavar="DIR", help="where conversations, settings and models are kept")
    result.add_argument("--debug", action="store_true", help="write everything to the log, and to the terminal")
    result.add_argument("--version", action="version", version=f"inglenook {version()}")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the desktop until its window is closed; the exit code is 1 when no window can be opened."""
    options = parser().parse_args(arguments)
    trouble = preflight.trouble() or preflight.import_trouble()
    if trouble:
        print(trouble, file=sys.stderr)
        return 1
    from desktop.app import run

    return run(model=options.model, data=options.data, starter=options.starter, debug=options.debug)


if __name__ == "__main__":
    sys.exit(main())
