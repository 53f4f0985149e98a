"""Takes pictures of every page, pane, dialog, menu and state of the program, for review.

    python -m tests.tools.pictures OUT [--only NAME ...] [--variants light,dark,large,narrow,rtl,2x]
        [--language CODE] [--sheet]
    python -m tests.tools.pictures --readme MODEL

Each variant is a process over a fake model. Its pictures are OUT/VARIANT/NAME.png and, with --sheet, the
contact sheets OUT/VARIANT-N.png. It also reports windows that do not fit on the variant's screen and pages
that could not be reached; the exit code is then 1. --readme retakes the pictures in resources/screenshots
with real replies.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["VARIANTS", "main"]

ROOT = Path(__file__).resolve().parents[3]
VARIANTS: dict[str, tuple[int, int, str, int]] = {
    "light": (1180, 760, "light", 100), "dark": (1180, 760, "dark", 100), "large": (1180, 800, "light", 200),
    "narrow": (420, 700, "light", 100), "rtl": (1180, 760, "light", 100), "2x": (900, 640, "dark", 100),
}  # fmt: skip
"""Width and height of the window, scheme, and text size in percent."""
QUESTIONS = (
    "What is a comet? Answer in two sentences.",
    "Write a Python function that sorts words by their length.",
)
TITLES = (
    "Train from Lisbon to Porto",
    "Plan for the week",
    "A poem about the north wind",
    "Repairing a bicycle lamp",
)
SEED = 7
_EACH = 9
_SHEET, _ACROSS, _GAP = 1500, 3, 12


def take(variant: str, out: Path, only: list[str]) -> list[str]:
    """Take the pictures of one variant in this process; returns what failed."""
    from PySide6.QtCore import Qt
    from PySide6.QtWidgets import QDialog

    from desktop.app import make_application
    from tests.tools.pictures import chat_pages, dialog_pages, window_pages, writing_pages  # noqa: F401 - they fill PAGES
    from tests.tools.pictures.page_list import PAGES
    from tests.tools.pictures.stage import Stage

    app = make_application(["inglenook"])
    if variant == "rtl":
        app.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    width, height, theme, scale = VARIANTS[variant]
    out.mkdir(parents=True, exist_ok=True)
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), (width, height), theme, scale)
        for name, page in PAGES.items():
            try:
                widget = page(stage)
            except (AssertionError, AttributeError, IndexError, TimeoutError, TypeError) as error:
                wrong.append(f"{variant}/{name}: not reached, {type(error).__name__}: {error}")
                continue
            stage.spin()
            picture = widget.grab() if widget is not None else stage.taken
            assert picture is not None
            if isinstance(widget, QDialog) and (widget.width() > width or widget.height() > height):
                wrong.append(f"{variant}/{name}: too large, {widget.width()}x{widget.height()}")
            if not only or any(word in name for word in only):
                picture.save(str(out / f"{name}.png"))
        stage.shut()
        stage.window.close()
        stage.spin(0.1)
    return wrong


def sheets(folder: Path) -> list[Path]:
    """Write contact sheets of a variant's pictures beside its folder."""
    from PySide6.QtCore import QRect, Qt
    from PySide6.QtGui import QGuiApplication, QImage, QPainter

    app = QGuiApplication.instance() or QGuiApplication(["pictures"])
    assert app is not None
    files = sorted(folder.glob("*.png"), key=lambda file: file.stat().st_mtime_ns)
    made = []
    for number in range(math.ceil(len(files) / _EACH)):
        few = files[number * _EACH : number * _EACH + _EACH]
        width = (_SHEET - _GAP * (_ACROSS + 1)) // _ACROSS
        images = [QImage(str(file)) for file in few]
        small = [
            image.scaledToWidth(min(width, image.width()), Qt.TransformationMode.SmoothTransformation)
            for image in images
        ]
        small = [
            image.scaledToHeight(min(470, image.height()), Qt.TransformationMode.SmoothTransformation)
            for image in small
        ]
        rows = [range(at, min(at + _ACROSS, len(few))) for at in range(0, len(few), _ACROSS)]
        heights = [max(small[n].height() for n in row) + 26 for row in rows]
        sheet = QImage(_SHEET, sum(heights) + _GAP * (len(rows) + 1), QImage.Format.Format_RGB32)
        sheet.fill(Qt.GlobalColor.gray)
        painter, y = QPainter(sheet), _GAP
        for row, height in zip(rows, heights, strict=True):
            for column, n in enumerate(row):
                x = _GAP + column * (width + _GAP)
                painter.drawText(QRect(x, y, width, 22), Qt.AlignmentFlag.AlignLeft, few[n].stem)
                painter.drawImage(x, y + 24, small[n])
            y += height + _GAP
        painter.end()
        made.append(folder.parent / f"{folder.name}-{number + 1}.png")
        sheet.save(str(made[-1]))
    return made


def readme(model: Path, out: Path) -> None:
    """Take the pictures for README in this process: replies of a real model with real figures."""
    from desktop.app import Desktop, make_application
    from desktop.settings import Appearance
    from engine.settings import SamplerSettings

    def wait(true: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not true():
            app.processEvents()
            time.sleep(0.005)

    app = make_application(["inglenook"])
    with tempfile.TemporaryDirectory() as folder:
        desktop = Desktop(app, Path(folder))
        session, window = desktop.session, desktop.window
        for title in TITLES:
            session.stores.kept.create(title)
        desktop.start(model)
        window.resize(1120, 700)
        wait(lambda: session.state == "idle", 300.0)
        session.new_conversation()
        session.set_settings(SamplerSettings(temperature=0.7, seed=SEED))
        for question in QUESTIONS:
            session.submit(question)
            wait(lambda: session.state == "idle" and not session.replying_in, 300.0)
        window.chat.banner.hide()
        for theme in ("light", "dark"):
            session.set_settings(Appearance(theme=theme))
            wait(lambda: False, 1.0)
            window.grab().save(str(out / f"chat-{theme}.png"), "PNG", 0)
        session.set_settings(Appearance(theme="light", token_colours="probability"))
        wait(lambda: False, 1.0)
        window.grab().save(str(out / "tokens-light.png"), "PNG", 0)
        window.close()
        app.processEvents()


def main(arguments: list[str] | None = None) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.pictures", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("out", nargs="?", type=Path, help="folder for the pictures")
    parser.add_argument(
        "--only", nargs="*", default=[], help="pages whose names have one of these words in them"
    )
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument(
        "--language", default="", help="the language's code, such as de (default: the system's)"
    )
    parser.add_argument("--sheet", action="store_true", help="contact sheets beside the folders")
    parser.add_argument(
        "--readme",
        type=Path,
        metavar="MODEL",
        help="retake the pictures in resources/screenshots with this model",
    )
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.readme:
        os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
        readme(given.readme, ROOT / "resources" / "screenshots")
        return 0
    if given.out is None:
        parser.error("OUT is missing: the folder for the pictures")
    if given.child:
        print(json.dumps(take(given.child, given.out / given.child, given.only)), flush=True)
        return 0
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    wrong: list[str] = []
    for variant in given.variants.split(","):
        if variant not in VARIANTS:
            parser.error(f"there is no variant {variant!r}: choose of {', '.join(VARIANTS)}")
        environment = {**os.environ, "QT_SCALE_FACTOR": "2" if variant == "2x" else "1"}
        if given.language:  # as that of the system, which the program follows
            environment |= {"LC_ALL": f"{given.language}.UTF-8", "LANGUAGE": given.language}
        command = [
            sys.executable,
            "-m",
            "tests.tools.pictures",
            str(given.out),
            "--child",
            variant,
            "--only",
            *given.only,
        ]
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        wrong += json.loads(ran.stdout.splitlines()[-1])
        if given.sheet:
            print(*sheets(given.out / variant), sep="\n")
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
