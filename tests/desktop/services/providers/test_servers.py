"""Servers as they are kept: round trips, ids, and what a broken file costs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from desktop.services.providers.remote_models import RemoteModels
from desktop.services.providers.servers import ListedModel, Server, id_for, read_servers
from engine.errors import BadSetting, ModelNotFound
from engine.remote import Capabilities, Provider, model_address

LAB = Provider("lab", "Lab", "http://127.0.0.1:8000/v1", headers=(("X-Team", "blue"),), context_length=9)
KNOWN = Capabilities(server="vllm 1", chat=True, top_logprobs=5, taken=("seed",), probed=2.5)
WHOLE = Server(LAB, (ListedModel("a", 7), ListedModel("b/c")), {"a": KNOWN})


def kept(*servers: Server) -> object:
    return json.loads(json.dumps([server.to_json() for server in servers]))


def test_a_server_is_read_as_it_was_kept():
    assert read_servers(kept(WHOLE)) == ((WHOLE,), (), ())


def test_the_model_to_offer_first_need_not_be_listed():
    assert WHOLE.names == ("a", "b/c")
    for model, names in (("b/c", ("b/c", "a")), ("other", ("other", "a", "b/c"))):
        assert WHOLE._replace(provider=replace(LAB, model=model)).names == names


def test_at_most_a_thousand_models_are_kept():
    many = WHOLE._replace(models=tuple(ListedModel(f"m{number}", number) for number in range(1001)))
    (found,), _, _ = read_servers(kept(many))
    assert found.models == many.models[:1000]


@pytest.mark.parametrize("saved", [None, {}, "text", 7])
def test_without_a_list_there_are_no_servers(saved):
    assert read_servers(saved) == ((), (), ())


def test_a_broken_server_is_reported_and_the_others_are_read():
    other = Server(Provider("two", "Two", "https://two.example.org/v1"))
    broken: list[object] = [
        7,
        {},
        {"provider": 1},
        {"provider": {"id": "x", "name": "X", "base_url": "ftp://x"}},
    ]
    saved = [*broken, *kept(WHOLE, other, WHOLE._replace(models=()))]  # type: ignore[misc]
    found, unread, problems = read_servers(saved)
    assert found == (WHOLE, other)
    assert list(unread) == broken
    assert len(problems) == 4
    assert "ftp" in problems[-1]


def test_broken_parts_of_a_server_are_left_out():
    (saved,) = kept(WHOLE)  # type: ignore[misc]
    saved["models"] = [["a", 7], ["", 1], ["x"], ["y", True], ["z", "1"], "text", [3, 3], ["b/c", 0],
                       {"c": 1, "d": 2}]  # fmt: skip
    saved["capabilities"] = {"a": KNOWN.to_json(), "b": 7}
    assert Server.from_json(saved) == WHOLE
    saved["models"], saved["capabilities"] = {}, []
    assert Server.from_json(saved) == Server(LAB)
    with pytest.raises(BadSetting, match="cannot be read"):
        Server.from_json([])


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [
        ("Lab", (), "lab"), ("My GPU, at home!", (), "my-gpu-at-home"), ("Été", (), "ete"),
        ("日本", (), "server"),
        ("Lab", ("lab",), "lab-2"), ("Lab", ("lab", "lab-2"), "lab-3"), ("--", ("server",), "server-2"),
        ("x" * 60, (), "x" * 30), ("(" + "x" * 60, (), "x" * 30), ("x" * 29 + " y", (), "x" * 29),
    ],
)  # fmt: skip
def test_ids_are_plain_and_new(name, taken, expected):
    found = id_for(name, taken)
    assert found == expected
    Provider(found, "n", "http://localhost")  # a valid id


class TestRemoteModels:
    def made(self) -> tuple[RemoteModels, list[tuple[str, str]]]:
        found: list[tuple[str, str]] = []
        return RemoteModels([WHOLE], lambda *what: found.append(what)), found

    def test_findings_of_another_address_are_dropped(self):
        models, found = self.made()
        moved = WHOLE._replace(provider=Provider("lab", "Lab", "http://127.0.0.1:9/v1"), capabilities={})
        models.put(moved)
        models.set_capabilities(WHOLE, "b/c", KNOWN)
        models.set_models(WHOLE, (ListedModel("old"),))
        assert models.servers == {"lab": moved}
        models.set_capabilities(moved, "b/c", KNOWN)
        assert models.servers["lab"].capabilities == {"b/c": KNOWN}
        assert found == [("lab", "b/c"), ("lab", "b/c")]

    def test_findings_of_a_removed_server_are_dropped(self):
        models, _ = self.made()
        models.remove("lab")
        models.remove("lab")
        models.set_capabilities(WHOLE, "a", KNOWN)
        models.set_models(WHOLE, ())
        assert models.servers == {}
        assert models.capabilities(model_address("lab", "a")) is None

    def test_capabilities_are_known_by_the_address(self):
        models, _ = self.made()
        assert models.capabilities("remote:lab:a") == KNOWN
        assert models.capabilities("remote:lab:b%2Fc") is None
        assert models.capabilities("/models/a.gguf") is None

    def test_files_are_described_by_the_engine_and_addresses_from_what_is_known(self):
        models, _ = self.made()
        describe = models.describing(lambda path: (_ for _ in ()).throw(ModelNotFound(f"no {path}")))
        from pathlib import Path

        with pytest.raises(ModelNotFound, match=r"no .*a\.gguf"):
            describe(Path("/models/a.gguf"))
        info = describe(Path("remote:lab:a"))
        assert (info.name, info.host, info.context_length, info.has_chat_template) == (
            "a", "127.0.0.1:8000", 9, True,
        )  # fmt: skip
        assert describe(Path("remote:lab:unknown")).has_chat_template
        with pytest.raises(ModelNotFound, match="no longer in your list of servers"):
            describe(Path("remote:gone:a"))
