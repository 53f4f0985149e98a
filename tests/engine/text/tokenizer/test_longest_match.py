"""RWKV's World tokenizer: the makers' list and GGUF files against the definition of longest matches, and
against llama.cpp.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import BadCheckpoint
from engine.text.template.source import gguf_template
from engine.text.tokenizer.own_kinds.longest_match import unescaped
from engine.text.tokenizer.tokenizer import Tokenizer

WORDS = (
    "\n\n", "\n", "User", "Us", "User:", "Ass", "Assistant", "Assistant:", " the", " th", "the", "cat", "ca",
    "é", "你好", "你", "'", '"', "'s", "\\", "\\n", "\t\t", " " * 4, " " * 8, "<s", "naïve", "🙂",
)  # fmt: skip
RAW = (b"\xe4\xbd", b"\xf0\x9f", b"\xa0\xe5", "é你".encode()[:-1])
TOKENS = [b"", *(bytes([i]) for i in range(256)), *RAW]
TOKENS += [word.encode() for word in WORDS if len(word.encode()) > 1]
END_OF_TURN = TOKENS.index(b"\n\n")


def literal(data: bytes) -> str:
    try:
        return repr(data.decode())
    except UnicodeDecodeError:
        return repr(data)


def write_list(folder: Path, tokens: list[bytes] = TOKENS) -> Path:
    lines = [f"{i} {literal(data)} {len(data)}" for i, data in enumerate(tokens) if i]
    (folder / "rwkv_vocab_v20230424.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def gguf_metadata() -> dict[str, Any]:
    """As llama.cpp's converter writes it, with two tokens that fill the table up."""
    texts = ["<s>", *(repr(data)[2:-1] for data in TOKENS[1:]), "[PAD1]", "[PAD2]"]
    return {
        "tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": [3, *[1] * (len(TOKENS) - 1), 5, 5],
        "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.eot_token_id": END_OF_TURN, "tokenizer.chat_template": "rwkv-world",
    }  # fmt: skip


def longest(data: bytes) -> list[int]:
    """The definition, by trying all tokens."""
    ids = []
    while data:
        best = max((token for token in TOKENS[1:] if data.startswith(token)), key=len)
        ids.append(TOKENS.index(best))
        data = data[len(best) :]
    return ids


def texts(count: int) -> list[str]:
    rng = random.Random(4)
    pieces = [*WORDS, "x", "\x00", "\u0660", "e\u0301", "<s>", "[PAD1]"]
    return ["".join(rng.choices(pieces, k=rng.randrange(30))) for _ in range(count)]


@pytest.fixture(params=["folder", "gguf"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    if request.param == "gguf":
        return Tokenizer.from_gguf(gguf_metadata())
    return Tokenizer.from_folder(write_list(tmp_path))


def test_ids_are_the_longest_matches_and_come_back(tokenizer: Tokenizer) -> None:
    for text in texts(200):
        ids = tokenizer.encode(text)
        assert ids == longest(text.encode())
        assert b"".join(tokenizer.token_bytes(i) for i in ids) == text.encode()
        assert tokenizer.decode(ids) == text


def test_only_the_template_writes_the_end_of_text(tokenizer: Tokenizer) -> None:
    name = tokenizer.texts[0]
    assert tokenizer.encode(f"a{name}b", special=True) == [98, 0, 99]
    assert 0 not in tokenizer.encode(f"a{name}b")
    assert tokenizer.stop_token_ids == (0, END_OF_TURN)
    assert not tokenizer.add_bos


def test_gguf_writes_bytes_as_python_shows_them() -> None:
    for data in (*TOKENS, bytes(range(256))):
        assert unescaped(repr(data)[2:-1]) == data


def test_a_long_text_takes_as_many_steps_as_it_has_tokens(tokenizer: Tokenizer) -> None:
    text = "User: the cat\n\n" * 20_000
    assert tokenizer.encode(text) == longest(b"User: the cat\n\n") * 20_000


def test_the_named_template_is_the_makers(tmp_path: Path) -> None:
    source = gguf_template(gguf_metadata())
    assert source is not None
    from jinja2 import Environment

    said = (("system", " Be brief. "), ("user", "Hi\n"), ("assistant", "Yes?"), ("user", "No."))
    messages = [{"role": role, "content": text} for role, text in said]
    found = Environment(trim_blocks=True, lstrip_blocks=True).from_string(source)
    expected = "System: Be brief.\n\nUser: Hi\n\nAssistant: Yes?\n\nUser: No.\n\nAssistant:"
    assert found.render(messages=messages, add_generation_prompt=True) == expected


@pytest.mark.parametrize("line", ["7 nothing 3", "7 'ab' 3", "x 'ab' 2", "7 ab", "7 [1] 1", "-1 'ab' 2"])
def test_a_broken_list_is_told(line: str, tmp_path: Path) -> None:
    write_list(tmp_path)
    with (tmp_path / "rwkv_vocab_v20230424.txt").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(BadCheckpoint, match="not a token and its rank"):
        Tokenizer.from_folder(tmp_path)


def test_every_byte_has_a_token(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="lacks a token for some bytes"):
        Tokenizer.from_folder(write_list(tmp_path, [token for token in TOKENS if token != b"q"]))


@pytest.mark.slow
def test_llama_cpp_makes_the_same_ids(tmp_path: Path) -> None:
    llama = pytest.importorskip("llama_cpp")
    import gguf

    path = tmp_path / "vocab.gguf"
    metadata = gguf_metadata()
    writer = gguf.GGUFWriter(path, "rwkv7")
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list([text.encode() for text in metadata["tokenizer.ggml.tokens"]])
    writer.add_token_types(metadata["tokenizer.ggml.token_type"])
    writer.add_tensor("token_embd.weight", np.zeros((len(metadata["tokenizer.ggml.tokens"]), 32), np.float32))
    writer.add_context_length(1024)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    other, mine = llama.Llama(str(path), vocab_only=True, verbose=False), Tokenizer.from_gguf(metadata)
    for text in texts(200):
        # llama.cpp ends a text at 0, and finds the names of tokens that no text may spell.
        plain = text.replace("\x00", "").replace("<s", "").replace("[PAD1]", "")
        assert other.tokenize(plain.encode(), add_bos=False, special=False) == mine.encode(plain)
    other.close()
