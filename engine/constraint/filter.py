"""The protocol of filters, which know, token by token, how a reply may continue."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from engine.constraint.vocabulary import Mask, Vocabulary


class Filter(Protocol):
    """One constraint on one sequence. Used by one thread at a time; `begin` starts each sequence.

    With several filters, a token must be allowed by all of them.
    """

    def begin(self, prefix: bytes) -> None:
        """Forget everything and start at the beginning of a reply.

        With token healing, the first token repeats the bytes of the prompt's last one: `prefix`, which the
        filter expects before what it constrains.
        """
        ...

    def mask(self) -> Mask | None:
        """The tokens allowed next; None allows all. Stop tokens are allowed exactly where the text may end.

        Called from one thread at a time, though not always the one that calls the other methods. The caller
        does not write to it.
        """
        ...

    def accept(self, token: int) -> None:
        """Continue with this token. Raises ValueError, and changes nothing, if the last mask did not allow
        it.
        """
        ...

    def rollback(self, tokens: int) -> None:
        """Take back the last accepted tokens."""
        ...

    @property
    def may_end(self) -> bool:
        """Whether the text satisfies the constraint as it is."""
        ...

    @property
    def ended(self) -> bool:
        """Whether only a stop token may follow; the reply then ends without one.

        Found without the mask: it may be False where only the mask shows it.
        """
        ...


@runtime_checkable
class Finishing(Protocol):
    """A filter that also knows how its text can be completed, so that the token limit does not cut it."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens as bytes."""
        ...

    def completion(self, after: bytes, known: bytes | None = None) -> bytes | None:
        """A short completion of the text once the bytes `after` follow it, b"" if it is complete then; None
        if unknown.

        `known` completed the text before `after`: what still fits of it may be returned again.
        """
        ...

    def hastened(self, mask: Mask) -> Mask:
        """The tokens of `mask` that lead towards the end, at least one if it has any; all if equally good."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """A filter that knows without a search that its texts are not short."""

    @property
    def least(self) -> int:
        """A number of tokens that a whole text has at least."""
        ...
