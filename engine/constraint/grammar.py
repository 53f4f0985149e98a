"""Replies that follow a grammar: a JSON schema, a regular expression or a Lark grammar, by llguidance."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from engine.constraint.closing import JsonPlace, closer_of
from engine.constraint.completion import Completer
from engine.constraint.grammar_source import (
    GrammarSource,
    json_source,
    lark_source,
    regex_source,
    schema_source,
)
from engine.constraint.llguidance_tokens import byte_tokens, llguidance_tokenizer
from engine.constraint.vocabulary import Mask, Vocabulary, vocabulary_of
from engine.errors import BadSetting
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _


class _Step(NamedTuple):
    """One accepted token: the rest of the prefix before it, and llguidance's tokens for it."""

    pending: bytes
    given: list[int]


class GrammarFilter:
    """The whole reply is a text of one grammar, divided into tokens in any way.

    Masks are exact: a token is allowed if its bytes can follow in the grammar, stop tokens where the text is
    complete. An empty mask means that the vocabulary lacks the characters that must follow. `mask` and
    `accept` raise `BadSetting` if the grammar is too complex for bounded time and memory.
    """

    def __init__(self, tokenizer: Tokenizer, source: GrammarSource) -> None:
        """Raises `BadSetting` if the grammar cannot be compiled or has no texts."""
        self._vocabulary = vocabulary_of(tokenizer, source.marks)
        self._tokens = llguidance_tokenizer(tokenizer, source.marks)
        self._source = source
        self._prefix_masks: dict[bytes, Mask] = {}
        self._unused = source.matcher(self._tokens)
        if self._unused.is_error():
            raise BadSetting(self._too_complex())
        self._restart()
        self._first = self.mask()
        if not (self._first.any() or self.may_end):
            raise BadSetting(_("No text can satisfy {source}; check what it requires.", source=source.name))
        self._unused = self._matcher.deep_copy()  # with what the first mask has made

    def _restart(self) -> None:
        self._matcher = self._unused.deep_copy()
        self._steps: list[_Step] = []
        self._pending = b""
        self._stopped = False
        self._places = [JsonPlace()]
        self._text, self._ends = bytearray(), [0]  # what follows the grammar, and its length after each token
        self._completer: Completer | None = None
        self._followed = 0  # how much of the text the completer has been given
        self._mask: Mask | None = None

    def copy(self) -> Self:
        """A filter of this grammar that has accepted nothing. Nothing is compiled again."""
        other = copy.copy(self)
        other._restart()
        return other

    @classmethod
    def json_schema(cls, tokenizer: Tokenizer, schema: str | Mapping[str, Any]) -> Self:
        """A JSON text that satisfies a schema, given as text or parsed.

        Properties come in the schema's order. Raises `BadSetting`.
        """
        return cls(tokenizer, schema_source(schema))

    @classmethod
    def json(cls, tokenizer: Tokenizer) -> Self:
        """Any JSON object or array."""
        return cls(tokenizer, json_source())

    @classmethod
    def regex(cls, tokenizer: Tokenizer, pattern: str) -> Self:
        """A text that a regular expression matches as a whole. Raises `BadSetting`."""
        return cls(tokenizer, regex_source(pattern))

    @classmethod
    def lark(cls, tokenizer: Tokenizer, grammar: str) -> Self:
        """A text of a Lark grammar, from its rule `start`. Raises `BadSetting`."""
        return cls(tokenizer, lark_source(grammar))

    def begin(self, prefix: bytes) -> None:
        """Forget everything; the reply repeats `prefix` (any bytes) first, then follows the grammar."""
        self._restart()
        self._pending = prefix
        self._mask = None if prefix else self._first

    def follow(self, data: bytes) -> bool:
        """Continue with these bytes as if one token had them; False, and nothing changes, if they cannot
        follow.
        """
        if self._pending or self._stopped or self._valid_bytes(data) < len(data):
            return False
        given = byte_tokens(self._vocabulary.size, data)
        if given and not self._matcher.consume_tokens(given):
            self._recover()
            return False
        self._taken_in(given, data)
        return True

    def mask(self) -> Mask:
        """(ceil(V / 32),) uint32; do not write to it. Computed without the GIL."""
        if self._mask is None:
            if self._stopped:
                self._mask = self._vocabulary.stop
            elif self._pending:
                self._mask = self._mask_with_prefix()
            else:
                self._mask = self._computed_mask()
        return self._mask

    def accept(self, token: int) -> None:
        """Continue with a token. Raises ValueError, and changes nothing, if the mask does not allow it."""
        given = self._given_for(token)
        if given and not self._matcher.consume_tokens(given):
            self._recover()
            if self._matcher.validate_tokens(given) == len(given):
                raise BadSetting(self._too_complex())
            raise _not_allowed(token)
        self._taken_in(given, self._vocabulary.texts[token])
        self._stopped = token in self._vocabulary.stop_ids

    def _taken_in(self, given: list[int], data: bytes) -> None:
        """The matcher has been given a token with these bytes."""
        self._steps.append(_Step(self._pending, given))
        self._text += data[len(self._pending) :]
        self._ends.append(len(self._text))
        if self._source.is_json:
            self._places.append(self._places[-1].after(data[len(self._pending) :]))
        self._pending = self._pending[len(data) :]
        self._mask = None

    def rollback(self, tokens: int) -> None:
        """Take back the last accepted tokens. Raises ValueError if there were fewer."""
        if not 0 <= tokens <= len(self._steps):
            raise ValueError(f"{tokens} tokens cannot be taken back, {len(self._steps)} were accepted")
        if not tokens:
            return
        gone = self._steps[-tokens:]
        del self._steps[-tokens:], self._places[len(self._steps) + 1 :], self._ends[len(self._steps) + 1 :]
        del self._text[self._ends[-1] :]
        self._followed = min(self._followed, len(self._text))
        self._pending, self._stopped, self._mask = gone[0].pending, False, None
        if not self._matcher.rollback(sum(len(step.given) for step in gone)):
            self._recover()

    @property
    def length(self) -> int:
        """How many tokens have been accepted."""
        return len(self._steps)

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens as bytes."""
        return self._vocabulary

    @property
    def least(self) -> int:
        """A number of tokens that a whole text has at least."""
        return self._source.least // max(1, self._vocabulary.longest)

    def completion(self, after: bytes, known: bytes | None = None) -> bytes | None:
        """A short text that completes this one once `after` follows; None if the search finds none, or the
        source wants none.
        """
        if self._source.may_be_cut:
            return None
        if self._stopped:
            return None if after else b""
        pending = self._pending
        if len(after) < len(pending):
            if not pending.startswith(after):
                return None
            rest = self.completion(pending)
            return None if rest is None else pending[len(after) :] + rest
        if not after.startswith(pending):
            return None
        after = after[len(pending) :]
        if self._completer is None:
            self._completer = Completer(self._source)
        self._completer.follow(self._followed, bytes(self._text[self._followed :]))
        self._followed = len(self._text)
        return self._completer.shortest(
            after, self._places[-1].after(after) if self._source.is_json else self._places[-1], known
        )

    def hastened(self, mask: Mask) -> Mask:
        """The tokens of `mask` that bring a JSON text to its end."""
        if not self._source.is_json or self._pending or self._stopped:
            return mask
        return closer_of(self._vocabulary).narrowed(mask, self._places[-1])

    @property
    def may_end(self) -> bool:
        """Whether the text is complete as it is."""
        return self._stopped or (not self._pending and self._matcher.is_accepting())

    @property
    def ended(self) -> bool:
        """Whether the text is complete and nothing can follow. Found without computing a mask."""
        return self._stopped or (self.may_end and self._matcher.is_stopped())

    def can_begin(self, data: bytes) -> bool:
        """Whether a text of the grammar begins with these bytes. Call it before anything is accepted."""
        return self._valid_bytes(data) == len(data)

    def _recover(self) -> None:
        """A new matcher at the state before the error, from which a matcher does not recover."""
        self._matcher = self._unused.deep_copy()
        self._matcher.consume_tokens([token for step in self._steps for token in step.given])

    def _given_for(self, token: int) -> list[int]:
        """llguidance's tokens for a token: itself, or its bytes after the prefix."""
        if self._stopped:
            raise _not_allowed(token)
        if token in self._vocabulary.stop_ids:
            if not self.may_end:
                raise _not_allowed(token)
            return []
        data = self._vocabulary.texts[token] if 0 <= token < self._vocabulary.size else b""
        pending = self._pending
        if not data or not (data.startswith(pending) or pending.startswith(data)):
            raise _not_allowed(token)
        return byte_tokens(self._vocabulary.size, data[len(pending) :]) if pending else [token]

    def _computed_mask(self) -> Mask:
        from llguidance.numpy import fill_next_token_bitmask

        bits = np.zeros((1, (self._tokens.vocab_size + 31) // 32), np.int32)
        fill_next_token_bitmask(self._matcher, bits)
        if self._matcher.is_error():
            stuck = "NoExtension" in self._matcher.get_error()
            self._recover()
            if not stuck:
                raise BadSetting(self._too_complex())
            return self._vocabulary.empty()
        mask: Mask = bits[0].view(np.uint32)[: self._vocabulary.text.shape[0]] & self._vocabulary.text
        if self.may_end:
            mask |= self._vocabulary.stop
        return mask

    def _mask_with_prefix(self) -> Mask:
        """The tokens that repeat pending bytes, or all of them and then an allowed beginning."""
        pending = self._pending
        if pending not in self._prefix_masks:
            words = self._vocabulary.words
            parts = [pending[:end] for end in range(1, len(pending) + 1)]
            places = [
                i for part in parts for i in range(*self._vocabulary.range_of(part)) if words[i] == part
            ]
            place, last = self._vocabulary.range_of(pending)
            while place < last:
                rest = words[place][len(pending) :]
                valid = self._valid_bytes(rest)
                if valid == len(rest):
                    places.append(place)
                    place += 1
                else:
                    place = self._vocabulary.range_of(pending + rest[: valid + 1], place, last)[1]
            self._prefix_masks[pending] = self._vocabulary.mask_of(self._vocabulary.ids[places])
        return self._prefix_masks[pending]

    def _valid_bytes(self, data: bytes) -> int:
        """How many of these bytes the grammar allows here. 0xFF is in no text and has no token."""
        usable = data.partition(b"\xff")[0]
        return self._matcher.validate_tokens(byte_tokens(self._vocabulary.size, usable)) if usable else 0

    def _too_complex(self) -> str:
        name = self._source.name
        return _(
            "{what} is too complex; simplify it with fewer or smaller repeats and choices.",
            what=name[:1].upper() + name[1:],
        )


def _not_allowed(token: int) -> ValueError:
    return ValueError(f"token {token} is not allowed here")
