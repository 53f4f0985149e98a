"""The tokens of replies for whoever looks at them: of the reply that is written, of those just ended, and
of stored ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict

from desktop.store.conversations.conversations import StoredMessage
from desktop.store.conversations.records import NOTEBOOK
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.token_trace import UNKNOWN, TokenTrace
from engine.core import ModelInfo

__all__ = ["CUT_SHORT", "STRETCH", "WRITTEN", "TokenCache", "model_key"]

CUT_SHORT = ("stop_string", "stop_regex")
"""Reasons that end a reply in the middle of a token."""
STRETCH = "stretch"
"""Where the last stretch of a document that was written by a model begins and ends: characters, in the
message's `stats`.
"""
WRITTEN = "written"
"""How many tokens that stretch has, in the message's `stats`."""
_KEPT = 16


def model_key(model: ModelInfo | None) -> str:
    """What tells models apart whose token ids may differ; a file that was moved keeps it.

    Empty for no model.
    """
    return (
        f"{model.name} · {model.architecture} · {model.parameters} · {model.vocab_size}"
        if model is not None
        else ""
    )


class TokenCache:
    """Hands out the `TokenTrace` of a reply; the latest 16 are kept in memory.

    Methods raise `StoreError` when reading fails.
    """

    def __init__(self, stores: ConversationStores) -> None:
        self._stores = stores
        self._traces: OrderedDict[int, TokenTrace | None] = OrderedDict()

    def trace(self, message: StoredMessage) -> TokenTrace | None:
        """The tokens of a stored reply; None where none were kept or they are those of another text."""
        if message.id not in self._traces:
            data = self._stores.of(message.id).tokens(message.id) if message.role == "assistant" else b""
            self._put(message.id, TokenTrace.unpack(data) if data else None)
        self._traces.move_to_end(message.id)
        found = self._traces[message.id]
        if found is not None and not message.text.startswith(found.text):
            found = found.edited(message.text) if self._is_document(message) else None
            if found is not None:
                self._put(message.id, found)
        return found

    def put(self, message_id: int, trace: TokenTrace) -> None:
        """The tokens of a document are these now."""
        self._put(message_id, trace)

    def _is_document(self, message: StoredMessage) -> bool:
        """Of a notebook's document, which is written in anywhere, those tokens are told that are still
        there.
        """
        return self._stores.of(message.id).get(message.conversation_id).kind == NOTEBOOK

    def begin(
        self, message: StoredMessage, source: StoredMessage | None, ids: tuple[int, ...], model: str
    ) -> TokenTrace:
        """The trace of a reply that is about to be written after the text it has.

        `source` is the reply that this text comes from: itself when it is continued, another one when it was
        branched off with the exact ids `ids`. `model` is the key of the model that will write.
        """
        known = self.trace(source) if source is not None and message.text else None
        if not message.text:
            made = TokenTrace(model)
        elif known is None or source is None:
            made = TokenTrace(model).covering(message.text)
        elif source.id == message.id and not ids:
            edited = known.edited(message.text)
            made = edited.part(0, len(edited)).covering(message.text)
            if (
                STRETCH not in source.stats
                and len(made)
                and (source.stats.get("reason") in CUT_SHORT or made.text.endswith("\ufffd"))
            ):
                made.ids[-1] = UNKNOWN  # only a part of this token is text of the reply
        else:
            made = known.branched(message.text, ids)
        made.model = model if known is None or known.model == model else ""
        self._put(message.id, made)
        return made

    def behind(self, source: StoredMessage, head: str, tail: str) -> TokenTrace:
        """The tokens of a document's end that stays behind what is written at its cursor."""
        known = self.trace(source)
        whole = known.edited(head + tail) if known is not None else TokenTrace()
        first = bisect_left(whole.starts, len(head))
        rest = whole.part(first, len(whole))
        gap = tail[: len(tail) - rest.length] if len(rest) else tail
        made = TokenTrace().covering(gap)
        made.join(rest)
        return made

    def _put(self, message_id: int, trace: TokenTrace | None) -> None:
        self._traces[message_id] = trace
        while len(self._traces) > _KEPT:
            self._traces.popitem(last=False)
