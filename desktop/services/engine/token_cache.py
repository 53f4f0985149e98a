"""The tokens of replies: of the one that is written, of those just ended, and of stored ones."""

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
"""In the `stats` of a document: first and last character of what a model wrote last."""
WRITTEN = "written"
"""In the `stats` of a document: the number of tokens of that stretch."""
_KEPT = 16


def model_key(model: ModelInfo | None) -> str:
    """Differs between models whose token ids may differ, not for a moved file; "" for no model."""
    return (
        f"{model.name} · {model.architecture} · {model.parameters} · {model.vocab_size}"
        if model is not None
        else ""
    )


class TokenCache:
    """The `TokenTrace` of each reply, the latest 16 of them in memory. Methods raise `StoreError`."""

    def __init__(self, stores: ConversationStores) -> None:
        self._stores = stores
        self._traces: OrderedDict[int, TokenTrace | None] = OrderedDict()

    def trace(self, message: StoredMessage) -> TokenTrace | None:
        """The tokens of a stored reply; None if none are stored or they belong to another text."""
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
        """Set the tokens of a document."""
        self._put(message_id, trace)

    def _is_document(self, message: StoredMessage) -> bool:
        """A notebook's document can be edited anywhere; the tokens that are still in it are kept."""
        return self._stores.of(message.id).get(message.conversation_id).kind == NOTEBOOK

    def begin(
        self, message: StoredMessage, source: StoredMessage | None, ids: tuple[int, ...], model: str
    ) -> TokenTrace:
        """The trace of a reply that is about to be written after the text it has.

        `source` is the reply that this text comes from: itself if it is continued, another one if it was
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

    def rest_of(self, source: StoredMessage, head: str, tail: str) -> TokenTrace:
        """The tokens of a document's `tail`, which follows what is written after `head`."""
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
