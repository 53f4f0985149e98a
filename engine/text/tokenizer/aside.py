"""Long texts become tokens on a thread of their own, so that the thread that asks goes on with other work.

A text of a megabyte takes a second. `encoded_aside` runs what needs the ids of such a text until it asks for
them, has them made, and runs it again. Before that, a text that is longer than the context by its bytes alone
is refused (`least_tokens`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
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
_known: ContextVar[Mapping[str, list[int]] | None] = ContextVar("known", default=None)
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
    """A long text whose ids are not there yet."""

    def __init__(self, text: str) -> None:
        super().__init__("a long text is encoded on another thread")
        self.text = text


def ids_made_aside(text: str) -> list[int] | None:
    """The ids of a long text within `encoded_aside`, None outside. Raises `Deferred`."""
    known = _known.get()
    if known is None:
        return None
    if text not in known:
        raise Deferred(text)
    return list(known[text])


def encoded_aside(
    tokenizer: Encoder, attempt: Callable[[], Result], most: int = 0
) -> Generator[Waiting, None, Result]:
    """What `attempt` returns, which encodes texts and may run several times; yields while a thread encodes.
    Within another one it only calls `attempt`.

    Raises `ContextTooLong` for a text that is certainly longer than `most` tokens; 0: any.
    """
    if _known.get() is not None:
        return attempt()  # within another one
    known: dict[str, list[int]] = {}
    while True:
        before = _known.set(known)
        try:
            return attempt()
        except Deferred as found:
            text = found.text
        finally:
            _known.reset(before)
        least = tokenizer.least_tokens(text) if most else 0
        if least > most:
            raise ContextTooLong(
                _(
                    "The text has at least {least} tokens, but the context holds {most}; shorten it or "
                    "choose a larger context length.",
                    least=least,
                    most=most,
                )
            )
        known[text] = yield from _elsewhere(partial(tokenizer.encode_here, text))


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


def _elsewhere(encode: Callable[[], list[int]]) -> Generator[Waiting, None, list[int]]:
    """What `encode` returns or raises on a thread; one text at a time, so that other work has cores."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(encode())
        except BaseException as error:  # noqa: BLE001 - it is raised on the other thread
            found.append(error)
        finally:
            _one_at_a_time.release()

    while not _one_at_a_time.acquire(timeout=_STEP_SECONDS):
        yield Waiting(queued=True)
    thread = threading.Thread(target=run, name="tokenizer", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_STEP_SECONDS)
        yield Waiting()
    if isinstance(found[0], BaseException):
        raise found[0]
    ids: list[int] = found[0]
    return ids


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
