"""Writes the starter model as a folder of bf16 safetensors, which vLLM serves (`tests/remote/README.md`):
`python -m tests.tools.starter_folder FOLDER`.

Its chat template has Qwen 3's switch for thinking, `enable_thinking`: switched off, a reply begins after an
empty thought. The model never learned to think: switched on, two examples in the prompt make it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoTokenizer

from tests.tiny import TINY, read_gguf_weights
from tests.tools.starter import starter_model

__all__ = ["TEMPLATE", "write_starter_folder"]

TEMPLATE = """\
{%- set thinks = enable_thinking is not defined or enable_thinking -%}
{%- set examples = [
    ("What is two plus two?", "One more than three.", "Four."),
    ("Where is Rome?", "It is a capital.", "In Italy."),
] -%}
{%- for question, thought, answer in examples if thinks -%}
    {{- '<|im_start|>user\\n' + question + '<|im_end|>\\n<|im_start|>assistant\\n' -}}
    {{- '<think>\\n' + thought + '\\n</think>\\n\\n' + answer + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content -}}
    {{- '' if loop.last and not add_generation_prompt else '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n<think>\\n' -}}
    {{- '' if thinks else '\\n</think>\\n\\n' -}}
{%- endif -%}
"""


def write_starter_folder(source: Path, folder: Path) -> None:
    """The weights of a GGUF file of the Llama family as bf16, with its configuration, its tokenizer and
    `TEMPLATE`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    config.update({"dtype": "bfloat16", "architectures": ["LlamaForCausalLM"]})
    config.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    shape = TINY.but(heads=config.num_attention_heads, kv_heads=config.num_key_value_heads)
    weights = {
        name: torch.from_numpy(values).to(torch.bfloat16)
        for name, values in read_gguf_weights(source, shape).items()
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    write_starter_folder(starter_model(), Path(sys.argv[1]))
