"""A conversation with everything that a request can ask for: guidance, exact ids to continue, healing, a
draft model.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.chat import LocalChat, finished, open_chat
from engine.core import ChatRequest, Done, Loading, Message, Text
from engine.errors import BadSetting, ModelNotFound
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from engine.text.template.encoding import encode_chat
from tests.engine.generator.fakes import Scripted, tokenizer
from tests.engine.test_chat import GREEDY, AsciiWords, assistant, fake_chat, user
from tests.tiny import write_gguf

CHAT = [user("the quick brown fox"), assistant("jumps over"), user("what now?")]


def ask(
    chat: LocalChat, messages: list[Message], tokens: int = 12, **more: Any
) -> tuple[str, list[int], Done, list[Any]]:
    request = ChatRequest(
        tuple(messages), more.pop("sampler", GREEDY), StopSettings(max_tokens=tokens), **more
    )
    events = list(chat.stream(request, threading.Event()))
    done = events[-1]
    assert isinstance(done, Done)
    texts = [event for event in events if isinstance(event, Text)]
    return (
        "".join(event.text for event in texts),
        [token.id for event in texts for token in event.tokens],
        done,
        events,
    )


def test_guidance_puts_the_negative_prompt_in_the_systems_place():
    chat, model = fake_chat()
    messages = [Message("system", "Be kind."), *CHAT]
    plain = ask(chat, messages)[1]
    assert ask(chat, messages, guidance=GuidanceSettings("Be rude.", 1.0))[1] == plain
    guided = ask(chat, messages, guidance=GuidanceSettings("Be rude.", 2.0))
    assert guided[1] != plain
    negative = encode_chat(tokenizer(), chat.template, [Message("system", "Be rude."), *CHAT])[1]
    positive = encode_chat(tokenizer(), chat.template, messages)[1]
    assert guided[2].stats.prefill_tokens + guided[2].stats.cached_tokens == len(negative) + len(positive)
    again = ask(chat, messages, guidance=GuidanceSettings("Be rude.", 2.0))
    assert again[1] == guided[1]
    assert again[2].stats.prefill_tokens == 2
    assert ask(chat, messages, guidance=GuidanceSettings("", 2.0))[1] != guided[1]
    assert model.program.ran


def test_going_on_from_exact_ids():
    """As the token inspector does: the reply's own tokens up to one of them, then another token in its
    place.
    """
    words = AsciiWords()
    chat, _ = fake_chat(words)
    _, ids, _, _ = ask(chat, CHAT)
    other = next(i for i in words.allowed if i != ids[5])
    state = (*ids[:5], other)
    last = assistant(tokenizer().decode(state))
    _, more, done, _ = ask(chat, [*CHAT, last], continue_last=True, continue_ids=state)
    prompt = encode_chat(tokenizer(), chat.template, CHAT)[1]
    assert done.stats.prompt_tokens == len(prompt) + 6
    assert done.stats.prefill_tokens == 1, "only the other token is new"
    straight = ask(chat, [*CHAT, last], tokens=20, continue_last=True, continue_ids=state)[1]
    assert straight[:12] == more
    # The next turn finds the whole reply, in the tokens it was written in.
    whole = [*CHAT, assistant(tokenizer().decode([*state, *straight])), user("and then?")]
    stats = ask(chat, whole)[2].stats
    assert stats.cached_tokens >= len(prompt) + 6 + 19


def test_a_constraint_goes_on_where_the_reply_stands():
    chat, _ = fake_chat()
    schema = ConstraintSettings(
        format="json_schema",
        pattern='{"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 3}',
    )
    whole = ask(chat, CHAT, 60, constraint=schema)[0]
    assert set(json.loads(whole)) <= {1, 2}
    state = whole[:3]
    more = ask(chat, [*CHAT, assistant(state)], 60, constraint=schema, continue_last=True)[0]
    assert set(json.loads(state + more)) <= {1, 2}
    with pytest.raises(BadSetting, match="does not match the format"):
        ask(chat, [*CHAT, assistant("Well,")], constraint=schema, continue_last=True)


def test_healing_when_a_reply_is_continued():
    chat, _ = fake_chat()
    heal = ConstraintSettings(heal=True)
    messages = [*CHAT, assistant("the quick bro")]
    ids = encode_chat(tokenizer(), chat.template, messages, add_generation_prompt=False, continue_last=True)[
        1
    ]
    _, _, _, events = ask(chat, messages, constraint=heal, continue_last=True)
    first = next(event.tokens[0] for event in events if isinstance(event, Text) and event.tokens)
    assert first.healed
    assert tokenizer().token_bytes(first.id).startswith(tokenizer().token_bytes(ids[-1]))
    _, _, _, events = ask(chat, CHAT, constraint=heal)
    assert not any(token.healed for event in events if isinstance(event, Text) for token in event.tokens), (
        "the template's end stays"
    )


def test_a_kept_stop_token_is_shown_and_not_read_twice():
    stop = tokenizer().eos_token_id
    script = tokenizer().encode("yes")
    prompt = len(encode_chat(tokenizer(), fake_chat()[0].template, CHAT)[1])
    chat, _ = fake_chat(Scripted(prompt, [*script, stop]))
    request = ChatRequest(
        tuple(CHAT),
        GREEDY,
        StopSettings(keep_stop=True),
        output=OutputSettings(alternatives=2, stream_interval=3),
    )
    events = list(chat.stream(request, threading.Event()))
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert text == "yes" + tokenizer().decode([stop], skip_special=False)
    assert events[-1].reason == "stop_token"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("settings") / "tiny.gguf")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_draft_model_comes_and_goes(tiny, backend):
    chat = finished(open_chat(tiny, LoadSettings(backend=backend), CacheSettings(context_length=512)))
    try:
        plain = ask(chat, CHAT, 30)
        settings = SpeculationSettings(method="model", draft_model=str(tiny), adaptive=False)
        drafted = ask(chat, CHAT, 30, speculation=settings)
        assert any(
            isinstance(event, Loading) and event.stage.startswith("Draft model") for event in drafted[3]
        )
        assert drafted[1] == plain[1]
        assert drafted[2].stats.drafted_tokens >= drafted[2].stats.accepted_tokens > 0
        assert chat.generator.drafters.has_model
        warm = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)
        one, other = (ask(chat, CHAT, 30, speculation=settings, sampler=warm)[1] for _ in range(2))
        assert one == other
        assert not any(isinstance(event, Loading) for event in ask(chat, CHAT, 5, speculation=settings)[3])
        ask(chat, CHAT, 5)
        assert not chat.generator.drafters.has_model, "it is released when nobody asks for it"
        with pytest.raises(ModelNotFound):
            ask(chat, CHAT, speculation=dataclasses.replace(settings, draft_model=str(tiny) + ".missing"))
        assert ask(chat, CHAT, 30)[1] == plain[1]
    finally:
        chat.close()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("dtype", ["fp16", "q4"])
def test_caches_that_are_kept_on_disk(tiny, tmp_path, monkeypatch, dtype):
    compiled = list(Path(os.environ["INGLENOOK_CACHE"]).glob("kernels-*"))
    monkeypatch.setenv("INGLENOOK_CACHE", str(tmp_path / "cache"))
    for folder in compiled:  # the kernels of this run, which need not be compiled again
        (tmp_path / "cache").mkdir(exist_ok=True)
        (tmp_path / "cache" / folder.name).symlink_to(folder)
    settings = CacheSettings(context_length=512, dtype=dtype, keep_on_disk=True)
    replies, prefilled = [], []
    for _ in range(2):
        chat = finished(open_chat(tiny, LoadSettings(backend="cpu"), settings))
        _, ids, done, _ = ask(chat, CHAT, 10)
        replies.append(ids)
        prefilled.append(done.stats.prefill_tokens)
        chat.close()
    assert replies[0] == replies[1]
    assert prefilled[0] > prefilled[1] == 1
    other_type = LoadSettings(backend="cpu"), dataclasses.replace(settings, dtype="q8")
    for load, cache in (other_type, (LoadSettings(backend="cpu", prompt_bits="8"), settings)):
        chat = finished(open_chat(tiny, load, cache))
        assert ask(chat, CHAT, 10)[2].stats.cached_tokens == 0, (load, cache)
        chat.close()


def test_a_prompt_in_eight_bits(tiny):
    """Is near the one in 16, not the same; what follows it is computed in 16."""
    ids = list(range(20, 60))
    found = []
    for bits in ("16", "8"):
        chat = finished(
            open_chat(
                tiny,
                LoadSettings(backend="cpu", quantise="q8", prompt_bits=bits),
                CacheSettings(context_length=512),
            )
        )
        with chat.generator.cache.open(()) as lease:
            found.append(chat.generator.cache.run(lease, ids, len(ids)).copy())
        chat.close()
    error = abs(found[1] - found[0]).max() / abs(found[0]).max()
    assert 1e-4 < error < 0.1
