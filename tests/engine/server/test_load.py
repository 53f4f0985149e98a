"""Many clients: slow readers, some that leave in mid-stream, malformed bodies. Nothing is left over."""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.server.options import ServerOptions
from tests.engine.server.served import HELLO, TOKEN, WAIT, Served, ask, complete, opened, read_until

pytestmark = [pytest.mark.loopback, pytest.mark.slow]
CLIENTS, ROUNDS = 64, 4


def descriptors() -> int:
    """The open files of this process; 0 where they cannot be counted."""
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


def test_nothing_is_left_over_by_many_clients(tiny_folder: Path) -> None:
    served = Served(tiny_folder, ServerOptions(token=TOKEN))
    try:
        expected = complete(served, temperature=0, max_tokens=24).json["choices"][0]["message"]["content"]
        files, threads = descriptors(), threading.active_count()
        errors: list[BaseException] = []

        def client(number: int) -> None:
            try:
                for round in range(ROUNDS):
                    _talk(served, number, random.Random(number * ROUNDS + round), expected)
            except BaseException as error:  # noqa: BLE001 - it is reported by the test
                errors.append(error)

        clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join(4 * WAIT)
        assert not errors
        while not served.idle():
            pass
        assert threading.active_count() == threads
        assert complete(served, temperature=0, max_tokens=24).status == 200
        served.server.close()
        assert descriptors() <= files
        assert served.idle()
    finally:
        served.close()


def _talk(served: Served, number: int, dice: random.Random, expected: str) -> None:
    """One request of one client."""
    body: dict[str, Any] = {"messages": HELLO, "temperature": 0, "max_tokens": 24, "stream": True}
    if number % 4 == 0:  # leaves in mid-stream
        with opened(served, "/v1/chat/completions", {**body, "max_tokens": 200}) as connection:
            read_until(connection, b'"role":"assistant"')
    elif number % 4 == 1:
        garbage = bytes(dice.randrange(256) for _ in range(dice.randrange(1, 100)))
        assert ask(served, "/v1/chat/completions", garbage).status == 400
    elif number % 4 == 2:  # reads slowly: a few bytes at a time
        found = b""
        with opened(served, "/v1/chat/completions", body) as connection:
            while b"data: [DONE]\n\n" not in found[-64:]:
                part = connection.recv(16)
                assert part
                found += part
    else:
        answer = complete(served, temperature=0, max_tokens=24)
        assert answer.json["choices"][0]["message"]["content"] == expected
