"""LocalChat: chats with a model in this process.

Request -> template -> ids -> generator -> events.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from engine.chat.texts import ChatText, ChatTexts, with_thinking
from engine.core import (
    FIRST_PICTURE_ID,
    ChatEvent,
    ChatRequest,
    Done,
    Foreseen,
    Loading,
    ModelInfo,
    Prefill,
    PromptSize,
    Rendered,
    Text,
    Trimmed,
    Waiting,
)
from engine.errors import DeviceLost, NotFinite, UnsupportedModel
from engine.generator.adapter_slot import AdapterSlot
from engine.generator.drafting.draft_slot import DraftSlot
from engine.generator.job import Job, Setup
from engine.generator.prompt.answers import reply_filters
from engine.generator.prompt.prompt import Prompt
from engine.generator.prompt.tool_calls import CallPlan, divided
from engine.generator.request import GenerationRequest, Guidance
from engine.platform.folders import cache_dir
from engine.settings import LoadSettings
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.aside import events_aside, kept_aside
from engine.words import _

if TYPE_CHECKING:
    from engine.constraint.filter import Filter
    from engine.generator.dynamic import DynamicGenerator
    from engine.generator.scheduler import StreamEvent
    from engine.models.dense import Dense
    from engine.text.template.reasoning import Tag
    from engine.text.tokenizer.tokenizer import Tokenizer
    from engine.vision.encoder_cache import EncoderCache

_ID = attrgetter("id")


class LocalChat:
    """A loaded model that answers (`core.ChatSource`), made by `open_chat`. One thread uses it; several
    replies may be written at the same time.

    `generator`, `tokenizer` and `template` give access to its parts.
    """

    def __init__(
        self,
        info: ModelInfo,
        generator: DynamicGenerator,
        template: ChatTemplate,
        load: LoadSettings = LoadSettings(),
        kept: str = "",
        dense: Sequence[Dense] = (),
        prompts: tuple[str, str] = ("", ""),
        pictures: EncoderCache | None = None,
    ) -> None:
        """`load` is how to load a draft model. The cache is saved at the end under the name `kept`, unless
        that is empty. `dense` are the layers after an embedding model's pooling; `prompts` come before the
        queries and the documents that it reads. `pictures` are those of its prompts, if it reads any.
        """
        self.info = info
        self._kept, self._pictures = kept, pictures
        self.dense, self.prompts = tuple(dense), prompts
        self.generator = generator
        self.context_length = generator.cache.context_length
        self._texts = ChatTexts(
            generator.model, generator.tokenizer, template, self.context_length, pictures,
            fixed=bool(load.chat_template.strip()),
        )  # fmt: skip
        self._draft = DraftSlot(
            generator.drafters, generator.tokenizer, load, generator.cache.model, own=info.path
        )
        self.adapters = AdapterSlot(generator.cache)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of requests without adapters of their own."""
        return self._texts.of(self.adapters.usual).tokenizer

    @property
    def vocabulary(self) -> int:
        """How many tokens the model has for requests without adapters of their own."""
        return self._texts.of(self.adapters.usual).vocabulary

    @property
    def template(self) -> ChatTemplate:
        """The template of requests without adapters of their own."""
        return self._texts.of(self.adapters.usual).template

    @property
    def thinking(self) -> tuple[Tag, ...]:
        """The tags that the model may think in, for requests without adapters of their own."""
        return self._texts.of(self.adapters.usual).thinking

    def described(self, adapters: Sequence[str]) -> ModelInfo:
        """As in `ChatSource`. Raises as `parse_adapters` and `adapter_text`."""
        text = self._texts.of(self.adapters.chosen(adapters))
        return with_thinking(self.info, text.template, text.thinking)

    def _text(self, request: ChatRequest) -> ChatText:
        return self._texts.of(self.adapters.chosen(request.adapters.adapters))

    def stream(self, request: ChatRequest, stop: threading.Event) -> Iterator[ChatEvent]:
        """The events of one reply: `Trimmed` when turns had to be left out, `Loading` of a draft model or
        adapters, `Rendered` when asked for, `Prefill`, `Text` and `CallPiece` with `Running` now and then,
        one `Done`.

        Setting `stop` ends it after the running step with reason "cancelled". Raises `ContextTooLong` when
        the messages cannot fit under `stops.when_full`, `BadTemplate` when the template refuses them,
        `BadSetting` for nothing to continue or an invalid constraint, `NothingAllowed` when constraints leave
        no token to choose.
        """
        self.check_writes()
        started = time.perf_counter()
        most = 0 if request.stops.when_full == "drop_oldest" else self.context_length
        text = self._text(request)
        return events_aside(text.tokenizer, lambda: self._begun(request, text, stop, started), most)

    def _begun(
        self, request: ChatRequest, text: ChatText, stop: threading.Event, started: float
    ) -> Iterator[ChatEvent]:
        """The events of a reply whose prompt is made now."""
        if request.replayed is not None:
            prompt, heal = _as_it_was(request.replayed, request.guidance.cfg_scale), request.replayed.heal
        else:
            prompt = kept_aside("prompt", lambda: text.prompts.build(request))
            continued = request.continue_last or request.plain
            heal = request.constraint.heal and continued and not request.continue_ids
        if not request.plain:
            stops = dataclasses.replace(
                request.stops, stop_strings=request.stops.stop_strings + text.template.stop_strings
            )
            request = dataclasses.replace(request, stops=stops)
        plan = text.prompts.calling.plan(request, text.thinking, prompt.ids)
        if plan is None:
            filters = _filters(prompt, request, text)
            return self._reply(prompt, request, text, stop, heal=heal, started=started, filters=filters)
        request = dataclasses.replace(request, constraint=plan.constraint)
        return divided(
            self._reply(prompt, request, text, stop, heal=heal, started=started, plan=plan), plan.parser
        )

    def complete(
        self, ids: Sequence[int], request: ChatRequest, stop: threading.Event
    ) -> Iterator[ChatEvent]:
        """The events of a plain completion: `ids` continue with the settings of `request`; its messages are
        ignored.
        """
        self.check_writes()
        text = self._text(request)
        prompt, request = text.prompts.completion(ids, request), dataclasses.replace(request, plain=True)
        reply = partial(self._reply, prompt, request, text, stop, heal=request.constraint.heal)
        now = time.perf_counter()
        return events_aside(
            text.tokenizer, lambda: reply(started=now, filters=_filters(prompt, request, text))
        )

    def _reply(
        self,
        prompt: Prompt,
        request: ChatRequest,
        text: ChatText,
        stop: threading.Event,
        *,
        heal: bool,
        started: float,
        plan: CallPlan | None = None,
        filters: tuple[Filter, ...] = (),
    ) -> Generator[ChatEvent, None, None]:
        """The events of a reply to `prompt`; its tokens are remembered for the next turn."""
        if prompt.dropped or prompt.cut:
            yield Trimmed(prompt.dropped, prompt.cut)
        constraint = request.constraint
        if filters:
            constraint = dataclasses.replace(constraint, format="none", pattern="", begin_with="")
        generation = GenerationRequest(
            prompt.ids, request.sampler, request.stops, request.speculation, constraint,
            prompt.guidance, request.output, given=prompt.given, heal=heal, started=started,
            replayed=request.replayed.passes if request.replayed is not None else (),
            shown=plan.shown if plan is not None else frozenset(),
            channel_calls=plan is not None and plan.channel_calls,
            filters=(plan.filter,) if plan is not None else filters, may_cut=request.may_cut,
        )  # fmt: skip
        job = Job(generation, priority=request.priority, stop=stop, setup=self._setup(request, text))
        written: list[int] = []
        healed, report = False, request.report_prompt
        try:
            shown = self._pictures is not None and max(prompt.ids) >= FIRST_PICTURE_ID
            found = self._with_pictures(job, request) if shown else self.generator.events(job)
            with closing(found) as events:
                for event in events:
                    if type(event) is Text:
                        healed = event.tokens[0].healed if event.tokens and not written else healed
                        written += map(_ID, event.tokens)
                    elif isinstance(event, Prefill) and report:
                        report = False
                        yield _rendered(prompt, heal, job.reading, text.tokenizer)
                    elif isinstance(event, Done) and _is_next_turn(request):
                        text.prompts.remember(prompt, written, healed=healed)
                    yield event
        except NotFinite as error:
            self.generator.cache.table.forget()  # what is cached may not be finite either
            yield from self._proved_again(error)

    def _with_pictures(self, job: Job, request: ChatRequest) -> Generator[StreamEvent, None, None]:
        """The events of a job, before which the model looks at the pictures that are not cached."""
        assert self._pictures is not None
        self._pictures.know(request.messages)  # other replies may have ended since the prompt was made
        with self._pictures.held(job.ids):
            with closing(self._pictures.encoded(job.ids[self.generator.cache.found(job.ids) :])) as steps:
                for step in steps:
                    if job.stop.is_set():
                        break
                    yield step
            yield from self.generator.events(job)

    def _setup(self, request: ChatRequest, text: ChatText) -> Setup:
        """The adapters and the draft model of a reply."""
        adapters, speculation = self.adapters.chosen(request.adapters.adapters), request.speculation

        def run(stop: threading.Event) -> Generator[Loading, None, None]:
            yield from self.adapters.apply(adapters, stop)
            yield from self._draft.fit(speculation, stop)

        def holds() -> bool:
            return self.adapters.holds(adapters) and self._draft.holds(speculation)

        own = text.tokenizer if adapters else None
        return Setup(holds, run, own, text.vocabulary)

    def borrow(self) -> AbstractContextManager[Generator[Waiting, None, None]]:
        """The model for passes beside replies, with the adapters of requests that name none; see
        `DynamicGenerator.borrow`.
        """
        return self.generator.borrow(self.generator.with_adapters(self.adapters.usual))

    def check_writes(self) -> None:
        """Raise `UnsupportedModel` for a model that writes no text."""
        if self.info.why_no_text:
            raise UnsupportedModel(self.info.why_no_text)

    def count(self, text: str) -> int:
        """The number of tokens of a text."""
        return len(self.tokenizer.encode(text))

    def size(self, request: ChatRequest) -> PromptSize:
        """The length of a request's whole prompt. Raises `BadTemplate`, and what opening the files of its
        adapters raises.
        """
        return self._text(request).prompts.size(request)

    def render(self, request: ChatRequest) -> tuple[str, list[int]]:
        """The text and the ids of a request's whole prompt. Raises as `size`."""
        continued = request.continue_last
        return self._text(request).prompts.rendered(
            request.messages,
            request,
            add_generation_prompt=request.begin_reply and not continued,
            continue_last=continued,
        )

    def _proved_again(self, error: NotFinite) -> Iterator[ChatEvent]:
        """Check the kernels again where that is possible, then raise `error` with the result."""
        from engine.models.proof.first_use import prove_again
        from engine.models.proof.provable import Provable

        model = self.generator.model
        backend = model.backend
        if model.proof is None or not isinstance(backend, Provable) or backend.notice:
            raise error
        backend.forget_proofs()
        try:
            yield from prove_again(model)
        except DeviceLost as lost:
            raise DeviceLost(
                _("The model's scores are not finite numbers. {lost}", lost=lost), lost.report
            ) from error
        raise NotFinite(
            _(
                "{error} The GPU's kernels were checked again and are correct, so the model's file "
                "is probably damaged, or its numbers are out of range. Download it again, or choose "
                "another quantisation.",
                error=error,
            )
        ) from error

    def foresee(self, request: ChatRequest) -> Foreseen:
        """What reading the prompt of a request would take now; nothing is run.

        Raises as `stream` does before it begins.
        """
        if not request.messages:
            return Foreseen(0, 0, self.context_length)
        prompts = self._text(request).prompts
        prompt = prompts.build(request)
        cached = self.generator.cache.found(prompt.ids)
        first = int(request.messages[0].role == "system")  # the system message is never left out
        kept = (*request.messages[:first], *request.messages[first + prompt.dropped :])
        tools = min(len(prompt.ids), prompts.tool_tokens(request))
        shares = prompts.shares(kept, len(prompt.ids) - tools)
        return Foreseen(len(prompt.ids), cached, self.context_length, prompt.dropped, shares, tools=tools)

    def close(self) -> None:
        """Release the model's memory and threads; the chat cannot answer afterwards."""
        from engine.models.saved import save_cache

        self.generator.close()
        self._draft.close()
        if self._kept:
            with suppress(DeviceLost):  # its memory is lost; conversations will be read again
                log_notice(save_cache(self.generator.cache, self._kept, kept_caches()))
            self._kept = ""
        if self._pictures is not None:
            self._pictures.close()
        self.generator.cache.close()
        self.generator.model.close()


def _filters(prompt: Prompt, request: ChatRequest, text: ChatText) -> tuple[Filter, ...]:
    """The filters of a request; for the answer alone, where a thought may come before it."""
    before = None if request.plain else prompt.ids[: len(prompt.ids) - prompt.given]
    source, tags = text.template.shown, text.thinking
    return reply_filters(request.constraint, text.tokenizer, source, tags, before)


def _is_next_turn(request: ChatRequest) -> bool:
    """Whether the reply is the next turn of the conversation, as a later prompt repeats it."""
    return not request.plain and request.replayed is None and (request.begin_reply or request.continue_last)


def _rendered(
    prompt: Prompt, heal: bool, reading: tuple[tuple[tuple[int, int], ...], ...], tokenizer: Tokenizer
) -> Rendered:
    """The prompt that is about to be read, in the passes `reading`."""
    negative = prompt.guidance.negative_ids if prompt.guidance is not None else ()
    bytes_of, special = tokenizer.token_bytes, tokenizer.special_ids
    known = (id for id in dict.fromkeys((*prompt.ids, *negative)) if id < FIRST_PICTURE_ID)
    vocabulary = tuple((id, bytes_of(id), id in special) for id in known)
    return Rendered(tuple(prompt.ids), prompt.given, heal, negative, reading, vocabulary)


def _as_it_was(rendered: Rendered, scale: float) -> Prompt:
    """The prompt that an earlier reply reported."""
    guidance = Guidance(rendered.negative_ids, scale) if rendered.negative_ids else None
    return Prompt(0, list(rendered.ids), rendered.given, guidance)


def kept_caches() -> Path:
    """The folder of the caches that are saved when models are closed."""
    return cache_dir() / "conversations"


def log_notice(notice: str) -> None:
    """Log what concerns saved caches, or devices that were not used; the chat itself is not affected."""
    if notice:
        logging.getLogger(__name__).info(notice)
