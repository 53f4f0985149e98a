"""A `ChatRequest` as the JSON of a request, and what of it is done here instead."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.core import TOOL_CHOICES, ChatRequest, Message
from engine.errors import BadSetting
from engine.remote.capabilities import CONTINUES_BY_FLAGS, Capabilities
from engine.remote.exchange import Call
from engine.remote.parameters import no_tools, not_sent, values_for
from engine.remote.pictures import YES, content_json
from engine.remote.thinking import thinking_values
from engine.settings import ConstraintSettings, Settings
from engine.text.stops.conditions import StopRules
from engine.text.template.reasoning import THINKING_TAGS, without_thoughts
from engine.words import N_, _, translate

CHAT_PATH, COMPLETION_PATH = "/chat/completions", "/completions"
MOST_STOPS = 4
"""Stop strings that every server with `stop` takes (OpenAI's limit)."""
_FORMATS = {"json": "JSON", "json_schema": N_("a JSON schema"), "regex": N_("a regular expression"),
            "grammar": N_("a grammar"), "choices": N_("a list of choices")}  # fmt: skip


class Prepared(NamedTuple):
    """A request: its `call`, the stop conditions that are applied `here`, the text that the reply is made to
    `begin` with, and the labels of settings that do not reach the server.
    """

    call: Call
    here: StopRules
    begin: str = ""
    not_sent: tuple[str, ...] = ()


def prepare(request: ChatRequest, model: str, capabilities: Capabilities, server: str) -> Prepared:
    """Raises `BadSetting` if the server cannot do what was asked for, so that nothing is left out silently
    that decides what a reply is: its form, what it must not contain, what it continues.
    """
    _check(request, capabilities, server)
    begin = "" if request.continue_last else request.constraint.begin_with
    body: dict[str, Any] = {"model": model, "stream": True}
    if request.plain:
        body["prompt"] = (request.messages[-1].content if request.messages else "") + begin
    else:
        body |= _messages(request, begin, capabilities) | _tools(request)
    if capabilities.usage:
        body["stream_options"] = {"include_usage": True}
    if request.stops.max_tokens:
        body[capabilities.limit] = request.stops.max_tokens
    settings: dict[type[Settings], Settings] = {
        type(own): own
        for own in (
            request.sampler, request.stops, request.constraint, request.guidance, request.adapters,
            request.thinking,
        )
    }  # fmt: skip
    body |= values_for(settings, capabilities)
    if not request.plain:
        body |= thinking_values(request.thinking, capabilities.thinking_by, capabilities.thinking)
    body |= _logprobs(request, capabilities)
    body |= _form(request.constraint, capabilities)
    body |= _token_rules(request.constraint, capabilities)
    here = StopRules.from_settings(request.stops, ())
    strings = here.strings
    if capabilities.stops and capabilities.stop_reason and not here.keep_stop and len(strings) <= MOST_STOPS:
        body |= {"stop": list(strings)} if strings else {}
        here = dataclasses.replace(here, strings=())
    call = Call(COMPLETION_PATH if request.plain else CHAT_PATH, body)
    return Prepared(call, here, begin, not_sent(settings, capabilities))


def _check(request: ChatRequest, capabilities: Capabilities, server: str) -> None:
    """Raises `BadSetting` for what the server cannot do."""
    constraint = request.constraint
    if request.replayed is not None:
        raise BadSetting(
            _("{server} cannot repeat a reply exactly; use a model on this computer.", server=server)
        )
    if request.plain and not capabilities.completions:
        raise BadSetting(
            _(
                "{server} does not continue plain text, which a notebook needs; choose another model for it.",
                server=server,
            )
        )
    if not request.plain and not capabilities.chat:
        raise BadSetting(
            _(
                "{server} does not answer chats with this model; choose another one, or test the "
                "server again.",
                server=server,
            )
        )
    if request.continue_last and not request.plain and not capabilities.continues:
        raise BadSetting(
            _("{server} starts a new reply instead of continuing one; regenerate the reply.", server=server)
        )
    if constraint.begin_with and not (request.plain or request.continue_last or capabilities.continues):
        raise BadSetting(
            _(
                "{server} cannot continue a reply that you start here: clear “Start of the reply”.",
                server=server,
            )
        )
    form = _parameter(constraint.format, capabilities)
    if constraint.format != "none" and not form:
        raise BadSetting(
            _(
                "{server} cannot constrain replies to {formats}: set the format to free text, or choose "
                "another model.",
                server=server,
                formats=translate(_FORMATS[constraint.format]),
            )
        )
    if request.tools and request.tool_choice != "none" and not capabilities.tools:
        raise BadSetting(no_tools(server))
    if constraint.banned_strings:
        raise BadSetting(
            _(
                "{server} cannot take back words, which banned strings require: remove them, or "
                "choose a model on this computer.",
                server=server,
            )
        )
    _check_tokens(constraint, capabilities, server)


def _check_tokens(constraint: ConstraintSettings, capabilities: Capabilities, server: str) -> None:
    for values, name, label in (
        (constraint.logit_bias, "logit_bias", _("Token bias")),
        (constraint.banned_tokens, "logit_bias", _("Banned token ids")),
        (constraint.allowed_tokens, "allowed_token_ids", _("Allowed token ids")),
    ):
        if values and name not in capabilities.taken:
            raise BadSetting(
                _(
                    "{server} does not support “{label}”: remove it, or choose another model.",
                    server=server,
                    label=label,
                )
            )


def _parameter(format: str, capabilities: Capabilities) -> str:
    """The parameter of the server that forces a format; "" for none."""
    return {
        "json": capabilities.schema, "json_schema": capabilities.schema, "regex": capabilities.regex,
        "choices": capabilities.regex, "grammar": capabilities.grammar,
    }.get(format, "")  # fmt: skip


def _messages(request: ChatRequest, begin: str, capabilities: Capabilities) -> dict[str, Any]:
    """The messages, thoughts of finished replies left out, and how to continue the last one."""
    last = len(request.messages) - 1
    sent = [
        message_json(message, request.continue_last and place == last, capabilities.pictures == YES)
        for place, message in enumerate(request.messages)
    ]
    if begin:
        sent.append({"role": "assistant", "content": begin})
    found: dict[str, Any] = {"messages": sent}
    if (begin or request.continue_last) and capabilities.continues == CONTINUES_BY_FLAGS:
        found |= {"add_generation_prompt": False, "continue_final_message": True}
    return found


def _tools(request: ChatRequest) -> dict[str, Any]:
    """The tools that are offered. Raises `BadSetting` for one whose parameters are no JSON."""
    if not request.tools or request.tool_choice == "none":
        return {}
    listed = []
    for tool in request.tools:
        try:
            parameters = json.loads(tool.parameters or '{"type": "object", "properties": {}}')
        except ValueError:
            raise BadSetting(
                _("The parameters of the tool {tool!r} are not JSON; correct them.", tool=tool.name)
            ) from None
        function = {"name": tool.name, "description": tool.description, "parameters": parameters}
        listed.append({"type": "function", "function": function})
    choice = request.tool_choice
    named = {"type": "function", "function": {"name": choice}}
    found: dict[str, Any] = {"tools": listed, "tool_choice": choice if choice in TOOL_CHOICES else named}
    return found if request.parallel_tool_calls else {**found, "parallel_tool_calls": False}


def message_json(message: Message, keeps_thoughts: bool = False, pictures: bool = False) -> dict[str, Any]:
    """A message as the API has it; without `pictures`, the words of each are in its place."""
    content = content_json(message) if pictures else message.content
    if isinstance(content, str) and message.role == "assistant" and not keeps_thoughts:
        content = without_thoughts(content, THINKING_TAGS)
    found: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        found["tool_call_id"] = message.tool_call_id
    return found


def _logprobs(request: ChatRequest, capabilities: Capabilities) -> dict[str, Any]:
    top = min(request.output.alternatives, max(0, capabilities.top_logprobs))
    if not capabilities.top_logprobs:
        return {}
    if request.plain:
        return {"logprobs": top}
    return {"logprobs": True, "top_logprobs": top} if top else {"logprobs": True}


def _form(constraint: ConstraintSettings, capabilities: Capabilities) -> dict[str, Any]:
    """The parameter that forces the reply into a format."""
    format, text = constraint.format, constraint.pattern
    if format == "none":
        return {}
    from engine.constraint import check_constraint
    from engine.constraint.closed_schema import closed

    if problem := check_constraint(format, text):
        raise BadSetting(problem)
    if format in ("json", "json_schema"):
        schema = {"type": "object"} if format == "json" else json.loads(text)
        return constrained(capabilities.schema, closed(schema) if isinstance(schema, dict) else schema)
    if format == "choices":
        return constrained(capabilities.regex, choices_regex(text.splitlines()))
    return constrained(_parameter(format, capabilities), text)


def choices_regex(lines: Sequence[str]) -> str:
    """An expression that matches one of the lines."""
    named = dict.fromkeys(line.strip() for line in lines if line.strip())
    return "(" + "|".join(re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", line) for line in named) + ")"


def constrained(parameter: str, value: Any) -> dict[str, Any]:
    """The part of a request that forces a reply into a form. Each `parameter` is one of
    `probe.SCHEMA_PARAMETERS` and its like.
    """
    if parameter == "response_format":
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": value}}}
    if parameter == "response_format.schema":
        return {"response_format": {"type": "json_object", "schema": value}}
    name, _unused, part = parameter.partition(".")
    return {name: {part: value}} if part else {name: value}


def _token_rules(constraint: ConstraintSettings, capabilities: Capabilities) -> dict[str, Any]:
    """Bias, allowed and banned tokens, by their ids: the texts of tokens are not known here."""
    found: dict[str, Any] = {}
    bias: dict[str, float] = {}
    for line in constraint.logit_bias:
        name, _unused, amount = line.rpartition("=")
        try:
            bias[str(int(name))] = max(-100.0, min(100.0, float(amount)))
        except ValueError:
            raise BadSetting(
                _(
                    "The token bias {line!r} does not name a token by its id, which servers need: "
                    "write it as 123 = -5.",
                    line=line,
                )
            ) from None
    bias |= {str(token): -100.0 for token in constraint.banned_tokens}
    if bias:
        found["logit_bias"] = bias
    if constraint.allowed_tokens:
        found["allowed_token_ids"] = list(constraint.allowed_tokens)
    return found
