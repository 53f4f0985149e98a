"""Where a model file stores its chat template: the Jinja source, or None if there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint
from engine.text.template.fallback import fallback_source
from engine.text.template.mistral import mistral_source, tekken_template, versioned_vocabulary
from engine.text.tokenizer.rank_list import is_tiktoken
from engine.words import _

_DEFAULT, _TOOL_USE = "default", "tool_use"
"""Names of templates, as in transformers and llama.cpp."""
_CHATS = re.compile(r"chat|instruct", re.IGNORECASE)
"""In the names of the folders of Llama 2's and Code Llama's models that chat."""
META_FILES = "consolidated.*.pth"
_NAMED = {"rwkv-world": "rwkv"}
"""Templates that llama.cpp's converter writes down by a name of its own."""
_MOONDREAM = "moondream"
"""In the names of models whose files have no template, or but the name of one, as "vicuna"."""
_OF_CLASSES = {"paligemma": "paligemma"}
"""By `model_type`, classes of models whose folders have no template."""
MOST_BYTES = 128 << 20
"""Largest size of a file next to the weights; the largest known, a tokenizer.json, has 34 MB."""


def gguf_template(metadata: Mapping[str, Any]) -> str | None:
    """The source under `tokenizer.chat_template`, or the template named "default", or else the first named
    one; None if there is none but blank ones.
    """
    plain = "tokenizer.chat_template"
    keys = (plain, f"{plain}.{_DEFAULT}", *(key for key in metadata if key.startswith(plain + ".")))
    source = next((found for key in keys if (found := _written(metadata.get(key)))), None)
    if _MOONDREAM in str(metadata.get("general.name")).lower() and "{" not in (source or ""):
        return fallback_source(_MOONDREAM)
    return fallback_source(_NAMED[source]) if source in _NAMED else source


def gguf_tool_template(metadata: Mapping[str, Any]) -> str | None:
    """The source of the template for chats with tools, if there is one of its own."""
    return _written(metadata.get(f"tokenizer.chat_template.{_TOOL_USE}"))


def folder_template(folder: Path) -> str | None:
    """The template of a folder: the one named "default", or else the first; None if there is none."""
    named = _folder_templates(folder)
    return named.get(_DEFAULT, next(iter(named.values()), None))


def folder_tool_template(folder: Path) -> str | None:
    """The source of the template for chats with tools, if there is one of its own."""
    return _folder_templates(folder).get(_TOOL_USE)


def _folder_templates(folder: Path) -> dict[str, str]:
    """The sources in chat_template.jinja, chat_template.json or tokenizer_config.json, by their names: of the
    first of these that has any.

    The JSON files may hold one source, or named ones as a list or an object. The template for tools may be a
    file of its own. A blank source counts as none. Without any, the vocabulary of a Mistral model tells.
    """
    apart = _read_if_there(folder / "additional_chat_templates" / f"{_TOOL_USE}.jinja")
    extra = {} if apart is None else {_TOOL_USE: apart}
    if source := _read_if_there(folder / "chat_template.jinja"):
        return {_DEFAULT: source, **extra}
    for name in ("chat_template.json", "tokenizer_config.json"):
        value = read_json(folder / name).get("chat_template")
        if isinstance(value, list):
            named = [entry for entry in value if isinstance(entry, dict)]
            value = {str(entry.get("name")): entry.get("template") for entry in named}
        given = value if isinstance(value, dict) else {_DEFAULT: value}
        if found := {key: source for key in given if (source := _written(given[key]))}:
            return found | extra
    made = _of_class(folder) or _of_tokenizer(folder)
    return extra if made is None else {_DEFAULT: made, **extra}


def _of_class(folder: Path) -> str | None:
    """The template of a class of models whose folders have none, but whose prompts have one form."""
    name = read_json(folder / "config.json").get("model_type")
    return fallback_source(_OF_CLASSES[name]) if isinstance(name, str) and name in _OF_CLASSES else None


def _of_tokenizer(folder: Path) -> str | None:
    """The template of the version that the vocabulary of a model by Mistral AI states, and of Llama's and
    ChatGLM's folders as their authors publish them; None for others.

    Where there is a config.json, only tekken.json alone counts: many base models have it beside another.
    """
    own = (folder / "params.json").is_file() and not (folder / "config.json").is_file()
    if (folder / "tokenizer.json").is_file():
        return None
    if glm := chat_glm(folder):
        return fallback_source(glm)
    if own and is_meta_llama(folder):
        # Nothing but the name tells models that chat; from Llama 3 on the vocabulary has tokens for chats.
        if is_ranked(read_json(folder / "params.json").get("vocab_size")):
            return fallback_source("llama3")
        return fallback_source("llama2") if _CHATS.search(folder.name) else None
    if own and (found := versioned_vocabulary(folder)) is not None:
        return mistral_source(found[1], " ")
    if own and (folder / "tokenizer.model").is_file():
        return mistral_source(1, " ")
    tekken = folder / "tekken.json"
    if not tekken.is_file() or (folder / "tokenizer.model").is_file():
        return None
    facts = tekken.stat()
    return _of_tekken(tekken, facts.st_mtime_ns, facts.st_size)


def is_meta(folder: Path) -> bool:
    """Whether a folder holds params.json and the files of a model as Meta publishes it, and nothing that
    would count before these.
    """
    if (folder / "config.json").is_file() or not (folder / "params.json").is_file():
        return False
    return any(folder.glob(META_FILES)) and not any(folder.glob("*.safetensors"))


def is_meta_llama(folder: Path) -> bool:
    """Whether these files are Llama's, whose params.json unlike Mistral's gives no width of the
    feed-forward.
    """
    return is_meta(folder) and "hidden_dim" not in read_json(folder / "params.json")


def is_ranked(vocabulary: object) -> bool:
    """Whether one of Llama's vocabularies is a list of ranks, as from Llama 3 on: by its size."""
    return isinstance(vocabulary, int) and vocabulary > 100_000


def chat_glm(folder: Path) -> str:
    """Which of the original classes of tokenizers the folder of a ChatGLM model has: "glm4" (a list of
    ranks), "chatglm3" or "chatglm2" (SentencePiece); "" for other folders.

    Of the last two, only ChatGLM3 has tokens for roles. Its first folders say so in nothing but the code of
    the tokenizer, which is searched, not run, and in the model's name.
    """
    config, model = read_json(folder / "config.json"), folder / "tokenizer.model"
    if config.get("model_type") != "chatglm" or not model.is_file():
        return ""
    if is_tiktoken(model):
        return "glm4"
    names = (str(config.get("_name_or_path")), folder.name)
    files = (_read_if_there(folder / name) for name in ("tokenizer_config.json", "tokenization_chatglm.py"))
    roles = any("<|observation|>" in text for text in files if text)
    return "chatglm3" if roles or any("chatglm3" in name.lower() for name in names) else "chatglm2"


@lru_cache(maxsize=4)
def _of_tekken(path: Path, changed: int, size: int) -> str | None:
    """`tekken_template` of a file of up to 20 MB, which is read once in each state."""
    return tekken_template(read_json(path))


def _read_if_there(file: Path) -> str | None:
    return _written(_read_text(file)) if file.is_file() else None


def _written(source: object) -> str | None:
    """The source if it is a nonblank string, else None."""
    return source if isinstance(source, str) and source.strip() else None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file, {} if the file is missing. Raises `BadCheckpoint` for an invalid file."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(_read_text(path))
    except RecursionError:
        raise BadCheckpoint(
            _("{path} is nested deeper than any known file; download it again.", path=path.name)
        ) from None
    except ValueError as error:
        raise BadCheckpoint(
            _("{path} is not valid JSON ({error}); download the file again.", path=path.name, error=error)
        ) from error
    if not isinstance(data, dict):
        raise BadCheckpoint(
            _(
                "{path} holds a JSON {name}, but an object was expected; download the file again.",
                path=path.name,
                name=type(data).__name__,
            )
        )
    return data


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadCheckpoint(
                _(
                    "{path} is larger than the {most_bytes} bytes that can be read; download the file again.",
                    path=path.name,
                    most_bytes=MOST_BYTES,
                )
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadCheckpoint(
            _(
                "{path} cannot be read ({strerror}); look at its permissions.",
                path=path.name,
                strerror=error.strerror or error,
            )
        ) from error
    except UnicodeDecodeError as error:
        raise BadCheckpoint(
            _("{path} is not UTF-8 text; download the file again.", path=path.name)
        ) from error
