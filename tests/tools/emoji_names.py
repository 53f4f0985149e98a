"""Writes resources/emoji.json: the emoji and their names in the languages of the program.

    python -m tests.tools.emoji_names FOLDER

FOLDER holds the JSON files of the package `emoji` from PyPI (`emoji/unicode_codes`): they have the names of
Unicode's Common Locale Data Repository. Emoji with a colour of skin are left out, as are those newer than
`NEWEST`, which few systems can draw.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

__all__ = ["main", "table"]

ROOT = Path(__file__).resolve().parents[2]
NEWEST = 15.1
CODES = {"de": "de", "es": "es", "zh_CN": "zh", "ja": "ja", "ar": "ar"}
_COMPLETE = 2
_SKIN = {chr(number) for number in range(0x1F3FB, 0x1F400)}


def table(folder: Path) -> dict[str, object]:
    """The content of the file."""
    known = json.loads((folder / "emoji.json").read_text(encoding="utf-8"))
    chosen = sorted(
        (text for text, facts in known.items() if facts["status"] == _COMPLETE and facts["E"] <= NEWEST),
        key=_place,
    )
    chosen = [text for text in chosen if not _SKIN & set(text)]
    names = {"en": [_plain(known[text]["en"]) for text in chosen]}
    for code, file in CODES.items():
        words = json.loads((folder / f"emoji_{file}.json").read_text(encoding="utf-8"))
        names[code] = [_plain(words.get(text, known[text]["en"])) for text in chosen]
    return {
        "source": "Unicode CLDR, https://cldr.unicode.org, under the Unicode License v3",
        "emoji": chosen,
        "names": names,
    }


def _place(text: str) -> tuple[bool, str]:
    """Faces come first, then by code point."""
    return not 0x1F600 <= ord(text[0]) <= 0x1F64F, text


def _plain(name: str) -> str:
    return name.strip(":").replace("_", " ")


def main() -> int:
    """Run; returns the exit code."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    text = json.dumps(table(Path(sys.argv[1])), ensure_ascii=False, indent=0, separators=(",", ":"))
    (ROOT / "resources" / "emoji.json").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
