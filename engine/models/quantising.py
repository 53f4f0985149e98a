"""Chooses which matrices are quantised while a model is loaded."""

from __future__ import annotations

from engine.backends.base import MemoryEstimator
from engine.models.architecture import Architecture
from engine.models.architectures.drafters.names import (
    dflash_names,
    is_assistant,
    is_dflash,
    is_eagle3,
    names_of,
)
from engine.models.load import Prepare, find_architecture
from engine.settings import LoadSettings
from engine.tensors import RawTensor
from engine.weights.checkpoint import Checkpoint
from engine.weights.transform.quantize import PLAIN, quantise

_ROUTERS = ("gate", "router", "ffn_gate_inp", "ffn_gate_inp_shexp", "shared_expert_gate")
"""Names of routers, which stay unquantised: they are small, and a wrong choice of expert costs much."""


def head_tensor(checkpoint: Checkpoint) -> str:
    """The name of the head's matrix; with tied embeddings that is the embedding table."""
    if is_dflash(checkpoint):
        names = dflash_names(checkpoint)[0]
    elif is_eagle3(checkpoint):
        names = names_of(checkpoint).decoder
    else:
        names = _architecture(checkpoint).names(checkpoint.format, checkpoint.tensors)
    head = names.head + ".weight"
    return head if head in checkpoint.tensors else names.embed + ".weight"


def _architecture(checkpoint: Checkpoint) -> Architecture:
    if is_assistant(checkpoint):
        from engine.models.architectures.drafters.gemma4_assistant import ASSISTANT

        return ASSISTANT
    return find_architecture(checkpoint)


class PlainCount:
    """A `Prepare` that changes nothing but counts what `preparation` could quantise."""

    def __init__(self, checkpoint: Checkpoint, backend: MemoryEstimator) -> None:
        self._head, self._backend = head_tensor(checkpoint), backend
        self._found = [0, 0, 0, 0]

    def __call__(self, matrix: RawTensor) -> RawTensor:
        if matrix.type in PLAIN and not _routes(matrix):
            at = 2 if matrix.name == self._head else 0
            self._found[at] += matrix.shape[0] * matrix.shape[1]
            self._found[at + 1] += self._backend.weight_spec(matrix).nbytes
        return matrix

    @property
    def found(self) -> tuple[int, int, int, int]:
        """As in `core.ModelInfo.plain`."""
        body, body_bytes, head, head_bytes = self._found
        return body, body_bytes, head, head_bytes


def _routes(matrix: RawTensor) -> bool:
    return matrix.name.removesuffix(".weight").rsplit(".", 1)[-1] in _ROUTERS


def preparation(checkpoint: Checkpoint, settings: LoadSettings) -> Prepare | None:
    """The `prepare` of `read_model` that quantises plain matrices by `settings`; None if there is none."""
    body = settings.quantise
    head = body if settings.quantise_head == "same" else settings.quantise_head
    if (body, head) == ("none", "none"):
        return None
    head_name = head_tensor(checkpoint)

    def prepare(matrix: RawTensor) -> RawTensor:
        kind = head if matrix.name == head_name else body
        if kind == "none" or _routes(matrix):
            return matrix
        return quantise(matrix, kind)

    return prepare
