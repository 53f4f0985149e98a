"""`mcp.json`: the servers of tools, in one small file for this user only, replaced as a whole."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from desktop.services.tools.server_json import parse_server, server_values
from desktop.services.tools.servers import ServerConfig
from desktop.store.database.data_folder import set_aside
from desktop.store.database.database import StoreError
from engine.errors import BadSetting
from engine.platform.regular_file import regular_file
from engine.platform.whole_file import write_whole
from engine.words import _

__all__ = ["FILE_NAME", "ConfigFile"]

log = logging.getLogger(__name__)

FILE_NAME = "mcp.json"


class ConfigFile:
    """The servers in a file. `notices` holds a sentence for what could not be read.

    Servers that cannot be used stay in the file as they are, as do keys that this program does not know.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notices: tuple[str, ...] = ()
        self._data: dict[str, Any] = {}
        self._unread: dict[str, Any] = {}
        self._servers: dict[str, dict[str, Any]] = {}
        self._in_the_way = False

    def read(self) -> tuple[ServerConfig, ...]:
        """The servers in the order of the file; none if there is no file or it cannot be read."""
        self.notices = ()
        self._data = self._read()
        named = self._data.get("mcpServers")
        self._servers, self._unread = {}, {}
        found: list[ServerConfig] = []
        for name, values in named.items() if isinstance(named, dict) else ():
            try:
                config = parse_server(name, values)
                if config.name in self._servers:
                    raise BadSetting(_("Two tool servers are called “{name}”.", name=config.name))
            except BadSetting as error:
                self._unread[name] = values
                self.notices += (str(error),)
                continue
            found.append(config)
            self._servers[config.name] = values
        return tuple(found)

    def write(self, servers: Iterable[ServerConfig]) -> None:
        """Replace the file, which only this user may read. Raises `StoreError`, and changes nothing then."""
        values = {
            config.name: server_values(config, self._servers.get(config.name, {})) for config in servers
        }
        data = {**self._data, "mcpServers": {**self._unread, **values}}
        try:
            if self._in_the_way:  # What could not be read is not overwritten.
                set_aside(self.path)
                self._in_the_way = False
            write_whole(self.path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        except (OSError, UnicodeEncodeError) as error:
            raise StoreError(
                _(
                    "The list of tool servers cannot be saved in {path} ({problem}). Check free space and "
                    "permissions.",
                    path=self.path,
                    problem=(isinstance(error, OSError) and error.strerror) or error,
                )
            ) from error
        self._data, self._servers = data, values

    def rename(self, old: str, new: str) -> None:
        """Let the server called `new` have the unknown keys of `old` when it is written."""
        if old in self._servers:
            self._servers[new] = self._servers.pop(old)

    def _read(self) -> dict[str, Any]:
        try:
            regular_file(self.path)
            data = json.loads(self.path.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            return self._set_aside(error.strerror or str(error))
        except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or nested without an end
            return self._set_aside(str(error))
        named = data.get("mcpServers", {}) if isinstance(data, dict) else None
        return data if isinstance(named, dict) else self._set_aside(_("no object “mcpServers”"))

    def _set_aside(self, problem: str) -> dict[str, Any]:
        try:
            kept = set_aside(self.path)
        except OSError as error:
            log.warning("%s stays where it is: %s", FILE_NAME, error.strerror)
            kept, self._in_the_way = self.path, True
        self.notices = (
            _(
                "The list of tool servers cannot be read ({problem}). It is kept as {target}, and the list "
                "is empty now.",
                problem=problem,
                target=kept.name,
            ),
        )
        return {}
