"""Byte-level BPE without tokenizer.json: vocab.json with merges.txt, tekken.json, tiktoken's lists of ranks.

Sources: GPT-2's encoder.json and vocab.bpe, mistral-common (tekken.json), tiktoken's load.py (a base64 text
and a rank on each line). Of the three, only tekken.json says how text is split into words; for the others
that follows from the model's type.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.text.template.source import is_meta_llama, read_json
from engine.text.tokenizer.definition import added_token, byte_level_parts, tokenizer_json, unreachable
from engine.text.tokenizer.definition_check import MOST_IDS
from engine.text.tokenizer.pretokenizers import PRETOKENIZERS, Pretokenizer
from engine.text.tokenizer.vocabulary import byte_level_alphabet
from engine.words import _

SIZE_LIMIT = 64 << 20
"""The largest file that is read, in bytes; the largest known has 20 MB (tekken.json)."""
_RULES = (
    (r"qwen3_5|qwen35|qwen4", "qwen35"),
    (r"qwen", "qwen2"),
    (r"starcoder|gpt_bigcode|smollm|codeshell|refact", "starcoder"),
    (r"gpt_neox|gptneox|mpt|pythia", "mpt"),
    (r"olmo2|olmo3|dbrx", "dbrx"),
    (r"olmo", "olmo"),
    (r"cohere|command", "command-r"),
    (r"chatglm|glm", "chatglm-bpe"),
    (r"kimi|moonshot", "kimi-k2"),
    (r"gpt_?oss|llama4", "gpt-4o"),
    (r"stablelm|arcade", "stablelm2"),
    (r"llama|smollm3", "llama-bpe"),
    (r"granite", "starcoder"),
    (r"falcon", "falcon"),
    (r"gpt2|codegen|phi", "gpt-2"),
)
_BYTE_OF = byte_level_alphabet()
_CHAR_OF = {byte: char for char, byte in _BYTE_OF.items()}
_QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)))
_LLAMA3 = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
    "<|eot_id|>", "<|python_tag|>", *(f"<|reserved_special_token_{i}|>" for i in range(2, 247)),
)  # fmt: skip
_GLM4 = (
    "<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>",
    "<|assistant|>", "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>",
    "<|end_of_video|>",
)  # fmt: skip


def merges_json(folder: Path) -> dict[str, Any]:
    """The definition from vocab.json and merges.txt."""
    vocab = read_json(folder / "vocab.json")
    if not vocab or not all(isinstance(i, int) and 0 <= i < MOST_IDS for i in vocab.values()):
        raise BadCheckpoint(_("vocab.json holds no table of tokens and their ids; download the file again."))
    lines = read_bytes(folder / "merges.txt").decode("utf-8", "replace").splitlines()
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    rule = _rule(folder, "vocab.json", "gpt-2")
    parts = byte_level_parts(rule.to_json(), rule.nfc)
    if (
        read_json(folder / "tokenizer_config.json").get("add_prefix_space")
        and rule.patterns == PRETOKENIZERS["gpt-2"].patterns
    ):
        parts["pre_tokenizer"] = {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        }
    return tokenizer_json(
        {"type": "BPE", "vocab": vocab, "merges": pairs, "ignore_merges": rule.ignore_merges}, **parts
    )


def tekken_json(path: Path) -> dict[str, Any]:
    """The definition from tekken.json; its control tokens come first."""
    data = read_json(path)
    config, entries = data.get("config"), data.get("vocab")
    if (
        not isinstance(config, dict)
        or not isinstance(entries, list)
        or not isinstance(config.get("pattern"), str)
    ):
        raise BadCheckpoint(_("tekken.json has no vocabulary or no pattern; download the file again."))
    try:
        count, size = int(config["default_num_special_tokens"]), int(config["default_vocab_size"])
        ranks = [base64.b64decode(entry["token_bytes"], validate=True) for entry in entries[: size - count]]
        named = {
            int(entry["rank"]): str(entry["token_str"])
            for entry in data.get("special_tokens") or _deprecated_specials()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadCheckpoint(_("tekken.json has a broken entry; download the file again.")) from error
    if not 0 <= count < 1 << 16 or not 0 < size < MOST_IDS:
        raise BadCheckpoint(
            _(
                "tekken.json claims {size} tokens, {count} of them control tokens, which is "
                "impossible; download the file again.",
                size=size,
                count=count,
            )
        )
    special = [named.get(i, f"<SPECIAL_{i}>") for i in range(count)]
    rule = replace(PRETOKENIZERS["tekken"], patterns=(config["pattern"],))
    return _ranked(dict(enumerate(ranks, count)), dict(enumerate(special)), rule)


def tiktoken_json(path: Path, folder: Path) -> dict[str, Any]:
    """The definition from a list of ranks, followed by the control tokens that the model's code names."""
    ranks: dict[int, bytes] = {}
    for line in read_bytes(path).splitlines():
        if not line.strip():
            continue
        text, _unused, rank = line.partition(b" ")
        try:
            ranks[int(rank)] = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error) as error:
            raise BadCheckpoint(
                _(
                    "{path} has a line that is not a token and its rank; download the file again.",
                    path=path.name,
                )
            ) from error
    if not ranks or not 0 <= min(ranks) <= max(ranks) < MOST_IDS:
        raise BadCheckpoint(
            _("{path} holds no tokens, or impossible ranks; download the file again.", path=path.name)
        )
    named = {"qwen": _QWEN, "llama": _LLAMA3, "chatglm": _GLM4}.get(_model_type(folder), ())
    rule = replace(_rule(folder, path.name), ignore_merges=True)
    return _ranked(ranks, dict(enumerate(named, max(ranks) + 1)), rule)


def _ranked(ranks: Mapping[int, bytes], special: Mapping[int, str], rule: Pretokenizer) -> dict[str, Any]:
    vocab: dict[str, int] = {}
    for i, data in ranks.items():
        text = "".join(_CHAR_OF[byte] for byte in data)
        vocab[text if text and text not in vocab else unreachable(i)] = i
    order = sorted(vocab, key=lambda text: vocab[text])
    added = [added_token(i, text, special=True) for i, text in special.items()]
    model = {"type": "BPE", "vocab": vocab, "order": order, "ignore_merges": True}
    return tokenizer_json(model, added, **byte_level_parts(rule.to_json(), rule.nfc))


def _model_type(folder: Path) -> str:
    """That of config.json, or of Meta's own files."""
    return "llama" if is_meta_llama(folder) else str(read_json(folder / "config.json").get("model_type", ""))


def _rule(folder: Path, file: str, default: str | None = None) -> Pretokenizer:
    """How text is split, by the class of the tokenizer or else the model's type."""
    named = str(read_json(folder / "tokenizer_config.json").get("tokenizer_class", "")).lower()
    kind = _model_type(folder).lower()
    texts = (kind,) if "gpt2" in named else (named, kind)  # many models use GPT-2's class but not its rule
    for text in texts:
        found = next((rule for pattern, rule in _RULES if re.search(pattern, text)), None)
        if found is not None and not (found == "llama-bpe" and "gpt2" in named):
            return PRETOKENIZERS[found]
    if default is None:
        raise UnsupportedModel(
            _(
                "{file} does not say how text is cut into words, and that is not known for a model "
                "of type {kind!r}; choose a folder with a tokenizer.json.",
                file=file,
                kind=kind or "unknown",
            )
        )
    return PRETOKENIZERS[default]


def read_bytes(path: Path) -> bytes:
    """A tokenizer file's contents. Raises `BadCheckpoint` if it is missing or too large."""
    if not path.is_file():
        raise BadCheckpoint(
            _("The folder has no {path}, which its tokenizer needs; download it too.", path=path.name)
        )
    if path.stat().st_size > SIZE_LIMIT:
        raise BadCheckpoint(
            _(
                "{path} has {st_size} bytes, but a tokenizer has at most {size_limit}; download it again.",
                path=path.name,
                st_size=path.stat().st_size,
                size_limit=SIZE_LIMIT,
            )
        )
    return path.read_bytes()


def _deprecated_specials() -> Sequence[dict[str, Any]]:
    """The control tokens of the first files, which do not list them."""
    names = (
        "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]",
        "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
    )  # fmt: skip
    return [{"rank": i, "token_str": name} for i, name in enumerate(names)]
