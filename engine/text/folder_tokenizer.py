"""The tokenizer of a Hugging Face folder: tokenizer.json and what the configuration files beside it add."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, ModelNotFound, UnsupportedModel
from engine.text.template_source import folder_template, read_json
from engine.text.vocabulary import TokenizerFacts, end_of_turn_ids, looks_like_control, unique

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def facts_from_folder(folder: Path) -> TokenizerFacts:
    """Read a folder's tokenizer. Raises `ModelNotFound`, `UnsupportedModel` and `BadCheckpoint`."""
    definition = read_json(folder / "tokenizer.json")
    if not definition:
        raise ModelNotFound(f"{folder.name} has no tokenizer.json; choose a folder that has one beside the weights.")
    model = definition.get("model")
    if not isinstance(model, dict) or not model.get("vocab"):
        raise BadCheckpoint("tokenizer.json has no vocabulary; fetch the file again.")
    if model.get("type", "BPE") not in ("BPE", "Unigram"):
        raise UnsupportedModel(f"tokenizer.json is of kind {model['type']}, but only BPE and Unigram tokenizers are supported.")
    definition["added_tokens"] = definition.get("added_tokens") or []
    # A limit on length or a padding rule that was saved by accident would silently change every prompt.
    definition["truncation"] = definition["padding"] = None
    named = special_tokens(folder)
    ids = _ids(definition)
    special = _special(folder, definition, ids, named)
    bos, eos = ids.get(named.get("bos_token", "")), ids.get(named.get("eos_token", ""))
    config = read_json(folder / "tokenizer_config.json")
    processor = definition.pop("post_processor", None)
    explicit = config.get("add_bos_token")
    add_bos = bool(explicit) if explicit is not None else bos is not None and _first_added(processor) == named.get("bos_token")
    stops = unique([*_generation_ends(folder), eos, *end_of_turn_ids(special, folder_template(folder))])
    return TokenizerFacts(definition, special, bos, eos, add_bos and bos is not None, stops)


def special_tokens(folder: Path) -> dict[str, str]:
    """{"bos_token": text, "eos_token": text ...} of special_tokens_map.json and tokenizer_config.json; the latter wins."""
    named: dict[str, str] = {}
    for source in (read_json(folder / "special_tokens_map.json"), read_json(folder / "tokenizer_config.json")):
        for name in _NAMED:
            text = _text(source.get(name))
            if text:
                named[name] = text
    return named


def _text(token: Any) -> str | None:
    """A token's text, which is written as a string or as an object with "content"."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _ids(definition: Mapping[str, Any]) -> dict[str, int]:
    vocab = definition["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {entry[0]: i for i, entry in enumerate(vocab)}
    ids.update((entry["content"], entry["id"]) for entry in definition["added_tokens"])
    return ids


def _special(folder: Path, definition: dict[str, Any], ids: Mapping[str, int], named: Mapping[str, str]) -> dict[int, str]:
    """{id: text} of the control tokens: flagged so in either file, given a role, or looking like one."""
    config = read_json(folder / "tokenizer_config.json")
    entries = [*definition["added_tokens"], *(config.get("added_tokens_decoder") or {}).values()]
    texts = [entry["content"] for entry in entries if entry.get("special") or looks_like_control(entry["content"])]
    extra = config.get("additional_special_tokens") or config.get("extra_special_tokens") or []
    texts += [text for text in map(_text, extra.values() if isinstance(extra, dict) else extra) if text]
    return {ids[text]: text for text in [*texts, *named.values()] if text in ids}


def _first_added(processor: Any) -> str | None:
    """The text of the token that a "post_processor" puts in front of a text."""
    if not isinstance(processor, dict):
        return None
    if processor.get("type") == "Sequence":
        return next((text for text in map(_first_added, processor.get("processors", [])) if text), None)
    if processor.get("type") == "TemplateProcessing":
        first = (processor.get("single") or [{}])[0].get("SpecialToken")
        return str(first["id"]) if first else None
    if processor.get("cls"):
        return str(processor["cls"][0])
    return None


def _generation_ends(folder: Path) -> list[int]:
    """`eos_token_id` (one or several) of generation_config.json, or else of config.json."""
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        if value is not None:
            return [int(i) for i in (value if isinstance(value, list) else [value])]
    return []
