"""What prefix and select filters share: they follow an automaton of texts, and can go back."""

from __future__ import annotations

from collections.abc import Sequence

from engine.constraint.automaton import State, TextAutomaton, Unit
from engine.constraint.vocabulary import Mask, Vocabulary, vocabulary_of
from engine.errors import BadSetting
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _


class TextFilter:
    """A filter whose replies are given texts, or begin with one of them (`free`), divided into tokens in any
    way.

    `units` are the texts as `text_units` returns them. Raises `BadSetting` if the vocabulary cannot write any
    of them.
    """

    def __init__(self, tokenizer: Tokenizer, units: Sequence[Sequence[Unit]], *, free: bool) -> None:
        self._vocabulary = vocabulary_of(tokenizer)
        self._units = units
        self._free = free
        self._prefix: bytes | None = None
        self.begin(b"")
        if not self._automaton.possible():
            raise BadSetting(
                _(
                    "The model's vocabulary has no tokens for characters that the reply must contain; "
                    "choose another text."
                )
            )

    def begin(self, prefix: bytes) -> None:
        """Forget everything; the reply repeats `prefix` (any bytes) first."""
        if prefix != self._prefix:
            before = [(prefix[i : i + 1],) for i in range(len(prefix))]
            self._automaton = TextAutomaton(
                self._vocabulary, [[*before, *text] for text in self._units], free=self._free
            )
            self._prefix = prefix
        self._walk: list[State | None] = [self._automaton.start]

    def mask(self) -> Mask | None:
        """(ceil(V / 32),) uint32; None where anything may follow. Do not write to it."""
        state = self._walk[-1]
        if state is None:
            return self._vocabulary.stop
        return None if state.done and self._free else self._automaton.mask(state)

    def accept(self, token: int) -> None:
        """Continue with a token. Raises ValueError, and changes nothing, if the mask does not allow it."""
        state = self._walk[-1]
        if state is not None and state.done and (self._free or token in self._vocabulary.stop_ids):
            self._walk.append(state if self._free else None)
            return
        data = self._vocabulary.texts[token] if 0 <= token < self._vocabulary.size else b""
        if state is None or not data or not self._automaton.allows(state, data):
            raise ValueError(f"token {token} is not allowed here")
        self._walk.append(self._automaton.step(state, data))

    def rollback(self, tokens: int) -> None:
        """Take back the last accepted tokens. Raises ValueError if there were fewer."""
        if not 0 <= tokens < len(self._walk):
            raise ValueError(f"{tokens} tokens cannot be taken back, {len(self._walk) - 1} were accepted")
        del self._walk[len(self._walk) - tokens :]

    @property
    def may_end(self) -> bool:
        """Whether one of the texts is complete."""
        return self._walk[-1] is None or self._walk[-1].done

    @property
    def ended(self) -> bool:
        """Whether a text is complete and no longer one can follow."""
        state = self._walk[-1]
        return state is None or (
            state.done and not self._free and not (self._automaton.mask(state) & self._vocabulary.text).any()
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens as bytes."""
        return self._vocabulary

    def completion(self, after: bytes, known: bytes | None = None) -> bytes | None:
        """The shortest text that completes this one once `after` follows it; None where that is not
        allowed.
        """
        state = self._walk[-1]
        if state is None:
            return None if after else b""
        behind = self._automaton.step(state, after)
        return None if behind is None else self._automaton.shortest(behind)

    def hastened(self, mask: Mask) -> Mask:
        """All of `mask`: every token leads towards the end of a text."""
        return mask

    def can_begin(self, data: bytes) -> bool:
        """Whether a reply may begin with these bytes. Call it before anything is accepted."""
        return self._automaton.step(self._automaton.start, data) is not None


def text_units(text: str, *, case_insensitive: bool = False) -> list[Unit]:
    """A text as the units of an automaton: its bytes, or the forms of each character (as it is, lower, upper,
    folded).

    Half a surrogate pair has no UTF-8 and becomes U+FFFD, as in the tokenizer.
    """
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if not case_insensitive:
        return [(bytes([byte]),) for byte in text.encode()]
    forms = ((char, char.lower(), char.upper(), char.casefold()) for char in text)
    return [tuple(dict.fromkeys(form.encode() for form in found)) for found in forms]
