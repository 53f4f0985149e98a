"""Real clients against the server. The extra `clients` installs them; without it the tests are skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.server.served import HELLO, TOKEN, Served

pytestmark = [pytest.mark.loopback, pytest.mark.slow]


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=served.server.url, api_key=TOKEN, max_retries=0) as found:
        yield found


def test_openai_chats(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["tiny", "other"]
    whole = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=8, n=2, seed=1, logprobs=True, top_logprobs=2
    )
    assert len(whole.choices) == 2
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=8, seed=1, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens // 2


def shape() -> Any:
    pydantic = pytest.importorskip("pydantic")
    return pydantic.create_model("Shape", sides=(int, pydantic.Field(ge=3, le=5)), round=(bool, ...))


def test_openais_stream_helper(client: Any) -> None:
    with client.chat.completions.stream(
        model="tiny", messages=HELLO, max_tokens=200, seed=1, response_format=shape()
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"content.delta", "content.done"} <= kinds
    assert 3 <= final.choices[0].message.parsed.sides <= 5


def test_openais_structured_replies(client: Any) -> None:
    reply = client.chat.completions.parse(
        model="tiny", messages=HELLO, max_tokens=200, seed=2, response_format=shape()
    )
    assert 3 <= reply.choices[0].message.parsed.sides <= 5


def test_openais_completions(client: Any) -> None:
    scored = client.completions.create(
        model="tiny", prompt="The quick brown", echo=True, logprobs=1, max_tokens=0
    )
    logprobs = scored.choices[0].logprobs
    assert logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])


def test_openais_errors(client: Any) -> None:
    openai = pytest.importorskip("openai")
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=0)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")


@pytest.mark.real_model
def test_scores_of_a_real_model_are_those_of_perplexity(starter_path: Path) -> None:
    from engine.cli.perplexity import negative_log_likelihood
    from tests.engine.server.served import ask

    served = Served(starter_path, context=512)
    try:
        text = "The old lighthouse keeper climbed the stairs every evening before the sun went down. " * 6
        ids = served.on_model_thread(lambda chat: chat.tokenizer.encode(text))[:90]
        expected = served.on_model_thread(
            lambda chat: negative_log_likelihood(chat.generator.cache, list(ids))
        )
        body = {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
        found = ask(served, "/v1/completions", body).json["choices"][0]["logprobs"]["token_logprobs"]
        assert -sum(found[46:90]) == pytest.approx(expected, abs=1e-3)
        assert json.dumps(found)
    finally:
        served.close()
