"""Parameters under the names of TabbyAPI, text-generation-webui and llama.cpp, as those of `parameters`.

Source: TabbyAPI's API reference (theroyallab.github.io/tabbyAPI), "Completion Request"; the request models of
text-generation-webui's API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.server.fields import Fields, is_ids

_NAMES = {
    "max_length": "max_tokens", "n_predict": "max_tokens", "min_length": "min_tokens",
    "stop_sequence": "stop", "tfs": "tfs_z",
    "typical": "typical_p", "rep_pen": "repetition_penalty", "penalty_range": "repeat_last_n",
    "repetition_range": "repeat_last_n", "repetition_penalty_range": "repeat_last_n",
    "rep_pen_range": "repeat_last_n", "dry_penalty_last_n": "dry_range", "ban_eos_token": "ignore_eos",
    "custom_token_bans": "banned_tokens", "allowed_token_ids": "allowed_tokens", "mirostat_mode": "mirostat",
    "dynatemp_low": "min_temp", "dynatemp_high": "max_temp", "dynatemp_exponent": "temp_exponent",
    "guidance_scale": "cfg_scale", "template_vars": "chat_template_kwargs", "grammar_string": "grammar",
    "continue_": "continue_final_message",
}  # fmt: skip
"""Other names of parameters: those of `parameters`, which count where both are given."""
_DYNAMIC = ("min_temp", "max_temp", "temp_exponent")


def by_our_names(fields: Fields) -> Fields:
    """The fields of a request under the names that `parameters` reads. Raises `ApiError`."""
    found = fields.renamed({old: new for old, new in _NAMES.items() if fields.get(new) is None})
    changed: dict[str, Any] = {}
    if found.get("dynamic_temperature") is False:  # the webui sends numbers, too, that are to be ignored
        changed |= dict.fromkeys(_DYNAMIC)
    if not found.get("dry_multiplier"):  # nor do others count without a multiplier, such as a base of 0
        changed |= dict.fromkeys(("dry_base", "dry_allowed_length", "dry_range"))
    elif found.get("dry_range") == -1:  # llama.cpp's word for the whole context
        changed["dry_range"] = 0
    if found.get("do_sample") is False:
        changed["temperature"] = 0
    if isinstance(found.get("mirostat"), bool):
        changed["mirostat"] = 2 * found.get("mirostat")
    if found.flag("auto_max_new_tokens"):
        changed["max_tokens"] = -1
    changed |= _stops(found)
    for name in ("banned_tokens", "allowed_tokens"):
        if isinstance(found.get(name), str):
            changed[name] = _listed_ids(found, name)
    if isinstance(found.get("dry_sequence_breakers"), str):
        changed["dry_sequence_breakers"] = _listed_texts(found, "dry_sequence_breakers")
    return found.changed(changed)


def _stops(fields: Fields) -> Mapping[str, Any]:
    """Token ids among the stop strings, as TabbyAPI takes them, apart."""
    stop = fields.get("stop")
    ids = [one for one in stop if is_ids([one])] if isinstance(stop, list) else []
    if not ids:
        return {}
    texts = [one for one in stop if not is_ids([one])]
    return {"stop": texts, "stop_token_ids": [*fields.ids("stop_token_ids"), *ids]}


def _listed_ids(fields: Fields, name: str) -> list[int]:
    """Token ids that are separated by commas."""
    parts = [part.strip() for part in fields.text(name).split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise fields.wrong(name, "a list of token ids")
    return [int(part) for part in parts]


def _listed_texts(fields: Fields, name: str) -> Any:
    """Texts in quotes that are separated by commas, perhaps in brackets: JSON."""
    written = fields.text(name).strip()
    try:
        return json.loads(written if written.startswith("[") else f"[{written}]")
    except (ValueError, RecursionError):
        raise fields.wrong(name, "a list of texts") from None
