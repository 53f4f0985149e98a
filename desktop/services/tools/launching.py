"""What is needed to start a tool server: the values of placeholders, its program, and its environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from desktop.services.tools.servers import ServerConfig
from desktop.services.tools.unusable import UnusableConfig
from engine.words import _

__all__ = ["environment_for", "filled", "find_program", "login_path"]

_PLACEHOLDER = re.compile(r"\$\{([^{}]+)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NODE = {"npx", "npm", "node", "pnpm", "yarn", "bunx"}
_PASSED = re.compile(
    r"(?i)(PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR"
    r"|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|XDG_\w+|DBUS_SESSION_BUS_ADDRESS|SSH_AUTH_SOCK|(HTTPS?|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)"
    r"|NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE|NVM_DIR|VOLTA_HOME|PNPM_HOME|DOCKER_HOST"
    # Windows:
    r"|APPDATA|LOCALAPPDATA|PROGRAMDATA|PROGRAMFILES(\(X86\))?|PROGRAMW6432|COMMONPROGRAMFILES"
    r"|HOMEDRIVE|HOMEPATH|PATHEXT|PROCESSOR_ARCHITECTURE|SYSTEMDRIVE|SYSTEMROOT|WINDIR|COMSPEC|TEMP|TMP|USERNAME|USERPROFILE)"
)
"""Variables that a server gets from the program's own environment; tokens of other programs are not among
them. A server gets those by `env` in its configuration.
"""
_SHELL_S = 5.0


def filled(config: ServerConfig, environment: Mapping[str, str] | None = None) -> ServerConfig:
    """The configuration with the values of `${NAME}`, `${NAME:-default}`, `${env:NAME}` and `${userHome}`.

    Raises `UnusableConfig` for a variable that is not set, and for placeholders of other programs.
    """
    known = os.environ if environment is None else environment

    def fill(text: str) -> str:
        return _PLACEHOLDER.sub(lambda found: _value(found[1], known), text)

    def fill_pairs(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, fill(value)) for name, value in pairs)

    return replace(
        config,
        command=fill(config.command),
        arguments=tuple(fill(each) for each in config.arguments),
        environment=fill_pairs(config.environment),
        folder=fill(config.folder),
        url=fill(config.url),
        headers=fill_pairs(config.headers),
    )


def _value(inside: str, known: Mapping[str, str]) -> str:
    name, mark, default = inside.removeprefix("env:").partition(":-")
    if inside == "userHome":
        return str(Path.home())
    if not _NAME.fullmatch(name):
        raise UnusableConfig(
            _("“${{{name}}}” has no meaning here. Write its value into the configuration.", name=inside)
        )
    if name in known:
        return known[name]
    if mark:
        return default
    raise UnusableConfig(
        _(
            "The environment variable {name} is not set. Set it, or write its value into the configuration.",
            name=name,
        )
    )


def find_program(command: str, folder: str = "", path: str | None = None) -> tuple[str, str]:
    """The program's full path, and the PATH on which it was found: that of this program, or else that of the
    user's login shell, since programs that a desktop starts often have a shorter one. `path` is for tests.

    Raises `UnusableConfig`. Takes up to 5 s where a shell has to be asked: not for the GUI thread.
    """
    command = os.path.expanduser(command)
    own = os.environ.get("PATH", os.defpath) if path is None else path
    if os.path.dirname(command):
        place = os.path.join(os.path.expanduser(folder), command) if folder else command
        found = shutil.which(place) or shutil.which(command)
        if found:
            return os.path.abspath(found), own
        raise UnusableConfig(
            _("{program} is not a program that can be run. Check the path.", program=command)
        )
    for each in (own, None):
        searched = login_path() if each is None else each
        found = shutil.which(command, path=searched)
        if found:
            return os.path.abspath(found), searched
    raise UnusableConfig(_advice(command))


def _advice(command: str) -> str:
    name = command.lower().removesuffix(".exe").removesuffix(".cmd")
    if name in _NODE:
        return _("{program} was not found. Install Node.js, or write the full path.", program=command)
    if name in ("uvx", "uv"):
        return _("{program} was not found. Install uv, or write the full path.", program=command)
    if name == "docker":
        return _("{program} was not found. Install Docker, or write the full path.", program=command)
    return _("{program} was not found. Install it, or write the full path.", program=command)


def login_path() -> str:
    """The PATH of the user's login shell; empty if there is none, or it does not answer in time."""
    shell = os.environ.get("SHELL", "")
    if sys.platform == "win32" or not os.path.isabs(shell):
        return ""
    try:
        ended = subprocess.run(
            [shell, "-l", "-c", "printf '\\n%s' \"$PATH\""],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SHELL_S,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.decode("utf-8", "replace").rpartition("\n")[2]


def environment_for(config: ServerConfig, path: str) -> dict[str, str]:
    """The whole environment of a server's process."""
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    key = next((name for name in passed if name.upper() == "PATH"), "PATH")
    return {**passed, key: path, **dict(config.environment)}
