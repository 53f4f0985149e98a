"""The vocabulary as integrations of other libraries see it, and by the beginnings of its texts."""

from __future__ import annotations

import pytest

from engine.compat.exllamav2 import ExLlamaV2Config, ExLlamaV2Tokenizer
from engine.compat.exllamav2.tokenizer.tokenizer import TokenizerModel


class NoCharacters:
    """A tokenizer of these bytes, of which the last token is a control token."""

    pieces = (b"a", b"\xff", "é".encode(), b"\xc3", b"a", b"x\x80y", b"")
    vocab_size, special_ids, texts = len(pieces), frozenset({6}), {6: "<end>"}

    def token_bytes(self, id):
        return self.pieces[id]


def test_every_id_has_a_text_that_tells_its_bytes():
    seen = TokenizerModel(NoCharacters())  # type: ignore[arg-type]
    texts = ["a", "<0xFF>", "é", "<0xC3>", "a", "x<0x80>y", "<end>"]
    assert [seen.id_to_piece(id) for id in range(seen.vocab_size())] == texts
    assert seen.vocab == {text: texts.index(text) for text in texts}
    assert (seen.piece_to_id("é"), seen.piece_to_id("b"), seen.unk_id()) == (2, None, None)


def test_integrations_see_the_tokenizer(tokenizer):
    seen, own = tokenizer.tokenizer, tokenizer.engine_tokenizer
    assert seen is tokenizer.tokenizer_model
    assert seen.vocab_size() == own.vocab_size == tokenizer.actual_vocab_size
    ids = seen.encode("Hello <|im_end|> é")
    assert ids == own.encode("Hello <|im_end|> é") != own.encode("Hello <|im_end|> é", special=True)
    assert seen.decode([*ids, own.eos_token_id]) == "Hello <|im_end|> é" + tokenizer.eos_token
    assert (seen.eos_id(), seen.bos_id(), seen.pad_id()) == (own.eos_token_id, own.bos_token_id, None)


def test_tokens_by_the_beginning_of_their_texts(tokenizer):
    pieces = tokenizer.get_id_to_piece_list()
    found = tokenizer.get_prefix_to_ids_dict()
    assert set(found) == {piece for piece in pieces if piece}
    for piece in [*found][::7]:
        assert found[piece] == [id for id, text in enumerate(pieces) if text.startswith(piece)]
    by_id = tokenizer.get_prefix_id_to_ids_dict()
    assert by_id == {pieces.index(piece): ids for piece, ids in found.items()}


def test_a_configuration_without_files(tiny_file):
    config = ExLlamaV2Config()
    for use in (config.prepare, lambda: ExLlamaV2Tokenizer(config)):
        with pytest.raises(ValueError, match="model_dir must be set before"):
            use()
