"""The provenance of a reply as rows of text, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from desktop.items.models.local_models import count_text
from desktop.services.engine.reply_record import drafting_text, reason_text, stats_of
from desktop.services.provenance.provenance import ReplyProvenance
from desktop.services.system.language import moment_text
from desktop.settings import PANES
from engine.core import FIRST_PICTURE_ID, Rendered
from engine.settings import AdapterSettings, SamplerSettings, Settings, setting_info
from engine.units import number_text, rate_text, seconds_text, size_text
from engine.words import _, ngettext, translate

__all__ = [
    "SettingRow",
    "as_json",
    "facts_rows",
    "prompt_pieces",
    "prompt_words",
    "setting_rows",
    "value_words",
    "vision_words",
]


class SettingRow(NamedTuple):
    """One setting that was used; `default` is the default in words if it differs, else empty."""

    pane: str
    label: str
    value: str
    default: str = ""


def facts_rows(reply: ReplyProvenance, hash_words: str) -> list[tuple[str, str]]:
    """(title, text) of model, machine, seed, times and end; what is not known is left out."""
    model, stats, facts = (
        reply.model,
        stats_of(reply.message.stats),
        reply.provenance.facts if reply.provenance is not None else {},
    )
    started = facts.get("started")
    adapters = reply.settings(AdapterSettings).get("adapters") or ()
    rows = [
        (_("Model"), str(model.get("name") or reply.message.stats.get("model", ""))),
        (
            _("Server"),
            " – ".join(part for part in (reply.server, str(model.get("server_version", ""))) if part),
        ),
        (_("File"), reply.path),
        ("SHA-256", hash_words if reply.path else ""),
        (_("Size"), _size(model)),
        (_("Vision encoder"), vision_words(reply)),
        (_("Adapters"), "\n".join(map(str, adapters)) or (_("none") if model and not reply.server else "")),
        (_("Ran on"), _place(model)),
        (_("Written"), moment_text(started, seconds=True) if isinstance(started, int | float) else ""),
    ]
    if stats is not None:
        prompt = ngettext("{n} token", "{n} tokens", stats.prompt_tokens)
        if stats.cached_tokens:
            prompt = _(
                "{tokens}, {cached_tokens:,} of them from the cache",
                tokens=prompt,
                cached_tokens=stats.cached_tokens,
            )
        rows += [
            (_("Prompt"), prompt),
            (_("Reply"), ngettext("{n} token", "{n} tokens", stats.new_tokens)),
            (_("Seed"), _seed(reply, stats.seed) if not reply.server or stats.seed else ""),
            (
                _("Reading the prompt"),
                _speed(stats.prefill_tokens, stats.prefill_seconds, stats.prefill_tokens_per_second),
            ),
            (
                _("Time to first token"),
                seconds_text(stats.first_token_seconds, ".2f") if stats.first_token_seconds else "",
            ),
            (
                _("Writing"),
                _speed(max(0, stats.new_tokens - 1), stats.decode_seconds, stats.decode_tokens_per_second),
            ),
            (_("Drafting"), drafting_text(stats)),
        ]
    rows += [
        (_("Ended"), reason_text(reply.message.stats)),
        (_("Error"), str(reply.message.stats.get("error", ""))),
    ]
    rows += [("Inglenook", str(facts.get("engine", "")))]
    return [(title, words) for title, words in rows if words]


def vision_words(reply: ReplyProvenance) -> str:
    """The file of the vision encoder that read the pictures, its size, and its hash once that is known."""
    if not reply.vision_path:
        return ""
    from engine.weights.gguf.ollama import known_name

    words = f"{known_name(Path(reply.vision_path))}, {size_text(int(reply.vision.get('size', 0)))}"
    return f"{words}\nSHA-256: {reply.vision_hash}" if reply.vision_hash else words


def prompt_words(prompt: Rendered | None) -> str:
    """The length of a prompt, and what is special about it."""
    if prompt is None:
        return _("The prompt of this reply was not saved.")
    special = {id for id, _unused, control in prompt.vocabulary if control}
    words = _(
        "{ids:,} tokens, {ids_2:,} of them control tokens",
        ids=len(prompt.ids),
        ids_2=sum(id in special for id in prompt.ids),
    )
    if prompt.given:
        words = _("{words}; the last {given:,} are the start of the reply", words=words, given=prompt.given)
    if prompt.heal:
        words = _("{words}; the last one was sampled again", words=words)
    return f"{words}."


def prompt_pieces(prompt: Rendered, ids: tuple[int, ...] | None = None) -> Iterator[tuple[str, bool]]:
    """The text of the prompt (or of `ids`) in order: (text, whether it is a control token)."""
    known = {id: (data, control) for id, data, control in prompt.vocabulary}
    plain = bytearray()
    for id, count in _folded(prompt.ids if ids is None else ids):
        if count:
            shown = ngettext("<picture, {n} token>", "<picture, {n} tokens>", count)
            data, control = shown.encode(), True
        else:
            data, control = known.get(id, (f"<{id}>".encode(), True))
        if not control:
            plain += data
            continue
        if plain:
            yield plain.decode("utf-8", "replace"), False
            plain.clear()
        yield data.decode("utf-8", "replace"), True
    if plain:
        yield plain.decode("utf-8", "replace"), False


def _folded(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each id of a text with 0, and the tokens of a picture that stand together as one, with their number."""
    at = 0
    while at < len(ids):
        end = at
        while end < len(ids) and ids[end] == ids[at] + end - at and ids[at] >= FIRST_PICTURE_ID:
            end += 1
        yield ids[at], end - at
        at = max(end, at + 1)


def setting_rows(reply: ReplyProvenance) -> list[SettingRow]:
    """Every setting that was used, in the order of the panes."""
    found = []
    for pane, cls in PANES:
        values = reply.settings(cls)
        for field in dataclasses.fields(cls) if values else ():  # type: ignore[arg-type]
            if field.name in values:
                now, usual = (
                    value_words(cls, field.name, values[field.name]),
                    value_words(cls, field.name, field.default),
                )
                found.append(
                    SettingRow(translate(pane), setting_info(field).label, now, usual if now != usual else "")
                )
    return found


def value_words(cls: type[Settings], name: str, value: Any) -> str:
    """A setting's value in words."""
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)  # type: ignore[arg-type]
    info = setting_info(next(field for field in fields if field.name == name))
    if isinstance(value, bool):
        return _("on") if value else _("off")
    if value is None:
        return _("automatic") if name != "seed" else _("random")
    choices = dict(info.choices or ())
    if isinstance(value, list | tuple):
        return ", ".join(choices.get(str(part), str(part)) for part in value) or _("none")
    if isinstance(value, str):
        return choices.get(value, value) or _("none")
    words = dict(info.words or ()).get(value)
    number = str(value) if name == "seed" else number_text(value, "," if isinstance(value, int) else "")
    return words or f"{number} {info.unit}".rstrip()


def as_json(reply: ReplyProvenance) -> str:
    """Everything, for a file or a report."""
    provenance = reply.provenance
    data: dict[str, Any] = {
        "reply": {"text": reply.message.text, "token_ids": list(reply.expected)},
        "model": {**reply.model, "sha256": reply.hash or None},
        "result": dict(reply.message.stats),
    }
    if provenance is not None:
        data |= {name: value for name, value in provenance.facts.items() if name not in ("model", "known")}
    if reply.vision:
        data["vision"] = {**reply.vision, "sha256": reply.vision_hash or None}
    if provenance is not None and provenance.prompt is not None:
        prompt = provenance.prompt
        data["prompt"] = {
            "text": "".join(text for text, _unused in prompt_pieces(prompt)),
            "token_ids": list(prompt.ids),
            "control_token_ids": [id for id, _unused, control in prompt.vocabulary if control],
            "given": prompt.given, "healed": prompt.heal, "negative_token_ids": list(prompt.negative_ids),
            "passes": [list(map(list, row)) for row in prompt.passes],
        }  # fmt: skip
    return json.dumps(data, ensure_ascii=False, indent=2)


def _size(model: Any) -> str:
    parts = []
    if size := model.get("size") or model.get("weights_bytes"):
        parts.append(size_text(int(size)))
    if model.get("parameters"):
        parts.append(_("{count} parameters", count=count_text(int(model["parameters"]))))
    if model.get("quantisation"):
        parts.append(
            _(
                "{model}, {number:.2f} bits per weight",
                model=model["quantisation"],
                number=float(model.get("bits_per_weight", 0)),
            )
        )
    return ", ".join(parts)


def _place(model: Any) -> str:
    if not model or model.get("server"):
        return ""
    if model.get("where"):
        return str(model["where"])
    place = _("the reference backend") if model.get("backend") == "reference" else _("the processor (CPU)")
    threads = model.get("threads")
    return ngettext("{place}, {n} thread", "{place}, {n} threads", threads, place=place) if threads else place


def _seed(reply: ReplyProvenance, seed: int) -> str:
    values = reply.settings(SamplerSettings)
    if not values:
        return str(seed)
    random = values.get("seed") is None
    return _("{seed}, random", seed=seed) if random else _("{seed}, set by you", seed=seed)


def _speed(tokens: int, seconds: float, rate: float) -> str:
    return (
        _(
            "{tokens:,} tokens in {seconds:.2f} s, {rate} tokens/s",
            tokens=tokens,
            seconds=seconds,
            rate=rate_text(rate),
        )
        if seconds > 0 and tokens > 0
        else ""
    )
