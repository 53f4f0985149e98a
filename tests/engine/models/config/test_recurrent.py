"""What recurrent layers of each kind keep of a sequence, and sizes that do not fit together."""

from __future__ import annotations

from typing import Any

import pytest

from engine.backends.states import ConvolutionShape, LinearAttentionShape, MeanShape
from engine.errors import BadCheckpoint
from engine.models.config.convolved import ConvolvedHeads, GatedValues
from engine.models.config.recurrent import (
    DeltaNet,
    GatedUnit,
    HeadedScan,
    Lightning,
    Mamba,
    MatrixLstm,
    Multipliers,
    Rwkv4,
    Rwkv6,
    Rwkv7,
    SelectiveScan,
    SeparateDelta,
    ShortConvolution,
    state_parts,
)

WIDTH = 48
MIXED = ConvolutionShape(WIDTH, 2)
"""The row before, with which one is mixed."""


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (None, ()), (ShortConvolution(3), (ConvolutionShape(WIDTH, 3),)),
        (DeltaNet(2, 4, 8, 16, 5, tiled=True),
         (ConvolutionShape(96, 5), LinearAttentionShape(2, 4, 8, 16, True, True))),
        (Mamba(6, 8, 2, 16, 4), (ConvolutionShape(112, 4), LinearAttentionShape(2, 6, 16, 8, False))),
        (SeparateDelta(2, 4, 8, 16, 5, 1e-6, "silu", decays="key", bound=1.5),
         (ConvolutionShape(16, 5), ConvolutionShape(16, 5), ConvolutionShape(64, 5),
          LinearAttentionShape(2, 4, 8, 16, True, decays="key", bound=1.5))),
        (SelectiveScan(96, 16, 4, 3),
         (ConvolutionShape(96, 4), LinearAttentionShape(1, 1, 16, 96, False, decays="value"))),
        (SelectiveScan(96, 16, 4, 3, heads=4),
         (ConvolutionShape(96, 4), LinearAttentionShape(1, 4, 16, 24, False))),
        (HeadedScan(3, 32, 16, 4, 5),
         (ConvolutionShape(96, 4), LinearAttentionShape(3, 3, 16, 32, False, decays="value"))),
        (GatedUnit(64, 2, 4),
         (ConvolutionShape(64, 4), LinearAttentionShape(1, 1, 1, 64, False, decays="value", unit=True))),
        (GatedValues(4, 2, 8, 3), (ConvolutionShape(16, 3),) * 2),
        (MatrixLstm(4, 8, 16, 1e-6, 15.0),
         (LinearAttentionShape(4, 4, 8, 16, False), LinearAttentionShape(4, 4, 8, 1, False))),
        (Lightning(4, 8, 1e-6), (LinearAttentionShape(4, 4, 8, 8, False),)),
        (Rwkv7(3, 8, 16, (4, 4, 4, 4), 1e-5),
         (LinearAttentionShape(3, 3, 8, 16, True, decays="key"), *(MIXED,) * 7)),
        (Rwkv7(3, 8, 16, (4, 4, 4, 0), 1e-5, mixes_channels=False),
         (LinearAttentionShape(3, 3, 8, 16, True, decays="key"), *(MIXED,) * 5)),
        (Rwkv4(32), (MeanShape(32), *(MIXED,) * 5)),
        (Rwkv6(4, 2, 8, 3, 5, 1e-5),
         (LinearAttentionShape(2, 4, 8, 8, False, decays="key"), *(MIXED,) * 4)),
        (Rwkv6(4, 2, 8, 3, 5, 1e-5, gated=True),
         (LinearAttentionShape(2, 4, 8, 8, False, decays="key"), *(MIXED,) * 2)),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_a_layer_keeps(kind: Any, parts: tuple[Any, ...]) -> None:
    assert state_parts(kind, WIDTH) == parts


@pytest.mark.parametrize(
    ("kind", "sizes", "words"),
    [
        (DeltaNet, (3, 4, 8, 16, 5), "has 4 value heads and 3 key heads"),
        (SeparateDelta, (3, 4, 8, 16, 5, 1e-6, "silu"), "has 4 value heads and 3 key heads"),
        (Mamba, (6, 8, 4, 16, 4), "have 6 heads and 4 groups"),
        (Rwkv6, (4, 3, 8, 3, 5, 1e-5), "has 4 heads and 3 key/value heads"),
    ],
)
def test_heads_that_cannot_share(kind: Any, sizes: tuple[Any, ...], words: str) -> None:
    with pytest.raises(BadCheckpoint, match=words):
        kind(*sizes)


def test_nothing_is_multiplied_unless_it_is_said() -> None:
    usual = Multipliers()
    assert usual == Multipliers(1.0, 1.0, 1.0, 1.0, 1.0, (1.0,) * 5, 1.0, 1.0)
    assert state_parts(CONVOLVED, WIDTH) == CONVOLVED.parts


CONVOLVED = ConvolvedHeads(heads=4, groups=2, dim=8, taps=(3, 2))


def test_convolutions_of_heads() -> None:
    assert (CONVOLVED.queries, CONVOLVED.channels) == (32, 48)
    assert CONVOLVED.parts == (ConvolutionShape(48, 4), ConvolutionShape(48, 3), ConvolutionShape(8, 2))
    short = ConvolvedHeads(heads=4, groups=2, dim=8, taps=(1, 2))
    assert short.parts == (ConvolutionShape(48, 2), ConvolutionShape(48, 2), ConvolutionShape(8, 2))
