"""A comparison of replies to one message, its columns, and how these are labelled and seeded."""

from __future__ import annotations

import random
from dataclasses import field

from desktop.services.engine.reply_record import LABEL
from desktop.services.session.several import ColumnSettings
from desktop.store.conversations.participants import UNNAMED, Author
from desktop.store.conversations.records import StoredMessage
from engine.lazy_dataclass import dataclass
from engine.words import _, dotted

FEWEST, MOST = 2, 8
"""How many replies can be compared."""
_SEEDS = 1 << 63
_DRAWN_BITS = 31


@dataclass(eq=False)
class Column:
    """One of the replies that are compared. It has a `message` once it has been begun; before, and if it
    could not be begun, `words` say why.
    """

    settings: ColumnSettings
    message: int = 0
    words: str = ""
    waits: bool = False

    @property
    def label(self) -> str:
        """How it differs from the others, in a few words."""
        return self.settings.label


@dataclass(eq=False)
class Comparison:
    """Replies to the message `answered` of a conversation, side by side. Where several take part, `author`
    writes them, unnamed for whose turn it is.
    """

    conversation: int
    answered: int
    author: Author = UNNAMED
    columns: list[Column] = field(default_factory=list)

    @property
    def waiting(self) -> list[Column]:
        """The columns that still wait for their model."""
        return [column for column in self.columns if column.waits]


def seeds(first: int | None, count: int) -> list[int]:
    """As many different seeds: those from `first` on, or drawn ones."""
    if first is not None:
        return [(first + place) % _SEEDS for place in range(count)]
    return random.SystemRandom().sample(range(1 << _DRAWN_BITS), count)


def model_of(message: StoredMessage) -> str:
    """The name of the model that wrote a reply; "" if it is not known."""
    return str(message.stats.get("model", ""))


def version_label(message: StoredMessage, named: bool) -> str:
    """How a version that exists already differs from others; its model is `named` only where they differ."""
    label, model = str(message.stats.get(LABEL, "")), model_of(message) if named else ""
    return dotted(_("Version {variant_index}", variant_index=message.variant_index + 1), label, model)
