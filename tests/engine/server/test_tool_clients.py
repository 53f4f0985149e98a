"""Tools through real clients, with the real starter model. The extra `clients` installs them; those that are
not there are skipped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.engine.server.served import TOKEN, Served

pytestmark = [pytest.mark.loopback, pytest.mark.slow, pytest.mark.real_model]

ASKED = [{"role": "user", "content": "What is the weather and the time in Paris?"}]


@pytest.fixture(scope="module")
def starter(starter_path: Path) -> Iterator[Served]:
    found = Served(starter_path, context=2048)
    yield found
    found.close()


@pytest.fixture
def client(starter: Served) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=starter.server.url, api_key=TOKEN, max_retries=0) as found:
        yield found


def models() -> tuple[Any, Any]:
    """The arguments of two tools, as pydantic models."""
    pydantic = pytest.importorskip("pydantic")

    class get_weather(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        """Get the weather of a city."""

        city: str
        days: int = pydantic.Field(ge=1, le=9)
        unit: Literal["C", "F"]

    class get_time(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        """Get the time in a city."""

        city: str

    return get_weather, get_time


def test_openais_stream_helper_with_two_parallel_tools(client: Any) -> None:
    openai = pytest.importorskip("openai")
    tools = [openai.pydantic_function_tool(model) for model in models()]
    names: list[str] = []
    pieces = 0
    with client.chat.completions.stream(
        model="tiny", messages=ASKED, tools=tools, tool_choice="required", temperature=0, max_tokens=200
    ) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.done":
                names.append(event.name)
                assert event.parsed_arguments.city == "Paris"
            pieces += event.type == "tool_calls.function.arguments.delta"
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert final.message.content is None
    assert [call.function.name for call in final.message.tool_calls] == names == ["get_weather", "get_time"]
    assert pieces > len(names)
    assert len({call.id for call in final.message.tool_calls}) == 2


def test_openais_parse_gives_pydantic_models(client: Any) -> None:
    openai = pytest.importorskip("openai")
    weather, time = models()
    tools = [openai.pydantic_function_tool(model) for model in (weather, time)]
    for chosen, kind in (("get_weather", weather), ("get_time", time)):
        reply = client.chat.completions.parse(
            model="tiny", messages=ASKED, tools=tools, temperature=0, max_tokens=200,
            tool_choice={"type": "function", "function": {"name": chosen}},
        )  # fmt: skip
        (call,) = reply.choices[0].message.tool_calls
        assert isinstance(call.function.parsed_arguments, kind)
        assert call.function.parsed_arguments.city == "Paris"


def test_openai_gets_the_result_back(client: Any) -> None:
    openai = pytest.importorskip("openai")
    tools = [openai.pydantic_function_tool(models()[1])]
    fields: dict[str, Any] = {"model": "tiny", "tools": tools, "temperature": 0, "max_tokens": 60}
    reply = client.chat.completions.create(messages=ASKED, tool_choice="required", **fields)
    message = reply.choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "12:34"} for call in message.tool_calls]
    last = client.chat.completions.create(messages=[*ASKED, message, *results], tool_choice="none", **fields)
    assert last.choices[0].finish_reason in ("stop", "length")
    assert last.choices[0].message.content


def test_openais_error_for_a_schema_that_cannot_be_enforced(client: Any) -> None:
    openai = pytest.importorskip("openai")
    wrong = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
    tools = [{"type": "function", "function": {"name": "look", "parameters": wrong}}]
    with pytest.raises(openai.BadRequestError, match="schema of the tool 'look'"):
        client.chat.completions.create(model="tiny", messages=ASKED, tools=tools, tool_choice="required")


def chat_model(starter: Served) -> Any:
    langchain = pytest.importorskip("langchain_openai")
    return langchain.ChatOpenAI(
        base_url=starter.server.url, api_key=TOKEN, model="tiny", temperature=0, max_retries=0, max_tokens=200
    )


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_langchain_structures_output(starter: Served, method: str) -> None:
    weather, _ = models()
    structured = chat_model(starter).with_structured_output(weather, method=method)
    found = structured.invoke("What is the weather in Paris for 3 days, in C?")
    assert isinstance(found, weather)
    assert found.city


def test_langchain_binds_tools(starter: Served) -> None:
    bound = chat_model(starter).bind_tools([*models()], tool_choice="required")
    found = bound.invoke("What is the weather and the time in Paris?")
    assert found.invalid_tool_calls == []
    assert [call["name"] for call in found.tool_calls] == ["get_weather", "get_time"]
    assert all(call["args"]["city"] == "Paris" for call in found.tool_calls)
    streamed = None
    for chunk in bound.stream("What is the weather and the time in Paris?"):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed is not None
    assert [call["args"] for call in streamed.tool_calls] == [call["args"] for call in found.tool_calls]


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_instructor_needs_no_retry(client: Any, mode: str) -> None:
    instructor = pytest.importorskip("instructor")
    pydantic = pytest.importorskip("pydantic")

    class Person(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        name: str
        age: int

    asked = [{"role": "user", "content": "Jason is 25 years old."}]
    patched = instructor.from_openai(client, mode=instructor.Mode[mode])
    found = patched.chat.completions.create(
        model="tiny", messages=asked, response_model=Person, max_retries=0, temperature=0, max_tokens=100
    )
    assert isinstance(found, Person)
    assert found.age == 25


def test_pydantic_ai_calls_a_tool(starter: Served) -> None:
    ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    pydantic = pytest.importorskip("pydantic")

    class Answer(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        city: str
        hours: int

    async def run() -> Any:
        import httpx2

        async with httpx2.AsyncClient() as http:
            provider = OpenAIProvider(base_url=starter.server.url, api_key=TOKEN, http_client=http)
            agent = ai.Agent(
                OpenAIChatModel("tiny", provider=provider), output_type=Answer, retries=0,
                model_settings={"temperature": 0, "max_tokens": 200},
            )  # fmt: skip
            asked: list[str] = []

            async def until_asked(context: Any, tool: Any) -> Any:
                return None if asked else tool

            @agent.tool_plain(prepare=until_asked)  # type: ignore[untyped-decorator]
            def get_time(city: str) -> str:
                """Get the time in a city."""
                asked.append(city)
                return "12:34"

            result = await agent.run("What is the time in Paris?")
            return result.output, asked

    output, asked = asyncio.run(run())
    assert isinstance(output, Answer)
    assert set(asked) == {"Paris"}


def test_openais_agents_call_a_tool(starter: Served) -> None:
    agents = pytest.importorskip("agents")
    openai = pytest.importorskip("openai")
    agents.set_tracing_disabled(True)
    asked: list[str] = []

    @agents.function_tool  # type: ignore[untyped-decorator]
    def get_time(city: str) -> str:
        """Get the time in a city."""
        asked.append(city)
        return "12:34"

    async def run() -> Any:
        async with openai.AsyncOpenAI(
            base_url=starter.server.url, api_key=TOKEN, max_retries=0
        ) as connection:
            agent = agents.Agent(
                name="Clock", instructions="Use the tool.", tools=[get_time],
                model=agents.OpenAIChatCompletionsModel("tiny", connection),
                model_settings=agents.ModelSettings(tool_choice="required", temperature=0, max_tokens=200),
            )  # fmt: skip
            return await agents.Runner.run(agent, "What is the time in Paris?")

    result = asyncio.run(run())
    assert asked[0] == "Paris"
    assert result.final_output
    assert json.dumps(result.to_input_list(), default=str)
