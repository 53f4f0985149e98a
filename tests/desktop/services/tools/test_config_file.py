"""`mcp.json` and pasted JSON: every form is read, nothing is lost, secrets are for the user only."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.tools import config_file
from desktop.services.tools.config_file import FILE_NAME, ConfigFile
from desktop.services.tools.server_json import parse_servers
from desktop.services.tools.servers import ServerConfig
from desktop.services.tools.tool_service import ToolService
from desktop.store.database.data_folder import set_aside
from desktop.store.database.database import StoreError
from engine.errors import BadSetting

FULL = ServerConfig(
    "all",
    "npx",
    ("-y", "pack"),
    (("TOKEN", "secret"),),
    "/tmp",
    enabled=False,
    permissions=(("t", "always"),),
)
REMOTE = ServerConfig("far", url="https://example.org/sse", headers=(("A", "b"),), transport="sse")


def test_what_is_written_is_read_again_and_only_the_user_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    ConfigFile(path).write([FULL, REMOTE])
    assert ConfigFile(path).read() == (FULL, REMOTE)
    assert set(json.loads(path.read_text())) == {"mcpServers"}
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in repr(FULL)


def test_unknown_keys_and_servers_that_cannot_be_used_stay(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    before = {
        "theme": 1,
        "mcpServers": {
            "a": {"command": "x", "timeout": 5, "type": "stdio"},
            "broken": {"command": 7},
            " a ": {"command": "y"},
        },
    }
    path.write_text(json.dumps(before))
    file = ConfigFile(path)
    (found,) = file.read()
    assert len(file.notices) == 2
    file.rename("a", "b")
    file.write([ServerConfig("b", "z")])
    after = json.loads(path.read_text())
    assert after["theme"] == 1
    assert after["mcpServers"] == {
        "broken": {"command": 7},
        " a ": {"command": "y"},
        "b": {"command": "z", "type": "stdio", "timeout": 5},
    }
    assert found.command == "x"


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": []}', "\udcff", "[" * 100_000])
def test_a_file_that_cannot_be_read_is_set_aside(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(content := text.encode("utf-8", "surrogateescape"))
    file = ConfigFile(path)
    assert file.read() == ()
    assert len(file.notices) == 1
    file.write([FULL])
    (kept,) = [each for each in tmp_path.iterdir() if each != path]
    assert kept.read_bytes() == content
    assert kept.name in file.notices[0]


def test_a_file_that_could_not_be_set_aside_is_before_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{")
    file, tries = ConfigFile(path), list[Path]()

    def first_refused(path: Path) -> Path:
        tries.append(path)
        if len(tries) == 1:
            raise PermissionError(13, "Permission denied")
        return set_aside(path)

    monkeypatch.setattr(config_file, "set_aside", first_refused)
    assert file.read() == ()
    assert "kept as mcp.json" in file.notices[0]
    file.write([FULL])
    file.write([FULL, REMOTE])
    assert tries == [path] * 2
    (kept,) = [each for each in tmp_path.iterdir() if each != path]
    assert kept.read_text() == "{"
    assert ConfigFile(path).read() == (FULL, REMOTE)


def test_a_file_that_is_read_again_is_known_only_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"broken": {"command": 7}, "a": {"command": "x", "timeout": 5}}}')
    file = ConfigFile(path)
    file.read()
    assert len(file.notices) == 1
    path.write_text('{"mcpServers": {"b": {"command": "y"}}}')
    assert [each.name for each in file.read()] == ["b"]
    assert file.notices == ()
    file.write([ServerConfig("a", "x")])
    assert json.loads(path.read_text()) == {"mcpServers": {"a": {"command": "x"}}}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes among files")
@pytest.mark.timeout(20)
def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    os.mkfifo(path)
    file = ConfigFile(path)
    assert file.read() == ()
    assert "cannot be read" in file.notices[0]


def test_a_folder_in_its_place_is_a_sentence(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "not there" / "mcp.json")
    assert file.read() == ()
    with pytest.raises(StoreError, match="cannot be saved"):
        file.write([FULL])


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"fetch": {"command": "uvx", "args": ["fetch"]}}}',
        '{"servers": {"fetch": {"type": "stdio", "command": "uvx", "args": ["fetch"]}}, "inputs": []}',
        '{"mcp": {"servers": {"fetch": {"command": "uvx", "args": ["fetch"]}}}}',
        '{"fetch": {"command": "uvx", "args": ["fetch"]}}',
        '{"name": "fetch", "command": "uvx", "args": ["fetch"]}',
        '{"fetch": {"command": "uvx", "args": ["fetch"], "permissions": {"x": "always"}}}',
    ],
)
def test_the_forms_of_other_programs(text: str) -> None:
    assert parse_servers(text) == (ServerConfig("fetch", "uvx", ("fetch",)),)


def test_bare_servers_get_names() -> None:
    assert parse_servers('{"command": "C:\\\\bin\\\\thing.exe"}')[0].name == "thing"
    assert parse_servers('{"url": "https://mcp.example.org/mcp"}')[0].name == "mcp.example.org"
    assert parse_servers('{"url": "https://[mcp/"}')[0].name == "server"
    assert parse_servers('{"url": "https://"}')[0].name == "server"
    assert parse_servers('{"a": {"serverUrl": "http://x", "type": "SSE"}}')[0].transport == "sse"
    assert parse_servers('{"a": {"serverUrl": "http://x", "type": "http"}}')[0].transport == ""
    assert parse_servers('{"a": {"command": "x", "type": "sse"}}')[0].transport == ""
    assert parse_servers('{"a": {"command": "x", "env": {"N": 5}}}')[0].environment == (("N", "5"),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "No server was found"),
        ("{}", "No server was found"),
        ('{"mcpServers": {}}', "No server was found"),
        ('{"mcpServers": {"a": {}}}', "either “command” or “url”"),
        ('{"mcpServers": {"a": {"command": "x", "url": "http://y"}}}', "either “command” or “url”"),
        ('{"mcpServers": {"a": 5}}', "not a JSON object"),
        ('{"mcpServers": {" ": {"command": "x"}}}', "no name"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "“args”"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"N": []}}}}', "“env”"),
        ('{"mcpServers": {"a": {"command": ["x"]}}}', "“command”"),
        ('{"mcpServers": {"a": {"url": "file:///x"}}}', "http://"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(text: str, words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        parse_servers(text)


@pytest.mark.parametrize(
    ("url", "local"),
    [("", True), ("http://localhost:1/", True), ("http://[::1]/", True), ("https://example.org", False),
     ("http://[bad", False), ("${URL}", False)],
)  # fmt: skip
def test_which_servers_are_of_this_computer(url: str, local: bool) -> None:
    assert ServerConfig("a", url=url).is_local is local


def test_the_file_follows_the_data_to_another_folder(qtbot: QtBot, tmp_path: Path) -> None:
    service = ToolService(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    service.save_in(other)
    assert not (other / FILE_NAME).exists(), "without servers there is no file"
    service.add(ServerConfig("a", "x", enabled=False))
    (tmp_path / FILE_NAME).unlink(missing_ok=True)
    service.save_in(tmp_path)
    service.remove("a")
    assert '"a"' not in (tmp_path / FILE_NAME).read_text("utf-8")
    assert '"a"' in (other / FILE_NAME).read_text("utf-8")
    assert service.close()


def test_that_the_user_has_signed_in_is_kept(tmp_path: Path) -> None:
    config = ServerConfig("far", url="https://example.org/mcp", signs_in=True)
    ConfigFile(tmp_path / "mcp.json").write([config])
    assert ConfigFile(tmp_path / "mcp.json").read() == (config,)
    file = ConfigFile(tmp_path / "mcp.json")
    file.read()
    file.write([ServerConfig("far", url="https://example.org/mcp")])
    assert not file.read()[0].signs_in
