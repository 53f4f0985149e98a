"""Bodies of every shape for all endpoints, and what an answer to them must look like."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.engine.server.served import HELLO, Answer

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CONTENTS = [{"role": "user", "parts": [{"text": "Hello"}]}]
VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO, "max_tokens": 2},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 2},
    "/v1/fim/completions": {"prompt": "Hello", "max_tokens": 2},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 2},
    "/v1/responses/input_tokens": {"input": "Hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 2},
    "/v1/messages/count_tokens": {"messages": HELLO},
    "/v1/embeddings": {"input": "Hello"},
    "/v1/chat": {"message": "Hello", "max_tokens": 2},
    "/v2/chat": {"messages": HELLO, "max_tokens": 2},
    "/v2/embed": {"texts": ["Hello"], "input_type": "search_query"},
    "/tokenize": {"prompt": "Hello"},
    "/detokenize": {"tokens": [5]},
    "/v1/tokenize": {"prompt": "Hello"},
    "/v1/detokenize": {"tokens": [5]},
    "/apply-template": {"messages": HELLO},
    "/api/chat": {"messages": HELLO, "options": {"num_predict": 2}},
    "/api/generate": {"prompt": "Hello", "options": {"num_predict": 2}},
    "/api/embed": {"input": "Hello"},
    "/api/embeddings": {"prompt": "Hello"},
    "/api/show": {"model": "tiny"},
    "/api/pull": {"model": "tiny"},
    "/api/v1/generate": {"prompt": "Hello", "max_length": 2},
    "/api/extra/tokencount": {"prompt": "Hello"},
    "/api/extra/generate/check": {"genkey": "none"},
    "/api/extra/abort": {"genkey": "none"},
    "/api/v1/chat": {"input": "Hello", "max_output_tokens": 2},
    "/api/v1/models/unload": {"instance_id": "none"},
    "/embedding": {"content": "Hello"},
    "/v1beta/models/tiny:generateContent": {"contents": CONTENTS, "generationConfig": {"maxOutputTokens": 2}},
    "/v1beta/models/tiny:streamGenerateContent": {
        "contents": CONTENTS,
        "generationConfig": {"maxOutputTokens": 2},
    },
    "/v1beta/models/tiny:countTokens": {"contents": CONTENTS},
    "/v1beta/models/tiny:embedContent": {"content": CONTENTS[0]},
    "/v1beta/models/tiny:batchEmbedContents": {"requests": [{"content": CONTENTS[0]}]},
    "/v1/model/load": {"name": "tiny"},
    "/v1/token/encode": {"text": "Hello"},
    "/v1/token/decode": {"tokens": [5]},
    "/v1/internal/encode": {"text": "Hello"},
    "/v1/internal/decode": {"tokens": [5]},
    "/v1/internal/token-count": {"text": "Hello"},
    "/v1/internal/logits": {"prompt": "Hello"},
    "/v1/internal/chat-prompt": {"messages": HELLO},
    "/v1/internal/model/load": {"model_name": "tiny"},
    "/v1/models/load": {"model": "tiny"},
    "/v1/models/unload": {"model": "none"},
}
"""All endpoints that take a body, with one that each accepts (the last names no model)."""
WITHOUT_BODY = ("/api/extra/generate/check", "/api/extra/abort")
"""Endpoints that also answer a request without a body."""
SHORT = {"max_tokens": 2, "max_output_tokens": 2, "max_completion_tokens": 2}
_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    | st.sampled_from([
        "user", "assistant", "system", "tool", "developer", "function", "text", "json_schema", "json_object",
        "auto", "required", "none", "any", "low", "high", "object", "string", "array", "integer", "message",
        "function_call", "function_call_output", "reasoning", "item_reference", "tool_use", "tool_result",
        "thinking", "enabled", "disabled", "image_url", "input_text", "document", "^a", "#", "look",
        "\ud800", "<|im_end|>", "<tool_call>", "{", -1, 0, 2, 1e308,
    ])
)  # fmt: skip
_KEYS = st.sampled_from([
    "type", "role", "content", "text", "name", "function", "parameters", "arguments", "id", "call_id",
    "tool_calls", "tool_call_id", "tool_use_id", "input_schema", "properties", "required", "enum", "const",
    "anyOf", "allOf", "items", "pattern", "minLength", "$ref", "json_schema", "schema", "format", "effort",
    "include_usage", "mode", "tools", "allowed_tools", "input", "output", "summary", "thinking", "source",
    "parts", "thought", "functionCall", "functionResponse", "args", "response", "nullable", "maxLength",
])  # fmt: skip
JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS | st.text(), inner, max_size=4),
    max_leaves=12,
)
_NAMES = (
    "messages", "prompt", "model", "stream", "stream_options", "n", "stop", "seed", "temperature", "top_p",
    "top_k", "logprobs", "top_logprobs", "logit_bias", "response_format", "max_tokens", "echo", "suffix",
    "chat_template_kwargs", "continue_final_message", "add_generation_prompt", "tokens", "min_tokens", "user",
    "input", "instructions", "previous_response_id", "tools", "tool_choice", "parallel_tool_calls",
    "functions", "function_call", "text", "reasoning", "reasoning_effort", "include", "truncation", "store",
    "metadata", "system", "stop_sequences", "thinking", "output_config", "output_format", "dimensions",
    "encoding_format", "pooling", "best_of", "ignore_eos", "stop_token_ids", "return_token_strs",
    "add_special_tokens", "max_output_tokens", "background", "conversation", "format", "think", "raw",
    "truncate", "images", "context", "template", "content", "memory", "input_prefix", "input_suffix",
    "input_extra", "rep_pen", "stop_sequence", "t_max_predict_ms", "banned_strings", "banned_tokens",
    "allowed_tokens", "dry_sequence_breakers", "dry_multiplier", "mirostat", "mirostat_mode", "cfg_scale",
    "negative_prompt", "response_prefix", "template_vars", "temperature_last", "token_healing", "min_temp",
    "max_temp", "speculative_ngram", "add_bos_token", "regex_pattern", "grammar_string", "top_logits",
    "contents", "systemInstruction", "toolConfig", "requests", "documents", "p", "k", "texts", "inputs",
    "embedding_types", "output_dimension",
)  # fmt: skip
_OPTIONS_OF_GOOGLE = st.dictionaries(
    st.sampled_from([
        "topP", "topK", "stopSequences", "candidateCount", "responseMimeType", "responseSchema", "logprobs",
        "responseLogprobs", "thinkingConfig", "responseModalities", "seed", "responseJsonSchema",
    ]),
    JSON, max_size=3,
)  # fmt: skip
_OPTIONS = st.dictionaries(st.sampled_from(_NAMES), JSON, max_size=3) | JSON
_FIELDS = st.dictionaries(st.sampled_from(_NAMES) | st.text(), JSON, max_size=5)
_TOOLS = st.fixed_dictionaries(
    {"tools": st.lists(st.just(TOOL) | JSON, max_size=2)},
    optional={"tool_choice": JSON | st.just("required")},
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An endpoint and a body for it: anything, or a valid one with some fields replaced."""
    path = draw(st.sampled_from(sorted(VALID)))
    body: dict[str, Any] = {} if draw(st.integers(0, 2)) == 0 else dict(VALID[path])
    body |= draw(_FIELDS)
    if draw(st.integers(0, 3)) == 0:
        body |= draw(_TOOLS)
    if path.endswith(("GenerateContent", "generateContent")):
        body["generationConfig"] = {**draw(_OPTIONS_OF_GOOGLE), "maxOutputTokens": 2}
    if path in ("/v1/model/load", "/v1/internal/model/load"):
        body |= {"name": "tiny", "model_name": draw(st.sampled_from(["tiny", "none", "", None]))}
    if path.startswith("/v1/models/"):
        body["model"] = draw(st.sampled_from(["tiny", "none", ""])) if "un" not in path else "none"
    if path in ("/api/chat", "/api/generate"):
        options = draw(_OPTIONS)
        body["options"] = {**options, "num_predict": 2} if isinstance(options, dict) else options or 0
    return path, body | SHORT


def check(path: str, answer: Answer) -> None:
    """Any answer has the form of its endpoint, an error one plain sentence."""
    assert answer.status in (200, 400, 404, 503), answer.body
    if answer.status != 200:
        check_error(path, answer.json)
    elif answer.headers["content-type"].startswith("text/event-stream"):
        _check_stream(path, answer)
    elif answer.headers["content-type"] == "application/x-ndjson":
        assert {"done", "error", "status"} & set(answer.lines[-1])
    else:
        assert isinstance(answer.json, dict | list) or (
            path.startswith("/v1/internal/") and answer.json == "OK"
        )


def check_error(path: str, body: Any) -> None:
    """An error in the form of Anthropic's API, of Google's, of Cohere's, of Ollama's or of OpenAI's."""
    if path.startswith("/v1/messages"):
        assert (body["type"], set(body["error"])) == ("error", {"type", "message"})
    elif path.startswith("/v1beta/"):
        assert set(body["error"]) == {"code", "message", "status"}
    elif path.startswith("/v2/") or path == "/v1/chat":
        assert set(body) == {"message"}
        body = {"error": body}
    elif path.startswith("/api/") and not path.startswith(("/api/v1/chat", "/api/v1/models")):
        assert set(body) == {"error"}
        body = {"error": {"message": body["error"]}}
    else:
        assert set(body) == {"error"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
    message = body["error"]["message"]
    assert message
    assert "Traceback" not in message
    assert "went wrong inside" not in message
    assert "\n" not in message


def _check_stream(path: str, answer: Answer) -> None:
    if path == "/v1/messages":
        last = answer.named_events[-1]
        assert last["type"] in ("message_stop", "error")
    elif path == "/v2/chat":
        *_, last, end = answer.body.decode()[:-2].split("\n\n")
        assert end == "data: [DONE]"
        assert last.startswith("event: message-end\n")
    elif path == "/api/v1/chat":
        assert answer.named_events[-1]["type"] in ("chat.end", "error")
    elif path == "/v1/model/load":
        assert answer.events[-1]["status"] == "finished"
    elif path == "/v1/responses":
        last = answer.named_events[-1]
        assert last["type"] in ("response.completed", "response.incomplete", "response.failed")
    else:
        assert answer.events[-1] == "[DONE]" or "error" in answer.events[-1]
