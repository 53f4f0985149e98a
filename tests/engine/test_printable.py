"""Texts of strangers on the terminal: nothing that a terminal obeys or that fakes a line, strict JSON, and
no NaN as an answer.
"""

from __future__ import annotations

import gettext
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.__main__ import main
from engine.cli.command import Console
from engine.cli.logits import log_softmax
from engine.core import Message, ModelInfo
from engine.errors import BadCheckpoint, BadTemplate, EngineError
from engine.hub.catalogue.models import HubFile, HubModel
from engine.hub.download.partial_dir import check_names
from engine.models.open_text import open_text
from engine.printable import json_text, one_line, printable
from engine.text.template.template import ChatTemplate
from engine.vision.describe import describe
from engine.weights.checkpoint import open_checkpoint
from engine.words import _, use_catalogue
from tests.tiny import TINY, write_gguf

EVIL = "a\x1b[2J\x1b]0;t\x07b\x9b31mc\u202egfug.\u2066d\r\nFAKE: e\x7f\u2028f\x00\u200b"
UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2060-\u206f\u200b\ufeff\ud800-\udfff]")
REFERENCE = ("--backend", "reference")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        found = capsys.readouterr()
        return code, found.out, found.err

    return run


def broken(path: Path, count: int = 1 << 15) -> Path:
    """The model with its last weights NaN."""
    data = path.read_bytes()
    path.write_bytes(data[:-count] + b"\xff" * count)
    return path


def test_marks_around_the_parts_of_a_sentence_stay_where_the_language_has_them() -> None:
    """An error's sentence shows no escapes of them; marks of strangers that are not in pairs do not pass."""
    text, torn = "\u2068file.gguf\u2069 / \u2068\u2068two\u2069\u2069", "\u2068name\u2069\u2069 \u2068"
    use_catalogue("ar", gettext.NullTranslations())
    try:
        assert str(EngineError(text)) == one_line(text) == printable(text) == text
        assert "name" in one_line(torn)
        assert not UNFIT.search(one_line(torn))
        assert one_line("\u202e\u2068a\u2069") == "\\u202e\u2068a\u2069"
        assert str(EngineError(_("{name} is missing.", name="file"))) == "\u2068file\u2069 is missing."
    finally:
        use_catalogue("en", None)
    assert one_line(text) == text.replace("\u2068", "\\u2068").replace("\u2069", "\\u2069")


@given(st.text() | st.text(st.sampled_from(EVIL)))
def test_what_is_shown_is_fit_to_be_shown(text: str) -> None:
    line = one_line(text)
    assert not UNFIT.search(line)
    assert "\n" not in line
    assert "\t" not in line
    assert one_line(line) == line
    assert len(one_line(text * 5000)) <= 2000
    shown = printable(text)
    assert not UNFIT.search(shown.replace("\r\n", "\n"))
    assert shown.count("\n") == text.count("\n")


def test_what_people_write_is_shown_as_it_is() -> None:
    for text in (
        "Größe 漢字 עברית ❤️ 👨\u200d👩\u200d👧 می\u200cخواهم 🏴\U000e0067\U000e007f",
        "tiny-Q4_K_M (2).gguf",
    ):
        assert one_line(text) == printable(text) == text
    assert one_line("a\tb\n\nc") == "a b c"
    assert printable("a\tb\n\nc") == "a\tb\n\nc"
    assert one_line("\x1b[1m") == r"\u001b[1m"


@given(st.dictionaries(st.text(), st.text() | st.floats(allow_nan=False, allow_infinity=False)))
def test_json_is_the_same_value(value: dict[str, object]) -> None:
    text = json_text(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert not UNFIT.search(text)


def test_every_error_is_one_line() -> None:
    def all_kinds(kind: type[EngineError]) -> list[type[EngineError]]:
        return [kind, *(each for below in kind.__subclasses__() for each in all_kinds(below))]

    for kind in all_kinds(EngineError):
        if kind.__module__.startswith("engine.") and kind.__init__ in (
            EngineError.__init__,
            Exception.__init__,
        ):
            assert str(kind(EVIL)) == one_line(EVIL)


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A model whose names, licence and template are hostile, and the name of its file."""
    path = tmp_path / f"m{EVIL}".replace("\x00", "").replace("/", "")
    path = path.with_name(path.name[:80] + ".gguf")
    source = "{% if messages %}{{ raise_exception('no" + EVIL.replace("\x00", "") + "') }}{% endif %}"
    return write_gguf(
        path, TINY, "F16", general__license=EVIL, general__name=EVIL, tokenizer__chat_template=source
    )


def fit(*texts: str) -> None:
    for text in texts:
        assert not UNFIT.search(text), repr(text)
        assert not re.search("^FAKE", text, re.MULTILINE), repr(text)


def test_the_terminal_obeys_no_file(command: Command, evil: Path, tmp_path: Path) -> None:
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps([{"role": "user", "content": EVIL}]))
    for arguments in (
        ("info", evil), ("info", evil, "--json"), ("render", evil, "--messages", messages),
        ("tokenize", evil, "--text", EVIL), ("tokenize", evil, "--text", EVIL, "--json"),
        ("logits", evil, "--prompt", "a\nb", *REFERENCE), ("run", evil, "--messages", messages, *REFERENCE),
        ("run", evil, "--prompt", EVIL, "--max-tokens", "8", "--json", *REFERENCE),
        ("info", evil.with_name("none" + evil.name)),
    ):  # fmt: skip
        code, out, err = command(*arguments)
        fit(out, err)
        if "--json" in arguments:
            assert code == 0
            json.loads(out)


def test_names_of_tensors_in_errors(command: Command, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    data = path.read_bytes()
    assert b"blk.0.attn_q.weight" in data
    path.write_bytes(data.replace(b"blk.0.attn_q.weight", b"\x1b[2J\nFAKE\xe2\x80\xaeq.wei"))
    code, out, err = command("logits", path, "--prompt", "a", *REFERENCE)
    assert code == 1
    assert err.count("\n") == 1
    fit(out, err)


def test_what_the_window_shows_of_a_model(evil: Path) -> None:
    info = describe(evil)
    fit(info.name, info.licence, info.architecture, info.quantisation)
    assert info.path == str(evil), "the path stays what it is"
    assert isinstance(info, ModelInfo)
    tokenizer, template = open_text(open_checkpoint(evil))
    with pytest.raises(BadTemplate) as found:
        template.render([Message("user", "x")])
    fit(str(found.value))
    assert isinstance(template, ChatTemplate)
    assert tokenizer.vocab_size
    hub = HubModel(id=f"a/{EVIL}", author=EVIL, licence=EVIL, tags=(EVIL,))
    fit(hub.id, hub.author, hub.licence, *hub.tags)


@pytest.mark.parametrize("mark", ["\x9b", "\u202e", "\u2066", "\u200b", "\u2028", "\ud800"])
def test_a_hub_cannot_name_files_so_that_they_look_like_others(mark: str) -> None:
    with pytest.raises(EngineError, match="not a safe file name"):
        check_names([HubFile(f"a{mark}b.gguf", 1)])


def test_the_console_writes_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(json=False)
    console.write("a\x1b[1m\nb")
    console.note(EVIL)
    found = capsys.readouterr()
    assert found.out == "a\\u001b[1m\nb"
    assert found.err.count("\n") == 1
    fit(found.err)


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_weights_that_are_no_numbers_give_one_sentence(
    command: Command, tmp_path: Path, how: tuple[str, ...]
) -> None:
    path = broken(write_gguf(tmp_path / "m.gguf", TINY, "F16"))
    text = tmp_path / "text.txt"
    text.write_text("some words " * 60)
    for arguments in (
        ("logits", path, "--prompt", "a", *REFERENCE),
        ("perplexity", path, "--file", text, "--context", "16", *REFERENCE),
    ):  # fmt: skip
        code, out, err = command(*arguments, *how)
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert "weights are damaged" in err


def test_numbers_that_json_cannot_hold(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.cli import info

    monkeypatch.setattr(info, "machine", lambda: {"memory": float("inf"), "other": [float("nan")]})
    code, out, err = command("info", "--json")
    assert (code, out) == (1, "")
    assert "JSON cannot represent" in err


def test_tokens_that_can_never_come_are_not_listed(command: Command, tmp_path: Path) -> None:
    """Their logarithm is no number; ids behind the tokenizer's own are such."""
    import numpy as np

    with pytest.raises(BadCheckpoint, match="not finite numbers"):
        log_softmax(np.array([[1.0, np.nan]], np.float32))
    with pytest.raises(BadCheckpoint, match="not finite numbers"):
        log_softmax(np.array([[1.0, np.inf]], np.float32))
    assert log_softmax(np.array([[0.0, -np.inf]], np.float32)).tolist() == [[0.0, -np.inf]]
