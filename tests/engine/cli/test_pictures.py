"""Pictures on the command line, with a tiny model that reads them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.__main__ import main
from engine.core import FIRST_PICTURE_ID
from tests.engine.vision.tiny.families import FAMILIES
from tests.tiny import TINY, write_folder

BRIEF = ("--max-tokens", 4, "--temperature", 0, "--context-length", 1024, "--threads", 2)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FAMILIES["idefics3"](tmp_path_factory.mktemp("eyes")).folder


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("blind") / "tiny", TINY)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; its exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        found = capsys.readouterr()
        return code, found.out, found.err

    return run


@pytest.fixture
def red(tmp_path: Path) -> Path:
    Image.new("RGB", (60, 40), "red").save(tmp_path / "red one.png")
    return tmp_path / "red one.png"


@pytest.fixture
def blue(tmp_path: Path) -> Path:
    Image.new("RGB", (60, 40), "blue").save(tmp_path / "blue.jpg")
    return tmp_path / "blue.jpg"


def told(tmp_path: Path, *messages: tuple[str, str]) -> Path:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps([{"role": role, "content": text} for role, text in messages]), "utf-8")
    return path


def test_run_reads_pictures(run: Run, eyes: Path, red: Path, blue: Path, tmp_path: Path) -> None:
    def answer(*arguments: object) -> Any:
        code, out, err = run("run", eyes, *arguments, *BRIEF, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    one = answer("--prompt", "What is it?", "--image", red)
    two = answer("--prompt", "What is it?", "--image", red, "--image", blue)
    assert two["prompt_tokens"] > one["prompt_tokens"] > 16
    assert one["ids"] != answer("--prompt", "What is it?", "--image", blue)["ids"]
    asked = told(tmp_path, ("user", "What is it?"))
    assert answer("--messages", asked, "--image", red)["ids"] == one["ids"]
    (tmp_path / "prompt.txt").write_text("What is it?\n", "utf-8")
    assert answer("--file", tmp_path / "prompt.txt", "--image", red)["ids"] == one["ids"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--ids", "1,2", "--image", "RED"), "--image needs a text."),
        (("--prompt", "A", "--image", "none.png"), "“none.png” cannot be read: No such file or directory."),
        (("--prompt", "A", "--image", "TEXT"), "messages.json: The picture cannot be read"),
        (("--messages", "TEXT", "--image", "RED"), "--image needs a message of the user"),
    ],
)
def test_pictures_that_cannot_be_sent(
    run: Run, eyes: Path, red: Path, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    names = {"RED": red, "TEXT": told(tmp_path, ("system", "Be brief."))}
    code, out, err = run("run", eyes, *(names.get(each, each) for each in arguments))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert sentence in err


def test_a_model_that_reads_text_only_is_not_loaded_for_pictures(run: Run, blind: Path, red: Path) -> None:
    code, _out, err = run("run", blind, "--prompt", "A", "--image", red)
    assert (code, err) == (
        1, "tiny reads text only. For pictures, choose a model with a vision encoder, such as SmolVLM, "
        "Gemma 3 or Qwen3-VL.\n",
    )  # fmt: skip


def test_a_chat_about_pictures(
    run: Run, eyes: Path, red: Path, blue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(red.read_bytes()[:-40])
    lines = [
        f'/image "{red}"', f"/image {blue}", "What are they?", "/image", f"/image {tmp_path / 'none.png'}",
        "And now?", f"/image {damaged}", "What is this?", "Go on.",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
    code, out, err = run("chat", eyes, *BRIEF)
    assert code == 0
    assert out.startswith(f"{eyes.name}. Ctrl+C stops a reply, Ctrl+D leaves, /image FILE adds a picture.\n")
    assert "red one.png (60 × 40 pixels) is sent with your next message.\nblue.jpg (60 × 40" in out
    assert out.count("[stopped at the token limit]") == 3  # the damaged picture has no reply
    first, second, third = err.splitlines()
    assert first == "/image needs the path of a picture: /image FILE."
    assert second == "“none.png” cannot be read: No such file or directory."
    assert third.startswith("The picture cannot be read: it is damaged")


def test_a_chat_with_a_model_that_reads_text_only(
    run: Run, blind: Path, red: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"/image {red}\nHello\n"))
    code, out, err = run("chat", blind, "--backend", "reference", "--max-tokens", 2)
    assert code == 0
    assert "/image FILE" not in out
    assert err.startswith("tiny reads text only.")


def test_info_names_the_encoder(run: Run, eyes: Path, blind: Path) -> None:
    code, out, _err = run("info", eyes)
    assert code == 0
    assert "reads pictures      yes" in out
    assert "vision encoder      idefics3" in out
    assert "vision bytes " in out
    assert "vision file" not in out
    out = run("info", blind)[1]
    assert "reads pictures      no" in out
    assert "vision encoder" not in out


def test_render_shows_the_layout(run: Run, eyes: Path, red: Path, blind: Path, tmp_path: Path) -> None:
    asked = told(tmp_path, ("user", "What is it?"))
    code, out, err = run("render", eyes, "--messages", asked, "--image", red, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert "<fake_token_around_image><row_1_col_1><image>" in found["text"]
    assert "<global-img><image>" in found["text"]
    own = [id for id in found["ids"] if id >= FIRST_PICTURE_ID]
    assert own == list(range(own[0], own[0] + len(own)))
    reply = json.loads(run("run", eyes, "--messages", asked, "--image", red, *BRIEF, "--json")[1])
    assert reply["prompt_tokens"] == len(found["ids"])
    shown = run("render", eyes, "--messages", asked, "--image", red)[1]
    assert f"{own[0]}-" in shown
    assert f" {own[1]} " not in shown
    assert run("render", blind, "--messages", asked, "--image", red)[2].startswith("tiny reads text only.")
