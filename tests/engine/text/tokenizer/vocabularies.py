"""Small tokenizers of each kind, trained here, as GGUF metadata and as folders."""

from __future__ import annotations

import io
import json
import random
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|end|>"]
_WORDS = [
    *re.findall(
        r"\S+",
        "the quick brown fox jumps over lazy dog and it's 12 345 years since größte überall naïve café",
    ),
    *re.findall(
        r"\S+",
        "漢字かな交じり文 한국어 שלום עולם مرحبا بالعالم привет мир def f(x): return x + 1 [] {} '' \"\"",
    ),
    *re.findall(r"\S+", "<div> </s> im_end im_start end user -- ###"),
    "😀",
    "👨\u200d👩\u200d👧",
    "\n\n",
    "\t",
    "",
    "",
    "",
]
ALPHABETS = [
    "0123456789",
    " \t\n\r\u00a0\u3000\u2028\x85",
    "abcdefghijklmnopqrstuvwxyzABCXYZ'",
    "😀👨\u200d👩👧🇩🇪🏳️",
    "漢字かなカナ한국어",
    "שלום مرحبا",
    "\x01\x07\x1b\x7f\x00",
    "éüßñ\u0301\u0308",
    "!?.,;:-_(){}[]<>|\"'`~",
    "²½Ⅷ٣",
    "𒀀𒁀𐍈",
    "▁Ġ\ue000\ufffd\ufeff",
]
LOOKALIKES = [
    *SPECIALS,
    "<s>",
    "</s>",
    "<unk>",
    "<0x0A>",
    "<0xFF>",
    "[INST]",
    "<|im_",
    "end|>",
    "    ",
    "\n\n\n",
    "it's",
    "I'LL",
    "<tool>",
    "</tool>",
]


def corpus(seed: int = 0, lines: int = 400) -> list[str]:
    """Lines of words in many scripts, and invented ones with many repeated letters."""
    draw = random.Random(seed)
    invented = ["".join(draw.choices("aaabbcdeeinst", k=draw.randrange(2, 9))) for _ in range(300)]
    return [" ".join(draw.choices(_WORDS, k=10) + draw.choices(invented, k=4)) for _ in range(lines)]


def random_text(draw: random.Random, longest: int = 40) -> str:
    """Unicode of all sorts, with texts that look like control tokens."""
    parts = []
    for _ in range(draw.randrange(1, longest)):
        kind = draw.random()
        if kind < 0.8:
            parts.append(draw.choice(draw.choice(ALPHABETS)))
        elif kind < 0.9:
            parts.append(draw.choice(LOOKALIKES))
        else:
            parts.append(chr(draw.choice([draw.randrange(0, 0xD800), draw.randrange(0xE000, 0x110000)])))
    return "".join(parts)


@lru_cache
def byte_level_json() -> str:
    """A byte-level BPE tokenizer.json in the style of SmolLM, with control tokens and one user-defined
    token.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), byte_level]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("</tool>", normalized=False)])
    return str(tokenizer.to_str())


def byte_level_metadata(**changes: Any) -> dict[str, Any]:
    """The same tokenizer as GGUF metadata."""
    data = json.loads(byte_level_json())
    ids = {**data["model"]["vocab"], **{entry["content"]: entry["id"] for entry in data["added_tokens"]}}
    tokens = sorted(ids, key=lambda text: ids[text])
    special = {entry["content"]: entry["special"] for entry in data["added_tokens"]}
    types = [1 if text not in special else 3 if special[text] else 4 for text in tokens]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in data["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": ids["<|im_start|>"],
        "tokenizer.ggml.eos_token_id": ids["<|im_end|>"],
        "tokenizer.ggml.add_bos_token": False,
        **changes,
    }


def byte_level_folder(folder: Path, **config: Any) -> Path:
    """The same tokenizer as a folder."""
    (folder / "tokenizer.json").write_text(byte_level_json(), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        **config,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@lru_cache
def sentencepiece_model(prefix: bool = True) -> bytes:
    """A SentencePiece BPE model with byte fallback, made as Llama 2's was, with user-defined tokens."""
    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(1)),
        model_writer=out,
        model_type="bpe",
        vocab_size=800,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=["<tool>", "</tool>"],
        minloglevel=2,
        num_threads=1,
    )
    return out.getvalue()


def sentencepiece_metadata(prefix: bool = True, **changes: Any) -> dict[str, Any]:
    """The SentencePiece model as GGUF metadata."""
    model = sentencepiece_processor(prefix)
    types = []
    for i in range(model.get_piece_size()):
        kinds = [
            (model.is_unknown(i), 2),
            (model.is_control(i), 3),
            (model.is_unused(i), 5),
            (model.is_byte(i), 6),
        ]
        kind = next((number for found, number in kinds if found), 1)
        types.append(4 if model.id_to_piece(i) in ("<tool>", "</tool>") else kind)
    pieces = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": [model.get_score(i) for i in range(len(pieces))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": prefix,
        **changes,
    }


def sentencepiece_processor(prefix: bool = True) -> Any:
    """SentencePiece itself, the oracle."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(prefix))


@lru_cache
def unigram_model() -> bytes:
    """A SentencePiece unigram model with the usual replacements of characters, as XLM-RoBERTa's."""
    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(1)), model_writer=out, model_type="unigram", vocab_size=400,
        normalization_rule_name="nmt_nfkc", character_coverage=0.99, minloglevel=2, num_threads=1,
    )  # fmt: skip
    return out.getvalue()


def metaspace_json() -> str:
    """The same pieces as a tokenizer.json in the style of newer Llama files: a space is put only before
    the text's first word.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    from engine.text.tokenizer.definition import joined_merges
    from engine.text.tokenizer.sentencepiece import score_order

    metadata = sentencepiece_metadata()
    pieces, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = joined_merges(score_order(pieces, types, metadata["tokenizer.ggml.scores"]))
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("</tool>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return str(tokenizer.to_str())
