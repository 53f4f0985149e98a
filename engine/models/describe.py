"""Describes a text model by its headers, without loading it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from engine.backends.routing import MOST_GPU_EXPERTS
from engine.backends.states import MOST_KEY_DIM, LinearAttentionShape, States
from engine.core import ModelInfo, WorkSpace
from engine.models.architectures.drafters.names import is_assistant, is_dflash, is_drafter
from engine.models.base import read_bytes
from engine.models.building.source import Survey
from engine.models.config import ModelConfig
from engine.models.config.hyper import GatedStreams
from engine.models.drafting.mtp import head_bytes
from engine.models.headers.generation_defaults import sampler_defaults
from engine.models.layers.attention.cross import CrossingBlocks
from engine.models.load import read_config, survey
from engine.models.memory.fit import work_space
from engine.models.quantising import PlainCount
from engine.models.remarks import remarks
from engine.weights.checkpoint import Checkpoint
from engine.weights.facts import licence, pooling, quantisation_name
from engine.weights.gguf.ollama import pulled_name
from engine.words import N_

_AUTO_CACHE = "fp16"
"""The automatic cache type of the CPU backend."""


def describe_text_model(checkpoint: Checkpoint, *, for_gpus: bool = True) -> ModelInfo:
    """The facts of an open checkpoint, without those about pictures (`engine.vision.describe`), and not
    `for_gpus` without what it takes on a GPU, which needs another survey. Raises `BadCheckpoint` and
    `UnsupportedModel`.
    """
    from engine.backends.cpu.backend import CpuBackend  # imports Numba

    if is_drafter(checkpoint):
        return _describe_assistant(checkpoint)
    config = read_config(checkpoint)
    tensors = checkpoint.tensors.values()
    parameters = sum(int(np.prod(tensor.shape, dtype=np.int64)) for tensor in tensors)
    weights_bytes = sum(tensor.nbytes for tensor in tensors)
    stop_token_ids, has_chat_template, fallback = _text_facts(checkpoint)
    backend = CpuBackend()
    plain = PlainCount(checkpoint, backend)
    seen = survey(checkpoint, backend, plain)
    assert seen.parts is not None
    looking = seen.parts.looking
    gpu_bytes, gpu_work = _on_a_gpu(checkpoint, config) if for_gpus else (0, WorkSpace())
    head = head_bytes(checkpoint, backend)
    return ModelInfo(
        path=str(checkpoint.path),
        name=_name(checkpoint, config.name),
        architecture=config.architecture,
        format=checkpoint.format,
        parameters=parameters,
        bits_per_weight=8 * weights_bytes / max(parameters, 1),
        weights_bytes=weights_bytes,
        layers=config.layers,
        context_length=config.context_length,
        vocab_size=config.vocab_size,
        kv_bytes_per_token=config.kv_bytes_per_token(_AUTO_CACHE),
        stop_token_ids=stop_token_ids,
        has_chat_template=has_chat_template,
        kv_shapes=config.kv_shapes,
        keys_alone=sum(shape.latent > 0 for shape in config.cache_shapes),
        picture_shapes=looking.kv_shapes if isinstance(looking, CrossingBlocks) else (),
        quantisation=quantisation_name(checkpoint),
        licence=licence(checkpoint),
        pooling=pooling(checkpoint),
        embedding=config.headless or bool(pooling(checkpoint)),
        resident_bytes=seen.bytes,
        read_bytes=read_bytes(config, seen.bytes, seen.expert_bytes, seen.parts),
        defaults=sampler_defaults(checkpoint),
        cpu_only=cpu_only(config),
        state_bytes=States(config.state_shapes).state_bytes,
        advised_context=config.advised_context,
        plain=plain.found,
        work=work_space(config, backend, seen.parts),
        fallback_template=fallback,
        file_bytes=sum(file.stat().st_size for file in checkpoint.files),
        gpu_bytes=gpu_bytes,
        gpu_work=gpu_work,
        mtp=head > 0,
        mtp_bytes=head,
        remarks=remarks(checkpoint, config),
    )


def _on_a_gpu(checkpoint: Checkpoint, config: ModelConfig) -> tuple[int, WorkSpace]:
    """Bytes of the weights on a GPU, and the work space; nothing where there are no kernels."""
    from engine.backends.cuda.lowering.estimate import UsualGpu

    if cpu_only(config):
        return 0, WorkSpace()
    gpu = UsualGpu()
    seen = survey(checkpoint, gpu)
    assert seen.parts is not None
    return seen.bytes, work_space(config, gpu, seen.parts)


def _describe_assistant(checkpoint: Checkpoint) -> ModelInfo:
    """The facts of an assistant, whose layers have no cache of their own, or of another drafter."""
    from engine.backends.cpu.backend import CpuBackend
    from engine.backends.cuda.lowering.estimate import UsualGpu
    from engine.models.drafting.assistant import survey_assistant
    from engine.models.drafting.dflash import survey_dflash
    from engine.models.drafting.eagle3 import survey_eagle3

    backend = CpuBackend()
    plain = PlainCount(checkpoint, backend)
    bound = not is_assistant(checkpoint)
    survey: Callable[..., tuple[ModelConfig, Survey]] = survey_assistant
    if bound:
        survey = survey_dflash if is_dflash(checkpoint) else survey_eagle3
    config, seen = survey(checkpoint, backend, plain)
    weights_bytes = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
    return ModelInfo(
        path=str(checkpoint.path),
        name=_name(checkpoint, config.name),
        architecture=config.architecture,
        format=checkpoint.format,
        parameters=seen.parameters,
        bits_per_weight=8 * weights_bytes / max(seen.parameters, 1),
        weights_bytes=weights_bytes,
        layers=config.layers,
        context_length=config.context_length,
        vocab_size=config.vocab_size,
        kv_bytes_per_token=config.kv_bytes_per_token(_AUTO_CACHE) if bound else 0,
        kv_shapes=config.kv_shapes if bound else (),
        stop_token_ids=(),
        has_chat_template=False,
        quantisation=quantisation_name(checkpoint),
        licence=licence(checkpoint),
        resident_bytes=seen.bytes,
        read_bytes=seen.bytes,
        plain=plain.found,
        assistant=True,
        file_bytes=sum(file.stat().st_size for file in checkpoint.files),
        gpu_bytes=survey(checkpoint, UsualGpu())[1].bytes,
    )


def _name(checkpoint: Checkpoint, own: str) -> str:
    """The name to show: for GGUF the file's, since the name inside is often a build note; of one of Ollama's
    blobs, the one that it was pulled by.
    """
    if checkpoint.format == "gguf":
        if name := pulled_name(checkpoint.path):
            return name
        return re.sub(r"-\d{5}-of-\d{5}$", "", checkpoint.path.stem)
    return own or checkpoint.path.resolve().name


def _text_facts(checkpoint: Checkpoint) -> tuple[tuple[int, ...], bool, str]:
    """The ids that end a turn, whether there is a chat template, and the name of the fallback format."""
    from engine.text.template.fallback import fallback_format
    from engine.text.template.source import folder_template, gguf_template
    from engine.text.tokenizer.gguf import roles_from_gguf
    from engine.text.tokenizer.hf_folder import facts_from_folder

    special: Mapping[int, str]
    if checkpoint.format == "gguf":
        special, stop_ids = roles_from_gguf(checkpoint.metadata)
        template = gguf_template(checkpoint.metadata)
    else:
        facts = facts_from_folder(checkpoint.path)
        special, stop_ids = facts.special, facts.stop_ids
        template = folder_template(checkpoint.path)
    fallback = "" if template is not None else fallback_format(set(special.values()))
    return stop_ids, template is not None, fallback


def cpu_only(config: ModelConfig) -> str:
    """What the model has that there are no GPU kernels for, to be translated; "" if there is nothing."""
    found = {
        N_("bidirectional attention"): config.bidirectional,
        N_("recurrent layers with keys of more than 512 numbers"): any(
            isinstance(shape, LinearAttentionShape) and shape.key_dim > MOST_KEY_DIM
            for shape in config.state_shapes
        ),
        N_("embeddings of n-grams"): config.ngrams is not None
        or (isinstance(config.hyper, GatedStreams) and config.hyper.ngrams is not None),
        N_("mixtures of more than 512 experts"): config.experts is not None
        and config.experts.count > MOST_GPU_EXPERTS,
    }  # fmt: skip
    return next((name for name, there in found.items() if there), "")
