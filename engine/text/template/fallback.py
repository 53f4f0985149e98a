"""Fallback for models without a chat template: the format that the control tokens suggest, or plain text."""

from __future__ import annotations

from collections.abc import Container
from importlib import resources

_FORMATS = (
    ("chatml", ("<|im_start|>", "<|im_end|>")),
    ("llama3", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    ("gemma", ("<start_of_turn>", "<end_of_turn>")),
    ("command", ("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>")),
    ("granite", ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>")),
    ("deepseek", ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>")),
    ("phi", ("<|user|>", "<|assistant|>", "<|end|>")),
    ("glm4", ("[gMASK]", "<sop>", "<|user|>", "<|observation|>")),
    ("chatglm3", ("[gMASK]", "sop", "<|user|>", "<|observation|>")),
    ("chatglm2", ("[gMASK]", "sop")),
    ("roles", ("<|user|>", "<|assistant|>")),
    ("mistral", ("[INST]", "[/INST]", "</s>")),
)
_STOPS = {"plain": ("\nUser:",)}


def fallback_format(control: Container[str]) -> str:
    """The name of the format for a vocabulary with these control tokens; "plain" if none is known."""
    return next((name for name, tokens in _FORMATS if all(token in control for token in tokens)), "plain")


def fallback_source(name: str = "chatml") -> str:
    """The template of a format."""
    return resources.files("resources").joinpath("templates", f"{name}.jinja").read_text(encoding="utf-8")


def fallback_stops(name: str) -> tuple[str, ...]:
    """Strings that end a turn in a format without a token for that."""
    return _STOPS.get(name, ())
