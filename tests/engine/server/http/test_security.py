"""Who may use the server: hosts, origins, tokens, content types, sizes."""

from __future__ import annotations

import asyncio
import codecs
import gzip
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from engine.errors import BadSetting
from engine.server.failure import ApiError
from engine.server.http import exchange
from engine.server.http.security import Security
from engine.server.options import Bounds, ServerOptions, new_token
from engine.server.serving import ApiServer, listening
from tests.engine.server.served import HELLO, TOKEN, WAIT, Served, ask, complete

pytestmark = pytest.mark.loopback

ROOT = Path(__file__).parents[4]
PAGE = "https://page.example"
MODELS = "/v1/models"
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def named(tiny_folder: Path) -> Iterator[Served]:
    """A server with a name, a page, and a small body."""
    options = ServerOptions(
        token=TOKEN, hosts=("box.example",), origins=(PAGE,), bounds=Bounds(body=2000, replies=2, memory=4000)
    )
    found = Served(tiny_folder, options)
    found.record_headless()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("localhost:9", 200), ("LOCALHOST.", 200), ("127.0.0.1:80", 200),
        ("[::1]:80", 200),
        ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("localhost.evil.example", 403),
        ("10.0.0.1", 403), ("0.0.0.0", 403), ("[::]", 403), ("0", 403), ("127.1", 403), ("", 403),
        ("localhost@evil.example", 403), ("box.example", 403), ("::1", 403),
    ],
)  # fmt: skip
def test_hosts(served: Served, host: str, status: int) -> None:
    answer = ask(served, MODELS, headers={"Host": host})
    assert answer.status == status
    if status != 200:
        assert answer.error["code"] == "host_not_allowed"


@pytest.mark.parametrize(
    "host", ["localhost", "0.0.0.0", "::", "0:0:0:0:0:0:0:0", "192.0.2.1", "Box.Example."]
)
def test_the_address_to_listen_on_is_a_host_only_if_it_is_one(host: str) -> None:
    """Browsers send requests of any page to 0.0.0.0, which leads to this machine."""

    async def passed(scope: Scope, receive: Receive, send: Send) -> None:
        let_in.append(scope)

    async def send(message: Message) -> None:
        pass

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    def is_let_in(named: str, address: str) -> bool:
        let_in.clear()
        scope = {
            "type": "http", "method": "GET", "path": "/v1/models", "headers": [(b"host", named.encode())],
            "server": (address, 80),
        }  # fmt: skip
        asyncio.run(Security(passed, ServerOptions(host))(scope, receive, send))
        return bool(let_in)

    let_in: list[Scope] = []
    for named in ("0.0.0.0", "0.0.0.0:8080", "[::]", "[::]:8080", "[0:0:0:0:0:0:0:0]", "[::ffff:0.0.0.0]"):
        assert not is_let_in(named, "127.0.0.1")
        assert not is_let_in(named, "192.0.2.7")
    assert is_let_in("192.0.2.7:8080", "192.0.2.7")
    assert is_let_in("192.0.2.1", "127.0.0.1") == (host == "192.0.2.1")
    assert is_let_in("box.example:8080", "127.0.0.1") == (host == "Box.Example.")


def test_foreign_hosts_are_refused_everywhere(served: Served) -> None:
    for path, body in (("/health", None), ("/v1/chat/completions", {"messages": HELLO}), ("/nothing", None)):
        assert ask(served, path, body, headers={"Host": "evil.example"}).status == 403


def test_a_named_host_is_let_in(named: Served) -> None:
    assert ask(named, MODELS, headers={"Host": "Box.Example:1234"}).status == 200
    assert ask(named, MODELS, headers={"Host": "other.example"}).status == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": ""}, 403),
        ({"Origin": "http://localhost:3000"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403), ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200), ({}, 200),
    ],
)  # fmt: skip
def test_pages_are_refused(served: Served, headers: dict[str, str], status: int) -> None:
    answer = ask(served, MODELS, headers=headers)
    assert answer.status == status
    assert status == 200 or answer.error["code"] == "origin_not_allowed"
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_named_page_is_let_in(named: Served) -> None:
    answer = ask(named, MODELS, headers={"Origin": PAGE, "Sec-Fetch-Site": "cross-site"})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert answer.headers["vary"] == "origin"
    asked = {
        "Origin": PAGE, "Authorization": None, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, x-stainless-os",
    }  # fmt: skip
    preflight = ask(named, "/v1/chat/completions", method="OPTIONS", headers=asked)
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-headers"] == "authorization, x-stainless-os"
    assert preflight.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert preflight.headers["access-control-max-age"] == "600"
    assert "access-control-allow-private-network" not in preflight.headers
    private = {
        **asked,
        "Access-Control-Request-Private-Network": "true",
        "Access-Control-Request-Headers": "a\tb",
    }
    preflight = ask(named, MODELS, method="OPTIONS", headers=private)
    assert preflight.headers["access-control-allow-private-network"] == "true"
    assert preflight.headers["access-control-allow-headers"] == "authorization"
    foreign = ask(named, MODELS, method="OPTIONS", headers={**asked, "Origin": "https://other.example"})
    assert foreign.status == 403
    assert ask(named, MODELS, method="OPTIONS", headers={**asked, "Host": "evil.example"}).status == 403
    assert ask(named, MODELS, headers={"Origin": PAGE, "Authorization": None}).status == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401), ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401), ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": f"Token {TOKEN}"}, 200), ({"Authorization": TOKEN}, 200),
        ({"Authorization": f"{TOKEN} x"}, 401),
        ({"Authorization": "Bearer x", "x-api-key": TOKEN}, 200),
        ({"Authorization": "Bearer"}, 401), ({"Authorization": "Bearer \xff"}, 401),
        ({"Authorization": f"bearer {TOKEN}"}, 200), ({"Authorization": None, "x-api-key": TOKEN}, 200),
        ({"Authorization": None, "x-api-key": "wrong"}, 401), ({"Authorization": None, "x-api-key": ""}, 401),
    ],
)  # fmt: skip
def test_tokens(served: Served, headers: dict[str, str | None], status: int) -> None:
    answer = ask(served, MODELS, headers=headers)
    assert answer.status == status
    if status == 401:
        assert answer.error["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"


def test_health_needs_no_token_and_nothing_else_does_without(served: Served) -> None:
    assert served.server.url == f"http://127.0.0.1:{served.port}/v1"
    nobody = {"Authorization": None}
    assert ask(served, "/health", headers=nobody).status == 200
    for method in ("GET", "HEAD"):  # Ollama's clients ask so whether it is there
        root = ask(served, "/", method=method, headers=nobody)
        assert (root.status, bool(root.body)) == (200, method == "GET")
    assert ask(served, "/nothing", headers=nobody).status == 401
    assert ask(served, "/v1/chat/completions", {"messages": HELLO}, headers=nobody).status == 401


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json; charset=utf-8", 200), ("Application/JSON", 200), ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415), ("multipart/form-data", 415), (None, 200), ("", 415),
    ],
)  # fmt: skip
def test_without_a_token_only_json_is_read(served: Served, kind: str | None, status: int) -> None:
    body = {"messages": HELLO, "max_tokens": 1, "options": {"num_predict": 1}}
    without = {"Content-Type": kind, "Authorization": None}
    open_to_all = ApiServer(served.host, ServerOptions())
    try:
        for path in ("/v1/chat/completions", "/api/chat"):
            assert ask(served, path, body, headers={"Content-Type": kind}).status == 200
            assert ask(served, path, body, headers=without).status == 401
            assert ask(open_to_all.port, path, body, headers=without).status == status
            page = without | {"Origin": "http://example.com"}
            assert ask(open_to_all.port, path, body, headers=page).status == 403
    finally:
        open_to_all.close()


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("curl/8.5.0", 200), ("Python/3.11 aiohttp/3.12", 200), ("Mozilla/5.0 (X11; Linux)", 415), ("", 415),
    ],
)  # fmt: skip
def test_programs_need_not_say_json_without_a_token(served: Served, name: str, status: int) -> None:
    """curl with -d calls every body a form, and LiteLLM calls those for Ollama plain texts."""
    body = {"messages": HELLO, "max_tokens": 1, "options": {"num_predict": 1}}
    open_to_all = ApiServer(served.host, ServerOptions())
    try:
        for kind in ("application/x-www-form-urlencoded", "text/plain; charset=utf-8"):
            headers = {"Content-Type": kind, "Authorization": None, "User-Agent": name}
            assert ask(open_to_all.port, "/api/chat", body, headers=headers).status == status
            page = headers | {"Origin": "http://example.com"}
            assert ask(open_to_all.port, "/api/chat", body, headers=page).status == 403
    finally:
        open_to_all.close()


@pytest.mark.parametrize("path", ["//v1/models", "/v1//models", "/v1/models/", "//v1//models//"])
def test_slashes_too_many(served: Served, path: str) -> None:
    assert ask(served, path).body == ask(served, MODELS).body
    assert ask(served, path, headers={"Authorization": None}).status == 401


@pytest.mark.parametrize(
    ("path", "doubled"),
    [
        ("/openai/v1/models", True), ("/openai/deployments/gpt-4o/models", True), ("/openai/models", False),
        ("/v1/openai/models", True),
    ],
)  # fmt: skip
def test_paths_of_hosted_apis(served: Served, path: str, doubled: bool) -> None:
    """Groq's clients, those of OpenAI on Azure, whose header is another one, too, and DeepInfra's."""
    key = {"Authorization": None, "api-key": TOKEN}
    assert ask(served, path + "?api-version=2024-10-21", headers=key).body == ask(served, MODELS).body
    assert ask(served, path, headers={**key, "api-key": "wrong"}).status == 401
    if doubled:
        assert "Remove /v1 from the address" in ask(served, "/v1" + path).error["message"]


def test_a_whole_address_as_the_path(served: Served) -> None:
    """Clients set to a proxy send it."""
    address = f"http://127.0.0.1:{served.port}{MODELS}"
    assert ask(served, address).body == ask(served, MODELS).body
    assert ask(served, address, headers={"Authorization": None}).status == 401
    assert ask(served, address, headers={"Host": "elsewhere.example"}).error["code"] == "host_not_allowed"


def test_an_empty_body_is_called_so(served: Served) -> None:
    for body in (b"", b" \n"):
        answer = ask(served, "/v1/chat/completions", body, method="POST")
        assert (answer.status, "is empty" in answer.error["message"]) == (400, True)


def test_what_is_not_there(served: Served) -> None:
    """It is said whatever is sent there, a file for instance."""
    sent = ask(served, "/v1/audio/transcriptions", b"x", headers={"Content-Type": "multipart/form-data"})
    assert (sent.status, sent.error["code"]) == (404, "not_found")
    assert "/v1/embeddings" in ask(served, "/v1/rerank", {"query": "x"}).error["message"]


def test_compressed_bodies_are_refused(served: Served) -> None:
    body = json.dumps({"messages": HELLO, "max_tokens": 1}).encode()
    refused = ask(served, CHAT, gzip.compress(body), headers={"Content-Encoding": "gzip"})
    assert (refused.status, refused.error["message"]) == (
        415, "The body is compressed (gzip); send it uncompressed, without the header Content-Encoding.",
    )  # fmt: skip
    assert ask(served, CHAT, body, headers={"Content-Encoding": "identity"}).status == 200
    assert ask(served, CHAT, codecs.BOM_UTF8 + body).status == 200


BAD_BODIES = [
    b"", b"{", b"[]", b"1", b"null", b'"text"', b"\xff\xfe", b'{"messages": NaN}', b'{"temperature": 1e999}',
    b"[" * 100_000, b'{"seed": ' + b"9" * 5000 + b"}",
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_bodies_that_are_no_json_object(served: Served, body: bytes) -> None:
    answer = ask(
        served, "/v1/chat/completions", body, method="POST", headers={"Content-Type": "application/json"}
    )
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"
    assert ("too many digits" in answer.error["message"]) == (b"9" * 5000 in body)


def test_half_surrogate_pairs_are_replaced(served: Served) -> None:
    body = b'{"messages": [{"role": "user", "content": "cut \\ud83d"}], "max_tokens": 1}'
    assert ask(served, "/v1/chat/completions", body).status == 200


def test_large_bodies_are_refused(named: Served) -> None:
    space = len(json.dumps({"messages": HELLO, "max_tokens": 1, "user": ""}))
    fits, over = ({"messages": HELLO, "max_tokens": 1, "user": "x" * (n - space)} for n in (2000, 2001))
    assert ask(named, "/v1/chat/completions", fits).status == 200
    refused = ask(named, "/v1/chat/completions", over)
    assert (refused.status, refused.headers["connection"]) == (413, "close")
    for fields, status in ((fits, 200), (over, 413)):  # in two chunks, without a length of all
        body = json.dumps(fields).encode()
        sent = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:900], body[900:], b""))
        assert ask(named, CHAT, sent, headers={"Transfer-Encoding": "chunked"}).status == status


def test_who_sends_a_large_body_without_the_token_reads_why(served: Served) -> None:
    answer = ask(served, "/nowhere", b"x" * (48 << 20), headers={"Authorization": "Bearer wrong"})
    assert answer.status == 401


@pytest.mark.parametrize("chunked", [False, True])
def test_who_sends_all_of_a_body_that_is_far_too_large_reads_why(named: Served, chunked: bool) -> None:
    """And not that the connection was reset."""
    body = b"x" * (24 << 20)
    if chunked:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    answer = ask(named, CHAT, body, headers={"Transfer-Encoding": "chunked"} if chunked else {})
    assert answer.status == 413
    assert "larger than the 2,000 bytes" in answer.error["message"]


def test_more_replies_than_fit_are_told_to_come_again(named: Served) -> None:
    answer = complete(named, n=3)
    assert (answer.status, answer.error["code"]) == (503, "server_busy")
    assert answer.headers["retry-after"] == "2"
    assert "connection" not in answer.headers
    assert complete(named, n=2).status == 200


def test_options() -> None:
    for wrong in ({"port": -1}, {"port": 65536}, {"token": "a b"}, {"token": "ü"}, {"origins": ("*",)},
                  {"origins": ("page.example",)}, {"origins": ("https://page.example/x",)},
                  {"origins": ("https://*.example",)}):  # fmt: skip
        with pytest.raises(BadSetting):
            ServerOptions(**wrong)
    assert len({new_token() for _ in range(100)}) == 100
    assert ServerOptions(token=new_token()).token


def test_localhost_is_both_addresses_with_one_port() -> None:
    sockets = listening("localhost", 0)
    try:
        ports = {sock.getsockname()[1] for sock in sockets}
        assert len(ports) == 1
        assert {sock.getsockname()[0] for sock in sockets} <= {"127.0.0.1", "::1"}
        with pytest.raises(BadSetting, match="cannot listen"):
            listening("127.0.0.1", ports.pop())
    finally:
        for sock in sockets:
            sock.close()
    with pytest.raises(BadSetting, match="not an address"):
        listening("not an address", 0)


def test_the_bodies_of_all_clients_are_bounded_together(named: Served) -> None:
    memory = named.server.service.memory
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1999\r\n\r\n"
    )
    large = {"user": "x" * 1700, "max_tokens": 2}
    with socket.create_connection(("127.0.0.1", named.port), timeout=WAIT) as waiting:
        waiting.sendall(head.encode() + b" " * 1900)
        while memory.held < 1900:
            pass
        refused = complete(named, **large)
        assert (refused.status, refused.error["code"]) == (503, "server_busy")
        assert refused.headers["retry-after"] == "2"
        assert complete(named, max_tokens=1).status == 200
    while memory.held:
        pass
    assert complete(named, **large).status == 200


def test_what_is_collected_for_an_answer_is_bounded(named: Served) -> None:
    answer = complete(named, max_tokens=200, ignore_eos=True, logprobs=True, top_logprobs=20)
    assert answer.status == 413
    assert "4,000 bytes" in answer.error["message"]
    stream = complete(named, max_tokens=200, ignore_eos=True, logprobs=True, top_logprobs=20, stream=True)
    assert stream.events[-1] == "[DONE]"  # nothing is collected
    texts = ask(named, "/v1/embeddings", {"input": ["Hello"] * 20})
    assert texts.status == 413
    assert named.idle()
    while named.server.service.memory.held:
        pass


@pytest.mark.parametrize("module", ["engine", "engine.server", "engine.cli", "engine.chat"])
def test_web_libraries_are_imported_only_when_the_server_is_used(module: str) -> None:
    code = f"import sys, {module}; print({{'uvicorn', 'starlette', 'h11'}} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_a_body_of_millions_of_values_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait while one is parsed; commas and brackets in texts are no values."""
    monkeypatch.setattr(exchange, "MOST_VALUES", 1000)
    with monkeypatch.context() as unparsed:
        unparsed.setattr(json, "loads", lambda *given, **more: pytest.fail("it was parsed"))
        for value in (b"[]", b"{}", b'","', b"0"):
            with pytest.raises(ApiError, match="more than 1,000 values; send fewer"):
                exchange.parsed(b'{"a": [' + b",".join([value] * 1001) + b"]}")
    text = {"a": ',[{"\\' * 4000, "b": ["\ud800"]}
    assert exchange.parsed(json.dumps(text).encode()) == {"a": text["a"], "b": ["\ufffd"]}
    assert len(exchange.parsed(b'{"a": [' + b"0," * 997 + b"1]}")["a"]) == 998
    with pytest.raises(ApiError, match="is not JSON"):
        exchange.parsed(b'{"a": "' + b'\\",[' * 2000)
    with pytest.raises(ApiError, match=r"is not JSON: a number has too many digits\."):
        exchange.parsed(b'{"a": ' + b"7" * 5000 + b"}")


def test_each_answer_has_a_number_that_clients_report(served: Served) -> None:
    answers = [ask(served, path) for path in ("/v1/models", "/v1/nothing")]
    answers.append(ask(served, "/v1/models", headers={"Authorization": "Bearer wrong"}))
    assert [answer.status for answer in answers] == [200, 404, 401]
    numbers = {answer.headers["x-request-id"] for answer in answers}
    assert len(numbers) == 3
    assert numbers == {answer.headers["request-id"] for answer in answers}
