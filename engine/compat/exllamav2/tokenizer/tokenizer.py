"""`ExLlamaV2Tokenizer`: text to tensors of ids and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.compat.exllamav2.attributes import Declared, check_config, refuse
from engine.text.tokenizer.healing import TokenPrefixes

if TYPE_CHECKING:
    from engine.compat.exllamav2.config import ExLlamaV2Config
    from engine.compat.exllamav2.vision import ExLlamaV2MMEmbedding
    from engine.text.tokenizer.tokenizer import Tokenizer


class TokenizerModel:
    """A tokenizer as integrations of other libraries see it: ids, and a text for each that tells all bytes.

    Bytes that are no characters are written <0xHH> in `vocab` (text -> id) and `id_to_piece`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _texts(self) -> list[str]:
        known = self._tokenizer
        return [
            known.texts.get(id, "") if id in known.special_ids else _escaped(known.token_bytes(id))
            for id in range(known.vocab_size)
        ]

    @cached_property
    def vocab(self) -> dict[str, int]:
        """The id of each text; the lowest if there are several."""
        return {text: id for id, text in reversed([*enumerate(self._texts)])}

    def vocab_size(self) -> int:
        """The number of ids."""
        return self._tokenizer.vocab_size

    def id_to_piece(self, id: int) -> str:
        """The text of an id."""
        return self._texts[id]

    def piece_to_id(self, text: str) -> int | None:
        """The id of a text; None if it is not a single token."""
        return self.vocab.get(text)

    def encode(self, text: str) -> list[int]:
        """The ids of a text; control tokens in it are read as text."""
        return self._tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return self._tokenizer.decode(ids, skip_special=False)

    def eos_id(self) -> int | None:
        """The id of the end-of-sequence token."""
        return self._tokenizer.eos_token_id

    def bos_id(self) -> int | None:
        """The id of the beginning-of-sequence token."""
        return self._tokenizer.bos_token_id

    def unk_id(self) -> int | None:
        """The id of an unknown text; None if every text can be written."""
        return self.piece_to_id("<unk>")

    def pad_id(self) -> None:
        """None, as in ExLlamaV2: see `ExLlamaV2Tokenizer.pad_token_id`."""


def _escaped(data: bytes) -> str:
    """UTF-8 as text, with other bytes as <0xHH>."""
    text = data.decode("utf-8", "surrogateescape")
    return "".join(f"<0x{ord(c) - 0xDC00:02X}>" if "\udc80" <= c <= "\udcff" else c for c in text)


class TokenTrie:
    """The tokens whose text ends here (`leaf`), and what follows each further character (`children`)."""

    def __init__(self) -> None:
        self.children: dict[str, TokenTrie] = {}
        self.leaf: list[int] = []


class ExLlamaV2Tokenizer(Declared):
    """The tokenizer of a model.

    Ids are torch tensors (rows, n) int64; a list of texts is padded on the left with `pad_token_id`, which
    is `eos_token_id` (0 if there is none) until a script sets it. `extended_id_to_piece` are the texts of
    control tokens, `extended_piece_to_id` their ids.
    """

    missing = dict.fromkeys(
        ("unspecial_piece_to_id", "unspecial_id_to_piece", "id_to_ord",
         "get_id_to_ord_list", "special_delimiters", "unspecial_delimiters", "encode_unspecial",
         "decode_unspecial", "encode_special_or_unspecial", "tokenized_str_cache", "max_cached_strings",
         "prefix_to_ids", "prefix_id_to_ids", "char_trie", "char_trie_ci", "id_to_piece_with_special",
         "decode_", "Trie"),
        "the engine's tokenizer has no such parts; use encode, decode and the get_ methods",
    )  # fmt: skip
    config: ExLlamaV2Config
    engine_tokenizer: Tokenizer
    pad_token_id: int
    extended_id_to_piece: dict[int, str]
    extended_piece_to_id: dict[str, int]
    newline_token, space_token = "\n", " "

    def __init__(
        self,
        config: ExLlamaV2Config,
        lazy_init: bool = True,
        force_json: bool = False,
        force_spm: bool = False,
    ) -> None:
        """Open the tokenizer of `config.model_dir`. Raises what opening a model raises.

        `lazy_init` makes no difference: tables of the vocabulary are always made on first use. `force_json`
        and `force_spm` are refused: the engine chooses between a model's tokenizer files.
        """
        from engine.models.open_text import open_tokenizer
        from engine.text.template.source import folder_template, gguf_template, read_json
        from engine.weights.checkpoint import open_checkpoint

        check_config("ExLlamaV2Tokenizer", config)
        for name, forced in (("force_json", force_json), ("force_spm", force_spm)):
            refuse(name, forced, False, "the engine chooses between a model's tokenizer files")
        if config.model_dir is None:
            raise ValueError("model_dir must be set before the tokenizer is opened")
        checkpoint = open_checkpoint(Path(config.model_dir))
        try:
            self.engine_tokenizer = open_tokenizer(checkpoint)
            if checkpoint.format == "gguf":
                self._own_config, template = {}, gguf_template(checkpoint.metadata)
            else:
                self._own_config = read_json(checkpoint.path / "tokenizer_config.json")
                template = folder_template(checkpoint.path)
        finally:
            checkpoint.close()
        self._template = {} if template is None else {"chat_template": template}
        self.config = config
        self.pad_token_id = self.eos_token_id or 0
        special, texts = sorted(self.engine_tokenizer.special_ids), self.engine_tokenizer.texts
        self.extended_id_to_piece = {id: texts.get(id, "") for id in special}
        self.extended_piece_to_id = {text: id for id, text in self.extended_id_to_piece.items()}

    @cached_property
    def tokenizer_model(self) -> TokenizerModel:
        """The tokenizer as integrations of other libraries see it."""
        return TokenizerModel(self.engine_tokenizer)

    @property
    def tokenizer_config_dict(self) -> dict[str, Any]:
        """What tokenizer_config.json says, with the chat template and the texts of the end tokens, wherever
        the model's files have these.
        """
        ends = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        return ends | self._own_config | self._template

    @property
    def tokenizer(self) -> TokenizerModel:
        """The older name of `tokenizer_model`."""
        return self.tokenizer_model

    @property
    def unk_token_id(self) -> int | None:
        """The id of an unknown text; None if every text can be written."""
        return self.extended_piece_to_id.get("<unk>")

    @property
    def actual_vocab_size(self) -> int:
        """The number of ids."""
        return self.get_vocab_size()

    @property
    def eos_token_id(self) -> int | None:
        """The id of the end-of-sequence token."""
        return self.engine_tokenizer.eos_token_id

    @property
    def bos_token_id(self) -> int | None:
        """The id of the beginning-of-sequence token."""
        return self.engine_tokenizer.bos_token_id

    @property
    def newline_token_id(self) -> int | None:
        """The id of a line break; None if it is not a single token."""
        return self._only("\n")

    @property
    def space_token_id(self) -> int | None:
        """The id of a space; None if it is not a single token."""
        return self._only(" ")

    @property
    def eos_token(self) -> str:
        """The text of `eos_token_id`; empty without one, as those of the others."""
        return self._text_of(self.eos_token_id)

    @property
    def bos_token(self) -> str:
        """The text of `bos_token_id`."""
        return self._text_of(self.bos_token_id)

    @property
    def pad_token(self) -> str:
        """The text of `pad_token_id`."""
        return self._text_of(self.pad_token_id)

    @property
    def unk_token(self) -> str:
        """The text of `unk_token_id`."""
        return self._text_of(self.unk_token_id)

    def _text_of(self, id: int | None) -> str:
        return "" if id is None else self.engine_tokenizer.decode([id], skip_special=False)

    def encode(
        self,
        text: str | Sequence[str],
        add_bos: bool = False,
        add_eos: bool = False,
        encode_special_tokens: bool = False,
        return_offsets: bool = False,
        embeddings: Any = None,
    ) -> Any:
        """Ids (1, n) of a text, or (rows, n) of several.

        With `return_offsets`, also minus the padding of each row, (rows,) int32. The aliases of `embeddings`
        become the ids of their pictures. Raises `NotSupportedYet` for other embeddings.
        """
        import torch

        from engine.compat.exllamav2.vision import checked_embeddings

        shown = checked_embeddings(embeddings)
        texts = [text] if isinstance(text, str) else list(text)
        rows = [self._ids(part, add_bos, add_eos, encode_special_tokens, shown) for part in texts]
        longest = max(map(len, rows))
        ids = torch.tensor(
            [[self.pad_token_id] * (longest - len(row)) + row for row in rows], dtype=torch.int64
        )
        if return_offsets:
            return ids, torch.tensor([len(row) - longest for row in rows], dtype=torch.int32)
        return ids

    def _ids(
        self,
        text: str,
        add_bos: bool,
        add_eos: bool,
        special: bool,
        embeddings: Sequence[ExLlamaV2MMEmbedding] = (),
    ) -> list[int]:
        from engine.compat.exllamav2.vision import ids_with

        ids = ids_with(self.engine_tokenizer, text, embeddings, special)
        if add_bos and self.bos_token_id is not None:
            ids = [self.bos_token_id, *ids]
        return [*ids, self.eos_token_id] if add_eos and self.eos_token_id is not None else ids

    def encode_special(self, text: str) -> list[int]:
        """The ids of a text; control tokens in it are read as such."""
        return self.engine_tokenizer.encode(text, special=True)

    def cached_encode_str(self, text: str) -> Any:
        """`encode(text)`."""
        return self.encode(text)

    def padding_mask(self, ids: Any) -> Any:
        """(rows, n) bool, false for padding: the leading ids of a row that equal `pad_token_id`.

        A single row has no padding.
        """
        import torch

        if ids.shape[0] == 1:
            return torch.ones_like(ids, dtype=torch.bool)
        return (ids != self.pad_token_id).to(torch.int64).cumsum(dim=1) > 0

    def decode(self, ids: Any, decode_special_tokens: bool = False) -> Any:
        """The text of ids (n,) or of one id, or a list of texts for the rows of (rows, n) or for a list of
        tensors.
        """
        if isinstance(ids, int) or getattr(ids, "ndim", 1) == 0:
            ids = [int(ids)]
        if getattr(ids, "ndim", 1) > 1 or (
            not hasattr(ids, "tolist") and any(hasattr(row, "__len__") for row in ids)
        ):
            return [self.decode(row, decode_special_tokens) for row in ids]
        row = ids.tolist() if hasattr(ids, "tolist") else list(ids)
        return self.engine_tokenizer.decode(map(int, row), skip_special=not decode_special_tokens)

    def num_tokens(self, text: str) -> int:
        """The number of tokens of a text."""
        return len(self.engine_tokenizer.encode(text))

    def get_vocab_size(self) -> int:
        """The number of ids."""
        return self.engine_tokenizer.vocab_size

    @cached_property
    def id_to_piece(self) -> list[str]:
        """`get_id_to_piece_list()`."""
        return self.get_id_to_piece_list()

    @cached_property
    def piece_to_id(self) -> dict[str, int]:
        """`get_piece_to_id_dict()`."""
        return self.get_piece_to_id_dict()

    def get_id_to_piece_list(self, include_special_tokens: bool = False) -> list[str]:
        """The text of every id; empty for control tokens unless they are included."""
        if include_special_tokens:
            return list(self._pieces)
        return [
            "" if i in self.engine_tokenizer.special_ids else piece for i, piece in enumerate(self._pieces)
        ]

    def get_piece_to_id_dict(self) -> dict[str, int]:
        """The id of every text that is a single token; the lowest id if there are several."""
        return {piece: i for i, piece in reversed([*enumerate(self._pieces)])}

    def get_prefix_to_ids_dict(self) -> dict[str, list[int]]:
        """For the text of each token, the ids of the tokens that begin with it, ascending."""
        from bisect import bisect_left

        order = sorted((piece, i) for i, piece in enumerate(self.get_id_to_piece_list()) if piece)
        pieces = [piece for piece, _ in order]
        found: dict[str, list[int]] = {}
        for piece in pieces:
            if piece not in found:
                stop = start = bisect_left(pieces, piece)
                while stop < len(pieces) and pieces[stop].startswith(piece):
                    stop += 1
                found[piece] = sorted(i for _, i in order[start:stop])
        return found

    def get_prefix_id_to_ids_dict(self) -> dict[int, list[int]]:
        """For each id, the ids of the tokens that begin with its text, ascending."""
        ids = self.get_piece_to_id_dict()
        return {ids[piece]: found for piece, found in self.get_prefix_to_ids_dict().items()}

    def get_char_trie(self) -> TokenTrie:
        """The texts of all tokens but control tokens, character by character."""
        return self._trie(str)

    def get_char_trie_ci(self) -> TokenTrie:
        """`get_char_trie` of the texts in lower case."""
        return self._trie(str.lower)

    def _trie(self, form: Callable[[str], str]) -> TokenTrie:
        root = TokenTrie()
        for id, piece in enumerate(self.get_id_to_piece_list()):
            place = root
            for char in form(piece):
                place = place.children.setdefault(char, TokenTrie())
            if piece:
                place.leaf.append(id)
        return root

    @cached_property
    def _pieces(self) -> list[str]:
        return [
            self.engine_tokenizer.token_bytes(i).decode("utf-8", "replace")
            for i in range(self.engine_tokenizer.vocab_size)
        ]

    def _only(self, text: str) -> int | None:
        ids = TokenPrefixes(self.engine_tokenizer).exactly(text.encode())
        return ids[0] if ids else None

    def single_token(self, token_id: int) -> Any:
        """One id as a tensor (1, 1) int64."""
        import torch

        return torch.tensor([[token_id]], dtype=torch.int64)

    def single_id(self, token: str) -> int | None:
        """The id of the token with exactly this text; None if there is none."""
        return self.extended_piece_to_id.get(token, self.piece_to_id.get(token)) if token else None
