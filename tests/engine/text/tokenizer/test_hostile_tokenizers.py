"""Definitions of tokenizers that are broken on purpose: one sentence, soon, nothing on stderr, and the
process lives.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import BadCheckpoint, EngineError
from engine.text.tokenizer import definition_trial
from engine.text.tokenizer.charsmap import Charsmap
from engine.text.tokenizer.definition_trial import try_definition
from engine.text.tokenizer.gguf import roles_from_gguf
from engine.text.tokenizer.pretokenizers import PRETOKENIZERS
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.vocabularies import (
    byte_level_folder,
    byte_level_json,
    byte_level_metadata,
    metaspace_json,
    sentencepiece_metadata,
)

Change = Callable[[dict[str, Any]], object]


def split(pattern: str, kind: str = "Regex") -> dict[str, Any]:
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": "Isolated", "invert": False}


def replace(pattern: str, content: str, kind: str = "Regex") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def nested(depth: int, name: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "NFC"} if name == "normalizers" else {"type": "Whitespace"}
    for _ in range(depth):
        part = {"type": "Sequence", name: [part]}
    return part


def table(units: list[int], texts: bytes) -> str:
    return base64.b64encode(struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts).decode()


def charsmap(text: str) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": text}


def written(folder: Path, change: Change) -> Path:
    byte_level_folder(folder)
    definition = json.loads(byte_level_json())
    change(definition)
    (folder / "tokenizer.json").write_text(json.dumps(definition), encoding="utf-8")
    return folder


def refused(folder: Path, capfd: pytest.CaptureFixture[str], error: type[EngineError] = EngineError) -> str:
    """The sentence with which a folder is refused."""
    capfd.readouterr()
    with pytest.raises(error) as found:
        Tokenizer.from_folder(folder).encode("a text with  spaces, 60 a's: " + 60 * "a" + "!")
    assert capfd.readouterr() == ("", "")
    sentence = str(found.value)
    assert "\n" not in sentence
    assert len(sentence) < 400
    return sentence


MODEL: dict[str, Change] = {
    "id -1": lambda d: d["model"]["vocab"].update(a=-1),
    "id 2^40": lambda d: d["model"]["vocab"].update(a=1 << 40),
    "id true": lambda d: d["model"]["vocab"].update(a=True),
    "id 1.5": lambda d: d["model"]["vocab"].update(a=1.5),
    "id text": lambda d: d["model"]["vocab"].update(a="1"),
    "id list": lambda d: d["model"]["vocab"].update(a=[1]),
    "surrogate": lambda d: d["model"]["vocab"].update({"\ud800": 900}),
    "long token": lambda d: d["model"]["vocab"].update({"a" * 5000: 900}),
    "surrogate in a control token": lambda d: d["added_tokens"][0].update(content="\ud800"),
    "id of an added token": lambda d: d["added_tokens"][0].update(id=-1),
    "prefix": lambda d: d["model"].update(continuing_subword_prefix="é#"),
    "prefix list": lambda d: d["model"].update(continuing_subword_prefix=[1]),
    "unknown token": lambda d: d["model"].update(unk_token=["a"]),
    "dropout": lambda d: d["model"].update(dropout=7),
    "merge": lambda d: d["model"]["merges"].append(["a", "no such piece"]),
    "merges of a number": lambda d: d["model"].update(merges=5),
    "merge of three": lambda d: d["model"]["merges"].append(["a", "b", "c"]),
    "score": lambda d: d.update(model={"type": "Unigram", "vocab": [["a", float("nan")]], "unk_id": 0}),
    "piece": lambda d: d.update(model={"type": "Unigram", "vocab": [["a"]], "unk_id": 0}),
    "unknown piece": lambda d: d.update(model={"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 7}),
    "no unknown piece": lambda d: d.update(model={"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": None}),
}
STEPS: dict[str, Change] = {
    "charsmap !!!!": lambda d: d.update(normalizer=charsmap("!!!!")),
    "charsmap that asks for gigabytes": lambda d: d.update(
        normalizer=charsmap(base64.b64encode(b"\xff\xff\xff\x7f" * 300).decode())
    ),
    "charsmap with wild offsets": lambda d: d.update(normalizer=charsmap(table([0x7FFFFC00] * 256, b"a\0"))),
    "charsmap with a wild leaf": lambda d: d.update(
        normalizer=charsmap(table([0x100] + [0x80FFFFFF] * 511, b"a\0"))
    ),
    "charsmap with half a character": lambda d: d.update(
        normalizer=charsmap(table([0x100] + [0x80000001] * 511, "é\0".encode()))
    ),
    "charsmap of a number": lambda d: d.update(normalizer=charsmap(5)),  # type: ignore[arg-type]
    "charsmap with a huge replacement": lambda d: d.update(
        normalizer=charsmap(table([0] * 256, b"a" * 70_000 + b"\0"))
    ),
    "deep sequences": lambda d: d.update(normalizer=nested(30, "normalizers")),
    "deep cuts": lambda d: d.update(pre_tokenizer=nested(30, "pretokenizers")),
    "many steps": lambda d: d.update(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 100}),
    "unknown step": lambda d: d.update(pre_tokenizer={"type": "FixedLength", "length": 0}),
    "doubling": lambda d: d.update(
        normalizer={"type": "Sequence", "normalizers": [replace("a", "aa", "String")] * 40}
    ),
    "a long replacement": lambda d: d.update(normalizer=replace("", "a" * 4000, "String")),
    "no kind": lambda d: d.update(pre_tokenizer={"length": 0}),
    "no steps": lambda d: d.update(pre_tokenizer={"type": "Sequence", "pretokenizers": 5}),
    "pattern of a number": lambda d: d.update(pre_tokenizer=split(5)),  # type: ignore[arg-type]
    "pattern of another kind": lambda d: d.update(pre_tokenizer=split("a", "Glob")),
    "long pattern": lambda d: d.update(pre_tokenizer=split("a" * 5000)),
    "metaspace of two characters": lambda d: d.update(
        pre_tokenizer={"type": "Metaspace", "replacement": "ab"}
    ),
    "step that is a list": lambda d: d.update(pre_tokenizer=[1]),
    "decoder": lambda d: d.update(decoder={"type": "Sequence", "decoders": 5}),
    "decoder of numbers": lambda d: d.update(decoder={"type": "Sequence", "decoders": [5]}),
    "decoder without a kind": lambda d: d.update(decoder={"type": ["ByteLevel"]}),
    "post-processor": lambda d: d.update(post_processor={"type": "Sequence", "processors": 5}),
    "post-processor of numbers": lambda d: d.update(
        post_processor={"type": "TemplateProcessing", "single": [5]}
    ),
}


@pytest.mark.parametrize("change", [*MODEL.values(), *STEPS.values()], ids=[*MODEL, *STEPS])
def test_broken_definitions_end_in_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], change: Change
) -> None:
    refused(written(tmp_path, change), capfd)


EXPRESSIONS = [
    split("(a+)+$"), split(r"(\w+\s?)*$"), split("(x+x+)+y"), split("prefix(b|bb)+!"),
    split(r"(foo|foofoo)*\d"), split("("), split(r"\p{Nowhere}"), split(r"^(a+)*b"), split(r"(?:\s*\S+)*;"),
    split("(.+)+x"), split(r"(\p{Thai}+)+\$"), replace("(z|zz)+[qr]", "b"), replace("a*", "x"),
    replace("qz", "a" * 700, "String"),
]  # fmt: skip


@pytest.mark.parametrize("step", EXPRESSIONS, ids=lambda step: str(step.get("pattern", "doubling")))
def test_expressions_that_would_hang_or_grow_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], step: dict[str, Any]
) -> None:
    name = "pre_tokenizer" if step["type"] == "Split" else "normalizer"
    sentence = refused(written(tmp_path, lambda d: d.update({name: step})), capfd, BadCheckpoint)
    assert "cuts or replaces text by" in sentence


@pytest.mark.parametrize(
    "step",
    [
        split(r"\d{1,3}|[A-Z]?[a-z]+|\s+(?!\S)|."), split(r"[^\s\p{L}]+|\p{L}+|\s+$|\s+"),
        replace(r"\s+", " "),
        split("-", "String"), split("", "String"),
    ],
    ids=lambda step: str(step["pattern"]),
)  # fmt: skip
def test_unknown_expressions_that_are_quick_are_taken_and_tried_once(
    tmp_path: Path, step: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenizers import Tokenizer as Library

    name = "pre_tokenizer" if step["type"] == "Split" else "normalizer"
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    whole = {"type": "Sequence", "pretokenizers": [step, byte_level]} if name == "pre_tokenizer" else step
    folder = written(tmp_path, lambda d: d.update({name: whole}))
    ours, library = Tokenizer.from_folder(folder), Library.from_file(str(folder / "tokenizer.json"))
    for text in ("a-b c", "Baa  12345\n\n x", ""):
        assert ours.encode(text) == library.encode(text, add_special_tokens=False).ids
    monkeypatch.setattr(definition_trial.subprocess, "run", lambda *_, **__: pytest.fail("tried again"))
    Tokenizer.from_folder(folder)


def test_known_expressions_are_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition_trial.subprocess, "run", lambda *_, **__: pytest.fail("tried"))
    for rule in {*PRETOKENIZERS.values()}:
        Tokenizer.from_folder(written(tmp_path, lambda d, rule=rule: d.update(pre_tokenizer=rule.to_json())))  # type: ignore[misc]
    byte_level_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text(metaspace_json(), encoding="utf-8")
    Tokenizer.from_folder(tmp_path)


def test_a_trial_that_cannot_be_made_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_process(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(definition_trial.subprocess, "run", no_process)
    step = split("unseen(a|b)c")
    try_definition({"pre_tokenizer": step}, [step])


def test_a_panic_while_a_text_is_read_is_one_sentence(tmp_path: Path) -> None:
    """Where no trial can tell, the library's own end of it is no end of ours."""
    tokenizer = Tokenizer.from_folder(byte_level_folder(tmp_path))

    class PanicException(BaseException):
        pass

    class Library:
        def encode(self, *_: object, **__: object) -> None:
            raise PanicException("retry-limit-in-match over")

    tokenizer._backend = Library()
    with pytest.raises(BadCheckpoint, match="cannot read this text"):
        tokenizer.encode("a")


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"]
)
def test_files_nested_a_hundred_thousand_deep(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    byte_level_folder(tmp_path)
    (tmp_path / name).write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    assert "nested deeper" in refused(tmp_path, capfd, BadCheckpoint)


def test_files_of_any_json_end_in_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every value of every file in turn is something else."""
    draw = random.Random(3)
    others = [None, True, -1, 1.5, "", "x", [], [1], {}, {"type": 1}, {"a": [None]}]
    byte_level_folder(tmp_path)
    files = {
        name: json.loads((tmp_path / name).read_text("utf-8"))
        for name in ("tokenizer.json", "tokenizer_config.json")
    }
    files["tokenizer_config.json"] |= {
        "added_tokens_decoder": {"5": {"content": "<x>", "special": True}},
        "extra_special_tokens": ["<y>"],
    }
    files["generation_config.json"] = {"eos_token_id": [1, 2]}
    files["added_tokens.json"], files["special_tokens_map.json"] = (
        {"<z>": 700},
        {"bos_token": {"content": "<s>"}},
    )
    small = json.loads(json.dumps(files["tokenizer.json"]))
    small["model"]["vocab"] = dict(list(small["model"]["vocab"].items())[:300])
    small["model"]["merges"] = []
    files["tokenizer.json"] = small
    for _ in range(150):
        name = draw.choice(list(files))
        data = json.loads(json.dumps(files[name]))
        place: Any = data
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw.choice(keys)
            if not isinstance(place[key], (dict, list)) or not place[key] or draw.random() < 0.3:
                place[key] = draw.choice(others)
                break
            place = place[key]
        for other, content in files.items():
            (tmp_path / other).write_text(json.dumps(data if other == name else content), encoding="utf-8")
        capfd.readouterr()
        sentence = ""
        try:
            Tokenizer.from_folder(tmp_path).encode("a text with <x> 12")
        except EngineError as error:
            sentence = str(error)
        assert "\n" not in sentence
        assert capfd.readouterr() == ("", "")


def test_gguf_metadata_of_any_form_end_in_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(1)
    whole = sentencepiece_metadata()
    table = [0, 4, 0, 0, *([0] * 1025)]
    bases = [
        byte_level_metadata(),
        whole,
        {**whole, "tokenizer.ggml.model": "t5", "tokenizer.ggml.precompiled_charsmap": table},
    ]
    others: list[Any] = [
        None,
        True,
        -1,
        1.5,
        "",
        "x",
        [],
        [1],
        ["a"],
        [[1]],
        float("nan"),
        1 << 40,
        [1 << 40],
        ["\ud800"],
        [None],
    ]
    more = [
        "chat_template",
        "ggml.eot_token_id",
        "ggml.pre",
        "ggml.add_space_prefix",
        "ggml.remove_extra_whitespaces",
    ]
    for _ in range(150):
        metadata = dict(draw.choice(bases))
        key = draw.choice(
            [*metadata, *(f"tokenizer.{name}" for name in more), "general.name", "general.architecture"]
        )
        value = draw.choice(others)
        if isinstance(metadata.get(key), list) and draw.random() < 0.6:
            value = list(metadata[key])
            value[draw.randrange(len(value))] = draw.choice(others)
        for read in (lambda data: Tokenizer.from_gguf(data).encode("a text <tool> é 漢"), roles_from_gguf):
            try:
                read({**metadata, key: value})  # type: ignore[operator]
            except EngineError:
                continue
    assert capfd.readouterr() == ("", "")


def test_tables_of_the_real_world_are_taken() -> None:
    """SentencePiece's own, made here; and every table that passes leads nowhere outside."""
    import io

    import sentencepiece
    from tokenizers import normalizers

    from engine.text.tokenizer.sentencepiece_proto import parse_sentencepiece
    from tests.engine.text.tokenizer.vocabularies import corpus

    for rule in ("nmt_nfkc", "nfkc_cf"):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus(1, 40)),
            model_writer=out,
            model_type="bpe",
            vocab_size=160,
            normalization_rule_name=rule,
            minloglevel=2,
            num_threads=1,
            hard_vocab_limit=False,
        )
        data = parse_sentencepiece(out.getvalue()).charsmap
        Charsmap(data).check()
        draw = random.Random(5)
        for _ in range(20):
            broken = bytearray(data)
            broken[draw.randrange(4, int.from_bytes(data[:4], "little"))] ^= 1 << draw.randrange(8)
            try:
                Charsmap(bytes(broken)).check()
            except BadCheckpoint:
                continue
            normalizers.Precompiled(bytes(broken)).normalize_str(
                "ｱ ﬁ ① é" + "".join(map(chr, range(0x20, 0x3000, 7)))
            )
