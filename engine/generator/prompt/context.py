"""Fitting a conversation into the context, and keeping the tokens a model really wrote.

Pure functions and small state over messages and ids: no model, no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.core import Message
from engine.errors import ContextTooLong
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _

Encode = Callable[[Sequence[Message]], list[int]]
"""Token ids of the prompt made from messages."""


def reply_room(context_length: int, max_tokens: int) -> int:
    """Tokens to keep free for the reply: what it may have at most, but no more than a quarter of the
    context.
    """
    quarter = context_length // 4
    return min(max_tokens, quarter) if max_tokens else quarter


def turns(messages: Sequence[Message]) -> list[list[int]]:
    """Indices of all messages but the system's, a user's message and the replies to it together, oldest
    turn first.
    """
    found: list[list[int]] = []
    for index, message in enumerate(messages):
        if message.role == "system":
            continue
        if message.role == "user" or not found:
            found.append([])
        found[-1].append(index)
    return found


class OldestFirst:
    """Leaves out the oldest turns of a conversation that has outgrown the context.

    It drops more than it must, an eighth of the context, and then keeps to that cut while the conversation
    fits: so the beginning of the prompt stays the same for several turns and need not be read again.
    """

    def __init__(self, context_length: int) -> None:
        self.context_length = context_length
        self._left_out: tuple[Message, ...] = ()

    def fit(self, messages: Sequence[Message], encode: Encode, room: int) -> tuple[int, list[int]]:
        """How many messages are left out so that `room` tokens stay free, and the ids of the prompt made from
        the rest.

        System messages and the last turn always stay; when they alone take the room, the reply gets what is
        left. Raises `ContextTooLong` when they do not fit at all.
        """
        groups, ids = turns(messages), encode(messages)
        count = 0
        if len(ids) + room > self.context_length:
            count = self._same_cut(messages, groups)
            if count:
                ids = encode(_without(messages, groups, count))
            if len(ids) + room > self.context_length:
                count = self._fewest(messages, groups, encode, room + self.context_length // 8)
                ids = encode(_without(messages, groups, count))
        if len(ids) > self.context_length:
            raise ContextTooLong(
                _(
                    "The last message is too long: with the system prompt it has {ids:,} tokens, but "
                    "the context holds {context_length:,}, of which {room:,} are reserved for the "
                    "reply; shorten it by {ids_2:,} tokens or choose a larger context length.",
                    ids=len(ids),
                    context_length=self.context_length,
                    room=room,
                    ids_2=len(ids) + room - self.context_length,
                )
            )
        self._left_out = _first(messages, groups, count)
        return len(self._left_out), ids

    def _same_cut(self, messages: Sequence[Message], groups: list[list[int]]) -> int:
        """How many turns were left out last time, if this is the same conversation; else 0."""
        cuts = (count for count in range(1, len(groups)) if _first(messages, groups, count) == self._left_out)
        return next(cuts, 0)

    def _fewest(self, messages: Sequence[Message], groups: list[list[int]], encode: Encode, free: int) -> int:
        """The fewest turns to leave out for `free` free tokens; all but the last when nothing is enough.

        It tries the last two turns, four and so on before it bisects, so that nothing is encoded that is much
        longer than the context, however long the conversation.
        """

        def holds(last: int) -> bool:
            ids = encode(_without(messages, groups, len(groups) - last))
            return len(ids) + free <= self.context_length

        kept, too_many = 1, 2
        while too_many < len(groups) and holds(too_many):
            kept, too_many = too_many, 2 * too_many
        too_many = min(too_many, len(groups))
        while too_many - kept > 1:
            middle = (kept + too_many) // 2
            if holds(middle):
                kept = middle
            else:
                too_many = middle
        return max(0, len(groups) - kept)


def _first(messages: Sequence[Message], groups: list[list[int]], count: int) -> tuple[Message, ...]:
    """The messages of the first `count` turns."""
    return tuple(messages[index] for group in groups[:count] for index in group)


def _without(messages: Sequence[Message], groups: list[list[int]], count: int) -> list[Message]:
    gone = {index for group in groups[:count] for index in group}
    return [message for index, message in enumerate(messages) if index not in gone]


class WrittenReplies:
    """Remembers the ids of replies as they were sampled.

    A model may write a text in other tokens than the tokenizer would, so the prompt of the next turn,
    tokenised from text, would part from the cache in the middle of the reply. Here such a stretch gets its
    own ids back, when its bytes are the same.
    """

    def __init__(self, tokenizer: Tokenizer, keep: int = 128) -> None:
        self._tokenizer = tokenizer
        self._keep = keep
        self._replies: dict[bytes, list[int]] = {}

    def remember(self, prompt_ids: Sequence[int], reply_ids: Sequence[int]) -> None:
        """The reply to a prompt, without its stop token.

        A prompt that ends in a reply known already continues that one.
        """
        if not reply_ids or not self._tokenizer.special_ids.isdisjoint(reply_ids):
            return
        prompt, reply = _packed(prompt_ids), list(reply_ids)
        for before, known in self._replies.items():
            if before + _packed(known) == prompt:
                prompt, reply = before, known + reply
                break
        self._replies.pop(prompt, None)
        self._replies[prompt] = reply
        while len(self._replies) > self._keep:
            del self._replies[next(iter(self._replies))]

    def restore(self, ids: list[int]) -> list[int]:
        """`ids` with every remembered reply in the tokens it was written in."""
        packed = _packed(ids)
        for prompt, reply in sorted(self._replies.items(), key=lambda item: len(item[0])):
            if not packed.startswith(prompt):
                continue
            start = len(prompt) // 4
            end = next((i for i in range(start, len(ids)) if ids[i] in self._tokenizer.special_ids), len(ids))
            if ids[start:end] != reply and self._bytes(ids[start:end]) == self._bytes(reply):
                ids = ids[:start] + reply + ids[end:]
                packed = _packed(ids)
        return ids

    def _bytes(self, ids: Sequence[int]) -> bytes:
        return b"".join(self._tokenizer.token_bytes(token) for token in ids)


def _packed(ids: Sequence[int]) -> bytes:
    """Ids as int32 bytes: compact, comparable."""
    return np.asarray(ids, dtype=np.int32).tobytes()
