"""The names of the tensors of RWKV's layers."""

from __future__ import annotations

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RwkvNames:
    """The names of RWKV-7's tensors, after those of `TensorNames.layer`, besides those of its matrices for
    queries (there receptances), keys, values and outputs. Those of the first group are full names.
    """

    shares: tuple[str, ...]
    """The shares of the row before in receptance, decay, key, value, rate and gate: a tensor each, or one."""
    channel_share: str
    """The same for the feed-forward part."""
    removal: str
    mixing: str
    bonus: str
    decay: tuple[str, str]
    """The two matrices of decays, and the next those of rates, of shares of values and of the gate."""
    rate: tuple[str, str]
    value_share: tuple[str, str]
    gate: tuple[str, str]
    norm: str
    biases: tuple[str, str, str] = ("", "", "")
    """The full names of the biases of the first three, where they are not those of the second matrices."""
    dims: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """The shapes that the shares and `bonus` have in a file, by name without the layer."""


@dataclass(frozen=True, slots=True)
class ShiftNames:
    """The same of RWKV-4 and 6, besides `TensorNames.query` (there receptances), `key`, `value`, `output`,
    `up` and `down`. Those that are no matrices are full names.
    """

    shares: tuple[str, ...]
    """RWKV-6: the shares of the row before in what the others are made of; then in decay, key, value,
    receptance and gate, a tensor each, or one. RWKV-4: in key, value and receptance.
    """
    decay: tuple[str, ...]
    """What is added to decays, after the two matrices that make them (RWKV-6)."""
    bonus: str
    channel_shares: tuple[str, str]
    """The shares of the row before in the feed-forward part's input and in what its gate is made of."""
    channel_gate: str
    of_the_row: bool = False
    """Whether shares are those of the row itself."""
    mixture: tuple[str, str] = ("", "")
    """The matrices of what is added to the last."""
    gate: str = ""
    norm: str = ""
