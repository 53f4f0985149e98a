"""Lists of ranks: the control tokens that only the code of their models names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.text.tokenizer.tokenizer import Tokenizer

LLAMA = {"begin_of_text": 0, "start_header_id": 6, "eom_id": 8, "eot_id": 9, "python_tag": 10}
QWEN = {"endoftext": 0, "im_start": 1, "im_end": 2, "extra_0": 3, "extra_204": 207}


@pytest.mark.parametrize(("kind", "places"), [("llama", LLAMA), ("qwen", QWEN)])
def test_control_tokens_follow_the_ranks(tmp_path: Path, kind: str, places: dict[str, int]) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"YQ== 0\nYg== 1\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    tokenizer = Tokenizer.from_folder(tmp_path)
    text = "".join(f"<|{name}|>" for name in places)
    assert tokenizer.encode(text, special=True) == [2 + place for place in places.values()]
    assert tokenizer.vocab_size == 2 + {"llama": 256, "qwen": 208}[kind]
