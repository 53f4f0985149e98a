"""Makes text from files safe to show: it cannot move the cursor, reverse a line or fake one.

Names of files, tensors and models, licences, and the errors of templates come from strangers.
"""

from __future__ import annotations

import re

from engine.words import isolates

__all__ = ["json_text", "one_line", "printable"]

_CONTROL = r"\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
_HIDDEN = r"\u061c\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
"""Direction marks, invisible characters, and lone surrogates, which cannot be encoded."""
_BLANKS = re.compile("[\t\n\v\f\r\x85\u2028\u2029]+")
_UNFIT = re.compile(f"[{_CONTROL}{_HIDDEN}]")
_UNFIT_LINES = re.compile(f"[\v\f\x85\u2028\u2029{_CONTROL}{_HIDDEN}]|\r(?!\n)")
_ISOLATES = "\u2068\u2069"
"""The marks that `engine.words` puts around the parts of a text: the part's own direction, and its end."""
_MARKS = re.compile("[\u2066-\u2069]")
_LONGEST = 2000


def one_line(text: str) -> str:
    r"""`text` as one line of at most 2,000 characters.

    Line ends and tabs become spaces; control, direction and invisible characters become escapes (`\u001b`).
    Only the marks around parts of a translated text stay, where the language in use has them.
    """
    text = _shortened(text)
    return (
        text
        if text.isascii() and text.isprintable()
        else _shortened(_escaped(_UNFIT, _BLANKS.sub(" ", text)))
    )


def printable(text: str) -> str:
    """The same for text of any length with many lines: line ends and tabs stay."""
    return text if text.isascii() and text.isprintable() else _escaped(_UNFIT_LINES, text)


def json_text(text: str) -> str:
    """JSON text with these characters escaped, which does not change its value."""
    return _UNFIT_LINES.sub(_number, text)


def _shortened(text: str) -> str:
    """`text` without its middle if it is too long."""
    half = _LONGEST // 2 - 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


def _escaped(unfit: re.Pattern[str], text: str) -> str:
    """`text` without what is unfit. Marks that come in pairs move nothing but what is between them."""
    keep = isolates() and _paired(text)
    return unfit.sub(lambda match: match[0] if keep and match[0] in _ISOLATES else _number(match), text)


def _paired(text: str) -> bool:
    """Whether each mark that opens a part has one that closes it."""
    depth = 0
    for mark in _MARKS.findall(text):
        depth += -1 if mark == _ISOLATES[1] else 1
        if depth < 0:
            return False
    return depth == 0


def _number(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
