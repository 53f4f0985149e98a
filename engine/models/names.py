"""What tensors are called: the slots of a decoder, and the names that most GGUF files and most Hugging
Face folders use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TensorNames:
    """A file's names, without ".weight" and ".bias"; those of a layer come after `layer` with its number; ""
    is never there.

    A fused tensor (`query_key_value`, `gate_up`, `expert_gate_up`) is used when the file has it. `grouped`:
    its rows go by key/value head: the queries of a group, its key, its value (InternLM 2). `transposed`:
    matrices are (K, N), but for the embedding and the head. An expert's name holds "{}" for its number where
    every expert has tensors of its own; otherwise the experts are stacked. Stacks end in `stack_ends`, of
    weights and of biases, instead of ".weight" and ".bias"; `stacks_transposed`: they are (X, K, N);
    `stacks_alternate`: rows of a fused stack are gate, up, gate, up; otherwise all of the gate come first.
    `sinks` is a full name.
    """

    embed: str
    norm: str
    head: str
    layer: str
    attention_norm: str
    query: str
    key: str
    value: str
    output: str
    mlp_norm: str
    gate: str
    up: str
    down: str
    query_key_value: str = ""
    gate_up: str = ""
    query_norm: str = ""
    key_norm: str = ""
    attention_post: str = ""
    mlp_post: str = ""
    positions: str = ""
    sinks: str = ""
    router: str = ""
    expert_gate: str = ""
    expert_up: str = ""
    expert_down: str = ""
    expert_gate_up: str = ""
    stack_ends: tuple[str, str] = (".weight", ".bias")
    stacks_transposed: bool = False
    stacks_alternate: bool = False
    grouped: bool = False
    transposed: bool = False

    def under(self, prefix: str) -> TensorNames:
        """The same names after `prefix`; with "-" before it, instead of their first part and not for the
        head.

        So "-" is what a model saved without its head has.
        """
        if not prefix:
            return self
        if prefix[0] == "-":
            first = self.embed.partition(".")[0] + "."
            names = ("embed", "norm", "layer", "positions")
            return replace(
                self, **{name: prefix[1:] + getattr(self, name).removeprefix(first) for name in names}
            )
        return replace(
            self,
            **{
                name: prefix + getattr(self, name) for name in ("embed", "norm", "head", "layer", "positions")
            },
        )


GGUF = TensorNames(
    embed="token_embd", norm="output_norm", head="output", layer="blk.{}.", attention_norm="attn_norm",
    query="attn_q", key="attn_k", value="attn_v", output="attn_output", mlp_norm="ffn_norm", gate="ffn_gate",
    up="ffn_up", down="ffn_down", query_key_value="attn_qkv", query_norm="attn_q_norm",
    key_norm="attn_k_norm", attention_post="post_attention_norm", mlp_post="post_ffw_norm",
    positions="position_embd", sinks="attn_sinks.weight", router="ffn_gate_inp", expert_gate="ffn_gate_exps",
    expert_up="ffn_up_exps", expert_down="ffn_down_exps",
)  # fmt: skip
"""Of nearly all GGUF files. Source: llama.cpp's table of tensor names."""

HF = TensorNames(
    embed="model.embed_tokens", norm="model.norm", head="lm_head", layer="model.layers.{}.",
    attention_norm="input_layernorm", query="self_attn.q_proj", key="self_attn.k_proj",
    value="self_attn.v_proj", output="self_attn.o_proj", mlp_norm="post_attention_layernorm",
    gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj", query_norm="self_attn.q_norm",
    key_norm="self_attn.k_norm",
)  # fmt: skip
"""Of the folders of Llama and the many architectures that took its names."""
