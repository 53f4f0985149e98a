"""Real servers of tools: their tools, results, ends and failures."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil
import pytest

from desktop.services.tools.servers import ServerConfig
from desktop.services.tools.tool_service import ToolService
from engine.errors import BadSetting
from tests.desktop.services.tools.conftest import Tools

pytestmark = pytest.mark.gui


def test_tools_are_listed_offered_and_called(usual: Tools) -> None:
    state = usual.state("usual")
    add = next(tool for tool in state.tools if tool.tool == "add")
    assert (add.title, add.description, add.read_only) == ("Add numbers", "Add two numbers.", True)
    assert json.loads(add.parameters)["required"] == ["a", "b"]
    names = {offered.tool: tool.name for tool, offered in usual.service.offered()}
    assert names["add"] == "add"
    assert names["name.with dots"] == "name_with_dots"
    assert usual.result("usual", "add", '{"a": 2, "b": 3}') == ("5", False)
    assert usual.result("usual", "name.with dots", "") == ("dotted", False)


def test_results_are_text_for_the_model(usual: Tools) -> None:
    text, failed = usual.result("usual", "mixed")
    assert not failed
    assert text.split("\n\n") == [
        "first",
        "[The tool returned a picture (image/png), which cannot be shown to you.]",
        "[The tool returned a sound (audio/wav), which cannot be shown to you.]",
        "inside",
        "[The tool returned a file (file:///a.bin, a/b), which cannot be shown to you.]",
        "[A link to page (http://here/page)]",
    ]
    text, failed = usual.result("usual", "much")
    assert text.startswith("x" * 100_000)
    assert text.endswith("[The result was too long: 50000 more characters were left out.]")
    text, failed = usual.result("usual", "breaks")
    assert failed
    assert "the disk is full" in text


@pytest.mark.parametrize("arguments", ["{", "[1]", '"a"', "5", "[" * 100_000])
def test_arguments_that_are_no_object_are_an_error_for_the_model(usual: Tools, arguments: str) -> None:
    text, failed = usual.result("usual", "add", arguments)
    assert failed
    assert "Call the tool again" in text
    assert usual.result("usual", "add", '{"a": "x"}')[1]  # the server's own error


def test_tools_that_are_added_later_are_followed(tools: Tools) -> None:
    tools.begin("usual")
    assert tools.result("usual", "grow") == ("grown", False)
    tools.wait(lambda: any(tool.tool == "more" for tool in tools.state("usual").tools))
    assert tools.result("usual", "more") == ("more", False)


def test_all_pages_are_read_once(tools: Tools) -> None:
    state = tools.begin("pages")
    assert [tool.tool for tool in state.tools] == [f"tool {n}" for n in range(300)]


def test_names_of_several_servers_are_unique_and_permissions_are_kept(tools: Tools) -> None:
    tools.begin("usual")
    tools.begin("usual", name="second one")
    offered = tools.service.offered()
    names = [tool.name for tool, _ in offered]
    assert len(set(names)) == len(names)
    assert {"usual_add", "second_one_add"} <= set(names)
    assert {each.server for _, each in tools.service.offered(off=["usual"])} == {"second one"}
    tools.service.set_permission("usual", "add", "never")
    tools.service.set_permission("usual", "much", "always")
    assert len(tools.service.offered()) == len(offered) - 1
    assert tools.service.permission("usual", "much") == "always"
    assert tools.service.permission("usual", "other") == "ask"
    again = ToolService(tools.folder)
    assert again.permission("usual", "add") == "never"
    with pytest.raises(ValueError):
        tools.service.set_permission("usual", "add", "perhaps")
    assert tools.state("usual").status == "ready"


def test_rubbish_between_messages_is_logged_and_ignored(tools: Tools) -> None:
    tools.begin("rubbish")
    assert tools.result("rubbish", "add", '{"a": 1, "b": 1}') == ("2", False)
    tools.wait(lambda: "not a message of the protocol" in tools.state("rubbish").log)


def test_a_cancelled_call_is_stopped_at_the_server_and_says_nothing(usual: Tools, tmp_path: Path) -> None:
    place = tmp_path / "place"
    number = usual.service.call("usual", "slow", json.dumps({"place": str(place)}))
    usual.wait(place.exists)
    usual.service.cancel(number)
    usual.wait(lambda: place.read_text() == "cancelled")
    assert usual.result("usual", "add", '{"a": 1, "b": 1}') == ("2", False)
    assert number not in usual.results


def test_a_server_that_dies_fails_its_calls_and_can_be_restarted(tools: Tools) -> None:
    tools.begin("usual")
    text, failed = tools.result("usual", "dies")
    assert failed
    assert "ended before the call had a result" in text
    state = tools.until("usual", "failed")
    assert "not UTF-8: ��" in state.log
    assert "I am out of memory ÿ" in state.log
    assert "not UTF-8" in state.sentence
    assert tools.service.offered() == ()
    assert tools.result("usual", "add")[1]
    tools.service.restart("usual")
    tools.until("usual")
    assert tools.result("usual", "add", '{"a": 1, "b": 1}') == ("2", False)


def test_a_server_that_cannot_start_says_why(tools: Tools) -> None:
    tools.service.add(tools.stdio("crash"))
    assert "no such database" in tools.until("crash", "failed").sentence
    tools.service.add(ServerConfig("npx", "npx-not-there"))
    assert "was not found" in tools.until("npx", "failed").sentence
    tools.service.add(ServerConfig("folder", "python3", folder="/not/there"))
    assert "does not exist" in tools.until("folder", "failed").sentence
    tools.service.add(ServerConfig("unset", "python3", ("${NOT_SET_ANYWHERE}",)))
    assert "NOT_SET_ANYWHERE is not set" in tools.until("unset", "failed").sentence


def test_a_start_has_a_time_limit(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    from desktop.services.tools import connection

    monkeypatch.setattr(connection, "START_S", 1.0)
    tools.service.add(tools.stdio("hang"))
    assert "within 1 seconds" in tools.until("hang", "failed").sentence


def test_a_call_has_a_time_limit(usual: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from desktop.services.tools import connection

    monkeypatch.setattr(connection, "CALL_S", 0.5)
    place = tmp_path / "place"
    text, failed = usual.result("usual", "slow", json.dumps({"place": str(place)}))
    assert failed
    assert "reported nothing" in text
    usual.wait(lambda: place.read_text() == "cancelled")


@pytest.mark.slow
def test_a_call_that_tells_how_far_it_is_may_take_longer_than_the_limit(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    from desktop.services.tools import connection

    tools.begin("usual")
    monkeypatch.setattr(connection, "CALL_S", 2.0)
    assert tools.result("usual", "steps", '{"count": 9}') == ("finished", False)
    tools.wait(lambda: "info: done\n" in tools.state("usual").log)
    assert 'warning: {"Schritte für": 9}\n' in tools.state("usual").log


def test_a_server_that_ignores_everything_ends_with_its_child(tools: Tools, tmp_path: Path) -> None:
    place = tmp_path / "pids"
    tools.begin("stubborn", str(place))
    pids = [int(each) for each in place.read_text().split()]
    began = time.monotonic()
    assert tools.service.close()
    assert time.monotonic() - began < 3.0  # `close` gives up then
    for pid in pids:
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_start_that_hangs_does_not_hold_up_the_end(tools: Tools) -> None:
    tools.service.add(tools.stdio("hang"))
    tools.wait(lambda: bool(psutil.Process(os.getpid()).children()))
    assert tools.service.close()
    assert tools.state("hang").status == "starting"


def test_a_server_that_is_stopped_while_its_process_starts_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was just being made was left with its pipes."""
    from desktop.services.tools import transports
    from desktop.services.tools.connection import Connection

    done = list[str]()

    async def stopped() -> None:
        connection = Connection(ServerConfig("a", sys.executable), 1, lambda report: None)

        @contextlib.asynccontextmanager
        async def client(*_unused: object) -> AsyncIterator[tuple[object, object]]:
            connection.stop()
            await anyio.sleep(0.01)
            done.append("started")
            try:
                yield anyio.create_memory_object_stream[object](0)
            finally:
                done.append("ended")

        monkeypatch.setattr(transports.stdio, "stdio_client", client)
        await connection.run()

    anyio.run(stopped)
    assert done == ["started", "ended"]


def test_stopping_removing_and_renaming(tools: Tools, tmp_path: Path) -> None:
    tools.begin("usual")
    place = tmp_path / "place"
    number = tools.service.call("usual", "slow", json.dumps({"place": str(place)}))
    tools.wait(place.exists)
    tools.service.set_enabled("usual", False)
    assert tools.state("usual").status == "off"
    tools.wait(lambda: number in tools.results)
    assert tools.results[number][1]
    assert ToolService(tools.folder).servers()[0].config.enabled is False
    tools.service.set_enabled("usual", True)
    tools.until("usual")
    tools.service.change("usual", tools.stdio("usual", name="new"))
    tools.until("new")
    assert [state.config.name for state in tools.service.servers()] == ["new"]
    assert tools.result("new", "name.with dots") == ("dotted", False)
    tools.begin("pages")
    with pytest.raises(BadSetting, match="already"):
        tools.service.change("pages", tools.stdio("pages", name="new"))
    tools.service.remove("new")
    assert [state.config.name for state in tools.service.servers()] == ["pages"]
    assert tools.result("new", "add")[1]


def test_secrets_reach_the_server_and_nothing_else(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OF_THE_USER", "from outside")
    monkeypatch.setenv("OTHER_TOKEN", "not for servers")
    config = tools.stdio("usual")
    config = ServerConfig(
        "usual", config.command, config.arguments, (("OWN", "hush"), ("COPY", "${env:OF_THE_USER}"))
    )
    tools.service.add(config)
    tools.until("usual")
    for name, value in (("OWN", "hush"), ("COPY", "from outside"), ("OTHER_TOKEN", "not set")):
        assert tools.result("usual", "environment", json.dumps({"name": name})) == (value, False)
    assert "hush" not in caplog.text
    assert "from outside" not in caplog.text


def test_nothing_starts_before_it_is_asked_for(qtbot: object, tmp_path: Path) -> None:
    from desktop.services.tools.config_file import ConfigFile

    ConfigFile(tmp_path / "mcp.json").write([ServerConfig("a", "x")])
    service = ToolService(tmp_path)
    assert [state.status for state in service.servers()] == ["off"]
    assert service.offered() == ()
    assert service.close()
