"""Which matrices are quantised while a model is loaded, by its settings."""

from __future__ import annotations

from engine.backends.base import RawTensor
from engine.models.load import Prepare, find_architecture
from engine.settings import LoadSettings
from engine.weights.checkpoint import Checkpoint
from engine.weights.quantise import quantise

_ROUTERS = ("gate", "router", "ffn_gate_inp")
"""Last parts of the names of matrices that choose experts: small, and a wrong choice costs much."""


def preparation(checkpoint: Checkpoint, settings: LoadSettings) -> Prepare | None:
    """For `read_model`: quantises plain matrices as `settings` say, None when nothing is to be done.

    The head is the embedding table where the two are one.
    """
    body = settings.quantise
    head = body if settings.quantise_head == "same" else settings.quantise_head
    if (body, head) == ("none", "none"):
        return None
    names = find_architecture(checkpoint).names(checkpoint.format, checkpoint.tensors)
    head_name = names.head + ".weight"
    if head_name not in checkpoint.tensors:
        head_name = names.embed + ".weight"

    def prepare(matrix: RawTensor) -> RawTensor:
        kind = head if matrix.name == head_name else body
        if kind == "none" or matrix.name.removesuffix(".weight").rsplit(".", 1)[-1] in _ROUTERS:
            return matrix
        return quantise(matrix, kind)

    return prepare
