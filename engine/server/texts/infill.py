"""Filling in text between a prefix and a suffix ("fill in the middle", FIM), and POST /infill in the form of
llama.cpp's server.

Source: Bavarian et al., arXiv 2207.14255 (prefix, suffix, middle); the model cards of Qwen2.5-Coder,
StarCoder2, DeepSeek-Coder, Granite and Codestral for their control tokens, the files of a repository
included; llama.cpp's `tools/server/README.md`, "POST /infill".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.core import ChatRequest
from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.server.fields import Fields
from engine.text.tokenizer.tokenizer import Tokenizer

_TOKENS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"),
    ("<PRE>", "<SUF>", "<MID>"),
)
"""What stands before the prefix, before the suffix, and before what is filled in."""
_CODESTRAL = ("[SUFFIX]", "[PREFIX]")
"""Before the suffix, which comes first, and before the prefix, which what is filled in follows."""
_FILE = ("<|file_sep|>", "<file_sep>")
_REPOSITORY = ("<|repo_name|>", "<|fim_repo|>", "<repo_name>", "<reponame>")
_PADDING = ("<|fim_pad|>", "<fim_pad>", "<fim-pad>")


@dataclass(frozen=True, slots=True)
class Infill:
    """A gap: the texts around it, and what else the model may know, as (name of a file, text)."""

    prefix: str
    suffix: str
    files: tuple[tuple[str, str], ...] = ()


def infill_of(fields: Fields) -> Infill:
    """The gap that a body of /infill asks for. Raises `ApiError`."""
    files = fields.parts("input_extra") if fields.get("input_extra") else ()
    return Infill(
        fields.text("input_prefix") + fields.text("prompt"),
        fields.text("input_suffix"),
        tuple((one.text("filename") or "tmp", one.text("text")) for one in files),
    )


def infill_ids(tokenizer: Tokenizer, gap: Infill, room: int) -> list[int]:
    """The prompt of a gap, at most `room` ids: of a long prefix its end is kept, of a long suffix its
    beginning, at most a quarter of all, and of the files their end.

    Raises `BadSetting` for a model without control tokens for this.
    """
    marks = next((found for names in _TOKENS if None not in (found := _ids(tokenizer, names))), None)
    swapped = _ids(tokenizer, _CODESTRAL) if marks is None else (None, None)
    if marks is None and None in swapped:
        raise BadSetting(
            "This model has no control tokens for text between a prefix and a suffix, such as "
            "<|fim_prefix|>; leave the suffix out, or serve a model for code."
        )
    room -= 7  # the control tokens
    suffix = tokenizer.encode(gap.suffix)
    prefix = tokenizer.encode(gap.prefix)
    suffix = suffix[: max(room // 4, room - len(prefix))]
    prefix = prefix[max(0, len(prefix) - (room - len(suffix))) :]
    files = _files(tokenizer, gap.files) if gap.files else []
    files = files[max(0, len(files) - (room - len(prefix) - len(suffix))) :]
    begin = tokenizer.encode("", add_bos=tokenizer.add_bos)
    if marks is None:
        return [*begin, *files, swapped[0], *suffix, swapped[1], *prefix]  # type: ignore[list-item]
    before, after, middle = marks
    return [*begin, *files, before, *prefix, after, *suffix, middle]  # type: ignore[list-item]


def infill_request(tokenizer: Tokenizer, request: ChatRequest) -> ChatRequest:
    """The request, which also ends where the model pads or begins another file."""
    names = (*_FILE, *_REPOSITORY, *_PADDING)
    ends = tuple(id for id in _ids(tokenizer, names) if id is not None)
    stops = replace(request.stops, stop_token_ids=(*request.stops.stop_token_ids, *ends))
    return replace(request, stops=stops)


def _files(tokenizer: Tokenizer, files: tuple[tuple[str, str], ...]) -> list[int]:
    """The other files: each after the token that divides files, or where there is none after a blank line."""
    found: list[int] = []
    divider, repository = _first(tokenizer, _FILE), _first(tokenizer, _REPOSITORY)
    if divider is not None and repository is not None:
        found += [repository, *tokenizer.encode("project\n")]
    for name, text in files:
        if divider is None:
            found += tokenizer.encode(f"\n\n{name}\n{text}")
        else:
            found += [divider, *tokenizer.encode(f"{name}\n{text}")]
    if divider is not None:
        found += [divider, *tokenizer.encode("filename\n")]
    return found


def _first(tokenizer: Tokenizer, names: tuple[str, ...]) -> int | None:
    return next((id for id in _ids(tokenizer, names) if id is not None), None)


def _ids(tokenizer: Tokenizer, names: tuple[str, ...]) -> tuple[int | None, ...]:
    """The ids of control tokens; None for those that the model does not have."""
    encoded = [tokenizer.encode(name, special=True) for name in names]
    return tuple(
        ids[0] if len(ids) == 1 and tokenizer.piece(ids[0]) == name else None
        for name, ids in zip(names, encoded, strict=True)
    )


def shown(prompt: Any) -> str | list[Any]:
    """A prompt as JSON can have it."""
    if isinstance(prompt, Infill):
        return prompt.prefix
    return prompt if isinstance(prompt, str) else list(prompt)
