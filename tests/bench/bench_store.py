"""Times the store with 10,000 chats and 1,000,000 messages.

    python -m tests.bench.bench_store --keep FOLDER [--chats 10000] [--messages 1000000] [--repeats 5]

The store is created once in FOLDER, which takes some minutes. Times are wall time; `search_cpu` is the CPU
time of the same calls, on which other programs have less influence. `open` is a connection with the checks of
opening; `list` reads all rows of the sidebar; `search` runs from a query to its first 50 hits with snippets.
Bars: p99 of a search < 50 ms of CPU time, open and list < 100 ms. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.search.indexing import index_step

FILE = "library.sqlite3"
HITS = 50
_SYLLABLES = [
    a + b
    for a in (*"bcdfghklmnprstvw", "th", "st", "ch", "br")
    for b in (*"aeiou", "ea", "ai", "on", "er", "in", "al")
]
_INSERT = (
    "INSERT INTO messages (conversation_id, parent_id, role, text, state, created_at) VALUES (?, ?, ?, ?, "
    "'complete', ?)"
)


class Language:
    """Sentences of words with natural frequencies (Zipf-Mandelbrot), including Chinese, accents and code."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        draw = self.draw
        made = (
            "".join(draw.choice(_SYLLABLES) for _ in range(draw.choice((1, 2, 2, 3, 3, 4))))
            for _ in range(160_000)
        )
        self.words = list(dict.fromkeys(made))[:100_000]
        self.accented = [word.replace("a", "ä", 1).replace("o", "é", 1) for word in self.words[200:6000]]
        self.han = [chr(0x4E00 + number) for number in range(3000)]
        self._weights = {len(words): _zipf(len(words)) for words in (self.words, self.accented, self.han)}
        self._pool = [self._sentence() for _ in range(200_000)]

    def text(self, sentences: int) -> str:
        """The text of a message."""
        return " ".join(self.draw.choices(self._pool, k=sentences))

    def _pick(self, words: list[str], count: int) -> list[str]:
        return self.draw.choices(words, cum_weights=self._weights[len(words)], k=count)

    def _sentence(self) -> str:
        kind = self.draw.random()
        if kind < 0.02:
            return "".join(self._pick(self.han, self.draw.randint(8, 30))) + "。"
        if kind < 0.05:
            return " ".join(self._pick(self.accented, self.draw.randint(5, 16))) + "."
        if kind < 0.08:
            return "`" + "_".join(self._pick(self.words, 3)) + "(" + self._pick(self.words, 1)[0] + ")`"
        return " ".join(self._pick(self.words, self.draw.randint(5, 18))).capitalize() + self.draw.choice(
            ".?!"
        )


def _zipf(count: int) -> list[float]:
    return list(accumulate(1 / (rank + 2.7) ** 1.05 for rank in range(count)))


def make(path: Path, language: Language, chats: int, messages: int) -> None:
    """Write the store as an old version would have left it, without a word index, and index it in steps."""
    database = Database(path)
    each, made = messages // chats, 0
    now = time.time()
    for first in range(0, chats, 100):
        with database.transaction():
            database.execute("UPDATE search_state SET low = ?", (1 << 62,))
            for chat in range(first, min(first + 100, chats)):
                title = language.text(1)[:40]
                values = (title, now - (chats - chat) * 600, now - (chats - chat) * 600)
                number = database.execute(
                    "INSERT INTO conversations (title, created_at, updated_at) VALUES (?, ?, ?)", values
                ).lastrowid
                parent = None
                for place in range(each):
                    role, text = (
                        ("assistant", language.text(language.draw.randint(3, 14)))
                        if place % 2
                        else ("user", language.text(2))
                    )
                    parent = database.execute(_INSERT, (number, parent, role, text, now)).lastrowid
                    made += 1
    database.execute("UPDATE search_state SET low = (SELECT max(id) + 1 FROM messages)")
    print(f"{made:,} messages written, {path.stat().st_size / 1e6:.0f} MB without the index", flush=True)
    steps = [_timed(lambda: index_step(database)) for _ in range(20)]
    while not index_step(database).done:
        pass
    print(f"indexed in steps of {median(steps):.0f} ms (the longest of 20 {max(steps):.0f} ms)", flush=True)
    database.close()


def queries(language: Language) -> Iterator[tuple[str, str]]:
    """(kind, query): words of all frequencies, prefixes while typing, several words, other scripts, and
    nonsense.
    """
    words, draw = language.words, language.draw
    for _ in range(12):
        common, usual, rare = (
            draw.choice(words[:20]),
            draw.choice(words[100:2000]),
            draw.choice(words[20_000:]),
        )
        yield "common word", common
        yield "usual word", usual
        yield "rare word", rare
        for length in (1, 2, 3, 4):
            yield f"{length} letters typed", usual[:length]
        yield "two common words", f"{common} {draw.choice(words[:20])}"
        yield "common and rare word", f"{common} {rare}"
        yield "two usual words", f"{usual} {draw.choice(words[100:2000])}"
        yield "five words", " ".join(draw.choices(words[:500], k=5))
        yield "accents", draw.choice(language.accented)
        yield "Chinese, two", "".join(draw.choices(language.han[:300], k=2))
        yield "Chinese, one", draw.choice(language.han)
        yield "code", f"{common}_{usual}("
        yield "not there", "zzzqqq" + common
        yield "punctuation", draw.choice(('"', "* AND (", "a NEAR/2 b", "^", "-", "NOT", "\\", "%")) + "§§"


def measure(path: Path, language: Language, repeats: int) -> dict[str, object]:
    """All figures."""
    opening = [_timed(lambda: Database(path).close()) for _ in range(repeats)]
    database = Database(path)
    store = ConversationStore(database)
    listing = [_timed(store.list) for _ in range(repeats)]
    kinds: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    first: list[float] = []
    for round_number in range(repeats):
        for kind, query in list(queries(language)):
            before = time.process_time()
            took = _timed(partial(store.search, query, HITS))
            cpu.setdefault(kind, []).append((time.process_time() - before) * 1000)
            kinds.setdefault(kind, []).append(took)
            if not round_number:
                first.append(took)
    everything, busy = (
        [took for figures in kinds.values() for took in figures],
        [figure for figures in cpu.values() for figure in figures],
    )
    for kind, figures in kinds.items():
        print(
            f"  {kind:22} median {median(figures):7.2f}  worst {max(figures):7.2f} ms   (processor "
            f"{max(cpu[kind]):7.2f})"
        )
    conversation = store.create("bench").id
    writing = [
        _timed(lambda: store.add_message(conversation, None, "user", language.text(6))) for _ in range(200)
    ]
    reading = [_timed(partial(store.path, number)) for number in range(1, 200, 7)]
    store.delete(conversation)
    database.close()
    return {
        "sqlite": sqlite3.sqlite_version, "python": platform.python_version(),
        "size_mb": round(path.stat().st_size / 1e6), "open_ms": _summary(opening),
        "list_ms": _summary(listing), "search_ms": _summary(everything), "search_cpu_ms": _summary(busy),
        "first_round_ms": _summary(first), "add_message_ms": _summary(writing),
        "open_chat_ms": _summary(reading),
    }  # fmt: skip


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def _summary(figures: list[float]) -> dict[str, float]:
    ordered = sorted(figures)
    return {
        "p50": round(median(ordered), 2),
        "p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 2),
        "worst": round(ordered[-1], 2), "count": len(ordered),
    }  # fmt: skip


def main() -> int:
    """Print the figures; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    path, language = options.keep / FILE, Language(7)
    if not path.exists():
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        make(part, language, options.chats, options.messages)
        part.rename(path)
    found = measure(path, language, options.repeats)
    for name, figures in found.items():
        print(f"{name:18} {figures}")
    print(json.dumps(found))
    gates = (("search_cpu_ms", "p99", 50), ("open_ms", "p50", 100), ("list_ms", "p50", 100))
    return int(any(found[name][key] >= most for name, key, most in gates))  # type: ignore[index]


if __name__ == "__main__":
    sys.exit(main())
