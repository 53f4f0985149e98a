"""What the details of a reply say, and what they leave out because it is not known."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from desktop.services.provenance.provenance import ReplyProvenance
from desktop.services.provenance.provenance_text import (
    as_json,
    facts_rows,
    prompt_pieces,
    prompt_words,
    setting_rows,
    value_words,
)
from engine.core import FIRST_PICTURE_ID, Rendered, Stats
from engine.platform.version import version
from engine.settings import SamplerSettings, StopSettings
from tests.desktop.services.provenance.test_replay import reply, seeing

HEAD = [("Model", "Owl"), ("Adapters", "none"), ("Ran on", "the processor (CPU), 2 threads")]
END = [("Ended", "ended by the model"), ("Inglenook", version())]


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


def test_the_vision_encoders_file() -> None:
    about = {"path": "/m/mmproj-F16.gguf", "size": 850_000_000, "identity": "v"}
    seen, blind = seeing(about), reply()
    seen.message.text = blind.message.text = "Hm"
    assert dict(facts_rows(seen, ""))["Vision encoder"] == "mmproj-F16.gguf, 850 MB"
    assert json.loads(as_json(seen))["vision"] == {**about, "sha256": None}
    hashed = seen._replace(vision_hash="abc")
    assert dict(facts_rows(hashed, ""))["Vision encoder"] == "mmproj-F16.gguf, 850 MB\nSHA-256: abc"
    assert json.loads(as_json(hashed))["vision"]["sha256"] == "abc"
    assert "Vision encoder" not in dict(facts_rows(blind, ""))
    assert "vision" not in json.loads(as_json(blind))


@pytest.mark.parametrize(("seed", "words"), [(None, "77, random"), (77, "77, set by you")])
def test_a_seed_says_who_chose_it(seed: int | None, words: str) -> None:
    stats = dataclasses.asdict(Stats(prompt_tokens=1, new_tokens=1, seed=77))
    rows = dict(facts_rows(reply([SamplerSettings(seed=seed)], stats=stats), ""))
    assert rows["Seed"] == words


def test_no_speed_is_told_of_what_took_no_time() -> None:
    stats = Stats(prompt_tokens=9, prefill_tokens=0, new_tokens=5, prefill_seconds=1.0, decode_seconds=0.0)
    rows = dict(facts_rows(reply(stats=dataclasses.asdict(stats)), ""))
    assert not {"Reading the prompt", "Writing", "Time to first token"} & rows.keys()


PROMPT = Rendered(
    (1, 7, 8, 1, 9), given=1, heal=True,
    vocabulary=((1, b"<s>", True), (7, "é".encode()[:1], False), (8, "é".encode()[1:], False),
                (9, b"So", False)),
)  # fmt: skip


def test_a_prompt_is_told_by_its_tokens() -> None:
    assert prompt_words(None) == "The prompt of this reply was not saved."
    assert (
        prompt_words(dataclasses.replace(PROMPT, given=0, heal=False))
        == "5 tokens, 2 of them control tokens."
    )
    assert prompt_words(PROMPT) == (
        "5 tokens, 2 of them control tokens; the last 1 are the start of the reply; "
        "the last one was sampled again."
    )
    assert [*prompt_pieces(PROMPT)] == [("<s>", True), ("é", False), ("<s>", True), ("So", False)]
    assert [*prompt_pieces(PROMPT, (9, 5))] == [("So", False), ("<5>", True)]
    first = FIRST_PICTURE_ID + 7
    seen = (9, first, first + 1, first + 2, first + 40, 9)
    assert [*prompt_pieces(PROMPT, seen)] == [
        ("So", False), ("<picture, 3 tokens>", True), ("<picture, 1 token>", True), ("So", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("seed", None, "random"), ("seed", 12345, "12345"), ("temperature", 0.5, "0.5"),
        ("mirostat", True, "on"), ("mirostat", False, "off"),
    ],
)  # fmt: skip
def test_values_of_settings_in_words(name: str, value: Any, words: str) -> None:
    assert value_words(SamplerSettings, name, value) == words


def test_a_setting_names_its_usual_value_where_another_was_used() -> None:
    rows = setting_rows(reply([SamplerSettings(temperature=0.5), StopSettings(stop_strings=("a", "b"))]))
    found = {row.label: (row.value, row.default) for row in rows}
    usual = value_words(SamplerSettings, "temperature", SamplerSettings().temperature)
    assert found["Temperature"] == ("0.5", usual)
    assert ("a, b", "none") in found.values()
    assert found["Seed"] == ("random", "")


def test_everything_that_is_known_of_a_reply_is_in_its_json() -> None:
    full = reply(prompt=PROMPT)
    full.message.text = "Hm"
    data = json.loads(as_json(full))
    assert data["reply"] == {"text": "Hm", "token_ids": [5, 6]}
    assert data["model"] == {**full.model, "sha256": None}
    assert data["engine"] == version()
    assert (data["prompt"]["text"], data["prompt"]["token_ids"]) == ("<s>é<s>So", [1, 7, 8, 1, 9])
    assert (data["prompt"]["control_token_ids"], data["prompt"]["given"], data["prompt"]["healed"]) == (
        [1],
        1,
        True,
    )
    bare = ReplyProvenance(full.message, None, full.trace)
    assert (bare.known, bare.model) == (0, {})
    assert json.loads(as_json(bare)).keys() == {"reply", "model", "result"}
