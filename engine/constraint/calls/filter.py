"""A reply in which a call may begin anywhere: free text, and the grammar of calls from where one begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from engine.constraint.calls.grammar import MOST_CALLS, CallGrammar, trigger
from engine.constraint.grammar import GrammarFilter
from engine.constraint.vocabulary import Mask, allows
from engine.text.template.reasoning import Tag
from engine.text.tokenizer.tokenizer import Tokenizer

__all__ = ["LazyCalls"]


class _State(NamedTuple):
    """After a token: the length of the text; where the search for a call goes on, -1 where none may begin any
    more; what closes the thought under way, and whether one may begin; the filter of the call under way and
    how many tokens it has taken; whether the reply is over; how many calls have been made.
    """

    length: int = 0
    free: int = 0
    closing: bytes = b""
    lead: bool = True
    call: GrammarFilter | None = None
    taken: int = 0
    over: bool = False
    calls: int = 0


_LONGEST_OPENING = 4096
"""Bytes of free text in which the beginning of a call is looked for again."""


class LazyCalls:
    """Everything is allowed until a call begins; then only what completes it. Nothing in a thought is one,
    between `tags` at the beginning or up to `opened`, but after a marker that ends thoughts. After the only
    call the reply ends, or after `MOST_CALLS` where there may be several.
    """

    def __init__(
        self, tokenizer: Tokenizer, grammar: CallGrammar, tags: Sequence[Tag] = (), opened: str = ""
    ) -> None:
        """Raises `BadSetting` for tools whose arguments cannot be enforced."""
        self._tokenizer, self._grammar = tokenizer, grammar
        self._tags = [(begin.encode(), end.encode()) for begin, end in tags]
        tokens = dict(grammar.tokens)
        self._marks = {text.encode(): token for text, token in tokens.items()}
        self._trigger, self._by_marker = trigger(grammar.form, grammar.tools, tokens)
        self._ends_thoughts = grammar.form.ends_thoughts(tokens)
        self._call = GrammarFilter(tokenizer, grammar.rest(after_marker=self._by_marker))
        self._begun = grammar.form.begun.encode() if grammar.begun else b""
        self._first = _State(len(self._begun), closing=opened.encode(), lead=not opened)
        self._text = bytearray(self._begun)
        self._states = [self._first]
        self._prefix = b""

    def begin(self, prefix: bytes) -> None:
        """Forget everything; the reply repeats `prefix` first."""
        self._text[:] = self._begun
        self._states, self._prefix = [self._first], prefix

    def mask(self) -> Mask | None:
        """The tokens that go on with the call under way; None outside of one."""
        state = self._states[-1]
        return None if state.call is None else state.call.mask()

    def accept(self, token: int) -> None:
        """Continue with a token. Raises ValueError, and changes nothing, if the mask does not allow it."""
        state = self._states[-1]
        if state.call is not None:
            state.call.accept(token)
            self._text += state.call.vocabulary.texts[token]
            over = state.call.ended
            self._states.append(
                state._replace(
                    length=len(self._text),
                    free=len(self._text) if self._grammar.form.marker else -1,
                    lead=False,
                    call=None if over else state.call,
                    taken=state.call.length,
                    over=over and (state.calls + 1 == MOST_CALLS or not self._grammar.several),
                    calls=state.calls + over,
                )
            )
            return
        self._text += self._bytes_of(token)
        self._states.append(self._after(state._replace(length=len(self._text))))

    def rollback(self, tokens: int) -> None:
        """Take back the last accepted tokens. Raises ValueError if there were fewer."""
        if not 0 <= tokens < len(self._states):
            raise ValueError(f"{tokens} tokens cannot be taken back, {len(self._states) - 1} were accepted")
        del self._states[len(self._states) - tokens :]
        state = self._states[-1]
        del self._text[state.length :]
        if state.call is not None:
            state.call.rollback(state.call.length - state.taken)

    @property
    def may_end(self) -> bool:
        """Whether no call is under way."""
        call = self._states[-1].call
        return call is None or call.may_end

    @property
    def ended(self) -> bool:
        """Whether no further call may be made."""
        return self._states[-1].over

    def _bytes_of(self, token: int) -> bytes:
        """What a token adds to the text; the first one repeats what is there already."""
        if token in self._tokenizer.silent_ids and token not in self._marks.values():
            return b""
        data = self._tokenizer.token_bytes(token)
        if self._prefix and len(self._states) == 1:
            data = data.removeprefix(self._prefix)
        return data

    def _after(self, state: _State) -> _State:
        """The state once the text is as it is: a thought, free text, or a call that has begun."""
        while state.closing or state.lead:
            text = bytes(self._text[state.free :])
            if state.closing:
                at = text.find(state.closing)
                marker = self._trigger.search(text) if self._ends_thoughts else None
                if marker is not None and (at < 0 or marker.start() < at):
                    return self._after(
                        state._replace(free=state.free + marker.start(), closing=b"", lead=False)
                    )
                if at < 0:
                    longest = _LONGEST_OPENING if self._ends_thoughts else len(state.closing) - 1
                    return state._replace(free=max(state.free, len(self._text) - longest))
                state = state._replace(free=state.free + at + len(state.closing), closing=b"", lead=False)
                continue
            core = text.lstrip()
            tag = next((tag for tag in self._tags if core.startswith(tag[0])), None)
            if tag is not None:
                begun = state.free + len(text) - len(core) + len(tag[0])
                state = state._replace(free=begun, closing=tag[1], lead=False)
            elif any(begin.startswith(core) for begin, _ in self._tags):
                return state
            else:
                state = state._replace(lead=False)
        return state if state.free < 0 else self._searched(state)

    def _searched(self, state: _State) -> _State:
        """The state in free text, or in the call that has begun."""
        text, free = bytes(self._text[state.free :]), state.free
        for match in self._trigger.finditer(text):
            begun = text[match.end() :] if self._by_marker else text[match.start() :].lstrip()
            call = self._call.copy()
            if self._followed(call, begun):
                return state._replace(call=call, taken=call.length)
            free = state.free + match.start() + 1
        if not self._grammar.form.marker:  # it is looked for at the beginning only
            return state._replace(free=-1 if len(text) > _LONGEST_OPENING else state.free)
        return state._replace(free=max(free, len(self._text) - _LONGEST_OPENING))

    def _followed(self, call: GrammarFilter, begun: bytes) -> bool:
        """Whether a call may begin so, and continue with it: bytes, and tokens that a part of a marker is."""
        parts = (
            re.split(b"(" + b"|".join(map(re.escape, self._marks)) + b")", begun) if self._marks else [begun]
        )
        for part in parts:
            if part not in self._marks:
                if not call.follow(part):
                    return False
            elif allows(call.mask(), self._marks[part]):
                call.accept(self._marks[part])
            else:
                return False
        return True
