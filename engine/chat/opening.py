"""Opens chats: from a model's path to a `LocalChat`."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core import Loading
from engine.drain import drain, mapped
from engine.errors import Cancelled
from engine.platform.garbage import few_collections
from engine.settings import CacheSettings, LoadSettings
from engine.words import _

if TYPE_CHECKING:
    from engine.chat.local import LocalChat
    from engine.models.dense import Dense
    from engine.models.memory.placement import Replaced
    from engine.vision import VisionEncoder
    from engine.vision.encoder_cache import EncoderCache, Layouts
    from engine.weights.checkpoint import Checkpoint


def open_chat(
    path: str | Path,
    load: LoadSettings = LoadSettings(),
    cache: CacheSettings = CacheSettings(),
    stop: threading.Event | None = None,
    replaces: Replaced | None = None,
) -> Generator[Loading, None, LocalChat]:
    """Load a model for chatting: yields progress and returns the chat (`chat = yield from open_chat(path)`).

    Setting `stop` raises `Cancelled` at the next progress. `replaces` is closed once the new model's headers,
    tokenizer and template are valid and its memory suffices, before any weight is read; a failure until then
    leaves it as it is. Raises `ModelNotFound`, `BadCheckpoint`, `UnsupportedModel`, `BadTemplate`,
    `NotEnoughMemory`, `BadSetting`.
    """
    with few_collections():
        return (yield from _watched(_load(path, load, cache, replaces), Path(path), stop))


def _watched(
    loading: Generator[Loading, None, LocalChat], path: Path, stop: threading.Event | None
) -> Generator[Loading, None, LocalChat]:
    """`loading`, ended by `stop`."""
    from engine.backends.trim import give_memory_back
    from engine.weights.gguf.ollama import known_name

    def check() -> None:
        if stop is not None and stop.is_set():
            raise Cancelled(_("Loading {name} was stopped.", name=known_name(path)))

    try:
        return (yield from mapped(loading, lambda progress: progress, check))
    except Cancelled:
        give_memory_back()
        raise


def _load(
    path: str | Path, load: LoadSettings, cache: CacheSettings, replaces: Replaced | None
) -> Generator[Loading, None, LocalChat]:
    # Imported here, where garbage is rarely collected: a thousand modules would set that off many times.
    from engine.backends.choice import may_take_gpus, settled
    from engine.backends.cpu.runtime.cores import default_threads
    from engine.backends.trim import give_memory_back
    from engine.chat.local import LocalChat, kept_caches, log_notice
    from engine.chat.texts import with_thinking
    from engine.generator.dynamic import DynamicGenerator
    from engine.models.embedding_prompts import embedding_prompts
    from engine.models.load import read_config
    from engine.models.memory.estimate import chosen_context
    from engine.models.memory.placement import on_a_device
    from engine.models.open_text import open_text
    from engine.models.saved import fingerprint, restore_cache
    from engine.vision.describe import described
    from engine.weights.checkpoint import open_checkpoint

    yield Loading(_("Reading the model's headers"), 0, 1)
    checkpoint = open_checkpoint(path)
    try:
        info, layouts = described(
            checkpoint, for_gpus=may_take_gpus(load), picture_tokens=load.picture_tokens
        )
        # an impossible context is reported before the weights are read
        chosen_context(cache, info.context_length)
        width = read_config(checkpoint).width  # which refuses an assistant
        tokenizer, template = open_text(checkpoint, load.chat_template)
        dense = _dense_layers(checkpoint, width) if info.embedding else ()
        prompts = embedding_prompts(checkpoint, info.architecture, info.name)
        found = yield from on_a_device(checkpoint, info, load, cache, replaces)
    finally:
        checkpoint.close()
    paged, target = found.paged, found.target
    give_memory_back()
    kept = ""
    if cache.keep_on_disk:
        kept = fingerprint(path)
        if kept and (load.quantise, load.quantise_head, load.prompt_bits) != ("none", "same", "16"):
            # other weights or arithmetic give other keys and values
            kept += f" {load.quantise} {load.quantise_head} {load.prompt_bits}"
        log_notice(restore_cache(paged, kept, kept_caches()))
    threads = (load.threads or default_threads()) if target.backend == "cpu" else 0
    info = dataclasses.replace(
        with_thinking(info, template, template.thinking(tokenizer)[0]), backend=target.backend,
        where=target.where, threads=threads, notice=" ".join([found.notice, *info.remarks]).strip(),
        report=found.report,
    )  # fmt: skip
    if found.on_disk:
        resident = paged.model.resident_bytes - found.on_disk
        info = dataclasses.replace(info, resident_bytes=resident, offloaded_bytes=found.on_disk)
    if target.where:
        info = dataclasses.replace(info, gpu_bytes=paged.model.resident_bytes, cache_bytes=paged.store.nbytes)
    generator = DynamicGenerator(paged.model, paged, tokenizer)
    pictures = paged.pictures = None if layouts is None else _pictures(layouts, path, load)
    return LocalChat(info, generator, template, settled(load, target), kept, dense, prompts, pictures)


def _dense_layers(checkpoint: Checkpoint, width: int) -> tuple[Dense, ...]:
    from engine.models.dense import dense_layers

    return tuple(dense_layers(checkpoint, width))


def _pictures(layouts: Layouts, path: str | Path, load: LoadSettings) -> EncoderCache:
    from engine.vision.encoder_cache import EncoderCache

    return EncoderCache(layouts, partial(_load_vision, path, load))


def _load_vision(path: str | Path, load: LoadSettings) -> Generator[Loading, None, VisionEncoder]:
    """Load the vision encoder of a model, whose files are opened again."""
    from engine.vision.opening import open_vision
    from engine.weights.checkpoint import open_checkpoint

    with closing(open_checkpoint(path)) as checkpoint:
        return (yield from open_vision(checkpoint, load.threads, load.picture_tokens))


def finished(loading: Generator[Loading, None, LocalChat]) -> LocalChat:
    """Run `open_chat` to its end, ignoring the progress."""
    return drain(loading)
