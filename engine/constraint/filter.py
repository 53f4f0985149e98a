"""What a filter is: something that knows, token by token, how the reply may go on."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from engine.constraint.vocabulary import Mask, Vocabulary


class Filter(Protocol):
    """One constraint on one sequence.

    Used by one thread at a time; made anew, or begun anew, for each sequence.

    Several filters at once: a token must be allowed by all of them.
    """

    def begin(self, prefix: bytes) -> None:
        """Forget everything and start at the beginning of a reply.

        With token healing the first token repeats the bytes of the prompt's last one: `prefix`, which the
        filter then expects before what it constrains; else it is empty.
        """
        ...

    def mask(self) -> Mask | None:
        """The tokens allowed next; None allows all. Stop tokens are allowed exactly where the text may end.

        Called at most from one thread at a time, but maybe another one than the other methods. The caller
        does not write to it.
        """
        ...

    def accept(self, token: int) -> None:
        """The sequence goes on with this token, which the last mask allowed.

        Raises `ValueError`, and changes nothing, for another.
        """
        ...

    def rollback(self, tokens: int) -> None:
        """Take back the last accepted tokens."""
        ...

    @property
    def may_end(self) -> bool:
        """Whether the text fulfils the constraint as it is."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing but a stop token may follow: the reply is then over, without drawing one.

        Found without the mask: it may be False where only the mask shows it.
        """
        ...


@runtime_checkable
class Finishing(Protocol):
    """What a filter may have besides: it can tell how its text is completed, so that the limit of tokens
    does not cut it.
    """

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens as bytes."""
        ...

    def completion(self, after: bytes, known: bytes | None = None) -> bytes | None:
        """A short way to complete the text once the bytes `after` follow it, empty where it is complete then;
        None for not known.

        `known` is what completed the text before `after`: what is still right of it may be given again.
        """
        ...

    def hastened(self, mask: Mask) -> Mask:
        """The tokens of `mask` that lead towards the end, at least one where it has any; all of it where
        none is better.
        """
        ...
