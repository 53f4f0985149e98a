"""Addresses, what is kept of a server, requests, and what a server cannot do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.core import ChatRequest, Message
from engine.core.requests import Tool, ToolCall
from engine.errors import BadSetting
from engine.remote import PRESETS, Capabilities, Provider, model_address, split_address
from engine.remote.chat import remote_info
from engine.remote.parameters import reason_against, reason_against_all
from engine.remote.provider import is_loopback, normalised
from engine.remote.request import Prepared, prepare
from engine.settings import (
    ConstraintSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
    ThinkingSettings,
)

NOTHING = Capabilities(chat=True)
VLLM = Capabilities(
    chat=True, completions=True, usage=True, top_logprobs=20, continues="flags", schema="response_format",
    regex="structured_outputs.regex", grammar="structured_outputs.grammar", stops=True, stop_reason=True,
    taken=("temperature", "top_p", "seed", "top_k", "min_p", "repetition_penalty", "logit_bias"),
)  # fmt: skip
HI = Message("user", "Hi")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("localhost:8000", "http://localhost:8000/v1"),
        ("127.0.0.1:11434/", "http://127.0.0.1:11434/v1"),
        ("[::1]:8000", "http://[::1]:8000/v1"),
        ("api.example.org", "https://api.example.org/v1"),
        (" HTTPS://API.Example.org:443/v1/chat/completions ", "https://api.example.org/v1"),
        ("http://10.0.0.5:80/openai//v1/", "http://10.0.0.5/openai/v1"),
        ("https://example.org/api/v3/models", "https://example.org/api/v3"),
    ],
)
def test_addresses_are_normalised(given: str, address: str) -> None:
    assert normalised(given) == address == normalised(address)


@pytest.mark.parametrize(
    "given",
    ["", "https://", "ftp://host/v1", "https://me:secret@host/v1", "https://host/v1?key=secret",
     "http://a b/v1", "https://host:99999/v1", "https://host/v1#x"],
)  # fmt: skip
def test_what_cannot_be_an_address(given: str) -> None:
    with pytest.raises(BadSetting) as caught:
        normalised(given)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "a.localhost", "127.3.2.1", "::1", "[::1]"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "10.0.0.1", "localhost.example.org", "127.0.0.1.example.org", ""]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("model", ["m", "meta-llama/Llama-3", "gpt-oss:20b", "a b%/é?#:"])
def test_the_address_of_a_model(model: str) -> None:
    address = model_address("lab-1", model)
    assert split_address(address) == ("lab-1", model)
    assert "/" not in address


@pytest.mark.parametrize("path", ["/models/a.gguf", "remote:", "remote:lab", "remote:lab:", "remote:../x:m"])
def test_other_paths(path: str) -> None:
    assert split_address(path) is None


def test_a_provider_is_kept_without_its_key() -> None:
    provider = Provider("lab", "Lab", "https://api.example.org", True, 4096, True, (("X-Team", "a"),),
                        "org/m", 90)  # fmt: skip
    assert Provider.from_json(provider.to_json()) == provider
    assert "key" not in provider.to_json()
    assert (provider.host, provider.encrypted, provider.on_this_computer) == ("api.example.org", True, False)
    assert Provider.from_json({**provider.to_json(), "later": 1, "unencrypted": "yes"}).unencrypted is False
    with pytest.raises(BadSetting, match="lacks its base_url"):
        Provider.from_json({"id": "lab", "name": "Lab"})
    for wrong in ({"id": "Lab!"}, {"name": " "}, {"context_length": -1}, {"headers": (("a\n", "b"),)},
                  {"longest_wait": -1}, {"longest_wait": 90_000}, {"model": "m" * 301}):  # fmt: skip
        with pytest.raises(BadSetting):
            replace(provider, **wrong)  # type: ignore[arg-type]


def test_presets_have_valid_addresses() -> None:
    assert [normalised(preset.base_url) for preset in PRESETS[:-1]] == [p.base_url for p in PRESETS[:-1]]


def test_capabilities_are_kept() -> None:
    assert Capabilities.from_json(VLLM.to_json()) == VLLM
    assert Capabilities.from_json(
        {"chat": "yes", "taken": "seed", "later": 1, "usage": True, "probed": True}
    ) == Capabilities(usage=True)
    assert dict(VLLM.rows())["Probabilities of tokens"] == "yes, with up to 20 alternatives"
    assert dict(NOTHING.rows())["Continues a reply"] == "no, it starts a new one"


def prepared(known: Capabilities = VLLM, messages: tuple[Message, ...] = (HI,), **more: Any) -> Prepared:
    return prepare(ChatRequest(messages, **more), "m", known, "Lab")


def body(known: Capabilities = VLLM, messages: tuple[Message, ...] = (HI,), **more: Any) -> Any:
    return prepared(known, messages, **more).call.body


def test_a_server_that_can_do_nothing_gets_the_least() -> None:
    found = prepared(NOTHING, stops=StopSettings(max_tokens=9))
    assert found.call.path == "/chat/completions"
    assert found.call.body == {
        "model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9,
    }  # fmt: skip
    assert found.not_sent == ("Temperature", "Top K", "Top P", "Min P")
    assert "max_tokens" not in body(NOTHING, stops=StopSettings(max_tokens=0))
    assert body(replace(NOTHING, limit="max_completion_tokens"))["max_completion_tokens"] == 2048


def test_settings_are_sent_even_if_they_are_neutral() -> None:
    found = body(sampler=SamplerSettings(temperature=0, top_k=0, top_p=0, min_p=0, seed=7))
    assert (found["temperature"], found["top_k"], found["min_p"], found["seed"]) == (0, 1 << 20, 0, 7)
    assert 0 < found["top_p"] < 1e-3
    assert "seed" not in body()
    assert prepared(sampler=SamplerSettings(xtc_probability=0.5)).not_sent == ("XTC probability",)
    assert "Seed" in prepared(NOTHING, sampler=SamplerSettings(seed=1)).not_sent


def test_probabilities() -> None:
    asked = body(output=OutputSettings(alternatives=50))
    assert (asked["logprobs"], asked["top_logprobs"]) == (True, 20)
    assert "top_logprobs" not in body(output=OutputSettings(alternatives=0))
    assert body(replace(VLLM, top_logprobs=-1))["logprobs"] is True
    assert body(plain=True)["logprobs"] == 5
    assert "logprobs" not in body(NOTHING)


def test_stop_strings_are_sent_only_where_the_server_says_which_it_found() -> None:
    stops = StopSettings(stop_strings=("a", "b"))
    assert body(stops=stops)["stop"] == ["a", "b"]
    assert prepared(stops=stops).here.strings == ()
    for known, more in (
        (replace(VLLM, stop_reason=False), stops),
        (VLLM, StopSettings(stop_strings=("a", "b"), keep_stop=True)),
        (VLLM, StopSettings(stop_strings=tuple("abcde"))),
    ):
        found = prepared(known, stops=more)
        assert "stop" not in (found.call.body or {})
        assert found.here.strings == more.stop_strings
    assert len(body(stops=StopSettings(stop_strings=tuple("abcd")))["stop"]) == 4


def test_continuing() -> None:
    begun = (HI, Message("assistant", "<think>\nHm.\n</think>\n\nWell"))
    found = body(messages=begun, continue_last=True)
    assert (found["continue_final_message"], found["add_generation_prompt"]) == (True, False)
    assert found["messages"][-1]["content"].startswith("<think>")
    assert body(messages=(*begun, HI))["messages"][1]["content"] == "Well"
    always = body(replace(VLLM, continues="always"), begun, continue_last=True)
    assert "continue_final_message" not in always
    first = prepared(constraint=ConstraintSettings(begin_with="Sure"))
    assert first.begin == "Sure"
    assert (first.call.body or {})["messages"][-1] == {"role": "assistant", "content": "Sure"}
    with pytest.raises(BadSetting, match="Lab starts a new reply instead of continuing one"):
        body(NOTHING, begun, continue_last=True)
    with pytest.raises(BadSetting, match="clear “Start of the reply”"):
        body(NOTHING, constraint=ConstraintSettings(begin_with="Sure"))


def test_tools_are_not_left_out_silently() -> None:
    tools = (Tool("clock"),)
    with pytest.raises(BadSetting, match="Lab does not call tools"):
        body(tools=tools)
    assert "tools" not in body(tools=tools, tool_choice="none")
    able = replace(VLLM, tools=True)
    found = body(able, tools=(Tool("clock", "The time", '{"type": "object"}'),), tool_choice="clock")
    assert found["tools"] == [
        {
            "type": "function",
            "function": {"name": "clock", "description": "The time", "parameters": {"type": "object"}},
        }
    ]
    assert found["tool_choice"] == {"type": "function", "function": {"name": "clock"}}
    assert "parallel_tool_calls" not in found
    found = body(able, tools=tools, tool_choice="required", parallel_tool_calls=False)
    assert (found["tool_choice"], found["parallel_tool_calls"]) == ("required", False)
    with pytest.raises(BadSetting, match="parameters of the tool 'clock' are not JSON"):
        body(able, tools=(Tool("clock", "", "{"),))
    call = ToolCall("call_1", "clock", "{}")
    sent = body(messages=(HI, Message("assistant", "", (call,)), Message("tool", "noon", (), "call_1")))
    assert sent["messages"][1]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    ]
    assert sent["messages"][2] == {"role": "tool", "content": "noon", "tool_call_id": "call_1"}


def test_plain_text() -> None:
    found = prepared(messages=(Message("user", "Once"),), plain=True)
    assert (found.call.path, (found.call.body or {})["prompt"]) == ("/completions", "Once")
    with pytest.raises(BadSetting, match="does not continue plain text, which a notebook needs"):
        body(NOTHING, plain=True)


@pytest.mark.parametrize(
    ("format", "text", "sent"),
    [
        ("json_schema", '{"type": "integer"}',
         {"response_format": {"type": "json_schema",
                              "json_schema": {"name": "reply", "schema": {"type": "integer"}}}}),
        ("json_schema", '{"properties": {"a": {}}}',
         {"response_format": {"type": "json_schema", "json_schema": {
             "name": "reply", "schema": {"properties": {"a": {}}, "additionalProperties": False}}}}),
        ("regex", "[ab]+", {"structured_outputs": {"regex": "[ab]+"}}),
        ("choices", "yes\n no. \n", {"structured_outputs": {"regex": r"(yes|no\.)"}}),
        ("grammar", 'start: "a"', {"structured_outputs": {"grammar": 'start: "a"'}}),
    ],
)  # fmt: skip
def test_constraints(format: str, text: str, sent: dict[str, Any]) -> None:
    constraint = ConstraintSettings(format=format, pattern=text)
    found = body(constraint=constraint)
    assert {name: found[name] for name in sent} == sent
    with pytest.raises(BadSetting, match="Lab cannot constrain replies to"):
        body(NOTHING, constraint=constraint)


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (ConstraintSettings(banned_strings=("x",)), "cannot take back words"),
        (ConstraintSettings(logit_bias=("1=2",)), "does not support “Token bias”"),
        (ConstraintSettings(banned_tokens=(1,)), "does not support “Banned token ids”"),
        (ConstraintSettings(allowed_tokens=(1,)), "does not support “Allowed token ids”"),
        (ConstraintSettings(format="json_schema", pattern="{"), "cannot constrain replies to a JSON schema"),
    ],
)
def test_what_decides_a_reply_is_never_left_out(constraint: ConstraintSettings, words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        body(NOTHING, constraint=constraint)


def test_what_a_server_cannot_do_at_all_is_refused() -> None:
    with pytest.raises(BadSetting, match="does not answer chats with this model"):
        body(replace(VLLM, chat=False))
    with pytest.raises(BadSetting, match="does not continue plain text"):
        body(replace(VLLM, completions=False), plain=True)
    with pytest.raises(BadSetting, match="not valid"):
        body(constraint=ConstraintSettings(format="regex", pattern="("))
    only = body(
        replace(VLLM, taken=(*VLLM.taken, "allowed_token_ids")),
        constraint=ConstraintSettings(allowed_tokens=(4, 5)),
    )
    assert only["allowed_token_ids"] == [4, 5]


def test_bias_by_ids() -> None:
    constraint = ConstraintSettings(logit_bias=("12 = -5", "3=500"), banned_tokens=(7,))
    assert body(constraint=constraint)["logit_bias"] == {"12": -5.0, "3": 100.0, "7": -100.0}
    with pytest.raises(BadSetting, match="does not name a token by its id"):
        body(constraint=ConstraintSettings(logit_bias=("' sure' = 1",)))


def test_why_settings_do_nothing() -> None:
    assert reason_against(SamplerSettings, "top_k", VLLM, "Lab") == ""
    assert reason_against(SamplerSettings, "top_k", NOTHING, "Lab") == "Lab does not support this setting."
    assert reason_against(SpeculationSettings, "method", VLLM, "Lab") == "Drafting is up to the server."
    assert reason_against(StopSettings, "stop_regex", NOTHING, "Lab") == ""
    assert reason_against(ConstraintSettings, "banned_tokens", VLLM, "Lab") == ""
    assert reason_against(OutputSettings, "alternatives", NOTHING, "Lab")
    assert not reason_against(OutputSettings, "alternatives", VLLM, "Lab")
    assert reason_against(ConstraintSettings, "begin_with", NOTHING, "Lab")
    for cls, field, words in (
        (OutputSettings, "stream_interval", "Lab decides when it sends text."),
        (OutputSettings, "show_special", "Lab does not send control tokens."),
        (ConstraintSettings, "ban_ignore_case", "Lab cannot take back words that it has written."),
        (ConstraintSettings, "format", "Lab does not constrain replies."),
    ):
        assert reason_against(cls, field, NOTHING, "Lab") == words
    assert not reason_against(ConstraintSettings, "format", replace(NOTHING, regex="guided_regex"), "Lab")
    single = "Lab does not support this setting."
    assert reason_against_all([single, single], "Lab") == "Lab supports none of these settings."
    assert reason_against_all(["Other."], "Lab") == "Other."
    assert reason_against_all(["Other.", single], "Lab") == reason_against_all([], "Lab") == ""


SWITCHED = replace(VLLM, thinking_by="chat_template_kwargs", thinking=("off", "on"))
EFFORTS = replace(VLLM, thinking_by="reasoning_effort", thinking=("off", "low", "medium", "high"))


@pytest.mark.parametrize(
    ("capabilities", "asked", "sent"),
    [
        (SWITCHED, "off", {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}),
        (SWITCHED, "high", {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}}),
        (SWITCHED, "auto", {}),
        (EFFORTS, "off", {"reasoning_effort": "none"}),
        (EFFORTS, "max", {"reasoning_effort": "high"}),
        (EFFORTS, "low", {"reasoning_effort": "low"}),
        (EFFORTS, "auto", {}),
        (VLLM, "high", {}),
    ],
)
def test_thinking(capabilities: Capabilities, asked: str, sent: dict[str, Any]) -> None:
    request = ChatRequest((HI,), thinking=ThinkingSettings(asked))
    prepared = prepare(request, "m", capabilities, "Lab")
    names = ("chat_template_kwargs", "reasoning_effort")
    assert {name: prepared.call.body[name] for name in names if name in prepared.call.body} == sent
    assert prepared.not_sent == (("Thinking",) if capabilities is VLLM else ())
    plain = prepare(replace(request, plain=True), "m", replace(capabilities, completions=True), "Lab")
    assert not set(names) & set(plain.call.body)


def test_what_is_known_of_a_model_of_a_server() -> None:
    provider = Provider("lab", "Lab", "http://localhost:8000", context_length=900)
    info = remote_info(provider, "org/m", replace(VLLM, context_length=400, server="vllm 1"))
    assert split_address(info.path) == ("lab", "org/m")
    assert (info.architecture, info.format, info.host, info.server_version) == (
        "remote lab", "remote", provider.host, "vllm 1",
    )  # fmt: skip
    assert (info.context_length, info.has_chat_template) == (900, True)
    assert (
        remote_info(
            replace(provider, context_length=0), "m", replace(VLLM, context_length=400)
        ).context_length
        == 400
    )
    assert [what for what, _ in info.lacks] == ["pictures", "thinking", "tools"]
    able = remote_info(provider, "m", replace(VLLM, tools=True))
    assert [what for what, _ in able.lacks] == ["pictures", "thinking"]
    lacks = dict(remote_info(provider, "m", NOTHING).lacks)
    assert [*lacks] == ["continue", "plain", "probabilities", "pictures", "thinking", "tools"]
    assert lacks["tools"] == "Lab does not call tools; choose another model for them."
    assert lacks["continue"] == "Lab starts a new reply instead of continuing one."
    assert lacks["pictures"].startswith("It is not known whether m accepts pictures.")
    refusing = replace(NOTHING, pictures="no", pictures_why="Too\nlarge.")
    assert (
        remote_info(provider, "m", refusing)
        .why_not("pictures")
        .endswith("does not accept pictures: Too large.")
    )


def test_why_thinking_cannot_be_switched() -> None:
    provider = Provider("lab", "Lab", "http://localhost:8000")
    switched = remote_info(provider, "m", EFFORTS)
    assert [level for level, _ in switched.thinking_levels] == ["off", "low", "medium", "high"]
    assert switched.why_not_thinking == "" == reason_against(ThinkingSettings, "thinking", EFFORTS, "Lab")
    sentence = "Lab has no switch for how much this model thinks."
    assert remote_info(provider, "m", VLLM).why_not_thinking == sentence
    assert reason_against(ThinkingSettings, "thinking", VLLM, "Lab") == sentence
