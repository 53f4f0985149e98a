"""A reply divided into text and calls of tools while it grows."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core import CallPiece, Tool
from engine.text.template.reasoning import Tag
from engine.text.tools.calls import CallReader
from engine.text.tools.form import CHANNEL_FORMS, CallForm
from engine.text.tools.json_text import BLANKS, Chars, Malformed, Reading
from engine.text.tools.loose import FIRST_CHARACTERS, NOT_IN_CODE, LooseReader
from engine.text.tools.sink import CallSink, Piece
from engine.text.tools.whole import WholeCalls

__all__ = ["ToolParser"]

_FENCE = "```"


class ToolParser:
    """Divides one reply: `feed` takes its text, in any pieces, `finish` its end.

    However the text is cut, the same pieces come out, but for their own cuts. Text that only looks like a
    call, or calls none of `tools`, stays text. White space around calls is dropped. No call is looked for
    inside a thought: between `tags` at the beginning of the reply, or up to `opened` where a thought was
    begun before the reply. But what ends a reply whose thought has no end is one.
    A call may lack the first tag of its opening (`CallForm.bare`). One that is written as JSON at the
    beginning of a line, in a tag, or after a marker instead of the form, or in ReAct's lines, counts too
    (`LooseReader`), but not in channels. Within a line it counts if the form
    says so.

    The arguments of a call that the end of the reply cuts off stay incomplete, so that nobody takes them for
    whole; of one that is cut off before its name is certain nothing comes out. Those that turn out not to be
    JSON are closed, and what is left of them is text.

    An answer that is nothing but calls of Python counts as these (`WholeCalls`), unless the reply is
    `continued` after a beginning that is not fed.

    With `in_thoughts`, a marker that is a control token ends a thought; that of `form.native` always does.
    With `begun`, the prompt ended with `form.begun`. Unless `several`, what follows the first call is text.
    """

    def __init__(
        self,
        form: CallForm,
        tools: Sequence[Tool],
        tags: Sequence[Tag] = (),
        opened: str = "",
        *,
        in_thoughts: bool = False,
        begun: bool = False,
        several: bool = True,
        continued: bool = False,
    ) -> None:
        self._form, self._tools = form, tools
        forms = (form.bare, form, form.native)
        self._starts = {one.marker: one for one in forms if one is not None and one.marker}
        self._ending = frozenset(  # the markers that end a thought
            marker for marker, one in self._starts.items()
            if one is form.native or (in_thoughts and one.has_control_marker)
        )  # fmt: skip
        self._loose = frozenset() if form in CHANNEL_FORMS.values() else FIRST_CHARACTERS
        self._within = "{[" if form.within_line else ""  # with which calls may begin within a line
        self._sink = CallSink(tools, several=several)
        self._tags, self._closing, self._tail = tags, opened, ""
        self._lead: str | None = ""  # the beginning of the reply while it may be a tag
        self._fresh = self._was_fresh = True  # nothing but white space stands in this line
        self._last_char = ""  # of the text
        self._line, self._in_code = "", False  # the line's beginning, and whether it is in a block of code
        self._held = ""
        self._opening = ""  # what stood before the characters of the call under way
        self._before = 0  # calls before it
        self._marked = self._again = False  # whether it has a marker, and is read for the second time
        self._chars = Chars()
        self._reading: Reading | None = None
        self._last: _LastCalls | None = None  # in a thought
        whole = WholeCalls(tools, several=several)
        self._whole = whole if self._loose and not (begun or continued) else None  # while all may be calls
        if begun:
            self._begin("", form)

    @property
    def calls(self) -> int:
        """Calls begun so far."""
        return self._sink.count

    def feed(self, text: str) -> list[Piece]:
        """What is certain now."""
        self._take(text)
        return self._sink.taken()

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """The rest, once the reply has ended. If it was `cut`, the opening of a call after a marker, or two
        characters or more of a marker, are no text (vLLM, SGLang and llama.cpp's server keep them back, too).
        """
        if self._last is not None:
            self._sink.take_over(self._last.finish())
            return self._sink.taken()
        if self._lead:  # which might have become a tag
            lead, self._lead = self._lead, None
            self._take(lead)
        if self._whole is not None and self._whole.text:
            if self._whole.complete and not cut:
                self._sink.take_over(self._whole.pieces())
                return self._sink.taken()
            self._not_whole()
        while self._reading is not None:
            self._reading = None
            if self._sink.begun:
                self._sink.cut()
            elif self._sink.count == self._before and not (cut and self._marked):
                self._rescan()  # else it is what closes calls, or begins another one
        held = self._held.lstrip(BLANKS)
        if cut and not self._closing and any(len(held) > 1 and one.startswith(held) for one in self._starts):
            self._held = ""
        if self._sink.count and not self._held.strip():
            self._held = ""
        self._sink.text(self._held)
        self._held = ""
        return self._sink.taken()

    def _take(self, text: str) -> None:
        waiting = list(reversed(text))
        while waiting:
            char = waiting.pop()
            if self._reading is None:
                self._plain(char)
                continue
            try:
                self._reading.send(char)
            except StopIteration:
                self._reading = None
                waiting.extend(reversed(self._chars.left))
            except Malformed:
                waiting.extend(reversed(self._failed()))

    def _failed(self) -> str:
        """The text to read again after a call that was none, or that went wrong."""
        self._reading = None
        begun = self._sink.begun
        if self._marked and not self._again and not begun and self._sink.count == self._before:
            text, self._again = self._chars.text, True
            if self._opening.endswith("="):  # a tag that names the tool, which is read from its beginning
                tag = self._opening.lstrip(BLANKS)
                self._opening, text = self._opening.removesuffix(tag), tag + text
            self._read(None)
            return text
        text = self._unread()
        self._sink.end()
        if begun:
            self._chars = Chars()
            self._sink.reads(self._chars)
            self._reading = LooseReader(self._form, self._chars, self._sink, marker=self._marked).ends()
            next(self._reading)
        if begun or not text:
            return text
        self._fresh = self._was_fresh
        self._out(text[:1])
        return text[1:]

    def _rescan(self) -> None:
        """At the end of the reply: what was no call is text, in which another call may begin."""
        text, self._fresh = self._unread(), self._was_fresh
        self._out(text[:1])
        self._take(text[1:])

    def _unread(self) -> str:
        """What has been read, but neither belongs to a call nor has been passed on."""
        opening = self._opening if self._sink.count == self._before else ""
        return opening + self._chars.text

    def _plain(self, char: str) -> None:
        if self._closing or self._lead is not None:
            self._thought(char)
            return
        if self._whole is not None:
            if not self._whole.take(char):
                self._not_whole()
            return
        self._held += char
        while self._held:
            core = self._held.lstrip(BLANKS)
            blanks = self._held[: len(self._held) - len(core)]
            fresh, form = self._fresh or "\n" in blanks, self._starts.get(core)
            if form is not None and (fresh or not form.has_word_marker):
                self._begin("", form)
                return
            if not core or any(marker.startswith(core) and marker != core for marker in self._starts):
                return
            code = self._last_char == "`" and not blanks
            tag = core[0] == "<" and not code
            within = core[0] in self._within and not (code or self._in_code)
            in_code = core[0] in NOT_IN_CODE and self._in_code
            if core[0] in self._loose and (fresh or tag or within) and not in_code:
                self._begin(core)
                return
            self._out(self._held[0])
            self._held = self._held[1:]

    def _not_whole(self) -> None:
        """What seemed to be nothing but calls of Python is not: read it as any reply."""
        assert self._whole is not None
        text, self._whole = self._whole.text, None
        self._take(text)

    def _begin(self, again: str, form: CallForm | None = None) -> None:
        """A call of this form, or a loose one, may begin with what is held, of which `again` is read once
        more.
        """
        self._opening = self._held[: len(self._held) - len(again)]
        self._was_fresh = self._fresh
        self._held, self._before, self._fresh = "", self._sink.count, True
        self._marked, self._again = form is not None, False
        self._read(form)
        self._take(again)

    def _read(self, form: CallForm | None) -> None:
        """Wait for the characters of a call of this form, or of a loose one."""
        self._chars = Chars()
        self._sink.reads(self._chars)
        reader = (
            CallReader(form, self._chars, self._sink)
            if form is not None
            else LooseReader(self._form, self._chars, self._sink, marker=self._marked, in_code=self._in_code)
        )
        self._reading = reader.calls()
        next(self._reading)

    def _out(self, text: str) -> None:
        self._last_char = text[-1:] or self._last_char
        _, newline, line = text.rpartition("\n")
        self._fresh = (self._fresh or bool(newline)) and not line.strip()
        for char in text:
            self._line = "" if char == "\n" else (self._line + char).lstrip()[: len(_FENCE) + 1]
            self._in_code ^= self._line == _FENCE
        self._sink.text(text)

    def _thought(self, char: str) -> None:
        """Text inside a thought, or at the beginning of the reply, where one may begin."""
        if self._last is not None:
            if (text := self._last.feed(char)) is not None:
                self._last, self._held = None, text
                self._pass_on(all=True)
        elif self._closing:
            self._held += char
            self._pass_on()
            if self._held in self._starts and self._closing:
                self._end_of_thought(self._held)
        else:
            self._lead_in((self._lead or "") + char)

    def _lead_in(self, lead: str) -> None:
        """The beginning of the reply, in which a thought may begin."""
        core = lead.lstrip(BLANKS)
        found = next((end for begin, end in self._tags if core == begin), "")
        if found:
            self._sink.text(lead)
            self._lead, self._closing = None, found
        elif not core or any(begin.startswith(core) for begin, _ in self._tags):
            self._lead = lead
        else:
            self._lead = None
            self._take(lead)  # a call may begin in it

    def _end_of_thought(self, marker: str) -> None:
        """A marker in a thought: it ends the thought, or is held until it is known whether it does."""
        if marker in self._ending:
            self._closing, self._tail, self._lead = "", "", None
            self._begin("", self._starts[marker])
        else:
            self._last, self._held = _LastCalls(self._form, self._tools), ""
            self._last.feed(marker)

    def _pass_on(self, *, all: bool = False) -> None:
        """Pass on what is held of a thought, but the beginning of a marker unless `all`; what follows the
        thought is read as text.
        """
        while self._closing and self._held and (all or not self._may_call()):
            first, self._held = self._held[0], self._held[1:]
            self._sink.text(first)
            self._tail = (self._tail + first)[-len(self._closing) :]
            if self._tail == self._closing:
                self._closing, self._tail, self._lead = "", "", None
        if not self._closing:
            rest, self._held = self._held, ""
            self._take(rest)

    def _may_call(self) -> bool:
        """Whether what is held of a thought may become a marker."""
        return any(marker.startswith(self._held) for marker in self._starts)


class _LastCalls:
    """Holds calls inside a thought, which count if nothing follows them."""

    def __init__(self, form: CallForm, tools: Sequence[Tool]) -> None:
        self._parser, self._text = ToolParser(form, tools), ""
        self._calls: list[Piece] = []

    def feed(self, text: str) -> str | None:
        """All that is held once it cannot be calls alone, else None."""
        self._text += text
        return self._text if self._other(self._parser.feed(text)) else None

    def finish(self) -> list[Piece]:
        """The calls, or the text."""
        return [self._text] if self._other(self._parser.finish()) else self._calls

    def _other(self, pieces: Sequence[Piece]) -> bool:
        """Whether there is text among these pieces, whose calls are kept."""
        self._calls += [piece for piece in pieces if isinstance(piece, CallPiece)]
        return any(isinstance(piece, str) and piece.strip() for piece in pieces)
