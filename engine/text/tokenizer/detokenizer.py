"""Streaming detokenisation: complete characters only, at constant cost per token."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from engine.lazy_dataclass import dataclass
from engine.text.template.channels import Channels
from engine.text.tokenizer.tokenizer import Tokenizer

_MAX_CHARACTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class _State:
    """`held` are the bytes of an incomplete character, `repeated` those that the next token repeats."""

    held: bytes
    at_start: bool
    repeated: bytes
    channels: object


class Detokenizer:
    """Turns token ids into text as they arrive.

    The joined results of `add` and `finish` equal `tokenizer.decode(ids)`, except for a model that writes
    in channels, whose headers become thinking tags unless control tokens are shown, and for the control
    tokens `shown`, which are shown in any case. `channel_calls` is as in `Channels`. `prompt_ids` precede the
    ids. If there are any, the text continues them: a leading space is kept, and a character begun there is
    completed.

    With token healing, `healed_prefix` are the bytes of the token removed from the end of the prompt
    (`prompt_ids` excludes it). They are already shown, so the first token added, whose bytes begin with them,
    gives only the rest. A first token that begins differently raises ValueError.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special: bool = True,
        prompt_ids: Sequence[int] = (),
        healed_prefix: bytes = b"",
        shown: frozenset[int] = frozenset(),
        channel_calls: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.silent_ids - shown if skip_special else frozenset[int]()
        self._channels = (
            Channels(tokenizer.channels, calls=channel_calls)
            if skip_special and tokenizer.channels is not None
            else None
        )
        self._at_start = tokenizer.strips_leading_space and not prompt_ids
        self._repeated = b""
        self.held = b""
        """The bytes of an incomplete character."""
        known = len(prompt_ids) - _MAX_CHARACTER_BYTES
        if tokenizer.channels is not None and self._channels is not None:
            known = min(known, tokenizer.channels.beginning(prompt_ids))
        for id in prompt_ids[max(0, known) :]:
            self.add(id)
        if healed_prefix:
            self.add_bytes(healed_prefix)
            self._at_start = False
            self._repeated = healed_prefix

    def add(self, id: int) -> str:
        """The characters that token `id` completes; empty while a character is incomplete."""
        data = self._tokenizer.token_bytes(id)
        if self._repeated:
            if not data.startswith(self._repeated):
                raise ValueError(
                    f"Token {id} ({data!r}) does not begin with the healed bytes {self._repeated!r}."
                )
            data, self._repeated = data[len(self._repeated) :], b""
        elif id in self._skipped:
            return self._channels.control(id) if self._channels is not None else ""
        if self.held or self._at_start:
            text = self.add_bytes(data)
        else:
            text, used = codecs.utf_8_decode(data, "replace", False)
            self.held = data[used:]
        return self._channels.words(text) if self._channels is not None else text

    def add_bytes(self, data: bytes) -> str:
        """The characters that `data` completes, as if a token had these bytes."""
        if self.held:
            data = self.held + data
        text, used = codecs.utf_8_decode(data, "replace", False)
        self.held = data[used:]
        return self._from_start(text) if self._at_start else text

    def finish(self) -> str:
        """The rest: U+FFFD for the bytes of an incomplete character, or nothing."""
        text, self.held = self.held.decode("utf-8", "replace"), b""
        return self._from_start(text)

    def snapshot(self) -> object:
        """The current state for `restore`; immutable and cheap to keep."""
        return _State(
            self.held,
            self._at_start,
            self._repeated,
            self._channels.snapshot() if self._channels is not None else None,
        )

    def restore(self, snapshot: object) -> None:
        """Return to a `snapshot` of this detokenizer."""
        assert isinstance(snapshot, _State)
        self.held = snapshot.held
        self._at_start, self._repeated = snapshot.at_start, snapshot.repeated
        if self._channels is not None:
            self._channels.restore(snapshot.channels)

    def _from_start(self, text: str) -> str:
        if self._at_start and text:
            self._at_start = False
            return text[1:] if text.startswith(" ") else text
        return text
