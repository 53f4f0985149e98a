"""Gemini in Google's Takeout as a page: `MyActivity.html`, a card for each prompt with the answer below it.

A card has the verb, a space that does not break and the prompt; lines of attached files; the time; then the
answer. The verb, the time and the product's name are in the user's language. The form is that of every "My
Activity", as readers of it on GitHub have it in their tests.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from desktop.store.transfer.importers.programs.gemini import PRODUCT

__all__ = ["ENDINGS", "HEAD", "activities", "is_activity"]

ENDINGS = (".html", ".htm")
HEAD = 1 << 20
"""Bytes of a page in which its first card must begin: its style comes before."""

_CARD = re.compile(r"<div class=\"outer-cell\b")
_CELL = re.compile(r"<div class=\"content-cell\b[^\"]{0,200}\bmdl-typography--body-1\"[^>]{0,200}>")
_NEXT = re.compile(r"<div class=\"content-cell\b")
_BREAK = re.compile(r"<br ?/?>")
_TAG = re.compile(r"<[^>]{0,2000}>")
_LINK = re.compile(r"\s*+-?(?:\s|&nbsp;)*+<a\b[^>]{0,2000}>[^<>]*</a>\s*")
_WHEN = re.compile(r"(?=.*(?<!\d)\d{4}(?!\d))(?=.*\d:\d\d)[^<>\n]{8,64}")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?(?: ?([ap])\.? ?m\b)?", re.IGNORECASE)
_ZONE = re.compile(r"\b(?:UTC|GMT)(?:([+-])(\d{1,2}):?(\d\d)?)?(?!\w)")
_MONTHS = (
    "jan ene gen", "feb fev", "mar mrt mrz", "apr abr avr", "may mai mag maj mei", "jun giu juin",
    "jul lug juil", "aug ago aou", "sep set", "oct okt out ott", "nov", "dec dez dic",
)  # fmt: skip
"""How names of months begin in English, German, French, Spanish, Portuguese, Italian, Dutch and Swedish."""
_LONGEST_VERB = 60


def is_activity(words: str) -> bool:
    """Whether this is a page of activity, or its beginning, with a card of Gemini."""
    card = _CARD.search(words)
    return card is not None and PRODUCT.search(words, card.start()) is not None


def activities(data: bytes) -> Iterator[dict[str, Any]]:
    """The cards of a page, each as an entry of `MyActivity.json`."""
    words = data.decode("utf-8-sig", "replace")
    starts = [card.start() for card in _CARD.finditer(words)]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=False):
        if (found := _activity(words[start:end])) is not None:
            yield found


def _activity(card: str) -> dict[str, Any] | None:
    """The entry of a card; None if it has no prompt with an answer."""
    if (cell := _CELL.search(card)) is None or not PRODUCT.search(card):
        return None
    after = _NEXT.search(card, cell.end())
    lines = _BREAK.split(card[cell.end() : after.start() if after else len(card)])
    place = next((place for place, line in enumerate(lines) if _WHEN.fullmatch(_plain(line))), 0)
    answer = "<br>".join(lines[place + 1 :]).strip()
    if place == 0 or not _TAG.sub("", answer).strip():
        return None
    links = [number for number in range(1, place) if _LINK.fullmatch(lines[number])]
    asked = lines[: links[0] - 1 or 1] if links else lines[:place]  # a line before them counts them
    verb, _space, prompt = _plain("\n".join(asked), keep="\xa0").partition("\xa0")
    if not prompt or len(verb) > _LONGEST_VERB:
        prompt = f"{verb} {prompt}".strip()
    when = _plain(lines[place])
    time = _seconds(when)
    return {
        "header": "Gemini", "title": f"Prompted {prompt.replace(chr(0xA0), ' ').strip()}",
        "time": when if time is None else time, "safeHtmlItem": [{"html": answer}],
        "attachedFiles": [_plain(lines[number]).removeprefix("-").strip() for number in links],
    }  # fmt: skip


def _plain(line: str, keep: str = "") -> str:
    """The text of a line of HTML; of its spaces that do not break, those in `keep` stay."""
    words = html.unescape(_TAG.sub("", line))
    for space in {"\xa0", "\u202f", "\u2009"} - {keep}:
        words = words.replace(space, " ")
    return words.strip(" \t\r\n")


def _seconds(when: str) -> float | None:
    """A date with a time as pages of several languages write them, in seconds since 1970; None for others.
    Zones other than UTC with a difference are taken for this machine's.
    """
    clock = _CLOCK.search(when)
    day = _day(when[: clock.start()]) if clock is not None else None
    if clock is None or day is None:
        return None
    hour, half = int(clock[1]), (clock[4] or "").lower()
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    try:
        moment = datetime(*day, hour, int(clock[2]), int(clock[3] or 0))
        if (zone := _ZONE.search(when, clock.end())) is not None:
            away = timedelta(hours=int(zone[2] or 0), minutes=int(zone[3] or 0))
            moment = moment.replace(tzinfo=timezone(-away if zone[1] == "-" else away))
        return moment.timestamp()
    except (OverflowError, OSError, ValueError):
        return None


def _day(words: str) -> tuple[int, int, int] | None:
    """Year, month and day, in numbers or with the month's name; None if they cannot be told."""
    numbers = [int(number) for number in re.findall(r"\d+", words)]
    if len(numbers) == 3:
        first, month, last = numbers
        return (first, month, last) if first > 31 else (last, month, first)
    plain = re.sub(r"[\u0300-\u036f]", "", unicodedata.normalize("NFD", words.casefold()))
    months = [
        number
        for name in re.findall(r"[a-z]{3,}", plain)
        for number, begins in enumerate(_MONTHS, start=1)
        if name.startswith(tuple(begins.split()))
    ]
    return (max(numbers), months[0], min(numbers)) if len(numbers) == 2 and months else None
