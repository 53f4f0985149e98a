"""Tiny models with a head for multi-token prediction, and what `transformers`' layers make of it.

A model of one layer more than it is to have is written; its last layer becomes the head's.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.engine.models.architectures import Case, transformers_model, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.gguf_form import write_gguf

Floats = npt.NDArray[np.float32]
Tensors = dict[str, Floats]


@dataclass(frozen=True)
class Kind:
    """A case, and how its folders name the head: apart, as Qwen's, or as a layer after the last."""

    case: Case
    apart: bool = False
    norm: str = "shared_head.norm"
    """The last norm in folders that have the head as a layer."""

    @property
    def layers(self) -> int:
        """The layers of the model without its head."""
        return int(self.case.settings["num_hidden_layers"]) - 1

    def outer_names(self) -> dict[str, str]:
        """The full names in folders of what `OUTER` names."""
        if self.apart:
            return {name: f"mtp.{own}.weight" for name, own in zip(OUTER, APART, strict=True)}
        last = {"shared_head.norm": self.norm}
        return {name: f"model.layers.{self.layers}.{last.get(name, name)}.weight" for name in OUTER}


KINDS = {
    "Qwen 3.5": Kind(BY_NAME["Qwen 3.5"], apart=True),
    "Qwen 3.5 mixture of experts": Kind(BY_NAME["Qwen 3.5 mixture of experts"], apart=True),
    "Qwen3-Next": Kind(BY_NAME["Qwen3-Next"], apart=True),
    "DeepSeek V3": Kind(BY_NAME["DeepSeek V3"]),
    "GLM-4.5 to 4.7": Kind(BY_NAME["GLM-4.5 to 4.7"]),
    "Hunyuan 3": Kind(BY_NAME["Hunyuan 3"], norm="final_layernorm"),
}
OUTER = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
APART = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")


def outer_tensors(kind: Kind, seed: int = 5) -> Tensors:
    """The head's tensors outside its layer, by the names of `OUTER`."""
    draw, width = np.random.default_rng(seed), int(kind.case.settings["hidden_size"])
    middle = 0.0 if kind.apart else 1.0  # Qwen's norms add 1 to their weights
    norms = {name: (middle + 0.2 * draw.standard_normal(width)).astype(np.float32) for name in OUTER}
    return norms | {"eh_proj": (0.12 * draw.standard_normal((width, 2 * width))).astype(np.float32)}


def write_folder(kind: Kind, folder: Path, outer: Tensors, change: Any = None) -> Path:
    """The model with its head as a folder. `change` may edit the tensors of the larger model first."""
    from safetensors.numpy import load_file, save_file

    write_checkpoint(kind.case, folder)
    tensors = load_file(folder / "model.safetensors")
    if change is not None:
        change(tensors)
    at = f"model.layers.{kind.layers}."
    for name in [name for name in tensors if kind.apart and name.startswith(at)]:
        tensors["mtp.layers.0." + name.removeprefix(at)] = tensors.pop(name)
    for name, full in kind.outer_names().items():
        tensors[full] = outer[name]
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()},
              folder / "model.safetensors")  # fmt: skip
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["num_hidden_layers"] = kind.layers
    config |= {"mtp_num_hidden_layers": 1} if kind.apart else {"num_nextn_predict_layers": 1}
    for name in ("layer_types", "mlp_layer_types"):
        if config.get(name):
            config[name] = config[name][: kind.layers]
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def write_file(kind: Kind, folder: Path, path: Path) -> Path:
    """The folder as GGUF, whose head is the layer after the last."""
    from safetensors.numpy import load_file

    form = kind.case.gguf
    assert form is not None
    tensors = load_file(folder / "model.safetensors")
    at, head = f"model.layers.{kind.layers}.", {}
    for name, full in kind.outer_names().items():
        values = tensors.pop(full)
        end = name.replace(".", "_")
        head[f"blk.{kind.layers}.nextn.{end}.weight"] = values + (kind.apart and name != "eh_proj")
    for name in [name for name in tensors if name.startswith("mtp.layers.0.")]:
        tensors[at + name.removeprefix("mtp.layers.0.")] = tensors.pop(name)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["num_hidden_layers"] = kind.layers + 1
    config |= {"layer_types": kind.case.settings.get("layer_types")} if "layer_types" in config else {}
    keys = form.keys

    def more(config: Any) -> Any:
        return {**keys(config), "nextn_predict_layers": 1}

    return write_gguf(path, replace(form, keys=more), config, tensors, head)


def expected_head(kind: Kind, outer: Tensors, ids: list[int]) -> tuple[Floats, Floats]:
    """Logits (T - 1, V) and hidden states (T - 1, E) of the head for each token but the first, by the
    formula of arXiv 2412.19437, section 2.2, in float32; the layers are those of `transformers`.
    """
    import torch

    main = transformers_model(kind.case)
    base = main.model
    last = base.layers[kind.layers]
    head = copy.deepcopy(base)
    base.layers, head.layers = base.layers[: kind.layers], torch.nn.ModuleList([copy.deepcopy(last)])
    for model, count in ((base, kind.layers), (head, 1)):
        model.config = copy.deepcopy(model.config)
        model.config.num_hidden_layers = count
        if getattr(model.config, "layer_types", None):
            types = model.config.layer_types
            model.config.layer_types = types[: kind.layers] if model is base else ["full_attention"]

    def normed(x: Any, name: str) -> Any:
        weight = torch.from_numpy(outer[name]) + (1 if kind.apart else 0)
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + base.config.rms_norm_eps) * weight

    with torch.inference_mode():
        tokens = torch.tensor([ids])
        states = base(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1]
        embedded = normed(base.embed_tokens(tokens[:, 1:]), "enorm")
        joined = torch.cat([embedded, normed(states, "hnorm")], -1) @ torch.from_numpy(outer["eh_proj"]).T
        head.norm = torch.nn.Identity()
        found = normed(head(inputs_embeds=joined, use_cache=False).last_hidden_state, "shared_head.norm")
        return main.lm_head(found)[0].numpy(), found[0].numpy()
