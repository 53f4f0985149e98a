"""Finds out what a server does with a model, by a few tiny requests: nothing is assumed from its name.

Each finding is the effect of a request, not its acceptance, because most servers ignore what they do not
know: a constraint must force text that no model would write, a continued reply must have the shorter prompt,
and a parameter counts as known only if the server objects to a value of the wrong type (or lists it in
`/props`, as llama.cpp's server does, which objects to nothing).
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from engine.errors import ContextTooLong, RemoteError
from engine.lazy_dataclass import dataclass
from engine.remote.capabilities import CONTINUES_ALWAYS, CONTINUES_BY_FLAGS, Capabilities
from engine.remote.chunks import Chunk, read_chunk
from engine.remote.client import Client, RemoteModel
from engine.remote.exchange import Answer, Call, Event
from engine.remote.parameters import PARAMETERS
from engine.remote.picture_probe import REFUSALS, find_pictures
from engine.remote.provider import Provider
from engine.remote.request import CHAT_PATH, COMPLETION_PATH, constrained
from engine.remote.thinking import thinking_switch, thinking_values
from engine.remote.trouble import message_of, refused, who
from engine.settings import ThinkingSettings
from engine.settings.thinking import OFF
from engine.words import _

SCHEMA_PARAMETERS = ("response_format", "response_format.schema", "guided_json")
REGEX_PARAMETERS = ("structured_outputs.regex", "guided_regex", "regex")
GRAMMAR_PARAMETERS = ("structured_outputs.grammar", "guided_grammar")
"""Ways to constrain a reply: OpenAI's and vLLM's, llama.cpp's, vLLM's before 0.12, SGLang's."""
LIMITS = ("max_tokens", "max_completion_tokens")
_WORD = "xyzzy"
_HELLO = ({"role": "user", "content": "Say hello."},)
_BEGUN = "Yes"
"""Of one token, or two, in every vocabulary; what a template puts around a turn has at least three."""
_TOPS = (20, 5)
_MOST_TRIES = 12
_INVENTED = "inglenook_probe"
"""A parameter that no server knows."""
_THOUGHT_TOKENS = 16


@dataclass
class _Probe:
    """Asks one model of a server, and collects what was found."""

    client: Client
    model: str
    stop: threading.Event
    found: Capabilities
    quiet: Mapping[str, Any] = field(default_factory=dict)
    """What keeps the model from thinking, once it is known: a short reply has no room for a thought."""

    # -- small steps

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        return self.client.ask(Call(path, body), self.stop)

    def chat(self, tokens: int = 1, **more: Any) -> Answer:
        messages = more.pop("messages", _HELLO)
        return self.post(
            CHAT_PATH,
            {"model": self.model, "messages": list(messages), self.found.limit: tokens, **self.quiet, **more},
        )

    def set(self, **values: Any) -> None:
        self.found = replace(self.found, **values)

    def note(self, sentence: str) -> None:
        self.set(notes=(*self.found.notes, sentence))


def probe(
    provider: Provider, key: str, model: RemoteModel, stop: threading.Event
) -> Generator[str, None, Capabilities]:
    """Yields what is looked at, and returns what was found. Raises `RemoteError` if the model does not
    answer at all, `BadSetting` for an address that may not be used, `Cancelled` by `stop`.
    """
    probing = _Probe(
        Client(provider, key), model.name, stop, Capabilities(context_length=model.context_length)
    )
    yield _("Asking for a first token, which may take minutes while a model is loaded")
    _stream(probing)
    if probing.found.chat:
        yield _("Continuing a reply")
        _continuing(probing)
        yield _("Thinking")
        switch = thinking_switch(probing.chat, bool(probing.found.reasoning))
        probing.set(**switch._asdict())
        probing.quiet = thinking_values(ThinkingSettings(OFF), switch.thinking_by, switch.thinking)
        yield _("Several replies, stop strings")
        _several(probing)
        _stops(probing)
    yield _("Plain text")
    probing.set(completions=_plain_answers(probing))
    if probing.found.chat:
        yield _("Pictures")
        found = find_pictures(probing.client, model, probing.chat, stop)
        probing.set(pictures=found.pictures, pictures_why=found.pictures_why)
        yield _("Sampling settings")
        _parameters(probing)
        yield _("Constraints and tools")
        _constraints(probing)
        _tools(probing)
    yield _("Counting tokens")
    _tokenize(probing)
    _identity(probing, model)
    probing.set(probed=time.time())
    return probing.found


# -- a stream


def _stream(probing: _Probe) -> None:
    """Whether the model answers chats, and what its streams hold."""
    failures: list[Answer] = []
    for limit in LIMITS:
        for top in (*_TOPS, -1, 0):
            probing.set(limit=limit)
            outcome = _streamed(probing, top)
            if not isinstance(outcome, Answer):
                _read_stream(probing, outcome, top)
                return
            failures.append(outcome)
            if outcome.status not in REFUSALS:
                _give_up(probing, outcome)
        if not re.search("max_completion_tokens|max_tokens", message_of(failures[-1], "")):
            break
    probing.set(limit=LIMITS[0])
    if not _plain_answers(probing):
        _give_up(probing, failures[-1])
    probing.note(_("Chats are refused: the model has no chat template, or is not a chat model."))


def _give_up(probing: _Probe, answer: Answer) -> None:
    """Raises what the answer says."""
    client = probing.client
    raise refused(answer, client.provider, probing.model, client.key)


def _streamed(probing: _Probe, top: int) -> list[Chunk] | Answer:
    """The chunks of a short reply, or the refusal."""
    body: dict[str, Any] = {
        "model": probing.model, "messages": list(_HELLO), "stream": True,
        probing.found.limit: _THOUGHT_TOKENS, "stream_options": {"include_usage": True},
    }  # fmt: skip
    if top:
        body |= {"logprobs": True}
    if top > 0:
        body |= {"top_logprobs": top}
    chunks: list[Chunk] = []
    for item in probing.client.items(Call(CHAT_PATH, body), probing.stop):
        if isinstance(item, Answer):
            if item.status != 200 or not (chunk := read_chunk(item.text)) or not chunk.choices:
                return item
            probing.note(_("The server does not stream: replies come as a whole."))
            return [chunk]
        if isinstance(item, Event) and (chunk := read_chunk(item.data)):
            if chunk.error is not None:
                return Answer(400, {}, json.dumps({"error": {"message": chunk.error}}))
            chunks.append(chunk)
    return chunks


def _read_stream(probing: _Probe, chunks: Sequence[Chunk], top: int) -> None:
    if not any(chunk.choices for chunk in chunks):
        server = who(probing.client.provider)
        raise RemoteError(_("{server} sent a stream without a reply; check the address.", server=server))
    tokens = [token for chunk in chunks for token in chunk.tokens]
    most = max((len(token.top) for token in tokens), default=0)
    probing.set(
        chat=True,
        usage=any(chunk.usage is not None for chunk in chunks),
        finishes=any(chunk.finish for chunk in chunks),
        top_logprobs=0 if not tokens else min(top, most) if top > 0 and most else -1,
        reasoning=next((chunk.thought_field for chunk in chunks if chunk.thought), ""),
        stop_reason=any(chunk.names_stop for chunk in chunks),
    )


def _plain_answers(probing: _Probe) -> bool:
    body = {"model": probing.model, "prompt": "Hello", probing.found.limit: 1}
    chunk = _read(probing.post(COMPLETION_PATH, body))
    return chunk is not None and bool(chunk.choices)


def _read(answer: Answer) -> Chunk | None:
    """What a reply says; None for a refusal."""
    return read_chunk(answer.text) if answer.status == 200 else None


# -- continuing, several answers, stop strings


def _prompt_tokens(answer: Answer) -> int:
    """Tokens of the prompt that an answer counts; 0 for unknown."""
    chunk = _read(answer)
    return chunk.usage.prompt if chunk is not None and chunk.usage is not None else 0


def _continuing(probing: _Probe) -> None:
    """A continued reply has the prompt of the question and the tokens of its beginning, and no more."""
    asked = _prompt_tokens(probing.chat())
    begun = (*_HELLO, {"role": "assistant", "content": _BEGUN})
    flags = {"add_generation_prompt": False, "continue_final_message": True}
    if not asked:
        probing.note(_("It does not count prompt tokens, so it is unknown whether it can continue replies."))
        return
    for how, more in ((CONTINUES_ALWAYS, {}), (CONTINUES_BY_FLAGS, flags)):
        answer = probing.chat(messages=begun, **more)
        whole = _prompt_tokens(answer)
        if whole and whole - asked <= 2:
            chunk = read_chunk(answer.text)
            if chunk is None or not chunk.text.lstrip().startswith(_BEGUN):  # it would be there twice
                probing.set(continues=how)
                return


def _several(probing: _Probe) -> None:
    chunk = _read(probing.chat(n=2))
    probing.set(several=chunk is not None and chunk.choices == 2)


def _stops(probing: _Probe) -> None:
    """Every letter and blank stops: nothing but the first token can be seen of a server that obeys."""
    messages = ({"role": "user", "content": "Count to 9 in words."},)
    chunk = _read(probing.chat(8, stop=["e", "a", "o", " "], messages=messages))
    obeys = chunk is not None and not set("eao ") & set(chunk.text) and chunk.finish != "length"
    probing.set(stops=obeys, stop_reason=obeys and chunk is not None and isinstance(chunk.stop, str))


# -- parameters


def _parameters(probing: _Probe) -> None:
    """Which parameters the server takes: it lists them, or it refuses all others, or it objects to a value
    of the wrong type.
    """
    trials: dict[str, Any] = {each.name: each.trial for each in PARAMETERS}
    accepted = _left(probing, trials)
    if accepted is None:
        probing.note(_("The sampling settings that it supports could not be determined."))
    elif listed := _props(probing, tuple(trials)):
        probing.set(taken=tuple(name for name in accepted if name in listed))
    elif _refuses(probing.chat(**{_INVENTED: 1})):
        probing.set(taken=accepted)
    else:
        known = _objected(probing, accepted)
        probing.set(taken=tuple(name for name in accepted if name in known))


def _objected(probing: _Probe, names: Sequence[str]) -> list[str]:
    """Those of the parameters to whose wrong values the server objects."""
    known: list[str] = []
    left = tuple(names)
    for _unused in range(_MOST_TRIES):
        answer = probing.chat(**_wrong((*left, _INVENTED)))
        if not left or not _refuses(answer):
            return known
        named = _named(answer, left)
        if not named or _named(answer, (_INVENTED,)):  # it does not say what is wrong, or repeats all
            break
        known += named
        left = tuple(name for name in left if name not in named)
    return known + [name for name in left if _refuses(probing.chat(**_wrong((name,))))]


def _wrong(names: Sequence[str]) -> dict[str, Any]:
    """Values that no parameter can have."""
    return {name: {"wrong": "wrong"} for name in names}


def _refuses(answer: Answer) -> bool:
    return answer.status in REFUSALS


def _left(probing: _Probe, trials: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The parameters that may be in a request; None if that cannot be found out."""
    left = dict(trials)
    for _unused in range(_MOST_TRIES):
        answer = probing.chat(**left)
        if answer.status == 200:
            return tuple(left)
        named = _named(answer, tuple(left)) if _refuses(answer) else ()
        if not named:
            break
        left = {name: value for name, value in left.items() if name not in named}
    good = [name for name, value in trials.items() if probing.chat(**{name: value}).status == 200]
    return tuple(good) if good else None


def _named(answer: Answer, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the names that an error mentions."""
    return tuple(name for name in names if re.search(rf"(?<![A-Za-z_]){name}(?![A-Za-z_])", answer.text))


def _props(probing: _Probe, names: Sequence[str]) -> tuple[str, ...]:
    """The parameters that llama.cpp's server lists (`GET /props`)."""
    found = probing.client.optional(Call("/props", root=True), probing.stop)
    own = found.get("default_generation_settings") if isinstance(found, dict) else None
    inner = own.get("params") if isinstance(own, dict) else None
    listed = inner if isinstance(inner, dict) else own if isinstance(own, dict) else {}
    context = own.get("n_ctx") if isinstance(own, dict) else None
    if isinstance(context, int) and not isinstance(context, bool) and context > 0:
        probing.set(context_length=context)
    return tuple(name for name in names if name in listed)


# -- constraints, tools, tokens


def _text(answer: Answer) -> str:
    chunk = _read(answer)
    return chunk.text.strip() if chunk is not None else ""


def _constraints(probing: _Probe) -> None:
    """A constraint works if it makes the model write what it would not."""
    schema = {
        "type": "object", "properties": {"answer": {"type": "string", "enum": [_WORD]}},
        "required": ["answer"], "additionalProperties": False,
    }  # fmt: skip
    for parameter in SCHEMA_PARAMETERS:
        text = _text(probing.chat(48, temperature=0, **constrained(parameter, schema)))
        if _is_json(text, {"answer": _WORD}):
            probing.set(schema=parameter)
            break
    for parameter in REGEX_PARAMETERS:
        text = _text(probing.chat(24, temperature=0, **constrained(parameter, f"{_WORD}-[0-9][0-9]")))
        if re.fullmatch(rf"{_WORD}-[0-9][0-9]", text):
            probing.set(regex=parameter)
            break
    for parameter in GRAMMAR_PARAMETERS:
        if _text(probing.chat(24, temperature=0, **constrained(parameter, f'start: "{_WORD}"'))) == _WORD:
            probing.set(grammar=parameter)
            break


def _is_json(text: str, expected: object) -> bool:
    try:
        return bool(json.loads(text) == expected)
    except ValueError:
        return False


def _tools(probing: _Probe) -> None:
    """It must call the tool that it is made to call."""
    tool = {
        "type": "function",
        "function": {
            "name": _WORD, "description": "Says hello.",
            "parameters": {"type": "object", "properties": {"to": {"type": "string", "enum": ["all"]}},
                           "required": ["to"]},
        },
    }  # fmt: skip
    choice = {"type": "function", "function": {"name": _WORD}}
    answer = probing.chat(48, temperature=0, tools=[tool], tool_choice=choice)
    probing.set(tools=answer.status == 200 and _calls(answer.text, _WORD))


def _calls(text: str, name: str) -> bool:
    try:
        calls = json.loads(text)["choices"][0]["message"]["tool_calls"]
        return bool(calls[0]["function"]["name"] == name)
    except (ValueError, KeyError, IndexError, TypeError):
        return False


def _tokenize(probing: _Probe) -> None:
    """Two words have a few tokens, and twice as many words have more."""
    for kind in ("vllm", "llama.cpp", "llama-cpp-python"):
        try:
            few, more = (
                probing.client.token_count(kind, probing.model, text, probing.stop, None)
                for text in ("hello world", "hello world and hello moon")
            )
        except (RemoteError, ContextTooLong):
            continue
        if 0 < few < more:
            probing.set(tokenize=kind)
            return


def _identity(probing: _Probe, model: RemoteModel) -> None:
    """What the server says it is, and its version."""
    version = ""
    found = probing.client.optional(Call("/version", root=True), probing.stop)
    if isinstance(found, dict) and isinstance(found.get("version"), str):
        version = found["version"][:40]
    probing.set(server=" ".join(part for part in (model.owner, version) if part))
