"""Folders whose config.json names no class: `model_type` says it, as in transformers' auto classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine.errors import BadCheckpoint
from engine.models.architectures import ARCHITECTURES
from engine.models.architectures.with_pictures import WITH_PICTURES
from engine.models.class_names import with_class
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ids, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits


def found(kind: str) -> str:
    return str(with_class({"model_type": kind}).get("architectures"))


def test_types_as_transformers_has_them() -> None:
    from transformers.models.auto import modeling_auto as auto

    homes = {name: index for index, each in enumerate(ARCHITECTURES) for name in each.hf}
    homes |= dict.fromkeys(WITH_PICTURES, -1)
    checked = 0
    for table in (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        for kind, names in table.items():
            name = names if isinstance(names, str) else names[0]
            own = kind in ("exaone", "internlm3", "sarvam_moe")  # the makers' class
            if name not in homes or own:
                continue
            [ours] = with_class({"model_type": kind})["architectures"]
            alone = ours.replace("ForConditionalGeneration", "ForCausalLM")  # of the whole with pictures
            assert homes[name] in (homes[ours], homes.get(alone)), f"{kind} is {name}, not {ours}"
            checked += 1
    assert checked > 140


def test_names_that_could_be_others() -> None:
    assert found("mpt") == "['MptForCausalLM']"
    assert found("gemma3_text") == "['Gemma3ForCausalLM']"
    assert found("gemma3") == "['Gemma3ForConditionalGeneration']"
    assert with_class({"model_type": "llama", "architectures": ["X"]})["architectures"] == ["X"]
    for unknown in ("LlamaForCausalLM", "no such type", "", 5):  # names of classes are no types
        assert with_class({"model_type": unknown}) == {"model_type": unknown}


@pytest.mark.parametrize("named", [None, [], "absent"])
def test_folder_without_a_class(named: object, tmp_path: Path) -> None:
    case = BY_NAME["Cohere 2"]  # whose reader asks for the class
    folder = write_checkpoint(case, tmp_path / "m")
    expected = logits(load(folder), ids(20))
    config = json.loads((folder / "config.json").read_text("utf-8")) | {"architectures": named}
    config = config if named != "absent" else {key: config[key] for key in config if key != "architectures"}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    assert np.array_equal(logits(load(folder), ids(20)), expected)
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "unheard-of"}), "utf-8")
    with pytest.raises(BadCheckpoint, match="a list with the model's class name"):
        read_config(open_checkpoint(folder))
