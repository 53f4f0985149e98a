"""Whether one model can draft for another: their vocabularies must be the same, id for id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path

from engine.errors import EngineError
from engine.lazy_dataclass import dataclass
from engine.text.tokenizer.tokenizer import Tokenizer, token_texts
from engine.text.tokenizer.vocabulary import TokenizerFacts
from engine.words import N_, _, translate

MOST_EXTRA = 128
"""How many ids one vocabulary may have beyond the other's: models are padded to round sizes."""

_PLACEHOLDER = re.compile(
    r"\U0010fffd.*|[<\[]\|?\w*(?:pad|unused|reserved|extra|dummy|placeholder|special)\w*\|?[>\]]",
    re.IGNORECASE | re.DOTALL,
)
"""Texts of ids that no text encodes to."""
_NEWLINE = {"Ċ": "byte-level BPE", "<0x0A>": "SentencePiece"}
"""The token of a line break identifies the kind of vocabulary."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The compared parts of a tokenizer: {id: text as stored}, and the ids that end a turn."""

    texts: Mapping[int, str]
    stop_ids: tuple[int, ...]

    @property
    def kind(self) -> str:
        """The display name of the kind; empty if unknown."""
        texts = set(self.texts.values())
        return next((kind for text, kind in _NEWLINE.items() if text in texts), "")


def draft_problem(target: Tokenizer, draft: Tokenizer) -> str:
    """Why a model with the tokenizer `draft` cannot draft for one with `target`; empty if it can."""
    return _problem(_of_tokenizer(target), _of_tokenizer(draft))


def draft_problem_between(target_path: str | Path, draft_path: str | Path) -> str:
    """`draft_problem` for two model files or folders, without reading their weights; for an assistant or an
    EAGLE-3 drafter, the problem that `engine.models.drafting` finds.

    Results are cached while the files' sizes and modification times stay the same. If a model cannot be read,
    its error is the problem. Can be called from any thread.
    """
    return _problem_between(_stamps(target_path), _stamps(draft_path))


def _of_tokenizer(tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer.texts, tokenizer.stop_token_ids)


def _problem(target: Vocabulary, draft: Vocabulary) -> str:
    if target.kind != draft.kind:
        return _(
            "The draft model has a different kind of tokens ({kind}) from the model "
            "({kind_2}); choose a smaller model of the same family.",
            kind=draft.kind or "unknown",
            kind_2=target.kind or "unknown",
        )
    theirs = draft.texts
    different = next(
        (
            i
            for i, text in target.texts.items()
            if i in theirs and text != theirs[i] and not _alike(text, theirs[i])
        ),
        None,
    )
    if different is not None:
        return _(
            "Token {different} is {shown} in the model but {shown_2} in the draft model.",
            different=different,
            shown=_shown(target.texts[different]),
            shown_2=_shown(theirs[different]),
        )
    return _extra(target, draft, _MODEL_HAS) or _extra(draft, target, _DRAFT_HAS) or _ends(target, draft)


def _alike(one: str, other: str) -> bool:
    """Whether two texts of one id differ only in how spaces are stored, or one of them is a placeholder."""
    return one.replace("▁", " ") == other.replace("▁", " ") or any(
        _PLACEHOLDER.fullmatch(text) for text in (one, other)
    )


def _shown(text: str) -> str:
    """A stored text for display, with real spaces and line breaks."""
    return repr(text.replace("▁", " ").replace("Ġ", " ").replace("Ċ", "\n"))


_MODEL_HAS = N_("The model has {extra} tokens that the draft model lacks, such as {shown} (token {extra_2}).")
_DRAFT_HAS = N_("The draft model has {extra} tokens that the model lacks, such as {shown} (token {extra_2}).")


def _extra(one: Vocabulary, other: Vocabulary, words: str) -> str:
    """The problem if too many tokens exist only in `one`; else empty."""
    extra = [i for i, text in one.texts.items() if i not in other.texts and not _PLACEHOLDER.fullmatch(text)]
    if len(extra) <= MOST_EXTRA:
        return ""
    return translate(words, extra=len(extra), shown=_shown(one.texts[extra[0]]), extra_2=extra[0])


def _ends(target: Vocabulary, draft: Vocabulary) -> str:
    if not target.stop_ids or not draft.stop_ids or set(target.stop_ids) & set(draft.stop_ids):
        return ""
    ours, theirs = target.stop_ids[0], draft.stop_ids[0]
    return _(
        "The model ends a turn with {shown} (token {ours}), but the draft model with {shown_2} "
        "(token {theirs}).",
        shown=_shown(target.texts.get(ours, "")),
        ours=ours,
        shown_2=_shown(draft.texts.get(theirs, "")),
        theirs=theirs,
    )


Stamp = tuple[str, int, int]
"""Path, size and modification time of a file."""


def _stamps(path: str | Path) -> tuple[Path, tuple[Stamp, ...]]:
    """A model's path and the state of the files that its vocabulary may be read from."""
    path = Path(path).expanduser()
    if not path.is_dir() and path.suffix.lower() == ".safetensors":
        path = path.parent
    try:
        files = (
            sorted(f for f in path.iterdir() if f.suffix in (".json", ".gguf", ".jinja"))
            if path.is_dir()
            else [path]
        )
        found = [(str(file), file.stat()) for file in files]
    except OSError:
        return path, ()  # opening it reports the error
    return path, tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)


@lru_cache(maxsize=256)
def _problem_between(target: tuple[Path, tuple[Stamp, ...]], draft: tuple[Path, tuple[Stamp, ...]]) -> str:
    try:
        found = _bound_problem(target[0], draft[0])
        return _problem(_read(target), _read(draft)) if found is None else found
    except EngineError as error:
        return str(error)


def _bound_problem(target: Path, draft: Path) -> str | None:
    """Why an assistant or another drafter cannot draft for a model; None if the second path is neither."""
    from engine.models.architectures.drafters.gemma4_assistant import read_assistant_config
    from engine.models.architectures.drafters.names import is_assistant, is_dflash, is_drafter
    from engine.models.building.decoder import is_layered
    from engine.models.drafting.assistant import assistant_problem
    from engine.models.drafting.dflash import dflash_problem
    from engine.models.drafting.eagle3 import eagle3_problem
    from engine.models.load import find_architecture, read_config
    from engine.weights.checkpoint import open_checkpoint

    with closing(open_checkpoint(draft)) as own:
        if not is_drafter(own):
            return None
        with closing(open_checkpoint(target)) as main:
            config = read_config(main)
            if is_assistant(own):
                return assistant_problem(read_assistant_config(own), config)
            layered = find_architecture(main).layers is None and is_layered(config)
            return (dflash_problem if is_dflash(own) else eagle3_problem)(own, config, layered)


@lru_cache(maxsize=2)  # the target of a list of drafts is read once; vocabularies are large
def _read(source: tuple[Path, tuple[Stamp, ...]]) -> Vocabulary:
    from engine.text.tokenizer.gguf import facts_from_gguf
    from engine.text.tokenizer.hf_folder import facts_from_folder
    from engine.weights.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(source[0])
    try:
        gguf = checkpoint.format == "gguf"
        facts: TokenizerFacts = (
            facts_from_gguf(checkpoint.metadata) if gguf else facts_from_folder(checkpoint.path)
        )
    finally:
        checkpoint.close()
    return Vocabulary(token_texts(facts), facts.stop_ids)
