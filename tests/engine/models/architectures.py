"""The oracle of all architectures: tiny random checkpoints that `transformers` creates, saves and runs, also
as GGUF.

A `Case` is one row of the table; the files in `cases/` hold them, and `cases/table.py` joins
them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.tiny import write_tokenizer

Floats = npt.NDArray[np.float32]
Config = dict[str, Any]
Tensors = dict[str, Floats]

ROPE = "rope_parameters"
ABSENT = object()
"""In `Case.older`: the key was not written."""


def unchanged(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The usual `Case.publish`."""
    return config, tensors


@dataclass(frozen=True)
class Case:
    """One tiny checkpoint: `architecture` is its row in the table, `quirks` what README says about it (""
    for a further variant).

    `model_type` and `settings` make the transformers config; `scale` multiplies the embedding and the head,
    for architectures that scale logits. `length` tokens are run. `gguf` says how llama.cpp's converter would
    write it, None where that has no such architecture. `older` are config.json's keys as transformers 4 wrote
    them, where it is more than the rotary settings. `publish` turns what transformers saves into what the
    makers' own folder looks like (names, config.json).
    `attention` is transformers' implementation of it. `gpu`: whether there are GPU kernels for it.
    `tolerance`: the largest difference from transformers, as a share of the largest logit.
    """

    architecture: str
    quirks: str
    model_type: str
    settings: Mapping[str, Any]
    gguf: GgufForm | None = None
    variant: str = ""
    length: int = 60
    scale: float = 1.0
    older: Mapping[str, Any] = field(default_factory=dict)
    publish: Callable[[Config, Tensors], tuple[Config, Tensors]] = unchanged
    tolerance: float = 1e-4
    attention: str = "eager"
    gpu: bool = True

    @property
    def name(self) -> str:
        """The name in test ids."""
        return f"{self.architecture}, {self.variant}" if self.variant else self.architecture


SMALL: Mapping[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 307, "max_position_embeddings": 512, "bos_token_id": 0,
    "eos_token_id": 2, "pad_token_id": None,
}  # fmt: skip
"""Settings of most cases."""


def ids(length: int) -> list[int]:
    """Random tokens."""
    return [int(i) for i in np.random.default_rng(11).integers(3, 307, length)]


def transformers_config(case: Case) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(case.model_type, **case.settings)


def transformers_model(case: Case) -> Any:
    """A model with random weights, including norms, biases and sinks."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    torch.manual_seed(1)
    config = transformers_config(case)
    known = type(config) in AutoModelForCausalLM._model_mapping
    kind = AutoModelForCausalLM if known else AutoModelForImageTextToText  # which has Mistral 4
    model = kind.from_config(config, attn_implementation=case.attention, dtype=torch.float32)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            random = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(_spread(case, name, parameter, random))
        saved = model.state_dict().keys()  # others are computed, as GPT-1's mask, its "bias"
        for name, buffer in [each for each in model.named_buffers() if each[0] in saved]:
            if name.endswith("layer_scalar"):
                buffer.copy_(1 + 0.2 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith("tid2eid"):  # distinct experts of each token
                shares = torch.rand(buffer.shape[0], config.n_routed_experts, generator=generator)
                buffer.copy_(shares.argsort(1)[:, : buffer.shape[1]])
            elif name.endswith(("bias", "biases")) and buffer.is_floating_point():  # of the choice of experts
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
    return model.eval()


def _spread(case: Case, name: str, parameter: Any, random: Any) -> Any:
    if "sinks" in name:
        return random
    if name.endswith("bias"):
        return 0.3 * random
    plain = name.replace("norm_attn_norm", "")  # a module of DBRX with more than norms
    if "norm" in plain or parameter.ndim == 1:  # architectures that add 1 to a norm's weight begin with zeros
        return (0 if bool((parameter == 0).all()) else 1) + 0.2 * random
    width = parameter.shape[1] if parameter.ndim == 2 else min(parameter.shape[1:])
    if "_adapter_list." in name:  # what they add to a matrix is small
        return 0.5 * width**-0.5 * random
    if "embed" in name or "head" in name or "wte" in name or "wpe" in name:
        return 2.0 * case.scale * width**-0.5 * random
    return 1.5 * width**-0.5 * random


def expected_logits(case: Case) -> Floats:
    """Logits (length, V) by transformers in float32 with eager attention."""
    import torch

    with torch.inference_mode():
        out: Floats = (
            transformers_model(case)(torch.tensor([ids(case.length)]), use_cache=False).logits[0].numpy()
        )
    return out


@functools.cache
def cached_logits(case_name: str) -> Floats:
    """`expected_logits` of a case by name, computed once for all tests."""
    from tests.engine.models.cases.table import BY_NAME

    return expected_logits(BY_NAME[case_name])


def case_folders(tmp_path_factory: Any) -> Callable[[Case], Path]:
    """Returns a function that gives the folder of a case, written on first use."""
    made: dict[str, Path] = {}

    def get(case: Case) -> Path:
        if case.name not in made:
            made[case.name] = write_checkpoint(case, tmp_path_factory.mktemp("case") / "model")
        return made[case.name]

    return get


def write_checkpoint(case: Case, folder: Path) -> Path:
    """Write the case as a folder with a tokenizer. Returns `folder`."""
    from safetensors.numpy import load_file, save_file
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would leave a thread behind
    transformers_model(case).save_pretrained(folder)
    config: Config = json.loads((folder / "config.json").read_text("utf-8"))
    tensors = load_file(folder / "model.safetensors")
    published, renamed = case.publish(config, tensors)
    if renamed is not tensors:
        save_file(renamed, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(published), "utf-8")
    write_tokenizer(folder)
    return folder


def older_config(case: Case, config: Config) -> Config:
    """The same config.json as transformers 4 wrote it: other names for rope settings, no default values."""
    import transformers

    usual = type(transformers_config(case))().to_dict() if case.publish is unchanged else {}
    kept = {
        key: value
        for key, value in config.items()
        if key == "architectures" or key not in usual or usual[key] != value
    }
    kept["model_type"] = config["model_type"]
    kept["torch_dtype"], kept["transformers_version"] = kept.pop("dtype", "float32"), "4.40.0"
    rope = kept.pop(ROPE, None)
    if isinstance(rope, dict) and "rope_theta" in rope:
        rope = dict(rope)
        kept["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            kept["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        usual = rope == {"rope_type": "default"}
        kept["rope_scaling"] = None if usual else rope | {"type": rope["rope_type"]}
        if kept["rope_scaling"]:
            del kept["rope_scaling"]["rope_type"]
    assert transformers.__version__ >= "5"
    return {key: value for key, value in (kept | dict(case.older)).items() if value is not ABSENT}


def write_case_gguf(case: Case, folder: Path, path: Path) -> Path:
    """Convert the folder to GGUF in F32 as llama.cpp's converter does. Returns `path`."""
    from safetensors.numpy import load_file

    assert case.gguf is not None
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return write_gguf(path, case.gguf, config, load_file(folder / "model.safetensors"))
