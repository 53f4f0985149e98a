"""The prompts that embedding models were trained to see before queries and before documents.

Sources: sentence-transformers, `prompts` of config_sentence_transformers.json; where the files have none,
what the authors' model cards ask for: EmbeddingGemma (task prompts of retrieval), Nomic Embed (prefixes for
tasks), E5, and BGE, mxbai and Arctic Embed in English.
"""

from __future__ import annotations

import re

from engine.errors import BadCheckpoint, ModelNotFound
from engine.weights.checkpoint import Checkpoint
from engine.weights.safetensors.json import read_json_object

__all__ = ["embedding_prompts"]

_QUERY = ("query", "search_query", "Retrieval-query", "retrieval.query", "web_search_query")
_DOCUMENT = ("document", "passage", "search_document", "Retrieval-document", "retrieval.passage", "corpus")
"""The names of the two kinds of prompts among those of a file, the most usual first."""
_GEMMA = ("task: search result | query: ", "title: none | text: ")
_NOMIC = ("search_query: ", "search_document: ")
_OF_ARCHITECTURES = {
    "gemma-embedding": _GEMMA, "Gemma3TextModel": _GEMMA, "nomic-bert": _NOMIC, "nomic-bert-moe": _NOMIC,
    "NomicBertModel": _NOMIC,
}  # fmt: skip
_FOR_SEARCH = "Represent this sentence for searching relevant passages: "
_OF_NAMES = (
    (r"\be5\b", ("query: ", "passage: ")),
    (r"\barctic\b.*\bv2", ("query: ", "")),
    (r"\bbge\b.*\ben\b|\bmxbai\b|\barctic\b", (_FOR_SEARCH, "")),
)


def embedding_prompts(checkpoint: Checkpoint, architecture: str, name: str) -> tuple[str, str]:
    """The prompt before a query and that before a document, "" for none.

    `architecture` and `name` are those of `ModelInfo`.
    """
    if checkpoint.format != "gguf" and (found := _of_folder(checkpoint)):
        return found
    if architecture in _OF_ARCHITECTURES:
        return _OF_ARCHITECTURES[architecture]
    words = re.sub(r"[\W_]+", " ", f"{name} {checkpoint.path.name}").lower()
    return next((prompts for pattern, prompts in _OF_NAMES if re.search(pattern, words)), ("", ""))


def _of_folder(checkpoint: Checkpoint) -> tuple[str, str] | None:
    """The prompts of the file of sentence-transformers; None if it has neither."""
    try:
        prompts = read_json_object(checkpoint.path / "config_sentence_transformers.json").get("prompts")
    except (ModelNotFound, BadCheckpoint):
        return None
    known = (
        {key: text for key, text in prompts.items() if isinstance(text, str)}
        if isinstance(prompts, dict)
        else {}
    )
    query, document = (
        next((known[key] for key in keys if known.get(key)), "") for keys in (_QUERY, _DOCUMENT)
    )
    return (query, document) if query or document else None
