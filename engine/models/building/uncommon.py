"""What few decoders are made of: recurrent layers, compressed and latent attention, and stacks that are not
one layer after the other.

`decoder` imports this for a model that has any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.models.building.attention import Attention, BesideAttention
from engine.models.building.source import WeightSource
from engine.models.config import ModelConfig
from engine.models.config.convolved import ConvolvedKeys
from engine.models.config.hyper import Loops
from engine.models.config.recurrent import Rwkv4, Rwkv6, Rwkv7
from engine.models.layers.attention.compressed import compressed_mixer
from engine.models.layers.attention.convolved_keys import with_convolutions
from engine.models.layers.attention.indexer import LastChoice
from engine.models.layers.attention.latent import LatentSource, latent_mixer
from engine.models.layers.cycles import cyclic_blocks, looped_blocks
from engine.models.layers.parts import Block, Mixer, Norm
from engine.models.layers.recurrent.mixers import recurrent_mixer
from engine.models.layers.recurrent.parts import RecurrentSource
from engine.models.layers.recurrent.rwkv4 import rwkv_4_mixing
from engine.models.layers.recurrent.rwkv6 import mixing_blocks, rwkv_6_mixing
from engine.models.layers.recurrent.rwkv7 import rwkv_blocks, time_mixing
from engine.models.layers.residual.altup import altup_blocks
from engine.models.layers.residual.hyper import hyper_blocks
from engine.models.layers.residual.per_layer import scaled_blocks
from engine.models.layers.whole import Stack
from engine.models.names import TensorNames


def stack(
    source: WeightSource,
    config: ModelConfig,
    names: TensorNames,
    blocks: Sequence[Block],
    norm: Callable[[str], Norm],
) -> Stack:
    """The layers of a decoder, whose stack is none of `Blocks`; `norm` makes a norm (E,) of this name."""
    if config.altup is not None:
        return altup_blocks(source, config, names, config.altup, blocks)
    if isinstance(config.cycles, Loops):
        return looped_blocks(config.cycles, blocks, norm(names.norm) if config.cycles.normed else None)
    if config.cycles is not None:
        return cyclic_blocks(source, config, names, config.cycles, blocks)
    if config.hyper is not None:
        return hyper_blocks(source, config, names, config.hyper, blocks)
    if isinstance(config.recurrent, Rwkv7):
        return rwkv_blocks(source, config, names, config.recurrent, blocks)
    if isinstance(config.recurrent, (Rwkv4, Rwkv6)):
        return mixing_blocks(source, config, names, config.recurrent, blocks)
    return scaled_blocks(source, config, names, blocks)


def mixer(
    source: WeightSource,
    config: ModelConfig,
    names: TensorNames,
    layer: int,
    at: str,
    last_choice: LastChoice,
    over_cache: Callable[[int, str], Attention],
) -> Mixer:
    """What mixes the tokens of a layer, whose names begin with `at`; `over_cache` makes usual attention."""
    if isinstance(config.recurrent, Rwkv7):
        return time_mixing(source, config, names, config.recurrent, layer)
    if isinstance(config.recurrent, Rwkv4):
        return rwkv_4_mixing(source, config, names, config.recurrent, layer)
    if isinstance(config.recurrent, Rwkv6):
        return rwkv_6_mixing(source, config, names, config.recurrent, layer)
    if isinstance(config.recurrent, ConvolvedKeys):
        return with_convolutions(source, config, names, layer, over_cache(layer, at))
    if layer in config.recurrent_layers:
        assert names.recurrent is not None
        recurrent = recurrent_mixer(
            RecurrentSource(source, at, names.recurrent), config, config.first_state_part(layer)
        )
        if not config.beside_attention:
            return recurrent
        scales = config.multipliers
        return BesideAttention(
            recurrent, over_cache(layer, at), (scales.mamba_input, scales.mamba_output),
            (scales.attention_input, scales.attention_output),
        )  # fmt: skip
    if config.compressed is not None:
        return compressed_mixer(source, config, config.compressed, names, at, layer, last_choice)
    latent = config.latent_of(layer)
    if latent is not None:
        return latent_mixer(LatentSource(source, at, names), config, latent, layer, last_choice)
    return over_cache(layer, at)
