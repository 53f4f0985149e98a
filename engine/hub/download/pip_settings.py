"""Reads the user's pip settings: package indexes, proxy, certificates.

Source: https://pip.pypa.io/en/stable/topics/configuration/. Global, user and site files, the file in
PIP_CONFIG_FILE, then PIP_* environment variables; later ones override earlier ones.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from engine.lazy_dataclass import dataclass

DEFAULT_INDEX = "https://pypi.org/simple"
_SECTIONS = ("global", "install", "download")
_NAMES = (
    "index-url", "extra-index-url", "find-links", "no-index", "cert", "client-cert", "proxy", "trusted-host",
    "timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PipSettings:
    """Where packages come from."""

    indexes: tuple[str, ...] = (DEFAULT_INDEX,)
    """The roots of simple indexes, in order."""
    find_links: tuple[str, ...] = ()
    """Folders, pages or files that are tried first."""
    cert: str = ""
    """A file or folder of certificates."""
    client_cert: str = ""
    proxy: str = ""
    """Overrides the proxies of the environment."""
    trusted_hosts: tuple[str, ...] = ()
    timeout: float = 15.0
    """Seconds."""


def read_pip_settings(environ: Mapping[str, str]) -> PipSettings:
    """The settings that pip would use in this environment."""
    values: dict[str, str] = {}
    for path in config_files(environ):
        values.update(_read_file(path))
    for name in _NAMES:
        # pip spells the timeout `default-timeout` in the environment
        for spelled in (name, f"default-{name}"):
            value = environ.get("PIP_" + spelled.upper().replace("-", "_"))
            if value:
                values[name] = value
    no_index = values.get("no-index", "").strip().lower() in ("1", "true", "yes", "on")
    indexes = (values.get("index-url", DEFAULT_INDEX).strip(), *values.get("extra-index-url", "").split())
    cert = (
        values.get("cert", "") or environ.get("REQUESTS_CA_BUNDLE", "") or environ.get("CURL_CA_BUNDLE", "")
    )
    return PipSettings(
        indexes=() if no_index else indexes,
        find_links=tuple(values.get("find-links", "").split()),
        cert=cert.strip(),
        client_cert=values.get("client-cert", "").strip(),
        proxy=values.get("proxy", "").strip(),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        timeout=_number(values.get("timeout", ""), 15.0),
    )


def config_files(environ: Mapping[str, str]) -> list[Path]:
    """The files that pip reads; later ones override earlier ones.

    If PIP_CONFIG_FILE is os.devnull there are none; a real file there replaces the user's.
    """
    chosen = environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return []
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    replaced = bool(chosen) and Path(chosen).is_file()
    if sys.platform == "win32":
        shared = [Path(environ.get("PROGRAMDATA", r"C:\ProgramData")) / "pip" / "pip.ini"]
        user = [home / "pip" / "pip.ini", Path(environ.get("APPDATA", str(home))) / "pip" / "pip.ini"]
        site = Path(sys.prefix) / "pip.ini"
    else:
        folders = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        shared = [Path(folder) / "pip" / "pip.conf" for folder in folders.split(os.pathsep) if folder] + [
            Path("/etc/pip.conf")
        ]
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        if sys.platform == "darwin":
            shared = [Path("/Library/Application Support/pip/pip.conf")]
            support = home / "Library" / "Application Support" / "pip"
            config = support.parent if support.is_dir() else home / ".config"
        user = [home / ".pip" / "pip.conf", config / "pip" / "pip.conf"]
        site = Path(sys.prefix) / "pip.conf"
    return shared + ([] if replaced else user) + [site] + ([Path(chosen)] if replaced else [])


def _read_file(path: Path) -> dict[str, str]:
    """The known options of a file; one that pip could not read either counts as empty."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    found: dict[str, str] = {}
    for section in _SECTIONS:
        if parser.has_section(section):
            for key, value in parser.items(section):
                found[key.lower().replace("_", "-").removeprefix("--").removeprefix("default-")] = value
    return {name: value for name, value in found.items() if name in _NAMES and value}


def _number(text: str, default: float) -> float:
    try:
        return max(1.0, float(text))
    except ValueError:
        return default
