"""POST /completion, /infill and GET /props: a prompt goes on, in the form of llama.cpp's server.

Source: llama.cpp's `tools/server/README.md`, "POST /completion", "POST /infill" and "GET /props".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.chat import LocalChat
from engine.core import ChatRequest, Message
from engine.server.failure import bad_request
from engine.server.fields import Fields, is_ids
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange, to_json
from engine.server.llama_cpp.progress import Progress
from engine.server.llama_cpp.tokens import asked
from engine.server.openai import parameters
from engine.server.openai.aliases import by_our_names
from engine.server.pictures import checked_number, decoded, marked_message
from engine.server.replies import Begun, Ended, Reading, Score, Written
from engine.server.service import Service
from engine.server.texts.completions import Prompt, prompts_of
from engine.server.texts.infill import Infill, infill_of, shown
from engine.server.texts.scoring import completion_work

_DEFAULTS = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
"""llama.cpp's, where neither the request nor the model's authors say otherwise."""
_STOPS = {"max_tokens": "limit", "context_full": "limit", "time_limit": "limit", "loop": "limit"}
_STOPS |= {"stop_string": "word"}
_REFUSED = {
    "post_sampling_probs": "send n_probs without it: probabilities are those of the model",
    "lora": "start the server with the adapter",
    "multimodal_data": "put it into prompt, beside prompt_string",
}


_MOST_FIELDS = 64
_Prompt = Prompt | Infill | Message
_MARK = "<__media__>"
"""Where a picture stands in a prompt."""


class _Choice:
    """One prompt's text while it is written."""

    def __init__(self, index: int, prompt: _Prompt, model: ServedModel, fields: Fields) -> None:
        self._prompt, self._model, self._text = prompt, model, ""
        self._ids_asked = fields.flag("return_tokens")
        self._scored = bool(fields.whole("n_probs", 0, parameters.MOST_LOGPROBS))
        self._head = {"index": index, "id_slot": 0}
        self._chosen = fields.texts("response_fields", _MOST_FIELDS)
        self._scores: list[Score] = []
        self._counts = {"tokens_predicted": 0, "tokens_evaluated": 0}
        self.ended: Ended | None = None

    @property
    def logprobs(self) -> bool:
        """Whether the tokens have to come with their scores."""
        return self._ids_asked or self._scored

    def feed(self, event: Any) -> dict[str, Any] | None:
        """The piece of a stream that an event becomes."""
        if isinstance(event, Ended):
            self.ended = event
        if isinstance(event, Reading):
            self._counts["tokens_evaluated"] = event.total
        if not isinstance(event, Written):
            return None
        self._text += event.text
        self._scores += event.scores
        self._counts["tokens_predicted"] += event.tokens
        return self.piece(event.text, event.scores)

    def piece(self, text: str, scores: Sequence[Score]) -> dict[str, Any]:
        """A piece of a stream."""
        return {**self._head, "stop": False, **self._content(text, scores), **self._counts}

    def whole(self, *, streamed: bool) -> dict[str, Any]:
        """The answer, or the last piece of a stream."""
        assert self.ended is not None
        stats, reason = self.ended.stats, _STOPS.get(self.ended.reason, "eos")
        content = self._content("", ()) if streamed else self._content(self._text, self._scores)
        read, wrote = stats.prefill_seconds, stats.decode_seconds
        timings = {
            "cache_n": stats.cached_tokens, **_timing("prompt", stats.prefill_tokens, read),
            **_timing("predicted", stats.new_tokens, wrote),
        }  # fmt: skip
        return self._asked_for({
            **self._head, **content, "stop": True, "model": self._model.id,
            "prompt": self._prompt.content if isinstance(self._prompt, Message) else shown(self._prompt),
            "tokens_predicted": stats.new_tokens, "tokens_evaluated": stats.prompt_tokens,
            "tokens_cached": stats.context_tokens, "has_new_line": "\n" in self._text, "truncated": False,
            "stop_type": reason, "stopping_word": self.ended.trigger if reason == "word" else "",
            "generation_settings": {"n_ctx": self._model.context_length, "seed": stats.seed},
            "timings": timings,
        })  # fmt: skip

    def _asked_for(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The fields of an answer that the request names ("timings/prompt_n" is a field in a field); all
        where it names none.
        """
        found: dict[str, Any] = {}
        for path in self._chosen:
            value: Any = answer
            for name in path.split("/"):
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                found[path] = value
        return found if self._chosen else answer

    def _content(self, text: str, scores: Sequence[Score]) -> dict[str, Any]:
        found = {"content": text, "tokens": [score.id for score in scores] if self._ids_asked else []}
        if self._scored:
            found["completion_probabilities"] = [
                {**_score(score), "top_logprobs": [_score(one) for one in score.top]} for score in scores
            ]
        return found


def _score(score: Score) -> dict[str, Any]:
    return {"id": score.id, "token": score.text, "bytes": list(score.bytes), "logprob": score.logprob}


def _timing(name: str, tokens: int, seconds: float) -> dict[str, float]:
    """How many tokens a stage had, and how fast it was."""
    each = seconds / tokens if tokens else 0.0
    return {
        f"{name}_n": tokens, f"{name}_ms": 1e3 * seconds, f"{name}_per_token_ms": 1e3 * each,
        f"{name}_per_second": 1 / each if each else 0.0,
    }  # fmt: skip


def _prompts(fields: Fields, most: int, model: ServedModel) -> tuple[Sequence[_Prompt], bool]:
    """The prompts, and whether the request has a list of them. A list with ids and texts is one prompt; so is
    a text with pictures.
    """
    value = fields.get("prompt")
    if isinstance(value, dict) and {"prompt_string", "multimodal_data"} & value.keys():
        return [_pictured(Fields(value, "prompt"), model)], False
    numbers = isinstance(value, list) and any(is_ids([item]) for item in value)
    if numbers and all(isinstance(item, str) or is_ids([item]) for item in value):
        return (tuple(value),), False
    return prompts_of(fields, "prompt", most), isinstance(value, list)


def _pictured(fields: Fields, model: ServedModel) -> Message:
    """A prompt with pictures: `prompt_string` with a mark for each of the `multimodal_data`."""
    place, images = fields.place("multimodal_data"), fields.get("multimodal_data") or []
    if images and not model.reads_pictures:
        raise bad_request(f"{place} is not supported; this model reads text only.", place)
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise fields.wrong("multimodal_data", "a list of pictures in base64")
    pictures = [decoded(image, f"{place}[{at}]") for at, image in enumerate(images)]
    message = marked_message(fields.text("prompt_string"), _MARK, pictures, fields.place("prompt_string"))
    checked_number((message,), place)
    return message


async def completion(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """The endpoint that writes."""
    fields = by_our_names(Fields(await exchange.read()))
    prompts, several = _prompts(fields, service.options.bounds.prompts, service.model(fields))
    return await _written(service, exchange, fields, prompts, several)


async def infill(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """The endpoint that fills a gap."""
    fields = by_our_names(Fields(await exchange.read()))
    return await _written(service, exchange, fields, [infill_of(fields)], several=False)


async def _written(
    service: Service, exchange: Exchange, fields: Fields, prompts: Sequence[_Prompt], several: bool
) -> Mapping[str, Any] | None:
    model = service.model(fields)
    for name, advice in _REFUSED.items():
        if fields.get(name):
            raise bad_request(f"{name} is not supported; {advice}.", name)
    name = "max_tokens" if fields.get("n_predict") is None else "n_predict"
    most_tokens, write = parameters.most_tokens(fields, name, 0), fields.get(name) != 0
    request = ChatRequest(
        (),
        sampler=parameters.sampler(fields, _DEFAULTS | dict(model.defaults)),
        stops=parameters.stops(fields, most_tokens),
        constraint=parameters.constraint(fields, fields.part("response_format")),
        output=parameters.output(fields.whole("n_probs", 0, parameters.MOST_LOGPROBS)),
        plain=True,
    )
    choices = [_Choice(index, prompt, model, fields) for index, prompt in enumerate(prompts)]
    scores = (fields.whole("n_probs", 0, parameters.MOST_LOGPROBS) or 0) if choices[0].logprobs else None
    stream = fields.flag("stream")
    works = [completion_work(prompt, request, scores, echo=False, write=write) for prompt in prompts]
    service.start(exchange, works)
    progress = Progress(fields.flag("return_progress"))
    async for number, event in service.events(exchange):
        if stream and isinstance(event, Begun) and not exchange.streaming:
            await exchange.start_stream()
        piece = choices[number].feed(event)
        if stream and (report := progress.of(number, event)):
            await exchange.send_event({**choices[number].piece("", ()), **report})
        if stream and piece is not None:
            await exchange.send_event(piece)
        if stream and isinstance(event, Ended):
            await exchange.send_event(choices[number].whole(streamed=True))
    if stream:
        await exchange.end_stream(done=False)
        return None
    found = [choice.whole(streamed=False) for choice in choices]
    if not several:
        return found[0]
    await exchange.send_body(b"[" + b",".join(map(to_json, found)) + b"]")
    return None


async def props(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """What the loaded model is, and what requests get that say nothing."""
    exchange.watch()
    model = service.model(Fields({}))

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        tokenizer = chat.tokenizer
        ids = {"bos_token": tokenizer.bos_token_id, "eos_token": tokenizer.eos_token_id}
        return {
            "default_generation_settings": {
                "n_ctx": model.context_length, "params": _DEFAULTS | dict(model.defaults),
            },
            "total_slots": service.options.bounds.choices, "model_alias": model.id, "model_path": model.id,
            "chat_template": chat.template.source,
            "modalities": {"vision": model.reads_pictures, "audio": False},
            **{name: "" if id is None else tokenizer.piece(id) for name, id in ids.items()},
        }  # fmt: skip

    return await asked(service, exchange, answer)
