"""Long texts become tokens, and grammars filters, on a thread of their own, so that the thread that asks goes
on with other work.

A text of a megabyte takes a second. `encoded_aside` runs what needs the ids of such a text until it asks for
them, has them made, and runs it again; so it does for what `made_aside` makes. Before that, a text that is
longer than the context by its bytes alone is refused (`least_tokens`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, TypeVar

from engine.core import Waiting
from engine.errors import ContextTooLong
from engine.text.tokenizer.vocabulary import byte_level_alphabet
from engine.words import _

Result = TypeVar("Result")
Event = TypeVar("Event")

LONG = 1 << 15
"""Characters of a text that is not encoded on the thread that asks: about a hundredth of a second."""
_STEP_SECONDS = 0.002
"""How long that thread waits at a time: little beside a step of a model."""
_NFC = 4
"""More than the factor by which NFC shortens a text, which is 3 (U+212A)."""
_known: ContextVar[dict[Hashable, Any] | None] = ContextVar("known", default=None)
_one_at_a_time = threading.Lock()


class Encoder(Protocol):
    """What a tokenizer does with long texts."""

    def least_tokens(self, text: str) -> int:
        """A number of tokens that `text` has at least; 0 where its bytes do not tell."""
        ...

    def encode_here(self, text: str) -> list[int]:
        """The ids of a text."""
        ...


class Deferred(Exception):
    """Something that takes long and is not there yet: what `make` makes, or without it the ids of a text."""

    def __init__(self, key: Hashable, make: Callable[[], Any] | None = None) -> None:
        super().__init__("this is made on another thread")
        self.key, self.make = key, make


def ids_made_aside(text: str) -> list[int] | None:
    """The ids of a long text within `encoded_aside`, None outside. Raises `Deferred`."""
    known = _known.get()
    if known is None:
        return None
    if text not in known:
        raise Deferred(text)
    return list(known[text])


def made_aside(key: Hashable, make: Callable[[], Result]) -> Result:
    """What `make` returns, made on another thread within `encoded_aside`, in which `key` names it. Raises
    `Deferred` until it is there.
    """
    known = _known.get()
    if known is None:
        return make()
    if key not in known:
        raise Deferred(key, make)
    result: Result = known[key]
    return result


def kept_aside(key: Hashable, make: Callable[[], Result]) -> Result:
    """What `make` returns, made here, but only once within `encoded_aside`."""
    known = _known.get()
    if known is None:
        return make()
    if key not in known:
        known[key] = make()
    result: Result = known[key]
    return result


def encoded_aside(
    tokenizer: Encoder, attempt: Callable[[], Result], most: int = 0
) -> Generator[Waiting, None, Result]:
    """What `attempt` returns, which encodes texts and may run several times; yields while another thread
    works for it. Within another one it only calls `attempt`.

    Raises `ContextTooLong` for a text that is certainly longer than `most` tokens; 0: any.
    """
    if _known.get() is not None:
        return attempt()  # within another one
    known: dict[Hashable, Any] = {}
    while True:
        before = _known.set(known)
        try:
            return attempt()
        except Deferred as found:
            key, make = found.key, found.make
        finally:
            _known.reset(before)
        if make is not None:
            known[key] = yield from elsewhere(make)
            continue
        text = str(key)
        least = tokenizer.least_tokens(text) if most else 0
        if least > most:
            raise ContextTooLong(
                _(
                    "The text has at least {least:,} tokens, but the context holds {most:,}; shorten it or "
                    "choose a larger context length.",
                    least=least,
                    most=most,
                )
            )
        known[text] = yield from elsewhere(partial(tokenizer.encode_here, text))


def events_aside(
    tokenizer: Encoder, attempt: Callable[[], Iterator[Event]], most: int = 0
) -> Iterator[Event | Waiting]:
    """The events that `attempt` returns, which encodes texts as in `encoded_aside`; it is called at once."""
    steps = encoded_aside(tokenizer, attempt, most)
    try:
        first = next(steps)
    except StopIteration as end:
        events: Iterator[Event] = end.value
        return events
    return _after(first, steps)


def _after(first: Waiting, steps: Generator[Waiting, None, Iterator[Event]]) -> Iterator[Event | Waiting]:
    yield first
    events = yield from steps
    yield from events


def elsewhere(make: Callable[[], Result]) -> Generator[Waiting, None, Result]:
    """What `make` returns or raises on a thread; one at a time, so that other work has cores."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(make())
        except BaseException as error:  # noqa: BLE001 - it is raised on the other thread
            found.append(error)
        finally:
            _one_at_a_time.release()

    while not _one_at_a_time.acquire(timeout=_STEP_SECONDS):
        yield Waiting(queued=True)
    thread = threading.Thread(target=run, name="aside", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_STEP_SECONDS)
        yield Waiting()
    if isinstance(found[0], BaseException):
        raise found[0]
    result: Result = found[0]
    return result


_KEPT_BY = {"ByteLevel", "Digits", "Metaspace", "Split"}
"""Steps of pre-tokenisation that leave nothing out, unless they say so."""


def text_factor(definition: Mapping[str, Any]) -> int:
    """How many times the bytes of its tokens a text may have; 0 where there is no limit.

    There is one where every byte of a text is part of a token: in BPE over bytes, or with a token for each
    byte, without steps or tokens that leave something out.
    """
    model, vocab = definition["model"], definition["model"]["vocab"]
    decoders = {step.get("type") for step in _steps(definition.get("decoder"), "decoders")}
    every = byte_level_alphabet() if "ByteLevel" in decoders else [f"<0x{byte:02X}>" for byte in range(256)]
    complete = all(text in vocab for text in every) and (
        "ByteLevel" in decoders or bool(model.get("byte_fallback"))
    )
    if model.get("type", "BPE") != "BPE" or not complete:
        return 0
    if any(entry.get("lstrip") or entry.get("rstrip") for entry in definition["added_tokens"]):
        return 0
    for step in _steps(definition.get("pre_tokenizer"), "pretokenizers"):
        if step.get("type") not in _KEPT_BY or "remove" in str(step.get("behavior", "")).lower():
            return 0
    factor = 1
    for step in _steps(definition.get("normalizer"), "normalizers"):
        if step.get("type") == "NFC":
            factor *= _NFC
        elif step.get("type") == "Replace":
            pattern = (step.get("pattern") or {}).get("String")
            if not pattern or len(str(step.get("content", "")).encode()) < len(pattern.encode()):
                return 0
        elif step.get("type") != "Prepend":
            return 0
    return factor


def _steps(part: Any, name: str) -> list[Mapping[str, Any]]:
    """The steps of a part of a definition, with sequences flattened."""
    if not isinstance(part, dict):
        return []
    if part.get("type") != "Sequence":
        return [part]
    return [step for inner in part.get(name) or () for step in _steps(inner, name)]
