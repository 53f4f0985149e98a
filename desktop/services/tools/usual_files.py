"""Where other programs keep their lists of tool servers, which have the same form as ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["usual_files"]


def usual_files(
    home: Path | None = None, platform: str = sys.platform, environment: Mapping[str, str] | None = None
) -> tuple[tuple[str, Path], ...]:
    """The name of each program whose file is at its usual place, and that place. Nothing is read.

    The places are those that the programs document:
    https://modelcontextprotocol.io/docs/develop/connect-local-servers (Claude Desktop),
    https://cursor.com/docs/context/mcp, https://lmstudio.ai/docs/app/mcp,
    https://code.visualstudio.com/docs/copilot/customization/mcp-servers.
    """
    home = Path.home() if home is None else home
    known = os.environ if environment is None else environment
    if platform == "darwin":
        settings = home / "Library" / "Application Support"
    elif platform == "win32":
        settings = Path(known.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        settings = Path(known.get("XDG_CONFIG_HOME") or home / ".config")
    places = (
        ("Claude Desktop", settings / "Claude" / "claude_desktop_config.json"),
        ("Cursor", home / ".cursor" / "mcp.json"),
        ("LM Studio", home / ".lmstudio" / "mcp.json"),
        ("VS Code", settings / "Code" / "User" / "mcp.json"),
    )
    return tuple((program, path) for program, path in places if _is_file(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder that may not be looked into
        return False
