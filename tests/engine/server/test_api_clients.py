"""The Responses API, Anthropic's Messages, embeddings and scores through real clients, with the real starter
model. The extra `clients` installs them; those that are not there are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.engine.server.served import TOKEN, Served

pytestmark = [pytest.mark.loopback, pytest.mark.slow, pytest.mark.real_model]

ASKED = [{"role": "user", "content": "What is the weather and the time in Paris?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TIME = {"name": "get_time", "description": "Get the time in a city.", "input_schema": CITY}


@pytest.fixture(scope="module")
def starter(starter_path: Path) -> Iterator[Served]:
    found = Served(starter_path, context=2048)
    found.record_headless()
    yield found
    found.close()


@pytest.fixture
def openai_client(starter: Served) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=starter.server.url, api_key=TOKEN, max_retries=0) as found:
        yield found


@pytest.fixture
def anthropic_client(starter: Served) -> Iterator[Any]:
    anthropic = pytest.importorskip("anthropic")
    address = starter.server.url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=address, api_key=TOKEN, max_retries=0) as found:
        yield found


# -- OpenAI's Responses API


def test_responses_go_on_from_one_to_the_next(openai_client: Any) -> None:
    first = openai_client.responses.create(
        model="tiny", input="My name is Ada.", instructions="Be brief.", temperature=0, max_output_tokens=40
    )
    assert first.output_text
    second = openai_client.responses.create(
        model="tiny",
        input="What is my name?",
        previous_response_id=first.id,
        temperature=0,
        max_output_tokens=40,
    )
    assert second.usage.input_tokens > first.usage.total_tokens
    assert openai_client.responses.retrieve(second.id).output_text == second.output_text
    openai_client.responses.delete(first.id)
    openai = pytest.importorskip("openai")
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="There is no response"):
        openai_client.responses.create(model="tiny", input="x", previous_response_id=first.id)


def test_a_streamed_response_has_calls(openai_client: Any) -> None:
    openai = pytest.importorskip("openai")
    pydantic = pytest.importorskip("pydantic")

    class get_weather(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        """Get the weather of a city."""

        city: str
        unit: Literal["C", "F"]

    kinds: list[str] = []
    with openai_client.responses.stream(
        model="tiny", input=ASKED, tools=[openai.pydantic_function_tool(get_weather)], tool_choice="required",
        temperature=0, max_output_tokens=200, parallel_tool_calls=False,
    ) as stream:  # fmt: skip
        for event in stream:
            kinds.append(event.type)
        final = stream.get_final_response()
    (call,) = final.output
    assert call.parsed_arguments == get_weather(city="Paris", unit=call.parsed_arguments.unit)
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert "response.function_call_arguments.delta" in kinds
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "20 degrees"}
    last = openai_client.responses.create(
        model="tiny", input=[*ASKED, call.to_dict(), result], temperature=0, max_output_tokens=40
    )
    assert last.output_text


def test_a_response_is_parsed(openai_client: Any) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Person(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        name: str
        age: int

    reply = openai_client.responses.parse(
        model="tiny", input="Jason is 25 years old.", text_format=Person, temperature=0, max_output_tokens=100
    )
    assert reply.output_parsed.age == 25
    with openai_client.responses.stream(
        model="tiny", input="Jason is 25 years old.", text_format=Person, temperature=0, max_output_tokens=100
    ) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_parsed == reply.output_parsed


def test_embeddings(openai_client: Any) -> None:
    texts = ["a cat sleeps", "a kitten naps", "stock markets fell"]
    found = openai_client.embeddings.create(model="tiny", input=texts)
    plain = openai_client.embeddings.create(model="tiny", input=texts, encoding_format="float")
    for one, other in zip(found.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-7)
        assert sum(number * number for number in one.embedding) == pytest.approx(1, abs=1e-5)
    cat, kitten, stocks = (item.embedding for item in found.data)
    assert sum(map(float.__mul__, cat, kitten)) > sum(map(float.__mul__, cat, stocks))


# -- Anthropic's Messages


def test_a_message(anthropic_client: Any) -> None:
    fields: dict[str, Any] = {"model": "tiny", "messages": ASKED, "system": "Be brief."}
    zero = {"extra_body": {"temperature": 0}}
    counted = anthropic_client.messages.count_tokens(**fields)
    found = anthropic_client.messages.create(**fields, **zero, max_tokens=20)
    assert found.content[0].text
    assert found.stop_reason == "max_tokens"
    read = found.usage.input_tokens + found.usage.cache_read_input_tokens
    assert (read, found.usage.output_tokens) == (counted.input_tokens, 20)
    with anthropic_client.messages.stream(**fields, **zero, max_tokens=20) as stream:
        assert "".join(stream.text_stream) == found.content[0].text
        assert stream.get_final_message().usage.output_tokens == 20


def test_tools_of_messages(anthropic_client: Any) -> None:
    fields: dict[str, Any] = {"model": "tiny", "tools": [TIME], "max_tokens": 200}
    fields["extra_body"] = {"temperature": 0}
    events: list[str] = []
    with anthropic_client.messages.stream(messages=ASKED, tool_choice={"type": "any"}, **fields) as stream:
        events.extend(event.type for event in stream)
        message = stream.get_final_message()
    assert message.stop_reason == "tool_use"
    assert "input_json" in events
    calls = [block for block in message.content if block.type == "tool_use"]
    assert {call.name for call in calls} == {"get_time"}
    assert calls[0].input == {"city": "Paris"}
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "12:34"} for call in calls]
    answered = [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    last = anthropic_client.messages.create(
        messages=[*ASKED, *answered],
        tool_choice={"type": "none"}, **fields,
    )  # fmt: skip
    assert last.content[0].text


def test_a_message_is_parsed(anthropic_client: Any) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Person(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        name: str
        age: int

    found = anthropic_client.messages.parse(
        model="tiny", messages=[{"role": "user", "content": "Jason is 25 years old."}], output_format=Person,
        max_tokens=100, extra_body={"temperature": 0},
    )  # fmt: skip
    assert found.parsed_output.age == 25


def test_errors_of_messages(anthropic_client: Any) -> None:
    anthropic = pytest.importorskip("anthropic")
    with pytest.raises(anthropic.BadRequestError, match="context"):
        anthropic_client.messages.create(
            model="tiny", messages=[{"role": "user", "content": "word " * 5000}], max_tokens=9
        )
    with (
        anthropic.Anthropic(base_url=anthropic_client.base_url, api_key="wrong", max_retries=0) as wrong,
        pytest.raises(anthropic.AuthenticationError, match="x-api-key"),
    ):
        wrong.messages.create(model="tiny", messages=ASKED, max_tokens=9)


# -- libraries over these


LITELLM = """
import json, sys
import litellm

fields, tools = json.loads(sys.argv[1]), json.loads(sys.argv[2])
whole = litellm.completion(**fields).choices[0].message.content
streamed = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**fields, stream=True)]
called = litellm.completion(**fields, tools=tools, tool_choice="required").choices[0].message.tool_calls
print(json.dumps([whole, "".join(streamed), [json.loads(call.function.arguments) for call in called]]))
"""


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_litellm(starter: Served, provider: str) -> None:
    """In a process of its own: its threads stay."""
    if find_spec("litellm") is None:
        pytest.skip("litellm is not installed")
    address = starter.server.url if provider == "openai" else starter.server.url.removesuffix("/v1")
    fields: dict[str, Any] = {
        "model": f"{provider}/tiny", "api_base": address, "api_key": TOKEN, "messages": ASKED,
        "temperature": 0, "max_tokens": 200, "num_retries": 0,
    }  # fmt: skip
    tools = [{"type": "function", "function": {"name": "get_time", "parameters": CITY}}]
    run = subprocess.run(
        [sys.executable, "-c", LITELLM, json.dumps(fields), json.dumps(tools)],
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    whole, streamed, called = json.loads(run.stdout.splitlines()[-1])
    assert whole
    assert streamed == whole
    assert called[0] == {"city": "Paris"}


@pytest.mark.filterwarnings("ignore")
def test_llm(starter: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    monkeypatch.setenv("LLM_LOAD_PLUGINS", "")
    pytest.importorskip("llm")
    from llm.default_plugins.openai_models import Chat

    model = Chat(
        "tiny", model_name="tiny", api_base=starter.server.url, supports_tools=True, supports_schema=True
    )
    model.key = TOKEN
    text = model.prompt("Hello!", temperature=0, max_tokens=20).text()
    assert text
    assert "".join(model.prompt("Hello!", temperature=0, max_tokens=20, stream=True)) == text
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    found = model.prompt("Jason is 25 years old.", schema=schema, temperature=0, max_tokens=60).text()
    assert json.loads(found)["age"] == 25


@pytest.mark.filterwarnings("ignore")
def test_scores_of_lm_eval_are_those_of_perplexity(starter: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_XET_HIGH_PERFORMANCE", "0")  # it sets this
    pytest.importorskip("lm_eval")
    tqdm = pytest.importorskip("tqdm")
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    from engine.cli.perplexity import negative_log_likelihood

    monkeypatch.setenv("OPENAI_API_KEY", TOKEN)
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # else it leaves a thread
    evaluator = LocalCompletionsAPI(
        model="tiny", base_url=starter.server.url + "/completions", auth_token=TOKEN, max_length=2048,
        max_retries=1, batch_size=4,
    )  # fmt: skip
    text = "The quick brown fox jumps over the lazy dog, and the dog sleeps by the fire. " * 6
    windows = [evaluator.tok_encode(text)[:100], evaluator.tok_encode("One two three " * 30)[:60]]
    ids: list[int] = starter.on_model_thread(lambda chat: chat.tokenizer.encode(text))
    assert windows[0] == ids[:100]
    expected = [
        -starter.on_model_thread(lambda chat, ids=ids: negative_log_likelihood(chat.generator.cache, [*ids]))
        for ids in windows
    ]
    asked = [(("", ""), ids[: len(ids) // 2 + 1], ids[len(ids) // 2 + 1 :]) for ids in windows]
    found = evaluator._loglikelihood_tokens(asked, disable_tqdm=True)
    assert [score for score, _ in found] == pytest.approx(expected, abs=1e-3)
