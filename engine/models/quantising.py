"""Which matrices are quantised while a model is loaded, by its settings."""

from __future__ import annotations

from engine.backends.base import RawTensor
from engine.backends.estimates import MemoryEstimator
from engine.models.load import Prepare, find_architecture
from engine.settings import LoadSettings
from engine.weights.checkpoint import Checkpoint
from engine.weights.transform.quantize import PLAIN, quantise

_ROUTERS = ("gate", "router", "ffn_gate_inp")
"""Last parts of the names of matrices that choose experts: small, and a wrong choice costs much."""


def head_tensor(checkpoint: Checkpoint) -> str:
    """The name of the head's matrix: the embedding table's where the two are one."""
    names = find_architecture(checkpoint).names(checkpoint.format, checkpoint.tensors)
    head = names.head + ".weight"
    return head if head in checkpoint.tensors else names.embed + ".weight"


class PlainCount:
    """For `survey`, as its `prepare`: counts what `preparation` could quantise, changing nothing.

    `found` as `core.ModelInfo.plain` has it.
    """

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
        """See the class."""
        body, body_bytes, head, head_bytes = self._found
        return body, body_bytes, head, head_bytes


def _routes(matrix: RawTensor) -> bool:
    return matrix.name.removesuffix(".weight").rsplit(".", 1)[-1] in _ROUTERS


def preparation(checkpoint: Checkpoint, settings: LoadSettings) -> Prepare | None:
    """For `read_model`: quantises plain matrices as `settings` say, None when nothing is to be done.

    The head is the embedding table where the two are one.
    """
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
