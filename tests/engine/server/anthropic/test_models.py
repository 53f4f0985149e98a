"""Lists of models in the form of Anthropic's API, also through the package `anthropic` where it is there."""

from __future__ import annotations

import pytest

from engine.server.anthropic.messages import message_request
from engine.server.anthropic.models import _capabilities
from engine.server.fields import Fields
from engine.server.host import ServedModel
from tests.engine.server.served import HELLO, TOKEN, Served, ask

VERSION = {"anthropic-version": "2023-06-01"}


@pytest.mark.loopback
def test_anthropics_clients_get_their_own_form(served: Served) -> None:
    page = ask(served, "/v1/models?limit=20", headers=VERSION).json
    loaded, other = page["data"]
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "tiny", "other")
    assert ask(served, "/v1/models/tiny", headers=VERSION).json == loaded
    assert (loaded["max_input_tokens"], loaded["max_tokens"], loaded["lifecycle"]) == (1024, 1024, "active")
    assert loaded["capabilities"]["structured_outputs"] == {"supported": True}
    assert other["capabilities"] is other["max_tokens"] is None
    assert "object" in ask(served, "/v1/models").json


@pytest.mark.parametrize("able", [(), ("vision",), ("thinking",)])
def test_capabilities(able: tuple[str, ...]) -> None:
    model = ServedModel(
        "a", True, reads_pictures="vision" in able, capabilities=("completion", "tools", *able)
    )
    found = _capabilities(model)
    thinks = "thinking" in able
    assert found["image_input"]["supported"] == ("vision" in able)
    assert found["thinking"]["supported"] == found["effort"]["supported"] == thinks
    assert (
        found["effort"]["xhigh"]["supported"] == found["thinking"]["types"]["adaptive"]["supported"] == thinks
    )
    assert not any(
        found[name]["supported"]
        for name in ("batch", "citations", "pdf_input", "server_tools", "code_execution")
    )


def test_every_kind_of_thinking_that_is_said_to_be_accepted_is() -> None:
    model = ServedModel("a", True, 1024, capabilities=("completion", "tools", "thinking"))
    for kind, support in _capabilities(model)["thinking"]["types"].items():
        assert support["supported"]
        sent = {"messages": HELLO, "max_tokens": 8, "thinking": {"type": kind}}
        wanted = kind in ("enabled", "adaptive")
        assert (message_request(Fields(sent), model).thinking.thinking != "off") == wanted


@pytest.mark.loopback
@pytest.mark.slow
def test_anthropics_own_client(served: Served) -> None:
    anthropic = pytest.importorskip("anthropic")
    address = f"http://127.0.0.1:{served.port}"
    with anthropic.Anthropic(base_url=address, api_key=TOKEN, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["tiny", "other"]
        assert client.models.retrieve("tiny").capabilities.image_input.supported is False
