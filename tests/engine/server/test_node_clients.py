"""Clients for Node.js, with a tiny random model.

`npm install openai @ai-sdk/openai-compatible ai @openai/codex` in some folder, whose path is
`INGLENOOK_NODE`; without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.core import Tool
from engine.server.fields import Fields
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
