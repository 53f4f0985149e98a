"""What constraints, bans and drafting promise, with the starter model: no invalid output, no leak, no other
token.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from engine.chat import LocalChat, finished, open_chat
from engine.core import ChatRequest, Done, Message, Text
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.timeout(900)]

SCHEMAS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "schemas.json").read_text(encoding="utf-8")
)
GREEDY = SamplerSettings(temperature=0.0)
CODE = (
    "def area(w, h):\n    result = w * h\n    return result\n\n\ndef volume(w, h, d):\n    result = w * h "
    "* d\n    return result\n"
)
ASKS = (
    "Tell me a story about a dog and the sea.", "What is the capital of France, and what is it known for?",
    "List five kinds of fruit.", "Write a short poem about the moon.", "Explain why the sky is blue.",
)  # fmt: skip


@pytest.fixture(scope="module")
def chat(starter_path):
    chat = finished(open_chat(starter_path, cache=CacheSettings(context_length=4096)))
    yield chat
    chat.close()


def ask(
    chat: LocalChat, text: str, sampler: SamplerSettings, tokens: int, **more: Any
) -> tuple[str, list[int], Done, list[Text]]:
    request = ChatRequest(
        (Message("user", text),),
        sampler,
        StopSettings(max_tokens=tokens),
        output=OutputSettings(alternatives=0),
        **more,
    )
    events = list(chat.stream(request, threading.Event()))
    texts = [event for event in events if isinstance(event, Text)]
    done = events[-1]
    assert isinstance(done, Done)
    return (
        "".join(event.text for event in texts),
        [token.id for event in texts for token in event.tokens],
        done,
        texts,
    )


def test_fifty_schemas_are_kept(chat):
    assert len(SCHEMAS) >= 50
    for number, entry in enumerate(SCHEMAS):
        constraint = ConstraintSettings(format="json_schema", pattern=json.dumps(entry["schema"]))
        drafting = SpeculationSettings(method="ngram" if number % 2 else "none")
        sampler = SamplerSettings(seed=number)
        text, _, done, _ = ask(
            chat,
            f"{entry['ask']} Answer in JSON.",
            sampler,
            1500,
            constraint=constraint,
            speculation=drafting,
        )
        assert done.reason in ("end_filter", "stop_token"), (entry["name"], text)
        Draft202012Validator(entry["schema"], format_checker=FormatChecker()).validate(json.loads(text))


def test_two_hundred_replies_leak_no_banned_string(chat):
    banned = ("the dog", " is ", "and", "Paris", "apple", "moon", "e s", "sky", "once upon", ".\n")
    taken_back = 0
    for number in range(200):
        text, _, _, texts = ask(
            chat, ASKS[number % len(ASKS)], SamplerSettings(temperature=0.9, seed=number), 32,
            constraint=ConstraintSettings(banned_strings=banned),
            speculation=SpeculationSettings(method="ngram" if number % 2 else "none"),
        )  # fmt: skip
        assert not [string for string in banned if string.lower() in text.lower()], text
        taken_back += sum(bool(event.suppressed) for event in texts)
    assert taken_back > 200


@pytest.mark.parametrize(
    "prompt",
    [*ASKS[:2], f"Rename `result` to `value` in this code, repeat the whole code:\n```python\n{CODE}```"],
)
def test_drafting_keeps_every_greedy_token(chat, starter_path, prompt):
    plain = ask(chat, prompt, GREEDY, 96)
    itself = SpeculationSettings(method="model", draft_model=str(starter_path))
    for settings in (SpeculationSettings(method="ngram", adaptive=False), itself):
        drafted = ask(chat, prompt, GREEDY, 96, speculation=settings)
        assert drafted[1] == plain[1]
        assert drafted[2].stats.accepted_tokens <= drafted[2].stats.drafted_tokens
    form = ConstraintSettings(format="regex", pattern="[A-Z][a-z ,]{40,160}\\.")
    plain = ask(chat, prompt, GREEDY, 96, constraint=form)
    drafted = ask(
        chat,
        prompt,
        GREEDY,
        96,
        constraint=form,
        speculation=SpeculationSettings(method="ngram", adaptive=False),
    )
    assert drafted[1] == plain[1]


def test_a_seed_repeats_a_reply_whatever_is_cached_and_drafted(chat):
    warm = SamplerSettings(temperature=0.9, seed=12)
    first, again = (ask(chat, ASKS[0], warm, 80)[1] for _ in range(2))
    assert first == again
    ask(chat, ASKS[1], warm, 20)
    assert ask(chat, ASKS[0], warm, 80, speculation=SpeculationSettings(method="ngram"))[1] == first
