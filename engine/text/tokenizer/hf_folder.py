"""The tokenizer of a Hugging Face folder, from the first tokenizer file found and the configuration files.

The order is tokenizer.json, `tokenizer.model.v3` and its like, `tokenizer.model` (SentencePiece, or a list of
ranks), tekken.json, vocab.json with merges.txt, vocab.txt (WordPiece), a `*.tiktoken` file, tokenizer.jsonl
(PLaMo), then `rwkv_vocab*.txt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, ModelNotFound, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.text.template.mistral import versioned_vocabulary
from engine.text.template.source import chat_glm, folder_template, read_json
from engine.text.tokenizer.definition import CONTROL, UNKNOWN, added_token
from engine.text.tokenizer.definition_check import MOST_IDS, check_definition, expected_form
from engine.text.tokenizer.own_kinds.least_cost import least_cost_json, listed_tokens, runs_apart
from engine.text.tokenizer.own_kinds.longest_match import TURN_END, longest_match_json, world_tokens
from engine.text.tokenizer.pretokenizers import quicken
from engine.text.tokenizer.rank_files import merges_json, read_bytes, tekken_json, tiktoken_json
from engine.text.tokenizer.rank_list import is_tiktoken
from engine.text.tokenizer.sentencepiece import Pieces, sentencepiece_json
from engine.text.tokenizer.sentencepiece_proto import parse_sentencepiece
from engine.text.tokenizer.vocabulary import (
    TokenizerFacts,
    end_of_turn_ids,
    has_tags,
    looks_like_control,
    unique,
)
from engine.text.tokenizer.wordpiece import wordpiece_json
from engine.words import _

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class _Found:
    """A definition and the roles in its file: texts by name, control tokens, and the default of `add_bos`."""

    definition: dict[str, Any]
    named: Mapping[str, str]
    special: Mapping[int, str]
    add_bos: bool = False
    charsmap: bytes = b""
    stops: tuple[int, ...] = ()
    """Tokens that end a turn, whatever the template says."""
    begin: tuple[int, ...] = ()
    """Several tokens that any text begins with, in place of a BOS token."""


def facts_from_folder(folder: Path) -> TokenizerFacts:
    """Read a folder's tokenizer. Raises `ModelNotFound`, `UnsupportedModel` and `BadCheckpoint`."""
    with expected_form():
        return _facts(folder)


def _facts(folder: Path) -> TokenizerFacts:
    found = _find(folder)
    definition = found.definition
    check_definition(definition)
    # A length limit or padding rule saved by accident would silently change every prompt.
    definition["truncation"] = definition["padding"] = None
    _add_configured(folder, definition)
    named = {**found.named, **special_tokens(folder)}
    ids = _ids(definition)
    special = {**found.special, **_special(folder, definition, ids, named)}
    processor = definition.pop("post_processor", None)
    added = _added_before(processor)
    first = added[0] if added else None
    begin = named.get("bos_token") or (first if first in (named.get("cls_token"), "[CLS]") else None)
    bos, eos = ids.get(begin or ""), ids.get(named.get("eos_token", ""))
    several = found.begin or (() if begin else tuple(ids[text] for text in added if text in ids))
    explicit = read_json(folder / "tokenizer_config.json").get("add_bos_token")
    implied = found.add_bos or first == begin or bool(several)
    add_bos = bool(explicit) if explicit is not None else implied
    ends = [i for i in _generation_ends(folder) if 0 <= i < MOST_IDS]
    stops = unique([*ends, eos, *found.stops, *end_of_turn_ids(special, folder_template(folder))])
    return TokenizerFacts(
        definition, special, bos, eos, add_bos and (bos is not None or bool(several)), stops, found.charsmap,
        end_id=ids.get(_last_added(processor) or ""), begin_ids=several,
    )  # fmt: skip


def _find(folder: Path) -> _Found:
    """The definition from the first known file found."""
    if (folder / "tokenizer.json").is_file():
        return _Found(_checked(read_json(folder / "tokenizer.json")), {}, {})
    if (versioned := versioned_vocabulary(folder)) is not None:
        return _sentencepiece(versioned[0], once=True)
    model = folder / "tokenizer.model"
    if model.is_file():
        if is_tiktoken(model):
            return _ranks(tiktoken_json(model, folder))
        found = _sentencepiece(model, _says_once(folder))
        glm = chat_glm(folder)
        return _chat_glm(found, roles=glm == "chatglm3") if glm else found
    if (folder / "tekken.json").is_file():
        definition = tekken_json(folder / "tekken.json")
        special = {entry["id"]: entry["content"] for entry in definition["added_tokens"]}
        return _Found(definition, {"bos_token": "<s>", "eos_token": "</s>"}, special, add_bos=True)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _Found(merges_json(folder), _by_name(read_json(folder / "vocab.json")), {})
    if (folder / "vocab.txt").is_file():
        return _Found(_vocab_txt(folder), {}, {})
    lists = sorted(folder.glob("*.tiktoken")) or sorted(folder.glob("tiktoken.model"))
    if lists:
        return _ranks(tiktoken_json(lists[0], folder))
    if (folder / "tokenizer.jsonl").is_file():
        return _least_cost(folder / "tokenizer.jsonl")
    worlds = sorted(folder.glob("rwkv_vocab*.txt"))
    if worlds:
        return _world(worlds[0])
    others = "tokenizer.model, tokenizer.model.v3, tekken.json, vocab.json with merges.txt, vocab.txt"
    raise ModelNotFound(
        _(
            "{folder} has no tokenizer.json (nor {others}); choose a folder that has one beside the weights.",
            folder=folder.name,
            others=others,
        )
    )


def _checked(definition: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer.json of a supported kind. Raises `BadCheckpoint` and `UnsupportedModel` for others."""
    model = definition.get("model")
    if not isinstance(model, dict) or not model.get("vocab"):
        raise BadCheckpoint(_("tokenizer.json has no vocabulary; download the file again."))
    kind = model.get("type") or (
        "Unigram" if isinstance(model["vocab"], list) else "BPE" if "merges" in model else "WordLevel"
    )
    if kind not in ("BPE", "Unigram", "WordPiece"):
        raise UnsupportedModel(
            _(
                "tokenizer.json is of kind {kind}, but only BPE, Unigram and WordPiece tokenizers are "
                "supported.",
                kind=kind,
            )
        )
    expected = list if kind == "Unigram" else dict
    added = definition.get("added_tokens") or []
    if not isinstance(model["vocab"], expected) or not all(_is_entry(entry) for entry in added):
        raise BadCheckpoint(
            _(
                "tokenizer.json has a vocabulary or added tokens in an unknown format; download the "
                "file again."
            )
        )
    definition["model"] = {**model, "type": kind}
    definition["added_tokens"] = added
    quicken(definition.get("pre_tokenizer"))
    return definition


def _vocab_txt(folder: Path) -> dict[str, Any]:
    """BERT's first format: a token on each line."""
    lines = read_bytes(folder / "vocab.txt").decode("utf-8", "replace").splitlines()
    config = read_json(folder / "tokenizer_config.json")
    vocab = {text: i for i, text in enumerate(lines)}
    definition = wordpiece_json(vocab, "[UNK]", lowercase=bool(config.get("do_lower_case", True)))
    first, last = ("[CLS]", "[SEP]") if "[CLS]" in vocab else ("<s>", "</s>")  # MPNet's are RoBERTa's
    definition["post_processor"] = {"type": "BertProcessing", "cls": [first, 0], "sep": [last, 0]}
    usual = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "<pad>", "</s>", "<unk>", "<mask>")
    definition["added_tokens"] = [added_token(vocab[text], text, True) for text in usual if text in vocab]
    return definition


def _least_cost(path: Path) -> _Found:
    """PLaMo's list, whose roles tokenizer_config.json names."""
    texts, scores, types = listed_tokens(read_bytes(path))
    config = read_json(path.with_name("tokenizer_config.json"))
    runs = (config.get(f"break_around_{what}_threshold") for what in ("repeated_chars", "consecutive_spaces"))
    control = {i: text for i, text in enumerate(texts) if types[i] in (UNKNOWN, CONTROL)}
    return _Found(least_cost_json(texts, scores, types, runs_apart(*runs)), {}, control)


def _world(path: Path) -> _Found:
    """RWKV's list, whose token 0 ends texts."""
    tokens = world_tokens(path)
    ends = tuple(i for i, data in tokens.items() if data == TURN_END)
    end = "<|rwkv_tokenizer_end_of_text|>"
    definition = longest_match_json({0: b"", **tokens})
    definition["added_tokens"] = [added_token(0, end, True)]
    return _Found(definition, {"eos_token": end}, {0: end}, stops=ends)


def _is_entry(entry: Any) -> bool:
    return _named_entry(entry) and isinstance(entry.get("id"), int) and 0 <= entry["id"] < MOST_IDS


def _ranks(definition: dict[str, Any]) -> _Found:
    special = {entry["id"]: entry["content"] for entry in definition["added_tokens"]}
    begin = "<|begin_of_text|>" if "<|begin_of_text|>" in special.values() else None
    named = {"bos_token": begin, "eos_token": "<|end_of_text|>"} if begin else {"eos_token": "<|endoftext|>"}
    return _Found(
        definition, {name: text for name, text in named.items() if text}, special, add_bos=begin is not None,
        stops=_next_turns(special), begin=_mask_and_start(special),
    )  # fmt: skip


def _by_name(vocab: Mapping[str, Any]) -> dict[str, str]:
    """GPT-2's only control token, if the vocabulary has it."""
    end = "<|endoftext|>"
    return {"bos_token": end, "eos_token": end} if end in vocab else {}


def _says_once(folder: Path) -> bool:
    """Whether a space is put only before the beginning of a text. Where no file tells, as in the folders of
    Mistral AI and Meta, whose own templates write the spaces, it is.
    """
    if (folder / "params.json").is_file() and not (folder / "config.json").is_file():
        return True
    return read_json(folder / "tokenizer_config.json").get("legacy") is False


def _sentencepiece(path: Path, once: bool) -> _Found:
    model = parse_sentencepiece(read_bytes(path))
    definition = sentencepiece_json(
        Pieces(
            model.texts,
            model.scores,
            model.types,
            model.unigram,
            model.byte_fallback,
            model.prefix_space,
            once,
            model.merge_spaces,
            model.escape_spaces,
        )
    )
    roles = {"bos_token": model.bos_id, "eos_token": model.eos_id, "unk_token": model.unk_id}
    named = {name: model.texts[i] for name, i in roles.items() if 0 <= i < len(model.texts)}
    special = {
        i: text
        for i, (text, kind) in enumerate(zip(model.texts, model.types, strict=True))
        if kind in (2, 3) and text
    }
    return _Found(definition, named, special, add_bos="bos_token" in named, charsmap=model.charsmap)


def _chat_glm(found: _Found, roles: bool) -> _Found:
    """With the control tokens that the class of ChatGLM's tokenizer numbers after those of the file, two of
    which begin a text instead of `<s>`.
    """
    model = found.definition["model"]
    names = ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop"]
    names += ["<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"] if roles else []
    control = dict(enumerate(names, len(model["vocab"])))
    added = [added_token(i, text, special=True) for i, text in control.items()]
    definition = {**found.definition, "added_tokens": [*found.definition["added_tokens"], *added]}
    special = {**found.special, **control}
    return replace(
        found, definition=definition, special=special, add_bos=False, stops=_next_turns(control),
        begin=_mask_and_start(control),
    )  # fmt: skip


def _mask_and_start(special: Mapping[int, str]) -> tuple[int, ...]:
    """The tokens that begin every text of ChatGLM2, ChatGLM3 and GLM-4."""
    found = tuple(i for i, text in special.items() if text in ("[gMASK]", "sop", "<sop>"))
    return found if len(found) == 2 else ()


def _next_turns(special: Mapping[int, str]) -> tuple[int, ...]:
    """The tokens of roles that end a reply of ChatGLM3 and GLM-4, whose turns have no token for their end."""
    found = tuple(i for i, text in special.items() if text in ("<|user|>", "<|observation|>"))
    return found if len(found) == 2 else ()


def _add_configured(folder: Path, definition: dict[str, Any]) -> None:
    """Add the tokens that only tokenizer_config.json and added_tokens.json list."""
    config = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder")
    entries = [
        {**entry, "id": int(i)}
        for i, entry in (config or {}).items()
        if isinstance(entry, dict) and str(i).isdigit()
    ]
    entries += [
        added_token(i, text)
        for text, i in read_json(folder / "added_tokens.json").items()
        if isinstance(i, int)
    ]
    have = {entry["id"]: entry for entry in definition["added_tokens"]}
    texts = {entry["content"] for entry in definition["added_tokens"]}
    vocab = definition["model"]["vocab"]
    for entry in filter(_is_entry, entries):
        text = entry["content"]
        if entry["id"] in have or text in texts or not text:
            continue
        i = vocab.get(text, entry["id"]) if isinstance(vocab, dict) else entry["id"]
        have[i] = {
            **added_token(i, text),
            **{name: bool(value) for name, value in entry.items() if name not in ("id", "content")},
        }
        texts.add(text)
    definition["added_tokens"] = [have[i] for i in sorted(have)]


def special_tokens(folder: Path) -> dict[str, str]:
    """{"bos_token": text, ...} from special_tokens_map.json and tokenizer_config.json; the latter wins."""
    named: dict[str, str] = {}
    for source in (
        read_json(folder / "special_tokens_map.json"),
        read_json(folder / "tokenizer_config.json"),
    ):
        for name in _NAMED:
            text = _text(source.get(name))
            if text:
                named[name] = text
    return named


def _text(token: Any) -> str | None:
    """A token's text, stored as a string or as an object with "content"; None for anything else."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _ids(definition: Mapping[str, Any]) -> dict[str, int]:
    vocab = definition["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {entry[0]: i for i, entry in enumerate(vocab)}
    ids.update((entry["content"], entry["id"]) for entry in definition["added_tokens"])
    return ids


def _special(
    folder: Path, definition: dict[str, Any], ids: Mapping[str, int], named: Mapping[str, str]
) -> dict[int, str]:
    """{id: text} of the control tokens: flagged in either file, given a role, or recognised by their text."""
    config = read_json(folder / "tokenizer_config.json")
    entries = [
        *definition["added_tokens"],
        *filter(_named_entry, (config.get("added_tokens_decoder") or {}).values()),
    ]
    tags = has_tags(ids)
    texts = [
        entry["content"]
        for entry in entries
        if entry.get("special") or looks_like_control(entry["content"], tags)
    ]
    extra = config.get("additional_special_tokens") or config.get("extra_special_tokens") or []
    texts += [text for text in map(_text, extra.values() if isinstance(extra, dict) else extra) if text]
    return {ids[text]: text for text in [*texts, *named.values()] if text in ids and text}


def _named_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("content"), str)


def _added_before(processor: Any) -> list[str]:
    """The texts of the tokens that a "post_processor" puts at the beginning of a text."""
    if not isinstance(processor, dict):
        return []
    if processor.get("type") == "Sequence":
        return next((texts for texts in map(_added_before, processor.get("processors", [])) if texts), [])
    if processor.get("type") == "TemplateProcessing":
        before = takewhile(lambda part: part.get("SpecialToken"), processor.get("single") or ())
        return [str(part["SpecialToken"]["id"]) for part in before]
    return [str(processor["cls"][0])] if processor.get("cls") else []


def _last_added(processor: Any) -> str | None:
    """The text of the token that a "post_processor" puts at the end of a text."""
    if not isinstance(processor, dict):
        return None
    if processor.get("type") == "Sequence":
        return next((text for text in map(_last_added, processor.get("processors", [])) if text), None)
    if processor.get("type") == "TemplateProcessing":
        last = (processor.get("single") or [{}])[-1].get("SpecialToken")
        return str(last["id"]) if last else None
    return str(processor["sep"][0]) if processor.get("sep") else None


def _generation_ends(folder: Path) -> list[int]:
    """`eos_token_id` (one or several) of generation_config.json, else of config.json or its "text_config"."""
    config = read_json(folder / "config.json")
    inner = config.get("text_config")
    for source in (
        read_json(folder / "generation_config.json"),
        config,
        inner if isinstance(inner, dict) else {},
    ):
        value = source.get("eos_token_id")
        if value is not None:
            return [i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int)]
    return []
