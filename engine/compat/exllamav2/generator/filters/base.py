"""`ExLlamaV2Filter`: the class that scripts and libraries derive filters of their own from."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from engine.errors import NotSupportedYet

if TYPE_CHECKING:
    from engine.compat.exllamav2.model import ExLlamaV2
    from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

Following = tuple[Collection[int] | None, Collection[int]]
"""The tokens allowed next (None: all), and those of them that end the reply."""


class ExLlamaV2Filter:
    """Says, token by token, how a reply may continue. A subclass defines `begin`, `feed` and `next`.

    `begin(prefix_str)` starts a reply, which with token healing repeats `prefix_str` first. `feed(token)`
    continues it with a token, (1, 1) int64. `next()` returns the ids allowed next and those that end the
    reply once they are chosen; the stop token is among the first wherever the text may end. Where the
    generator goes back, it begins again and feeds the tokens up to there, so equal tokens must have equal
    answers.

    A filter serves one sequence at a time. `next` may be called on another thread than the other methods, but
    never at the same time.
    """

    model: ExLlamaV2
    tokenizer: ExLlamaV2Tokenizer
    sequence_str: str
    background_result: Future[Any] | None
    allow_return_type_list: bool = True

    def __init__(self, model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.sequence_str = ""
        self.background_result = None

    def clone(self, c: Any = None) -> Any:
        """A copy; `c`, if given, is an object made by a subclass, whose fields are set."""
        copy = type(self).__new__(type(self)) if c is None else c
        copy.model, copy.tokenizer, copy.sequence_str = self.model, self.tokenizer, self.sequence_str
        copy.background_result = None
        return copy

    def begin(self, prefix_str: str) -> None:
        """Start a reply."""
        raise NotSupportedYet(f"{type(self).__name__} must define begin(prefix_str)")

    def feed(self, token: Any) -> None:
        """Continue the reply with a token."""
        raise NotSupportedYet(f"{type(self).__name__} must define feed(token)")

    def next(self) -> Following:
        """The ids allowed next, and those that end the reply."""
        raise NotSupportedYet(f"{type(self).__name__} must define next()")

    def use_background_worker(self) -> bool:
        """Whether `next` takes long. Here it is always called while the model works."""
        return False

    def can_mask_logits(self) -> bool:
        """Whether `mask_logits` can be called; it is, if `next` is not defined."""
        return False

    def prepare_logit_mask(self) -> bool:
        """Get ready for `mask_logits`."""
        raise NotSupportedYet(f"{type(self).__name__} must define prepare_logit_mask()")

    def mask_logits(self, logits: Any) -> Any:
        """`logits` (V,) float32 with those of all tokens that are not allowed at -inf."""
        raise NotSupportedYet(f"{type(self).__name__} must define mask_logits(logits)")

    def background_next(self, pool: ThreadPoolExecutor) -> None:
        """Compute `next()` on a thread of `pool`."""
        self.background_result = pool.submit(self.next)

    def background_prepare_logit_mask(self, pool: ThreadPoolExecutor) -> None:
        """Run `prepare_logit_mask()` on a thread of `pool`."""
        self.background_result = pool.submit(self.prepare_logit_mask)

    def background_drop(self) -> None:
        """Forget what a thread has computed, once it is done."""
        waiting, self.background_result = self.background_result, None
        if waiting is not None:
            waiting.result()

    def get_next(self, mask: bool = False) -> Any:
        """What a thread has computed, else `next()` or, with `mask`, `prepare_logit_mask()`."""
        waiting, self.background_result = self.background_result, None
        if waiting is not None:
            return waiting.result()
        return self.prepare_logit_mask() if mask else self.next()


class WrappedFilter(ExLlamaV2Filter):
    """One of the engine's filters, `wrapped`, under the methods of `ExLlamaV2Filter`."""

    wrapped: Any

    def begin(self, prefix_str: str = "") -> None:
        """Start a reply."""
        self.sequence_str = ""
        self.wrapped.begin((prefix_str or "").encode())

    def feed(self, token: Any) -> None:
        """Continue the reply with a token. Raises ValueError for one that is not allowed."""
        id = int(token.reshape(-1)[0]) if hasattr(token, "reshape") else int(token)
        self.wrapped.accept(id)
        self.sequence_str += self.tokenizer.get_id_to_piece_list()[id]

    def next(self) -> Following:
        """The ids allowed next (None: all), and those that end the reply."""
        import numpy as np

        mask = self.wrapped.mask()
        if mask is None:
            return None, []
        bits = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits).tolist()
        stops = self.tokenizer.engine_tokenizer.stop_token_ids
        return allowed, [id for id in allowed if id in stops]

    def clone(self, c: Any = None) -> Self:
        """A copy that has not begun."""
        copy: Self = super().clone(c)
        copy.wrapped = self._made()
        return copy

    def _made(self) -> Any:
        """Another of the engine's filters for the same texts."""
        raise NotSupportedYet(f"{type(self).__name__} must define _made()")
