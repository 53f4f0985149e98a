"""The facts about a tokenizer, and the rule that keeps control tokens out of plain text."""

from __future__ import annotations

import re
import secrets
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.text.tokenizer.definition import known_merges
from engine.words import _

END_OF_TURN_TOKENS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|eot|>", "<|end_of_turn|>",
    "<|endofturn|>", "<|END_OF_TURN_TOKEN|>", "<|end_of_text|>", "<|endoftext|>", "<｜end▁of▁sentence｜>",
    "<|assistant_end|>", "<end_of_utterance>", "[|endofturn|]", "<turn|>", "<EOT>", "</s>", "<|return|>",
    "<|call|>", "<|role_end|>", "<|EOT|>", "<|eos|>", "<end_of_sentence>", "<seed:eos>",
    "<|end_of_msg|>", "<|message_sep|>", "</assistant>",
)  # fmt: skip
"""Well-known names of tokens that end a turn; one counts if the chat template writes it."""
_NEXT_TURN = ("<|user|>", "<|observation|>")

_CONTROL_NAMES = frozenset({
    "<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<mask>", "[PAD]", "[INST]", "[/INST]",
    "<start_of_turn>", "<end_of_turn>",
})  # fmt: skip
CONTROL_BEGINNINGS = ("<", "[", "_<", "▁<")
"""The beginnings that `is_control_by_name` requires."""

_TAGS = frozenset({"<s>", "</s>"})


_ORDINARY_NAMES = frozenset({"<s>", "<unk>", "<pad>", "<bos>", "<mask>"})
_LATER_NAMES = frozenset(
    {
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "[e~[",
        "<EOT>",
        "<turn|>",
        "<|tool_response>",
        "<end_of_utterance>",
        "<PRE>",
        "<SUF>",
        "<MID>",
        "<PAD>",
        "<REPO>",
        "<reponame>",
        "▁<PRE>",
        "▁<SUF>",
        "▁<MID>",
    }
    | {f"<fim{mark}{part}>" for mark in "-_" for part in ("prefix", "suffix", "middle", "pad")}
    | {"<fim-repo>"}
)


def looks_like_control(text: str, tags: bool = False) -> bool:
    """Whether an added token's text is that of a control token, whatever its flag says.

    Some files flag role markers such as `<|user|>` as ordinary; typed by a user they must not change the
    roles. With `tags` (from `has_tags`), `<s>` is an HTML tag.
    """
    if tags and text in _TAGS:
        return False
    return text in _CONTROL_NAMES or (
        len(text) > 4 and text[:2] in ("<|", "<｜") and text[-2:] in ("|>", "｜>")
    )


def is_control_by_name(text: str, tags: bool = False) -> bool:
    """`looks_like_control` for a token not flagged in a GGUF file, as llama.cpp does ("auto-detect").

    Ends of turns and the marks of code infilling are control tokens whatever their type. `<s>` and the
    like are not: a byte-level vocabulary trained on web pages (Qwen's ids 128244 and 128245) has them
    as ordinary pieces.
    """
    return text in _LATER_NAMES or (text not in _ORDINARY_NAMES and looks_like_control(text, tags))


def has_tags(texts: Container[str]) -> bool:
    """Whether a vocabulary begins its texts with `<bos>`, so that its `<s>` is the HTML tag (Gemma).

    Gemma's tokenizer.json lists `</s>` (id 212) among its added tokens with `"special": false`, next to
    `</table>` and `</h1>`: transformers makes it this one token in any text, keeps it in replies, and ends no
    reply at it. This engine does the same. llama.cpp treats every `</s>` as an end of reply, with an
    exception for Gemma 4.
    """
    return "<bos>" in texts


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """All that `Tokenizer` needs.

    `definition` is a tokenizer.json as a dict; `hide_specials` changes it. `special` maps the id of each
    control token to its text. `stop_ids` end a turn. `charsmap` is SentencePiece's table of character
    replacements, or empty. `end_id` is the token that texts to embed end with. White space before
    (`strips_before`) and after (`strips_after`) the tokens with these texts is dropped where control tokens
    are recognised. `begin_ids` take the place of a BOS token where texts begin with several control tokens.
    """

    definition: dict[str, Any]
    special: Mapping[int, str]
    bos_token_id: int | None
    eos_token_id: int | None
    add_bos: bool
    stop_ids: tuple[int, ...]
    charsmap: bytes = b""
    strips_before: frozenset[str] = frozenset()
    strips_after: frozenset[str] = frozenset()
    end_id: int | None = None
    begin_ids: tuple[int, ...] = ()


def unique(ids: Iterable[int | None]) -> tuple[int, ...]:
    """The ids in order, without None and duplicates."""
    return tuple(dict.fromkeys(i for i in ids if i is not None))


def end_of_turn_ids(special: Mapping[int, str], template: str | None) -> list[int]:
    """Ids of the well-known end-of-turn control tokens that the chat template (Jinja source or None) writes.

    If the vocabulary has `<|return|>`, `<|end|>` ends only one message of a turn (harmony). Models whose
    turns have no end token stop at the beginning of the next turn (GLM-4).
    """
    ids = {text: i for i, text in special.items()}
    found = [ids[text] for text in END_OF_TURN_TOKENS if template and text in ids and text in template]
    if "<|return|>" in ids:
        found = [i for i in found if special[i] != "<|end|>"]
    if template and all(text in ids and text in template for text in _NEXT_TURN):
        found += [ids[text] for text in _NEXT_TURN]
    return found


def hide_specials(definition: dict[str, Any], special: Mapping[int, str]) -> dict[str, str]:
    """Give each control token of a tokenizer.json dict a secret name, in place; returns {text: secret name}.

    After this no text can become a control token: neither through the added-token search, nor through merges
    that spell it, nor as a whole word of the vocabulary. To write the control token, use its secret name,
    which holds a random part and is never shown.
    """
    nonce = secrets.token_hex(8)
    secret = {text: f"\U0010fffd{nonce}.{i}\U0010fffd" for i, text in special.items()}
    model = definition["model"]
    if model.get("unk_token") in secret:
        model["unk_token"] = secret[model["unk_token"]]
    plain = {"lstrip": False, "rstrip": False}
    flags = {entry["id"]: entry for entry in definition["added_tokens"]}
    for i, text in special.items():
        flags[i] = {
            **plain,
            **flags.get(i, {}),
            "id": i,
            "content": secret[text],
            "single_word": False,
            "normalized": False,
            "special": True,
        }
    definition["added_tokens"] = [flags[i] for i in sorted(flags)]
    names = {i: entry["content"] for i, entry in flags.items()}
    if isinstance(model["vocab"], dict):
        vocab, gone = _placed(model["vocab"], names)
        lost = secret.keys() | gone
        model["vocab"] = vocab
        if not lost.isdisjoint(vocab) and "lines" in model:
            model["merges"] = known_merges(model.pop("lines"), vocab)
        if "order" in model:
            model["order"] = [text for text in model["order"] if text in vocab]
        elif "lines" not in model:  # of which those with a lost name count no longer
            firsts = {text[:1] for text in lost}
            model["merges"] = [
                pair
                for merge in model.get("merges") or ()
                if (a := (pair := merge if type(merge) is tuple and len(merge) == 2 else _pair(merge))[0])
                not in lost
                and (b := pair[1]) not in lost
                and not (a[:1] in firsts and a + b in lost)
            ]
    else:
        model["vocab"] = _relisted(model["vocab"], names)
    return secret


def _placed(vocab: Mapping[str, int], names: Mapping[int, str]) -> tuple[dict[str, int], set[str]]:
    """The vocabulary with every added token under its id, whatever was there, and the texts that it lost."""
    placed, added = dict(vocab), {text: i for i, text in names.items()}
    replaced = [text for text, i in vocab.items() if i in names or text in added]
    for text in replaced:
        del placed[text]
    return placed | added, set(replaced) - added.keys()


def _relisted(vocab: Iterable[Sequence[Any]], names: Mapping[int, str]) -> list[list[Any]]:
    """`_placed` for a list of [text, score], whose indices are the ids."""
    return [[names.get(i, text), score] for i, (text, score) in enumerate(vocab)]


def _pair(merge: Any) -> tuple[str, str]:
    """A merge as two texts; older files store it as one with a space. Raises `BadCheckpoint` for others."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if (
        not isinstance(parts, (list, tuple))
        or len(parts) != 2
        or not all(isinstance(part, str) for part in parts)
    ):
        raise BadCheckpoint(
            _(
                "The tokenizer has the merge {merge!r}, which is not of 2 parts; download the model again.",
                merge=str(merge)[:40],
            )
        )
    return parts[0], parts[1]


def special_pattern(secret: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches the control tokens' texts, longest first, or nothing if there are none."""
    return re.compile("|".join(re.escape(text) for text in sorted(secret, key=len, reverse=True)) or "(?!)")


def byte_level_alphabet() -> dict[str, int]:
    """{character: byte} for byte-level BPE vocabularies.

    Printable Latin-1 bytes stand for themselves; the 68 others are shifted to U+0100 and up in
    byte order (GPT-2).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
