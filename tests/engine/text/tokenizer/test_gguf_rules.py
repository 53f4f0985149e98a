"""Rules that a GGUF file does not hold and llama.cpp's `llama-vocab.cpp` knows by the names of tokenizer,
architecture and model.
"""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from engine.text.tokenizer.gguf import facts_from_gguf, stripping
from engine.text.tokenizer.pretokenizers import PRETOKENIZERS
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.vocabularies import byte_level_metadata, random_text, sentencepiece_metadata

ROLES = ("<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>")
BLANKS = " \t\n\v\f\r"


def with_tokens(metadata: dict[str, Any], *texts: str, kind: int = 3) -> dict[str, Any]:
    """The same with more tokens."""
    tokens = [*metadata["tokenizer.ggml.tokens"], *texts]
    types = [*metadata["tokenizer.ggml.token_type"], *([kind] * len(texts))]
    changed = {**metadata, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    if "tokenizer.ggml.scores" in metadata:
        changed["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"], *([0.0] * len(texts))]
    return changed


def phi3(**names: str) -> Tokenizer:
    metadata = with_tokens(sentencepiece_metadata(), *ROLES)
    return Tokenizer.from_gguf({**metadata, **{f"general.{key}": value for key, value in names.items()}})


def read_in_pieces(tokenizer: Tokenizer, text: str, stripping: bool) -> list[int]:
    """The ids of a text cut at its control tokens by hand, each piece without the white space that the
    token before it drops.
    """
    names = {tokenizer.texts[i]: i for i in tokenizer.special_ids}
    ids: list[int] = []
    after = ""
    for part in re.split(
        "(" + "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) + ")", text
    ):
        if part in names:
            ids.append(names[part])
            after = part
            continue
        drops = stripping and after not in ("", "<s>", "<unk>", "<|endoftext|>")
        ids += tokenizer.encode(part.lstrip(BLANKS) if drops else part) if part else []
    return ids


@pytest.mark.parametrize(
    "names",
    [
        {"name": "Phi3"},
        {"name": "Phi-3-mini-4k"},
        {"architecture": "phi3", "name": "Phi 3.5 Mini Instruct"},
        {"architecture": "phi3"},
    ],
)
def test_phi_3_drops_white_space_after_its_control_tokens(names: dict[str, str]) -> None:
    tokenizer = phi3(**names)
    ids = {tokenizer.texts[i]: i for i in tokenizer.special_ids}
    hello = tokenizer.encode("Hello")
    asked = tokenizer.encode("<|user|>\nHello<|end|>\n<|assistant|>\n", special=True)
    assert asked == [ids["<|user|>"], *hello, ids["<|end|>"], ids["<|assistant|>"]]
    assert tokenizer.encode("<s> \nHello", special=True) == [ids["<s>"], *tokenizer.encode(" \nHello")]
    draw = random.Random(7)
    after = ["\n", " ", "\t\n ", "\u00a0", ""]
    texts = [
        random_text(draw, 12) + draw.choice([*ROLES, "</s>", "<s>"]) + draw.choice(after) for _ in range(60)
    ]
    for text in map("".join, zip(texts, reversed(texts), strict=True)):
        assert tokenizer.encode(text, special=True) == read_in_pieces(tokenizer, text, True), repr(text)


def test_other_models_keep_white_space_after_control_tokens() -> None:
    for names in ({"name": "Llama 2"}, {"architecture": "llama"}, {}):
        tokenizer = phi3(**names)
        text = "<|user|>\nHello<|end|>\n \t<|assistant|>\n"
        assert tokenizer.encode(text, special=True) == read_in_pieces(tokenizer, text, False)
    # Phi 4 has the architecture's name and another tokenizer.
    four = byte_level_metadata(**{"general.architecture": "phi3", "general.name": "Phi 4"})
    assert stripping(four, ["<|user|>"]) == (frozenset(), frozenset())


def test_masks_drop_white_space_before_them() -> None:
    metadata = with_tokens(byte_level_metadata(), "<mask>", "[MASK]")
    spaced = "a \t<mask> b [MASK] c"
    for changes, kept in (
        ({"tokenizer.ggml.pre": "jina-v2-de"}, "a<mask> b [MASK] c"),
        ({"general.architecture": "jina-bert-v3"}, "a<mask> b [MASK] c"),
        ({"general.name": "Modern-BERT"}, "a \t<mask> b[MASK] c"), ({}, spaced),
    ):  # fmt: skip
        tokenizer = Tokenizer.from_gguf({**metadata, **changes})
        rule = "gpt-2" if "tokenizer.ggml.pre" in changes else "smollm"
        plain = Tokenizer.from_gguf({**metadata, "tokenizer.ggml.pre": rule})
        assert tokenizer.encode(spaced, special=True) == plain.encode(kept, special=True), changes


def test_a_long_run_of_spaces_is_read_in_a_moment() -> None:
    """Stripping looks at each character once."""
    tokenizer = phi3(name="Phi3")
    text = ("<|end|>" + " " * 2000) * 100
    assert len(tokenizer.encode(text, special=True)) == 100


@pytest.mark.parametrize("name", ["<s>", "<unk>", "<pad>", "<mask>", "<bos>"])
def test_names_of_control_tokens_that_are_ordinary_pieces_stay_text(name: str) -> None:
    metadata = byte_level_metadata()
    tokenizer = Tokenizer.from_gguf(with_tokens(metadata, name, kind=1))
    assert tokenizer.encode(f"a{name} b", special=True) == Tokenizer.from_gguf(metadata).encode(f"a{name} b")
    flagged = Tokenizer.from_gguf(with_tokens(metadata, name))
    assert flagged.vocab_size - 1 in flagged.encode(f"a{name} b", special=True)
    role = Tokenizer.from_gguf(
        {**with_tokens(metadata, name, kind=1), "tokenizer.ggml.bos_token_id": tokenizer.vocab_size - 1}
    )
    assert tokenizer.vocab_size - 1 in role.special_ids, (
        "a token that the file gives a role is a control token"
    )


@pytest.mark.parametrize(
    "name",
    [
        "</s>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "[e~[",
        "<fim_prefix>",
        "<fim-suffix>",
        "▁<MID>",
        "<REPO>",
        "<reponame>",
        "<turn|>",
    ],
)
@pytest.mark.parametrize("kind", [1, 4])
def test_ends_and_infilling_marks_are_control_tokens_whatever_their_type(name: str, kind: int) -> None:
    tokenizer = Tokenizer.from_gguf(with_tokens(byte_level_metadata(), name, kind=kind))
    last = tokenizer.vocab_size - 1
    assert last in tokenizer.special_ids
    assert last in tokenizer.encode(f"a{name}b", special=True)
    assert last not in tokenizer.encode(f"a{name}b")


def test_gemma_4_begins_with_bos_whatever_its_file_says() -> None:
    metadata = byte_level_metadata(**{"tokenizer.ggml.model": "gemma4"})
    assert facts_from_gguf({**metadata, "tokenizer.ggml.add_bos_token": False}).add_bos


def test_html_tags_of_gemma_are_one_token_in_any_text_and_end_nothing() -> None:
    """As transformers reads Gemma's tokenizer.json, where `</s>` is an added token that is not special."""
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Library

    from tests.engine.text.tokenizer.vocabularies import byte_level_json

    metadata = with_tokens(with_tokens(byte_level_metadata(), "<bos>"), "</s>", "<s>", kind=4)
    tokenizer = Tokenizer.from_gguf(metadata)
    library = Library.from_str(byte_level_json())
    library.add_tokens([AddedToken("<bos>", special=True)])
    library.add_tokens([AddedToken("</s>", normalized=False), AddedToken("<s>", normalized=False)])
    for text in ("a </s> b", "<s>x</s>", "</s>"):
        ids = tokenizer.encode(text)
        assert (
            ids == library.encode(text, add_special_tokens=False).ids == tokenizer.encode(text, special=True)
        )
        assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=True) == text
    assert not set(tokenizer.encode("</s>")) & set(tokenizer.stop_token_ids)


def words(rule: str, text: str) -> list[str]:
    from tokenizers import Regex, pre_tokenizers

    steps = [part for part in PRETOKENIZERS[rule].to_json()["pretokenizers"] if part["type"] == "Split"]
    cut = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(part["pattern"]["Regex"]), "isolated") for part in steps]
    )
    return [word for word, _ in cut.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        # llama.cpp cuts off two spaces: U+3000 is 0x0B to it while it cuts
        ("  \u3000", [" ", " ", "\u3000"]),
        ("x  \u3000\u3001y", ["x", " ", " ", "\u3000\u3001", "y"]),
        ("a \u1f60\u1f7d", ["a", " ", "\u1f60\u1f7d"]),
    ],
)
def test_deepseek_llm_cuts_as_its_own_tokenizer_json_does(text: str, cut: list[str]) -> None:
    assert words("deepseek-llm", text) == cut


@pytest.mark.parametrize(
    ("rule", "kind"),
    [("qwen2", "Qwen2Tokenizer"), ("deepseek-r1-qwen", "Qwen2Tokenizer"), ("qwen35", "Qwen3_5Tokenizer"),
     ("command-r", "CohereTokenizer"), ("mpt", "GPTNeoXTokenizer"), ("gpt-2", "GPT2Tokenizer")],
)  # fmt: skip
def test_rules_that_transformers_writes_in_a_class_of_its_own(rule: str, kind: str) -> None:
    """Letters are composed by some of them, which no GGUF file says, nor does llama.cpp."""
    import transformers

    metadata = byte_level_metadata(**{"tokenizer.ggml.pre": rule})
    vocab = {text: i for i, text in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    names = {f"{name}_token": "<|endoftext|>" for name in ("unk", "bos", "eos", "pad")}
    theirs = getattr(transformers, kind)(vocab=vocab, merges=merges, **names)
    ours, draw = Tokenizer.from_gguf(metadata), random.Random(7)
    for text in ["e\u0301 A\u030a \u1100\u1161 \u212b", *(random_text(draw) for _ in range(200))]:
        text = re.sub("</?tool>|<[|]", "", text)
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), repr(text)


@pytest.mark.parametrize("add", [True, False, None])
def test_the_token_that_texts_to_embed_end_with(add: bool | None) -> None:
    metadata = byte_level_metadata()
    if add is not None:
        metadata["tokenizer.ggml.add_eos_token"] = add
    facts = facts_from_gguf(metadata)
    assert facts.eos_token_id is not None
    assert facts.end_id == (facts.eos_token_id if add else None)


def test_a_separator_that_texts_to_embed_end_with() -> None:
    """As files of encoders with byte-level BPE have it (RoBERTa, Jina BERT v2 for code)."""
    metadata = byte_level_metadata()
    metadata |= {"tokenizer.ggml.add_sep_token": True, "tokenizer.ggml.seperator_token_id": 5}
    assert facts_from_gguf(metadata).end_id == 5
    metadata["tokenizer.ggml.add_eos_token"] = True
    facts = facts_from_gguf(metadata)
    assert facts.end_id == facts.eos_token_id


@pytest.mark.parametrize("add", [True, False, None])
def test_a_text_of_a_unigram_vocabulary_ends_unless_the_file_says_no(add: bool | None) -> None:
    """XLM-RoBERTa's files need not say so."""
    metadata = {
        "tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": ["<s>", "<pad>", "</s>", "<unk>", "\u2581a"],
        "tokenizer.ggml.scores": [0.0] * 5, "tokenizer.ggml.token_type": [3, 3, 3, 2, 1],
        "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 3,
    }  # fmt: skip
    if add is not None:
        metadata["tokenizer.ggml.add_eos_token"] = add
    assert facts_from_gguf(metadata).end_id == (None if add is False else 2)


def test_roles_of_tokens_that_do_not_exist_are_the_usual_ones() -> None:
    """As in llama.cpp, which says so in its log."""
    metadata = sentencepiece_metadata()
    count = len(metadata["tokenizer.ggml.tokens"])
    wrong = {f"tokenizer.ggml.{name}_token_id": count for name in ("bos", "eos", "eot")}
    facts = facts_from_gguf(metadata | wrong)
    assert (facts.bos_token_id, facts.eos_token_id, facts.stop_ids) == (1, 2, (2,))
    assert facts_from_gguf(byte_level_metadata(**wrong)).bos_token_id is None


def test_an_empty_cutting_rule_counts_as_none() -> None:
    """As in llama.cpp."""
    none = byte_level_metadata()
    del none["tokenizer.ggml.pre"]
    facts = facts_from_gguf(none)
    assert facts_from_gguf(none | {"tokenizer.ggml.pre": ""}) == facts
    assert facts.definition["pre_tokenizer"] == PRETOKENIZERS["default"].to_json()


def test_sentencepiece_without_scores_and_types() -> None:
    metadata = sentencepiece_metadata()
    bare = {key: value for key, value in metadata.items() if not key.endswith(("scores", "token_type"))}
    longer = {
        f"tokenizer.ggml.{name}": [*metadata[f"tokenizer.ggml.{name}"], 0]
        for name in ("scores", "token_type")
    }
    whole = Tokenizer.from_gguf(metadata)
    draw = random.Random(5)
    for _ in range(20):
        text = random_text(draw).replace("<", "")
        ids = whole.encode(text)
        assert Tokenizer.from_gguf(metadata | longer).encode(text) == ids
        assert Tokenizer.from_gguf(bare).encode(text) == ids
        assert Tokenizer.from_gguf(bare).decode(ids) == whole.decode(ids)


def test_what_a_rule_says_of_the_begin_and_the_separator_where_the_file_does_not() -> None:
    silent = {
        key: value for key, value in byte_level_metadata().items() if key != "tokenizer.ggml.add_bos_token"
    }
    assert facts_from_gguf({**silent, "tokenizer.ggml.pre": "gemma4"}).add_bos
    for rule, end in (("roberta-bpe", 3), ("smollm", None)):
        told = {"tokenizer.ggml.pre": rule, "tokenizer.ggml.seperator_token_id": 3}
        assert facts_from_gguf({**silent, **told}).end_id == end
