"""A small WordPiece tokenizer (BERT's), as tokenizer.json and as a GGUF file has it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

MARKERS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NAMED = {
    "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
    "mask_token": "[MASK]", "tokenizer_class": "BertTokenizer",
}  # fmt: skip
_TEXT = (
    "The quick brown fox jumps over the lazy dog. The dog sleeps by the fire, and the fire is warm. ",
    "Hello there! How are you today? I am fine, thank you. 1 2 3 4 5 6 7 8 9 0 - _ ( ) ' \" : ; ",
    "An Étude in a Café: don't stop here now; letters of a Text, Words of a Sentence, names of Models. ",
    "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 漢 字 é É",
)


@functools.cache
def library_tokenizer(*, lowercase: bool, size: int = 300) -> Any:
    """The `tokenizers` library's tokenizer, trained here; texts begin with [CLS] and end with [SEP]."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=list(MARKERS), show_progress=False)
    tokenizer.train_from_iterator(_TEXT, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def write_wordpiece(folder: Path, tokenizer: Any) -> Path:
    """Write tokenizer.json and tokenizer_config.json. Returns `folder`."""
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(NAMED), "utf-8")
    return folder


def gguf_vocabulary(tokenizer: Any) -> dict[str, Any]:
    """The metadata that llama.cpp's converter writes."""
    ids = tokenizer.get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    types = [3 if token in MARKERS else 1 for token in tokens]
    shown = [
        token if kind == 3 else token[2:] if token.startswith("##") else "▁" + token
        for token, kind in zip(tokens, types, strict=True)
    ]
    key = "tokenizer.ggml."
    return {
        key + "model": "bert", key + "pre": "default", key + "tokens": shown, key + "token_type": types,
        key + "padding_token_id": 0, key + "unknown_token_id": 1, key + "cls_token_id": 2,
        key + "seperator_token_id": 3, key + "mask_token_id": 4, key + "token_type_count": 2,
    }  # fmt: skip
