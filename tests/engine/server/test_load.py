"""64 clients: half read slowly, a quarter leave in mid-stream, and malformed bodies come to all endpoints
meanwhile. Nothing is left over.

With INGLENOOK_LOAD=600 in the environment it goes on for 600 seconds, and 1,000 malformed bodies come.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from engine.server.options import Bounds, ServerOptions
from tests.engine.server.bodies import VALID, check, check_error, requests
from tests.engine.server.served import HELLO, TOKEN, WAIT, Served, ask, opened

SECONDS = float(os.environ.get("INGLENOOK_LOAD", "0"))
CLIENTS, ROUNDS, BODIES = 64, 2, 1000 if SECONDS else 100
pytestmark = [pytest.mark.loopback, pytest.mark.slow, pytest.mark.timeout(300 + 2 * SECONDS)]

STREAMS: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
    "/v1/chat/completions": (
        {"messages": HELLO, "max_tokens": 16},
        b'"role":"assistant"',
        b"data: [DONE]\n\n",
    ),
    "/v1/completions": (
        {"prompt": ["Hello", "there"] * 9, "max_tokens": 4},
        b'"text":"',
        b"data: [DONE]\n\n",
    ),
    "/v1/responses": ({"input": "Hello", "max_output_tokens": 16}, b"response.in_progress", b'"output":['),
    "/v1/messages": ({"messages": HELLO, "max_tokens": 16}, b"message_start", b'"type":"message_stop"}\n\n'),
}
"""What streams: a body, what its answer has near its beginning, and what it has at its end."""


def descriptors() -> int:
    """The open files of this process; 0 where they cannot be counted."""
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


def test_nothing_is_left_over_by_many_clients(tiny_folder: Path) -> None:
    served = Served(tiny_folder, ServerOptions(token=TOKEN, bounds=Bounds(replies=2048)))
    served.record_headless()
    try:
        expected = {path: _whole(served, path) for path in _ASKED}
        assert served.idle()
        files, threads = descriptors(), threading.active_count()
        errors: list[BaseException] = []
        until = time.monotonic() + SECONDS

        def client(number: int) -> None:
            dice, round = random.Random(number), 0
            try:
                while round < ROUNDS or time.monotonic() < until:
                    round += 1
                    _talk(served, number, dice, expected)
            except BaseException as error:  # noqa: BLE001 - it is reported by the test
                errors.append(error)

        clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        for thread in clients:
            thread.start()
        _send_malformed(served)
        for thread in clients:
            thread.join(SECONDS + 4 * WAIT)
        assert not errors
        while not served.idle():
            pass
        service = served.server.service
        while service.visits() or service.memory.held:
            pass
        assert threading.active_count() == threads
        assert {path: _whole(served, path) for path in _ASKED} == expected
        served.server.close()
        assert descriptors() <= files
        assert served.idle()
    finally:
        served.close()


_ASKED = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages/count_tokens",
    "/tokenize",
)


def _whole(served: Served, path: str) -> Any:
    """What the endpoint answers at once, without what differs each time."""
    answer = ask(served, path, {**VALID[path], "temperature": 0, "max_tokens": 8})
    assert answer.status == 200, answer.body
    return {key: value for key, value in answer.json.items() if key not in ("id", "created", "usage")}


def _talk(served: Served, number: int, dice: random.Random, expected: dict[str, Any]) -> None:
    """One request of one client."""
    path = dice.choice(sorted(STREAMS))
    body, begin, end = STREAMS[path]
    if number % 4 in (0, 1):  # reads slowly: a few bytes at a time, by a small window
        found = b""
        with opened(served, path, {**body, "stream": True}) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            while end not in found[-8192:]:
                part = connection.recv(dice.choice((16, 64, 256)))
                assert part, found[-500:]
                found += part
        assert b'"error":{' not in found
    elif number % 4 == 2:  # leaves in mid-stream, or at once
        with opened(served, path, {**body, "stream": True, "max_tokens": 200}) as connection:
            found = b""
            while dice.random() < 0.9 and begin not in found:
                found += connection.recv(64)
    else:
        path = dice.choice(_ASKED)
        assert _whole(served, path) == expected[path]
        refused = ask(served, path, bytes(dice.randrange(256) for _ in range(dice.randrange(1, 100))))
        assert refused.status == 400
        check_error(path, refused.json)


def _send_malformed(served: Served) -> None:
    @settings(max_examples=BODIES, suppress_health_check=list(HealthCheck), deadline=None, database=None)
    @given(requests())
    def send(request: tuple[str, dict[str, Any]]) -> None:
        path, body = request
        check(path, ask(served, path, body))

    send()
