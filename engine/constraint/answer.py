"""AnswerFilter: a constraint on the answer alone, which a thought may come before."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from engine.constraint.grammar import GrammarFilter
from engine.constraint.text_filter import TextFilter
from engine.constraint.vocabulary import Mask, Vocabulary, vocabulary_of
from engine.lazy_dataclass import dataclass
from engine.text.template.reasoning import Tag
from engine.text.tokenizer.tokenizer import Tokenizer

__all__ = ["AnswerFilter", "ThoughtEnd", "tag_end"]

_BLANKS = b" \t\r\n"
_MOST_BLANKS = 8
"""Bytes of blanks that may stand between a thought and the answer."""
_LONGEST_END = 256
"""Bytes of the text in which the end of a thought is looked for again."""


@dataclass(frozen=True, slots=True)
class ThoughtEnd:
    """What ends a thought: the first match of `pattern`. `closing` gives what ends it after a part of it."""

    pattern: re.Pattern[bytes]
    closing: Callable[[bytes], bytes]
    text: bytes = b""
    """The text that `pattern` matches if it is always the same, with blanks after it; else empty."""


def tag_end(closing: str) -> ThoughtEnd:
    """The end of a thought that a closing tag ends."""
    text = closing.encode()

    def rest(thought: bytes) -> bytes:
        return text[next(_overlaps(thought, text)) :]

    return ThoughtEnd(re.compile(re.escape(text)), rest, text)


class _Place(Enum):
    LEAD = "the beginning, where a thought may open"
    THOUGHT = "in a thought"
    ANSWER = "in the answer"


class _State(NamedTuple):
    """After a token: the length of the text; where the search for the end of the thought goes on; the thought
    under way; how many tokens the inner filter has taken; in the beginning, whether it still goes along; how
    many bytes of blanks may come before the answer.
    """

    place: _Place
    length: int = 0
    free: int = 0
    end: ThoughtEnd | None = None
    taken: int = 0
    follows: bool = True
    blanks: int = 0


class AnswerFilter:
    """`inner` constrains the answer. Before it comes the rest of the thought that `opened` ends, or may come
    one in `tags`; in it everything is allowed but to end the reply.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        inner: GrammarFilter | TextFilter,
        opened: ThoughtEnd | None,
        tags: Sequence[Tag] = (),
        marks: frozenset[int] = frozenset(),
    ) -> None:
        """`marks` are the control tokens that thoughts are marked with."""
        self._inner = inner
        self._vocabulary = vocabulary_of(tokenizer, marks)
        self._tags = [(begin.encode(), tag_end(closing)) for begin, closing in tags]
        self._first = _State(_Place.LEAD if opened is None else _Place.THOUGHT, end=opened)
        self._masks = _masks_of(self._vocabulary)
        self._start: tuple[bytes | None] | None = None
        self.begin(b"")

    def begin(self, prefix: bytes) -> None:
        """Forget everything. A reply that repeats a `prefix` has no thought."""
        self._inner.begin(prefix)
        self._text, self._tokens, self._taken = bytearray(), list[int](), 0
        self._states = [_State(_Place.ANSWER) if prefix else self._first]

    # -- which tokens may follow

    def mask(self) -> Mask | None:
        """As in `Filter`."""
        state = self._states[-1]
        if state.place is _Place.THOUGHT:
            return self._in_thought(state)
        mask = self._inner.mask() if state.follows else self._vocabulary.empty()
        if mask is None:
            return None
        if state.place is _Place.LEAD:
            return mask | self._opening()
        return mask | self._blank(state.blanks) if state.blanks else mask

    def _in_thought(self, state: _State) -> Mask:
        """All but stop tokens, and tokens with which something else than blanks follows the thought."""
        assert state.end is not None
        mask, text = self._free(), state.end.text
        if not text:
            return mask
        for size in _overlaps(bytes(self._text[state.free :]), text):
            mask = mask & ~self._beyond(text, size)
        return mask

    def _free(self) -> Mask:
        """All tokens but those that end the reply."""
        if (b"", -1) not in self._masks:
            every = self._vocabulary.mask_of(range(self._vocabulary.size))
            self._masks[b"", -1] = every & ~self._vocabulary.stop
        return self._masks[b"", -1]

    def _beyond(self, tag: bytes, size: int) -> Mask:
        """The tokens with more than blanks after a closing tag, `size` bytes of which are there already."""
        if (tag, size) not in self._masks:
            rest, words, ids = tag[size:], self._vocabulary.words, self._vocabulary.ids
            if size:
                places = range(*self._vocabulary.range_of(rest))
                found = [int(ids[place]) for place in places if _is_more(words[place][len(rest) :])]
            else:
                found = [
                    int(id)
                    for id, word in zip(ids, words, strict=True)
                    if tag in word and _is_more(word.partition(tag)[2])
                ]
            self._masks[tag, size] = self._vocabulary.mask_of(found)
        return self._masks[tag, size]

    def _opening(self) -> Mask:
        """The tokens that go on with an opening tag."""
        text, found = bytes(self._text), list[int]()
        words, ids = self._vocabulary.words, self._vocabulary.ids
        for begin, end in self._tags:
            if not begin.startswith(text):
                continue
            rest = begin[len(text) :]
            for size in range(1, len(rest)):
                first, last = self._vocabulary.range_of(rest[:size])
                found += [int(ids[place]) for place in range(first, last) if words[place] == rest[:size]]
            places = range(*self._vocabulary.range_of(rest))
            found += [int(ids[place]) for place in places if end.text not in words[place][len(rest) :]]
        return self._vocabulary.mask_of(found)

    def _blank(self, most: int) -> Mask:
        """The tokens that are up to `most` blanks."""
        if (b"", most) not in self._masks:
            self._masks[b"", most] = self._vocabulary.mask_of(
                i
                for i, word in enumerate(self._vocabulary.texts)
                if 0 < len(word) <= most and not word.strip(_BLANKS)
            )
        return self._masks[b"", most]

    # -- the tokens that came

    def accept(self, token: int) -> None:
        """As in `Filter`."""
        state = self._states[-1]
        data = self._vocabulary.texts[token] if 0 <= token < self._vocabulary.size else b""
        if state.place is _Place.ANSWER:
            after = self._answered(state, token, data)
        elif token in self._vocabulary.stop_ids and state.place is _Place.THOUGHT:
            raise ValueError(f"token {token} is not allowed here")
        elif state.place is _Place.THOUGHT:
            after = self._thought(state, bytes(self._text) + data)
        else:
            after = self._led(state, token, bytes(self._text) + data)
        self._text += data
        self._tokens.append(token)
        self._states.append(after._replace(length=len(self._text)))

    def _answered(self, state: _State, token: int, data: bytes) -> _State:
        if data and len(data) <= state.blanks and not data.strip(_BLANKS):
            return state._replace(blanks=state.blanks - len(data))
        self._inner.accept(token)
        self._taken += 1
        return state._replace(taken=self._taken, blanks=0)

    def _thought(self, state: _State, text: bytes) -> _State:
        """The state in a thought, once the text is as it is."""
        assert state.end is not None
        match = state.end.pattern.search(text, state.free)
        if match is None:
            return state._replace(free=max(state.free, len(text) - _LONGEST_END))
        rest = text[match.end() :]
        if _is_more(rest):
            raise ValueError("the answer begins in the token that ends the thought")
        return state._replace(place=_Place.ANSWER, blanks=_MOST_BLANKS - len(rest) if state.end.text else 0)

    def _led(self, state: _State, token: int, text: bytes) -> _State:
        """The state at the beginning of the reply, which may become a thought or the answer."""
        ends = token in self._vocabulary.stop_ids
        tag = next(((begin, end) for begin, end in self._tags if text.startswith(begin)), None)
        if tag is not None and not ends:
            begin, end = tag
            after = self._thought(_State(_Place.THOUGHT, free=len(begin), end=end), text)
            self._inner.rollback(self._taken)
            self._taken = 0
            return after
        opens = not ends and any(begin.startswith(text) for begin, _ in self._tags)
        if state.follows:
            try:
                self._inner.accept(token)
                self._taken += 1
                return state._replace(place=_Place.LEAD if opens else _Place.ANSWER, taken=self._taken)
            except ValueError:
                pass
        if not opens:
            raise ValueError(f"token {token} is not allowed here")
        return state._replace(follows=False)

    def rollback(self, tokens: int) -> None:
        """As in `Filter`."""
        if not 0 <= tokens < len(self._states):
            raise ValueError(f"{tokens} tokens cannot be taken back, {len(self._states) - 1} were accepted")
        thought = self._states[-1].end
        del self._states[len(self._states) - tokens :], self._tokens[len(self._tokens) - tokens :]
        state = self._states[-1]
        del self._text[state.length :]
        if state.end is thought:
            self._inner.rollback(self._taken - state.taken)
        else:  # the thought had begun as an answer
            self._inner.rollback(self._taken)
            for token in self._tokens[: state.taken]:
                self._inner.accept(token)
        self._taken = state.taken

    # -- the end

    @property
    def may_end(self) -> bool:
        """Whether the answer is complete as it is."""
        state = self._states[-1]
        return state.place is not _Place.THOUGHT and state.follows and self._inner.may_end

    @property
    def ended(self) -> bool:
        """Whether nothing may follow the answer."""
        return self._states[-1].place is _Place.ANSWER and self._inner.ended

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens as bytes."""
        return self._vocabulary

    def completion(self, after: bytes, known: bytes | None = None) -> bytes | None:
        """As in `Finishing`: a thought is ended at once."""
        state, text = self._states[-1], bytes(self._text) + after
        if state.place is _Place.ANSWER:
            return self._inner.completion(_core(after) if state.blanks else after, known)
        if state.place is _Place.THOUGHT:
            return self._completed(state, text)
        for begin, end in self._tags:
            if text.startswith(begin):
                return self._completed(_State(_Place.THOUGHT, free=len(begin), end=end), text)
        found = self._inner.completion(after, known) if state.follows else None
        if found is None and (tag := next((t for t in self._tags if t[0].startswith(text)), None)):
            more = self._completed(_State(_Place.THOUGHT, free=len(tag[0]), end=tag[1]), tag[0])
            return None if more is None else tag[0][len(text) :] + more
        return found

    def _completed(self, state: _State, text: bytes) -> bytes | None:
        """What completes a thought, and the shortest answer."""
        assert state.end is not None
        match = state.end.pattern.search(text, state.free)
        if match is not None and _core(text[match.end() :]):
            return None
        closing = b"" if match is not None else state.end.closing(text[state.free :])
        if self._start is None:
            self._inner.rollback(self._taken)  # what may be the opening tag may have begun an answer, too
            self._start = (self._inner.completion(b""),)
            for token in self._tokens[: self._taken]:
                self._inner.accept(token)
        (start,) = self._start
        return None if start is None else closing + start

    @property
    def least(self) -> int:
        """A number of tokens that a whole answer has at least."""
        return self._inner.least if isinstance(self._inner, GrammarFilter) else 0

    def hastened(self, mask: Mask) -> Mask:
        """As in `Finishing`."""
        state = self._states[-1]
        if state.place is not _Place.ANSWER:
            return mask
        return mask & ~self._blank(state.blanks) if state.blanks else self._inner.hastened(mask)


_lock = threading.Lock()
_known: weakref.WeakKeyDictionary[Vocabulary, dict[tuple[bytes, int], Mask]] = weakref.WeakKeyDictionary()


def _masks_of(vocabulary: Vocabulary) -> dict[tuple[bytes, int], Mask]:
    """The masks of a vocabulary, each made once while it lives. From any thread."""
    with _lock:
        return _known.setdefault(vocabulary, {})


def _overlaps(text: bytes, tag: bytes) -> Iterator[int]:
    """With how many of its bytes a tag may have begun at the end of a text; the most first, 0 at last."""
    yield from (size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size]))
    yield 0


def _core(data: bytes) -> bytes:
    return data.lstrip(_BLANKS)


def _is_more(rest: bytes) -> bool:
    """Whether this is more than the blanks that may follow a thought."""
    return bool(rest.strip(_BLANKS)) or len(rest) > _MOST_BLANKS
