"""Translation, plural forms and figures of `engine.words`, with catalogues made here."""

from __future__ import annotations

import gettext

import pytest

from engine.errors import BadSetting
from engine.units import size_text
from engine.words import _, dotted, english, ngettext, paragraph, translate, use_catalogue


class Made(gettext.NullTranslations):
    """A catalogue whose plural has three forms."""

    texts = {
        "Close": "Zu",
        "{count:,} of {total:.1f}": "von {total:.1f} {count:,}",
        "It failed: {error}": "Fehler: {error}",
    }

    def gettext(self, message: str) -> str:
        return self.texts.get(message, message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return f"{{n}} {'ein' if n == 1 else 'wenige' if n < 5 else 'viele'}"


@pytest.fixture
def made():
    use_catalogue("xx", Made(), ".", ",")
    yield
    use_catalogue("en", None)


def test_without_a_catalogue_texts_stay_as_they_are_written() -> None:
    assert _("Close {}") == "Close {}"
    assert _("{count:,} of {total:.1f}", count=1234, total=2.5) == "1,234 of 2.5"
    assert [ngettext("{n} file", "{n} files", count) for count in (0, 1, 1234)] == [
        "0 files", "1 file", "1,234 files",
    ]  # fmt: skip


def test_a_catalogue_translates_then_formats_with_the_separators_of_the_language(made) -> None:
    assert (_("Close"), _("Open"), _("")) == ("Zu", "Open", "")
    assert translate("{count:,} of {total:.1f}", count=1234, total=2.5) == "von 2,5 1.234"
    assert [ngettext("{n} file", "{n} files", count) for count in (1, 4, 4321)] == [
        "1 ein", "4 wenige", "4.321 viele",
    ]  # fmt: skip
    assert size_text(4_700_000_000) == "4,7 GB"


def test_programs_and_logs_get_the_english_source(made) -> None:
    text = _("{count:,} of {total:.1f}", count=1234, total=2.5)
    assert english(text) == "1,234 of 2.5"
    inner = BadSetting(_("Close"))
    outer = BadSetting(_("It failed: {error}", error=inner))
    assert (str(outer), outer.english) == ("Fehler: Zu", "It failed: Close")
    assert english(ngettext("{n} file", "{n} files", 4321)) == "4,321 files"


def test_sentences_stand_side_by_side_as_the_language_puts_them(made) -> None:
    text = paragraph(_("Close"), "", _("Open"))
    assert (text, english(text)) == ("Zu Open", "Close Open")
    use_catalogue("ja", Made())
    text = paragraph(_("Close"), _("Open"))
    assert (text, english(text)) == ("ZuOpen", "Close Open")


def test_from_right_to_left_each_part_keeps_its_own_direction() -> None:
    """The order of “a · b” is the text's, whatever letters a and b have."""
    assert dotted("a", "", "b") == "a · b"
    use_catalogue("ar", Made())
    try:
        assert dotted("7 MB", "", "b") == "\u2067\u20687 MB\u2069 · \u2068b\u2069\u2069"
        assert _("{count:,} of {total:.1f}", count=1234, total=2) == "von \u20682.0\u2069 \u20681,234\u2069"
        assert ngettext("{n} file", "{n} files", 1234) == "\u20681,234\u2069 viele"
        assert english(_("{count:,} of {total:.1f}", count=1234, total=2)) == "1,234 of 2.0"
    finally:
        use_catalogue("en", None)
