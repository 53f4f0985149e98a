"""The tokenizers and prompts of ChatGLM's folders: the ids that their makers' classes make."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from engine.core import Message
from engine.text.template.encoding import encode_chat
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.test_tokenizer_files import by_rank, cut, model_file, ranks, texts

FIRST = ("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop")
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
GLM4 = (
    "<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", *ROLES, "<|begin_of_image|>",
    "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>",
)  # fmt: skip
TURNS = (("user", "A sophisticated  sop?\n<|user|>"), ("assistant", "\n Yes. "), ("user", " And\nthen?"))
CHAT = tuple(Message(role, text) for role, text in TURNS)


def sentencepiece_folder(folder: Path, **config: object) -> Path:
    (folder / "tokenizer.model").write_bytes(model_file("llama"))
    whole = {"model_type": "chatglm", "padded_vocab_size": 800, **config}
    (folder / "config.json").write_text(json.dumps(whole), "utf-8")
    return folder


def ranked_folder(folder: Path) -> Path:
    lines = (base64.b64encode(word) + b" %d\n" % rank for word, rank in ranks().items())
    (folder / "tokenizer.model").write_bytes(b"".join(lines))
    (folder / "config.json").write_text('{"model_type": "chatglm", "padded_vocab_size": 800}', "utf-8")
    return folder


def prompt(folder: Path, chat: tuple[Message, ...]) -> tuple[Tokenizer, list[int]]:
    tokenizer = Tokenizer.from_folder(folder)
    template = ChatTemplate.from_folder(folder, tokenizer)
    return tokenizer, encode_chat(tokenizer, template, chat)[1]


def begun(tokenizer: Tokenizer) -> list[int]:
    """What plain text begins with, once."""
    first = tokenizer.encode("", add_bos=tokenizer.add_bos)
    whole = tokenizer.encode("a b", add_bos=tokenizer.add_bos)
    assert whole == [*first, *tokenizer.encode("a b")]
    again = "".join(map(tokenizer.piece, first))
    assert tokenizer.encode(again + "a b", special=True, add_bos=tokenizer.add_bos) == whole
    return first


@pytest.mark.parametrize("said", ["by the model's name", "by the code", "by the tokens"])
def test_chatglm3(said: str, tmp_path: Path) -> None:
    """Each text is encoded alone, after its role and a line of metadata, which is empty."""
    import sentencepiece

    theirs = sentencepiece.SentencePieceProcessor(model_proto=model_file("llama"))
    named = "THUDM/chatglm3-6b" if said == "by the model's name" else "x"
    sentencepiece_folder(tmp_path, _name_or_path=named)
    size = theirs.vocab_size()
    if said == "by the code":
        (tmp_path / "tokenization_chatglm.py").write_text('roles = ["<|user|>", "<|observation|>"]', "utf-8")
    if said == "by the tokens":
        entries = {size + 5 + i: {"content": text, "special": False} for i, text in enumerate(ROLES)}
        own = json.dumps({"added_tokens_decoder": entries})
        (tmp_path / "tokenizer_config.json").write_text(own, "utf-8")
    ids = {text: size + i for i, text in enumerate((*FIRST, *ROLES))}
    expected = [ids["[gMASK]"], ids["sop"]]
    for role, text in TURNS:
        text = text.strip() if role == "assistant" else text
        expected += [ids[f"<|{role}|>"], *theirs.encode("\n"), *theirs.encode(text)]
    tokenizer, found = prompt(tmp_path, CHAT)
    assert found == [*expected, ids["<|assistant|>"]]
    assert tokenizer.stop_token_ids == (theirs.eos_id(), ids["<|user|>"], ids["<|observation|>"])
    assert begun(tokenizer) == [ids["[gMASK]"], ids["sop"]]
    for text in texts(3, 300):
        assert tokenizer.encode(text) == theirs.encode(text)


def test_chatglm2(tmp_path: Path) -> None:
    """All rounds are one text; there are no tokens for roles, so that their names are text."""
    import sentencepiece

    theirs = sentencepiece.SentencePieceProcessor(model_proto=model_file("llama"))
    tokenizer, found = prompt(sentencepiece_folder(tmp_path), (Message("system", "Brief."), *CHAT))
    first, reply, last = (text for _role, text in TURNS)
    text = f"[Round 1]\n\n问：Brief.\n\n{first}\n\n答：{reply.strip()}\n\n[Round 2]\n\n问：{last}\n\n答："
    size = theirs.vocab_size()
    assert found == [size + 1, size + 3, *theirs.encode(text)]
    assert tokenizer.stop_token_ids == (theirs.eos_id(),)
    assert begun(tokenizer) == [size + 1, size + 3]
    assert tokenizer.encode("<|user|>", special=True) == theirs.encode("<|user|>")


def test_glm_4(tmp_path: Path) -> None:
    table = ranks()
    tokenizer, found = prompt(ranked_folder(tmp_path), CHAT)
    ids = {text: len(table) + i for i, text in enumerate(GLM4)}
    expected = [ids["[gMASK]"], ids["<sop>"]]
    for role, text in TURNS:
        text = text.strip() if role == "assistant" else text
        words = cut("glm4", "\n" + text)
        expected += [ids[f"<|{role}|>"], *(i for word in words for i in by_rank(table, word))]
    assert found == [*expected, ids["<|assistant|>"]]
    assert tokenizer.stop_token_ids == (ids["<|endoftext|>"], ids["<|user|>"], ids["<|observation|>"])
    assert begun(tokenizer) == [ids["[gMASK]"], ids["<sop>"]]


def test_a_template_of_the_folder_counts(tmp_path: Path) -> None:
    ranked_folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ messages[0].content }}"}', "utf-8")
    assert ChatTemplate.from_folder(tmp_path, Tokenizer.from_folder(tmp_path)).render(CHAT) == TURNS[0][1]
