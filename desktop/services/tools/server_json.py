"""Servers of tools as JSON, in the form that most programs share: `{"mcpServers": {NAME: {...}}}`.

The form is that of Claude Desktop, Cursor and LM Studio: `command`, `args`, `env`, `cwd`, or `url`, `headers`
and `type`. VS Code names the outer object `servers`, or `mcp.servers` in its settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from desktop.services.tools.servers import PERMISSIONS, ServerConfig
from engine.errors import BadSetting
from engine.words import _

__all__ = ["KEYS", "parse_server", "parse_servers", "server_values"]

KEYS = ("command", "args", "env", "cwd", "url", "headers", "type", "disabled", "permissions", "signIn")
"""What this program writes; other keys of a server are kept as they are."""
_ADDRESSES = ("url", "serverUrl", "httpUrl")
"""The names that programs give to the address; only the first is written."""


def parse_servers(text: str) -> tuple[ServerConfig, ...]:
    """The servers in a text that the user pasted: any of the forms above, or one bare server.

    All of them ask before a tool runs: permissions are the user's to give. Raises `BadSetting`.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSetting(
            _("This is not valid JSON ({problem}). Paste the whole text, braces included.", problem=error)
        ) from error
    found = [parse_server(name, values, trusted=False) for name, values in _named(data).items()]
    if not found:
        raise BadSetting(
            _("No server was found. An object with “mcpServers”, or with “command” or “url”, was expected.")
        )
    return tuple(found)


def _named(data: object) -> Mapping[str, Any]:
    """The servers by name, in whichever form they are."""
    if not isinstance(data, dict):
        return {}
    for outer in (data, data.get("mcp")):
        for key in ("mcpServers", "servers"):
            if isinstance(outer, dict) and isinstance(outer.get(key), dict):
                return dict(outer[key])
    if _is_server(data):
        return {_name_of(data): data}
    # Many pages show only the inside of the outer object.
    return data if all(isinstance(its, dict) and _is_server(its) for its in data.values()) else {}


def _is_server(values: Mapping[str, Any]) -> bool:
    return any(isinstance(values.get(key), str) for key in ("command", *_ADDRESSES))


def _name_of(values: Mapping[str, Any]) -> str:
    """A name for a server that has none: what it says, its host, or its program."""
    name = values.get("name")
    if isinstance(name, str) and name.strip():
        return name
    if isinstance(values.get("command"), str):
        return PurePath(values["command"].replace("\\", "/")).stem or "server"
    try:
        return urlsplit(next(str(values[key]) for key in _ADDRESSES if key in values)).hostname or "server"
    except ValueError:
        return "server"


def parse_server(name: str, values: object, trusted: bool = True) -> ServerConfig:
    """One server from its JSON object; permissions are read only if it is `trusted`. Raises `BadSetting`."""
    if not name.strip():
        raise BadSetting(_("A server has no name. Give it one."))
    if not isinstance(values, dict):
        raise BadSetting(_("The server “{name}” is not a JSON object.", name=name))
    command = _text(name, values, "command")
    url = next((_text(name, values, key) for key in _ADDRESSES if values.get(key)), "")
    if bool(command) == bool(url):
        raise BadSetting(_("The server “{name}” needs either “command” or “url”.", name=name))
    if url and not url.startswith(("http://", "https://", "${")):
        raise BadSetting(
            _("The address of the server “{name}” must begin with http:// or https://.", name=name)
        )
    kind = _text(name, values, "type") or _text(name, values, "transport")
    return ServerConfig(
        name.strip(),
        command,
        _texts(name, values, "args"),
        _pairs(name, values, "env"),
        _text(name, values, "cwd"),
        url,
        _pairs(name, values, "headers"),
        "sse" if url and kind.lower() == "sse" else "",
        values.get("disabled") is not True,
        tuple(pair for pair in _pairs(name, values, "permissions") if pair[1] in PERMISSIONS)
        if trusted
        else (),
        bool(url) and values.get("signIn") is True,
    )


def _text(name: str, values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadSetting(_("“{key}” of the server “{name}” must be a text.", key=key, name=name))
    return value.strip()


def _texts(name: str, values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = values.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadSetting(_("“{key}” of the server “{name}” must be a list of texts.", key=key, name=name))
    return tuple(value)


def _pairs(name: str, values: Mapping[str, Any], key: str) -> tuple[tuple[str, str], ...]:
    """Pairs of texts; numbers and truth values, which many write in `env`, become texts."""
    value = values.get(key)
    if value is None:
        return ()
    if not isinstance(value, dict) or not all(isinstance(its, str | int | float) for its in value.values()):
        raise BadSetting(_("“{key}” of the server “{name}” must be an object of texts.", key=key, name=name))
    return tuple((each, its if isinstance(its, str) else json.dumps(its)) for each, its in value.items())


def server_values(config: ServerConfig, before: Mapping[str, Any] = {}) -> dict[str, Any]:
    """One server as its JSON object, with the keys of `before` that this program does not know."""
    kept = {key: its for key, its in before.items() if key not in (*KEYS, *_ADDRESSES, "transport")}
    kind = before.get("type")
    if config.transport:
        kind = config.transport
    elif not isinstance(kind, str) or (kind == "stdio") == bool(config.url) or kind.lower() == "sse":
        kind = None
    own: dict[str, Any] = {
        "type": kind,
        "command": config.command,
        "args": list(config.arguments),
        "env": dict(config.environment),
        "cwd": config.folder,
        "url": config.url,
        "headers": dict(config.headers),
        "disabled": not config.enabled,
        "permissions": dict(config.permissions),
        "signIn": config.signs_in,
    }
    return {**{key: its for key, its in own.items() if its}, **kept}
