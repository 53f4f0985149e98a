"""The servers of the user over a scripted server, without a window: what is kept, asked and told."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication

from desktop.services.providers import provider_service
from desktop.services.providers.provider_service import ProviderService
from desktop.services.providers.servers import ListedModel
from desktop.store.settings.preferences import Preferences
from engine.remote import Capabilities, Provider, model_address
from engine.settings import SamplerSettings
from tests.desktop.fakes import ECHO_INFO
from tests.desktop.remote_server import CHAT, EchoServer, no_keyring
from tests.engine.remote.fake_server import events, serving

pytestmark = pytest.mark.loopback
LAB = Provider("lab", "Lab", "http://127.0.0.1:9/v1")
MODELS = "/v1/models"


class Told:
    """A service, what it told, and the file in which it keeps the servers."""

    def __init__(self, qtbot, folder: Path) -> None:
        self.qtbot, self.path = qtbot, folder / "preferences.json"
        self.service = ProviderService(Preferences(self.path))
        self.changed: list[str] = []
        self.moved: list[str] = []
        self.service.changed.connect(self.changed.append)
        self.service.moved.connect(self.moved.append)

    def quiet(self, provider: str = "lab") -> None:
        self.qtbot.waitUntil(lambda: not self.service.activity(provider))

    def again(self) -> ProviderService:
        """Another service over what is in the file."""
        return ProviderService(Preferences(self.path))


@pytest.fixture
def told(qtbot, tmp_path: Path) -> Iterator[Told]:
    with no_keyring():
        made = Told(qtbot, tmp_path)
        yield made
        assert made.service.close()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with serving() as server:
        yield EchoServer(server)


def test_what_requests_depend_on_moves_a_server_and_its_name_does_not(told: Told) -> None:
    service = told.service
    service.save(LAB)
    assert (told.changed, told.moved) == (["lab"], [])
    service.models.set_models(service.servers[0], (ListedModel("a", 7),))
    service.models.set_capabilities(service.servers[0], "a", Capabilities(chat=True, taken=("seed",)))
    service.save(LAB)
    renamed = dataclasses.replace(LAB, name="Home", model="a")
    service.save(renamed)
    assert (told.changed, told.moved) == (["lab", "lab"], [])
    waiting = dataclasses.replace(renamed, longest_wait=5)
    service.save(waiting)
    assert told.moved == ["lab"]
    (server,) = told.again().servers
    assert (server.provider, server.models) == (waiting, (ListedModel("a", 7),))
    assert list(server.capabilities) == ["a"]
    moved = dataclasses.replace(waiting, base_url="http://127.0.0.1:10/v1")
    service.save(moved)
    (server,) = told.again().servers
    assert (server.provider, server.models, server.capabilities) == (moved, (), {})
    assert told.moved == ["lab", "lab"]


def test_a_model_probed_elsewhere_is_kept_too(told: Told) -> None:
    told.service.save(LAB)
    told.service.models.set_capabilities(told.service.servers[0], "a", Capabilities(chat=True))
    told.qtbot.waitUntil(lambda: told.changed == ["lab", "lab"])
    assert list(told.again().servers[0].capabilities) == ["a"]


def test_servers_that_cannot_be_read_stay_in_the_file(told: Told) -> None:
    unread = {"provider": {"id": "x", "name": "X", "base_url": "ftp://x"}}
    preferences = Preferences(told.path)
    preferences.save_servers([unread])
    service = ProviderService(preferences)
    assert len(preferences.notices) == 1
    service.save(LAB)
    service.remove("lab")
    assert Preferences(told.path).servers == [unread]
    assert service.close()


def test_models_are_offered_with_the_name_of_their_server(told: Told) -> None:
    told.service.save(LAB)
    told.service.models.set_models(told.service.servers[0], (ListedModel("a/b"), ListedModel("c\nd")))
    first, second = told.service.entries()
    assert (first.path, first.detail, first.source) == ("remote:lab:a%2Fb", "Lab", "Lab")
    assert (first.name, second.name) == ("a/b", "c d")


def test_settings_are_judged_by_what_is_known_of_the_model(told: Told) -> None:
    service, model = told.service, dataclasses.replace(ECHO_INFO, host="lab", path=model_address("lab", "a"))
    assert service.reason_against(None, SamplerSettings, "top_k") == ""
    assert service.reason_against(ECHO_INFO, SamplerSettings, "top_k") == ""
    assert service.reason_against(model, SamplerSettings, "top_k").startswith("The server does not")
    service.save(LAB)
    reason = service.reason_against(model, SamplerSettings, "top_k")
    assert reason == "Lab does not support this setting."
    assert service.reason_against_all(model, [reason, reason]) == "Lab supports none of these settings."
    assert service.reason_against_all(model, [reason, ""]) == ""
    service.models.set_capabilities(service.servers[0], "a", Capabilities(chat=True, taken=("top_k",)))
    assert service.reason_against(model, SamplerSettings, "top_k") == ""
    assert service.reason_against(model, SamplerSettings, "top_p") != ""


def test_a_question_to_no_server_or_about_no_model_is_not_asked(told: Told, echo: EchoServer) -> None:
    told.service.list_models("gone")
    told.service.test("gone", "echo")
    told.service.stop("gone")
    told.service.save(dataclasses.replace(LAB, base_url=echo.server.url))
    told.service.test("lab", " ")
    assert (told.changed, told.service.activity("lab"), echo.server.asked) == (["lab"], "", [])


def test_the_last_question_is_answered_and_its_trouble_is_told_once(told: Told, echo: EchoServer) -> None:
    service, hangs = told.service, threading.Event()
    service.save(dataclasses.replace(LAB, base_url=echo.server.url))
    lists = echo.server.routes[MODELS]
    echo.server.routes[MODELS] = lambda asked: events(hangs)
    service.list_models("lab")
    assert service.activity("lab") == "Waiting"
    told.qtbot.waitUntil(lambda: service.activity("lab") == "Listing its models")
    told.qtbot.waitUntil(lambda: bool(echo.server.asked))
    service.stop("lab")
    told.quiet()
    assert service.trouble("lab") == ""
    echo.models = []
    echo.server.routes[MODELS] = lists
    service.list_models("lab")
    told.quiet()
    assert "lists no models" in service.trouble("lab")
    echo.models = [{"id": "echo", "max_model_len": 4096}]
    service.list_models("lab")
    assert service.trouble("lab") == ""
    told.quiet()
    assert (service.trouble("lab"), service.servers[0].models) == ("", (ListedModel("echo", 4096),))
    service.test("lab", "echo")
    told.quiet()
    assert service.capabilities(model_address("lab", "echo")) is not None
    del echo.server.routes[CHAT]
    service.test("lab", "other")
    told.quiet()
    assert service.trouble("lab")
    assert [tuple(each.capabilities) for each in told.again().servers] == [("echo",)]
    assert {body["model"] for body in echo.server.bodies(CHAT)} == {"echo", "other"}


def test_a_removed_server_takes_its_key_and_its_trouble_along(told: Told) -> None:
    service = told.service
    service.save(LAB)
    assert service.key_place("lab") is None
    service.set_key("lab", "sk-1", in_keyring=True)
    told.qtbot.waitUntil(lambda: service.key_place("lab") == "this run")
    assert "no keyring" in service.trouble("lab")
    assert told.moved == ["lab"]
    service.look_for_key("lab")
    service.remove("lab")
    assert (service.servers, service.trouble("lab"), service.key_place("lab")) == ((), "", None)
    assert (told.moved, told.again().servers) == (["lab", "lab"], ())
    service.save(LAB)
    service.look_for_key("lab")
    told.qtbot.waitUntil(lambda: service.key_place("lab") == "")
    assert told.moved == ["lab", "lab"]


def test_an_answer_about_the_key_of_a_removed_server_comes_to_nothing(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, deleted = threading.Event(), threading.Event()

    class SlowKey:
        def keep_for_run(self, _key: str) -> str:
            assert goes_on.wait(60)
            return ""

        def place(self) -> str:
            return "this run"

        def delete(self) -> None:
            deleted.set()

    monkeypatch.setattr(provider_service, "key_of", lambda _provider: SlowKey())
    told.service.save(LAB)
    told.service.set_key("lab", "sk-1", in_keyring=False)
    told.service.look_for_key("lab")
    told.service.remove("lab")
    before = list(told.changed)
    goes_on.set()
    told.qtbot.waitUntil(deleted.is_set)
    QCoreApplication.processEvents()
    assert (told.changed, told.moved, told.service.key_place("lab")) == (before, ["lab"], None)
