"""What the details of a reply say, and what they leave out because it is not known."""

from __future__ import annotations

import dataclasses

from desktop.services.provenance.provenance_text import facts_rows
from engine.core import Stats
from engine.platform.version import version
from tests.desktop.services.provenance.test_replay import reply

HEAD = [("Model", "Owl"), ("Adapters", "none"), ("Ran on", "the processor (CPU), 2 threads")]
END = [("Ended", "finished"), ("Inglenook", version())]


def test_numbers_of_a_reply() -> None:
    stats = Stats(
        prompt_tokens=1200, cached_tokens=1000, prefill_tokens=200, new_tokens=41, prefill_seconds=2.0,
        first_token_seconds=2.25, decode_seconds=4.0, seed=77,
    )  # fmt: skip
    assert facts_rows(reply(stats=dataclasses.asdict(stats)), "abc") == [
        *HEAD, ("Prompt", "1,200 tokens, 1,000 of them from the cache"), ("Reply", "41 tokens"),
        ("Seed", "77"), ("Reading the prompt", "200 tokens in 2.00 s, 100 tokens/s"),
        ("Time to first token", "2.25 s"), ("Writing", "40 tokens in 4.00 s, 10.0 tokens/s"), *END,
    ]  # fmt: skip


def test_what_is_not_known_is_left_out() -> None:
    short = dataclasses.asdict(Stats(prompt_tokens=1, new_tokens=1, seed=3))
    found = facts_rows(reply(stats=short, model={"path": "/m/owl.gguf"}), "abc")
    files = [("File", "/m/owl.gguf"), ("SHA-256", "abc")]
    counts = [("Prompt", "1 token"), ("Reply", "1 token"), ("Seed", "3")]
    assert found == [HEAD[0], *files, *HEAD[1:], *counts, *END]
    failed = reply(stats=None, model={"server": "Lab", "server_version": "2"}, error="Lost.")
    server = [("Model", "Owl"), ("Server", "Lab – 2")]
    assert facts_rows(failed, "abc") == [*server, END[0], ("Error", "Lost."), END[1]]
