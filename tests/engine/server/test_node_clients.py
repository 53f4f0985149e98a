"""Clients for Node.js, with a tiny random model.

`npm install openai @ai-sdk/openai-compatible @ai-sdk/cohere @ai-sdk/groq ai @openai/codex` in some folder,
whose path is `INGLENOOK_NODE`, and the packages of `AGENTS` that are to be tried; without it these tests are
skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any

import pytest

from engine.core import ChatRequest, Tool
from engine.lazy_dataclass import dataclass
from engine.server.anthropic import messages
from engine.server.fields import Fields
from engine.server.gemini import content
from engine.server.host import Work
from engine.server.openai import chat
from engine.server.responses import create
from tests.engine.server.served import NUMBERS, TOKEN, Served
from tests.tiny import TINY, write_folder

FOLDER = os.environ.get("INGLENOOK_NODE", "")
pytestmark = [
    pytest.mark.loopback, pytest.mark.slow,
    pytest.mark.skipif(not (FOLDER and shutil.which("node")), reason="INGLENOOK_NODE names no folder of npm"),
]  # fmt: skip
SECONDS = 240


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = write_folder(tmp_path_factory.mktemp("node") / "tiny", TINY.but(context_length=65536))
    found = Served(folder, context=60000)  # Codex's own prompt has 30,000 tokens of this vocabulary
    found.record_headless()
    yield found
    found.close()


def installed(name: str) -> None:
    if not (Path(FOLDER) / "node_modules" / name).is_dir():
        pytest.skip(f"{name} is not installed in INGLENOOK_NODE")


def run(command: list[str], cwd: str | Path, more: Mapping[str, str]) -> str:
    found = subprocess.run(
        command, cwd=cwd, env={**os.environ, **more}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    return found.stdout


def node(served: Served, script: str) -> Any:
    """The JSON that a module prints; `URL`, `TOKEN` and `NUMBERS` are defined."""
    given = {"URL": served.server.url, "TOKEN": TOKEN, "NUMBERS": NUMBERS}
    head = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
    return json.loads(run(["node", "--input-type=module", "-e", head + script], FOLDER, {}))


def test_openai(served: Served) -> None:
    installed("openai")
    found = node(
        served,
        """
        import OpenAI from "openai";
        const client = new OpenAI({ baseURL: URL, apiKey: TOKEN, maxRetries: 0 });
        const messages = [{ role: "user", content: "Hello" }];
        const tool = { name: "count", parameters: NUMBERS };
        const fields = { model: "tiny", seed: 3 };
        const chat = client.chat.completions.stream({
          ...fields, messages, tools: [{ type: "function", function: tool }], tool_choice: "required",
        });
        const message = (await chat.finalChatCompletion()).choices[0];
        const stream = client.responses.stream({
          ...fields, input: "Hello", tools: [{ type: "function", ...tool }], tool_choice: "required",
        });
        const kinds = [];
        for await (const event of stream) kinds.push(event.type);
        const response = await stream.finalResponse();
        const plain = await client.responses.create({ ...fields, input: "Hello", max_output_tokens: 8 });
        const embedding = await client.embeddings.create({ model: "tiny", input: "Hello" });
        console.log(JSON.stringify({
          reason: message.finish_reason, chat: message.message.tool_calls[0].function.arguments, kinds,
          response: response.output[0].arguments, text: plain.output_text,
          numbers: embedding.data[0].embedding.length,
        }));
        """,
    )
    assert found["reason"] == "tool_calls"
    assert found["chat"] == found["response"]
    assert 0 <= json.loads(found["chat"])["n"] <= 99
    assert (found["kinds"][0], found["kinds"][-1]) == ("response.created", "response.completed")
    assert found["text"]
    assert found["numbers"] == TINY.width


def test_the_ai_sdk(served: Served) -> None:
    installed("@ai-sdk/openai-compatible")
    installed("ai")
    found = node(
        served,
        """
        import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
        import { embed, generateText, jsonSchema, streamText, tool } from "ai";
        const ink = createOpenAICompatible({ name: "ink", baseURL: URL, apiKey: TOKEN, includeUsage: true });
        const count = tool({ description: "Counts.", inputSchema: jsonSchema(NUMBERS) });
        const fields = { model: ink("tiny"), prompt: "Hello", seed: 5, maxRetries: 0 };
        const whole = await generateText({ ...fields, maxOutputTokens: 8 });
        const streamed = streamText({ ...fields, maxOutputTokens: 8 });
        let text = "";
        for await (const piece of streamed.textStream) text += piece;
        const usage = await streamed.usage;
        const called = streamText({ ...fields, seed: 3, tools: { count }, toolChoice: "required" });
        const calls = await called.toolCalls;
        const { embedding } = await embed({ model: ink.textEmbeddingModel("tiny"), value: "Hello" });
        console.log(JSON.stringify({
          whole: whole.text, text, tokens: usage.outputTokens, name: calls[0].toolName, input: calls[0].input,
          numbers: embedding.length,
        }));
        """,
    )
    assert found["text"] == found["whole"] != ""
    assert found["tokens"] == 8
    assert found["name"] == "count"
    assert 0 <= found["input"]["n"] <= 99
    assert found["numbers"] == TINY.width


def test_codex_finishes_a_call_of_a_tool(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The random model's first reply is made to call Codex's tool with a harmless command."""
    installed("@openai/codex")
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        f'model = "tiny"\nmodel_provider = "ink"\n[model_providers.ink]\nname = "ink"\n'
        f'base_url = "{served.server.url}"\nenv_key = "INK_KEY"\nwire_api = "responses"\n'
        "request_max_retries = 0\nstream_max_retries = 0\n"
    )
    asked: list[Any] = []
    command = {"cmd": {"const": "echo warm by the fire"}}
    schema = {"type": "object", "properties": command, "required": ["cmd"], "additionalProperties": False}
    real = create.response_call

    def directed(fields: Fields, *others: Any) -> create.ResponseCall:
        call = real(fields, *others)
        assert call.request is not None
        asked.append(fields.get("input"))
        if len(asked) == 1:
            tools = (Tool("exec_command", "", json.dumps(schema)),)
            return replace(call, request=replace(call.request, tools=tools, tool_choice="exec_command"))
        answer = replace(call.request.constraint, format="choices", pattern="Done.")
        return replace(call, request=replace(call.request, constraint=answer, tools=()))

    monkeypatch.setattr(create, "response_call", directed)
    printed = run(
        [str(Path(FOLDER) / "node_modules" / ".bin" / "codex"), "exec", "--skip-git-repo-check", "--json",
         "--sandbox", "danger-full-access", "Say it"],
        tmp_path / "work", {"CODEX_HOME": str(tmp_path / "home"), "INK_KEY": TOKEN},
    )  # fmt: skip
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    executed = [item for item in items if item["type"] == "command_execution"]
    assert [(item["aggregated_output"].strip(), item["exit_code"]) for item in executed] == [
        ("warm by the fire", 0)
    ]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == ["Done."]
    assert events[-1]["type"] == "turn.completed"
    outputs = [item for item in asked[1] if item["type"] == "function_call_output"]
    assert len(outputs) == 1
    assert "warm by the fire" in json.dumps(outputs)


def test_the_ai_sdks_clients_of_hosted_apis(served: Served) -> None:
    installed("@ai-sdk/cohere")
    installed("@ai-sdk/groq")
    found = node(
        served,
        """
        import { createCohere } from "@ai-sdk/cohere";
        import { createGroq } from "@ai-sdk/groq";
        import { embed, generateText, jsonSchema, Output, streamText, tool } from "ai";
        const host = URL.replace("/v1", "");
        const cohere = createCohere({ baseURL: host + "/v2", apiKey: TOKEN });
        const groq = createGroq({ baseURL: host + "/openai/v1", apiKey: TOKEN });
        const count = tool({ description: "Counts.", inputSchema: jsonSchema(NUMBERS) });
        const found = [];
        for (const model of [cohere("tiny"), groq("tiny")]) {
          const fields = { model, prompt: "Hello", seed: 5, maxRetries: 0 };
          const streamed = streamText({ ...fields, maxOutputTokens: 8 });
          let text = "";
          for await (const piece of streamed.textStream) text += piece;
          const called = streamText({ ...fields, seed: 3, tools: { count }, toolChoice: "required" });
          const output = Output.object({ schema: jsonSchema(NUMBERS) });
          found.push({
            whole: (await generateText({ ...fields, maxOutputTokens: 8 })).text, text,
            tokens: (await streamed.usage).outputTokens, calls: await called.toolCalls,
            output: (await generateText({ ...fields, output })).output,
          });
        }
        const vector = await embed({ model: cohere.textEmbeddingModel("tiny"), value: "Hello" });
        console.log(JSON.stringify({ found, numbers: vector.embedding.length }));
        """,
    )
    assert found["numbers"] == TINY.width
    for one in found["found"]:
        assert one["text"] == one["whole"] != ""
        assert one["tokens"] == 8
        assert one["output"]["n"] in range(100)
        assert all(call["toolName"] == "count" and call["input"]["n"] in range(100) for call in one["calls"])
        assert one["calls"]


# -- agents

SAID, DONE = "warm by the fire", "Done, and nothing is left."
SHELLS = ("bash", "run_shell_command", "run_commands")
"""What agents call the tool that runs a command, in small letters."""


@dataclass(frozen=True)
class Agent:
    """A program that calls tools: its `package` and the module of the `api` that it speaks. In the texts,
    $HOST, $URL and $TOKEN are the server's. It runs in the folder that is its HOME, where the `files` are.
    """

    package: str
    api: Any
    commands: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str]


_OPENCODE = {
    "provider": {
        "ink": {
            "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "$URL", "apiKey": "$TOKEN"},
            "models": {"tiny": {"name": "tiny", "limit": {"context": 60000, "output": 4000}}},
        }
    },
    "model": "ink/tiny", "small_model": "ink/tiny", "autoupdate": False, "permission": {"bash": "allow"},
}  # fmt: skip
_CONTINUE = {
    "name": "x", "version": "0.0.1", "schema": "v1",
    "models": [{
        "name": "tiny", "provider": "openai", "model": "tiny", "apiBase": "$URL", "apiKey": "$TOKEN",
        "roles": ["chat"], "capabilities": ["tool_use"],
    }],
}  # fmt: skip
AGENTS = (
    Agent(
        "@anthropic-ai/claude-code", messages, ("claude -p Say_it --allowedTools Bash",),
        {"ANTHROPIC_BASE_URL": "$HOST", "ANTHROPIC_AUTH_TOKEN": "$TOKEN", "ANTHROPIC_MODEL": "tiny",
         "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}, {},
    ),
    Agent(
        "@google/gemini-cli", content, ("gemini -m tiny -y -p Say_it",),
        {"GEMINI_API_KEY": "$TOKEN", "GOOGLE_GEMINI_BASE_URL": "$HOST", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
        {".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}})},
    ),
    Agent(
        "@qwen-code/qwen-code", chat, ("qwen --auth-type openai -y -p Say_it",),
        {"OPENAI_API_KEY": "$TOKEN", "OPENAI_BASE_URL": "$URL", "OPENAI_MODEL": "tiny"}, {},
    ),
    Agent("opencode-ai", chat, ("opencode run Say_it",), {}, {"opencode.json": json.dumps(_OPENCODE)}),
    Agent(
        "cline", chat,
        ("cline auth openai-compatible -k $TOKEN -m tiny -b $URL", "cline --json --auto-approve true Say_it"),
        {}, {},
    ),
    Agent(
        "@continuedev/cli", chat, ("cn -p --config config.yaml --allow Bash Say_it",), {},
        {"config.yaml": json.dumps(_CONTINUE)},
    ),
)  # fmt: skip


def only_call(tool: Tool) -> Tool:
    """The tool with arguments that allow one harmless command alone."""
    schema = json.loads(tool.parameters)
    command = f"echo {SAID}"
    known = {"command": command, "commands": [command]}
    plain = {"boolean": False, "integer": 5000, "number": 5000, "string": "Say it"}
    fixed = {
        name: {"const": known.get(name, plain.get(schema["properties"][name].get("type"), "Say it"))}
        for name in schema["required"]
    }
    only = {"type": "object", "properties": fixed, "required": [*fixed], "additionalProperties": False}
    return replace(tool, parameters=json.dumps(only))


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.package)
def test_an_agent_finishes_a_call_of_a_tool(
    agent: Agent, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The random model is made to call the tool that runs commands, then to end."""
    installed(agent.package)
    host = served.server.url.removesuffix("/v1")

    def filled(text: str) -> str:
        return Template(text).substitute(HOST=host, URL=served.server.url, TOKEN=TOKEN)

    for name, text in agent.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(filled(text))
    asked: list[ChatRequest] = []
    real: Callable[[ChatRequest, int | None], Work] = agent.api.chat_work

    def directed(request: ChatRequest, logprobs: int | None) -> Work:
        asked.append(request)
        shell = next((tool for tool in request.tools if tool.name.lower() in SHELLS), None)
        if shell is None or any(message.role == "tool" for message in request.messages):
            answer = replace(request.constraint, format="choices", pattern=DONE)
            return real(replace(request, constraint=answer, tools=(), tool_choice="auto"), logprobs)
        return real(replace(request, tools=(only_call(shell),), tool_choice=shell.name), logprobs)

    monkeypatch.setattr(agent.api, "chat_work", directed)
    environment = {name: filled(value) for name, value in agent.environment.items()}
    environment |= {"HOME": str(tmp_path), "PWD": str(tmp_path)}
    for command in agent.commands:
        name, *words = filled(command).split()
        program = str(Path(FOLDER) / "node_modules" / ".bin" / name)
        printed = run([program, *(word.replace("_", " ") for word in words)], tmp_path, environment)
    assert DONE in printed
    results = [message.content for message in asked[-1].messages if message.role == "tool"]
    assert len(results) == 1
    assert SAID in results[0]
