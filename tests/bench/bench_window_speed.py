"""CPU decoding with a window that paints the reply, compared with decoding without one; the bar is 97 %.

    python -m tests.bench.bench_window_speed [--model FILE] [--tokens 512] [--rounds 25] [--processes 4]

Each process loads a model once and alternates: a reply that nobody reads (headless), and the same reply in
the whole window off screen, painted frame by frame. Each round runs both, in alternating order. The median of
the ratios of all rounds is judged; its standard error comes from 2,000 bootstrap samples (Efron 1979). Where
other programs share the memory, one round may differ from the next by 10 %, and one process from the next by
2 %. The last line is one JSON object; the exit code is 1 if the bar is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from statistics import median, stdev
from typing import Any

from engine.core import ChatRequest, Done, Message, Stats
from engine.settings import OutputSettings, SamplerSettings, StopSettings

BAR = 0.97
SAMPLES = 2000
QUESTION = "Write a long and detailed essay about rivers, with headings and lists."


def request(tokens: int) -> ChatRequest:
    """The question as the window sends it, answered greedily with exactly this many tokens."""
    question, greedy = Message("user", QUESTION), SamplerSettings(temperature=0.0)
    return ChatRequest((question,), greedy, stops(tokens), output=OutputSettings())


def stops(tokens: int) -> StopSettings:
    """Stop after exactly this many tokens."""
    return StopSettings(max_tokens=tokens, min_tokens=tokens)


class Bench:
    """The window with its model, and the API that reaches the model without the window."""

    def __init__(self, folder: Path, model: Path) -> None:
        from desktop.app import SWITCH_S, Desktop, make_application
        from desktop.services.system.garbage_collection import GarbageCollector

        sys.setswitchinterval(SWITCH_S)
        self.app = make_application(["bench"])
        self.desktop = Desktop(self.app, folder)
        self.session = self.desktop.session
        self.collector = GarbageCollector(
            lambda: self.session.state not in ("idle", "no_model"), lambda: self.desktop.acting
        )
        self.desktop.start(model=model)
        self.until(lambda: self.session.state == "idle", 300)

    def until(self, ready: Callable[[], bool], seconds: float = 120) -> None:
        """Run the event loop, as the program does, until `ready`."""
        from PySide6.QtCore import QEventLoop, QTimer

        loop, timer, end = QEventLoop(), QTimer(), time.monotonic() + seconds
        timer.timeout.connect(lambda: loop.quit() if ready() or time.monotonic() > end else None)
        timer.start(250)  # the program does not poll either
        loop.exec()
        timer.stop()
        if not ready():
            raise SystemExit("the model did not answer in time")

    def headless(self, tokens: int) -> Stats:
        """The reply on the engine's thread, while the GUI thread sleeps."""
        found: list[Stats] = []
        over = threading.Event()
        slot = self.session.replies.engine._host

        def work(stop: threading.Event) -> Generator[Any, None, None]:
            for event in slot.answer(request(tokens), stop):
                if isinstance(event, Done):
                    found.append(event.stats)
            over.set()
            return
            yield

        self.session.measure(work, lambda _result: None)
        over.wait(300)
        self.until(lambda: not self.session.replies.engine._tasks)
        return found[0]

    def painted(self, tokens: int) -> Stats:
        """The reply in the window: sent as a user does, and painted to the end."""
        session = self.session
        session.new_conversation()
        session.set_settings(dataclasses.replace(session.settings(SamplerSettings), temperature=0.0))
        session.set_settings(stops(tokens))
        if not session.submit(QUESTION):
            raise SystemExit("the window did not send")
        self.until(lambda: session.state == "idle" and not session.replying_in)
        from desktop.services.engine.reply_record import stats_of

        reply = session.messages.items()[-1]
        stats = stats_of(session.stores.kept.message(reply.id).stats)
        assert stats is not None
        return stats

    def close(self) -> None:
        """Close the window."""
        self.desktop.window.close()
        self.collector.close()


def one_process(model: Path, tokens: int, rounds: int) -> list[list[float]]:
    """Tokens per second of each round, headless and painted."""
    pairs: list[list[float]] = []
    with tempfile.TemporaryDirectory() as name:
        os.environ["INGLENOOK_DATA"] = name
        bench = Bench(Path(name), model)
        ways = (bench.headless, bench.painted)
        for way in ways:  # warm
            way(64)
        for turn in range(rounds):
            speeds = {way: way(tokens).decode_tokens_per_second for way in (ways if turn % 2 else ways[::-1])}
            headless, painted = speeds[bench.headless], speeds[bench.painted]
            pairs.append([headless, painted])
            print(
                f"round: headless {headless:.1f} tok/s, painted {painted:.1f} tok/s, ratio "
                f"{painted / headless:.3f}",
                flush=True,
            )
        bench.close()
    return pairs


def other_process(options: argparse.Namespace) -> list[list[float]]:
    """The same in a new process, whose rounds are shown. Raises SystemExit if it failed."""
    words = [
        "--model",
        str(options.model),
        "--tokens",
        str(options.tokens),
        "--rounds",
        str(options.rounds),
        "--processes",
        "1",
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bench_window_speed", *words], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        lines = []
        for line in child.stdout:
            lines.append(line)
            if line.startswith("round"):
                print(line, end="", flush=True)
    # Python exits with 1 after an error, too
    if child.wait() not in (0, 1) or not lines or not lines[-1].startswith("{"):
        raise SystemExit("a process of the bench failed")
    pairs: list[list[float]] = json.loads(lines[-1])["pairs"]
    return pairs


def judge(pairs: list[list[float]]) -> tuple[float, float]:
    """The median of the ratios and its standard error."""
    ratios = [painted / headless for headless, painted in pairs]
    draw = random.Random(0)
    return median(ratios), stdev(median(draw.choices(ratios, k=len(ratios))) for _ in range(SAMPLES))


def main() -> int:
    """Run everything; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", type=Path, default=Path(os.environ.get("INGLENOOK_STARTER", "starter.gguf"))
    )
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--processes", type=int, default=4)
    options = parser.parse_args()
    if not options.model.exists():
        parser.error(f"there is no model at {options.model}: name one with --model or INGLENOOK_STARTER")
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    if options.processes == 1:
        pairs = one_process(options.model, options.tokens, options.rounds)
    else:
        pairs = [pair for _ in range(options.processes) for pair in other_process(options)]
    ratio, error = judge(pairs)
    passed = ratio >= BAR
    print(
        f"the window leaves {100 * ratio:.1f} % (standard error {100 * error:.1f}) of the speed; passed: "
        f"{passed}"
    )
    rounded = [[round(a, 1), round(b, 1)] for a, b in pairs]
    print(
        json.dumps(
            {"ratio": round(ratio, 4), "standard_error": round(error, 4), "pairs": rounded, "passed": passed}
        )
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
