"""Loading takes the memory that the estimate of the cache says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.core import PAGE_TOKENS as P
from engine.errors import BadSetting, NotEnoughMemory
from engine.models.memory.estimate import (
    FURTHER_CONTEXTS,
    cache_bytes,
    cache_dtype,
    chosen_context,
    context_pages,
    further_pages,
    page_bytes,
    state_count,
)
from engine.models.paged import PagedCache
from engine.settings import CacheSettings
from engine.vision.describe import describe
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load
from tests.tiny import TINY, Tiny, write_folder, write_gguf

TYPES = ["auto", "fp32", "fp16", "fp8", "q8", "q6", "q4"]
VALUE_TYPES = ["same", "fp32", "fp16", "fp8", "q8", "q4"]
SHAPES = [
    TINY,
    TINY.but(heads=3, kv_heads=1, head_dim=20, width=60),
    TINY.but(layers=3, heads=4, kv_heads=4, head_dim=64),
]


@pytest.mark.parametrize(
    ("asked", "most", "advised", "tokens"),
    [
        (0, 1 << 17, 0, 8192),
        (0, 4096, 0, 4096),
        (0, 1 << 17, 2048, 2048),
        (0, 1 << 17, 1 << 14, 8192),
        (5120, 1 << 17, 2048, 5120),
    ],
)
def test_the_context_that_nobody_chose(asked: int, most: int, advised: int, tokens: int) -> None:
    assert chosen_context(CacheSettings(context_length=asked), most, advised) == tokens


def test_more_pages_have_more_states_within_a_share_of_the_memory() -> None:
    assert [state_count(pages, 1, 1 << 20) for pages in (0, 16, 320)] == [16, 17, 36]
    assert state_count(320, 0, 1 << 20) == 0
    assert [state_count(320, 1 << 10, free) for free in (0, 80 << 10, 1 << 20)] == [6, 10, 36]


def test_one_context_needs_the_least_number_of_states(tmp_path: Path) -> None:
    info, settings = describe(write_gguf(tmp_path / "m.gguf")), CacheSettings(context_length=512)
    plain = cache_bytes(info, settings, free=1 << 30)
    recurrent = cache_bytes(replace(info, state_bytes=1000), settings, free=1 << 30)
    assert recurrent.context_bytes == plain.context_bytes + 6 * 1000
    pages = plain.total_bytes // int(plain.bytes_per_token * P)
    assert recurrent.total_bytes == plain.total_bytes + 1000 * state_count(pages, 1000, 1 << 30)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"head_dim {shape.head_dim}")
def test_estimates_of_every_type_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Tiny, backend: str
) -> None:
    estimates_are_exact(write_folder(tmp_path / "m", shape), monkeypatch, backend)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_estimates_of_latent_attention_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    path = write_checkpoint(BY_NAME["MiniCPM 3"], tmp_path / "m")
    estimates_are_exact(path, monkeypatch, backend)
    info = describe(path)
    settings = CacheSettings(context_length=300, dtype="fp16")
    assert cache_bytes(info, settings, backend).bytes_per_token == 2 * (40 + 8) * info.layers
    assert info.kv_bytes_per_token == 2 * (40 + 8) * info.layers


def estimates_are_exact(path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """Of every pair of types, what is said is what is made."""
    monkeypatch.setattr(CpuBackend, "prepare", lambda *_: iter(()))  # only memory is looked at
    model = load(path, CpuBackend(threads=1) if backend == "cpu" else ReferenceBackend())
    info = describe(path)
    for dtype in TYPES:
        for value_dtype in VALUE_TYPES:
            settings = CacheSettings(context_length=300, dtype=dtype, value_dtype=value_dtype, memory=1)
            said = cache_bytes(info, settings, backend)
            store = model.new_cache(300, cache_dtype(settings))
            assert said.context_bytes == store.nbytes == store.page_count * store.page_bytes
            assert said.bytes_per_token == store.page_bytes / P
            assert said.context_length == 300
    model.close()


@pytest.mark.parametrize(("dtype", "each"), [("fp32", 4), ("auto", 2), ("fp8", 2), ("q8/q4", 2)])
def test_where_torch_takes_the_place_of_kernels_keys_and_values_are_whole_numbers(
    dtype: str, each: int
) -> None:
    """As `engine.backends.cuda.proof.torch_program` makes them; the last layer has keys alone."""
    shapes = [(2, 32), (4, 16), (1, 40)]
    assert page_bytes(shapes, dtype, "torch", 1) == P * each * (2 * (2 * 32 + 4 * 16) + 40)
    assert page_bytes(shapes[:2], dtype, "torch") == P * each * 2 * (2 * 32 + 4 * 16)


def test_with_the_memory_for_conversations_too(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    model, info = load(path), describe(path)
    for memory in (0, 1, 3, 8):
        for dtype in ("auto", "fp16"):
            settings = CacheSettings(context_length=512, dtype=dtype, memory=memory)
            said, cache = cache_bytes(info, settings, "reference"), PagedCache(model, settings)
            assert said.total_bytes == cache.store.nbytes >= said.context_bytes
            assert memory == 0 or said.total_bytes <= max(memory << 20, said.context_bytes)
            cache.close()
    assert cache_bytes(info, CacheSettings(), "reference").context_length == 1024


def test_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = describe(write_gguf(tmp_path / "m.gguf", TINY.but(context_length=1 << 17)))
    page = P * 2 * 2 * 2 * 2 * 32  # fp16 keys and values, two layers, two heads of 32

    def free(count: int) -> None:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=count))

    free(10**9)
    settings = CacheSettings(context_length=1 << 17)
    said = cache_bytes(info, settings)
    assert (said.context_bytes, said.free_bytes, said.fits) == (514 * page, 10**9, True)
    assert said.total_bytes == (514 + 10**9 // 8 // page) * page
    assert said.sentence == (
        "A context of 131,072 tokens needs 67.4 MB, and up to 192 MB with the caches of other chats; 1 GB of "
        "memory are free."
    )
    assert not (tight := cache_bytes(info, settings, busy=10**9 - 514 * page + 1)).fits
    assert tight.free_bytes == 514 * page - 1
    assert tight.sentence == (
        "A context of 131,072 tokens needs 67.4 MB; 67.4 MB of memory are free. That is not enough: choose "
        "a shorter context, a smaller cache type, or less memory for chats."
    )
    assert cache_bytes(info, settings, busy=10**9 - 514 * page).fits
    assert not cache_bytes(info, CacheSettings(memory=1 << 10)).fits
    with pytest.raises(BadSetting, match="131,073 tokens, but this model supports at most 131,072"):
        cache_bytes(info, CacheSettings(context_length=(1 << 17) + 1))


def test_too_much_memory_for_conversations_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(write_gguf(tmp_path / "m.gguf"))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10**9))
    with pytest.raises(
        NotEnoughMemory, match=r"^Chats may use 1\.07 GB, but 1 GB of memory are free; choose less memory"
    ):
        PagedCache(model, CacheSettings(memory=1 << 10))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_pages_cost_nothing_before_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """A gigabyte is reserved, but the process grows by a few megabytes only."""
    monkeypatch.setattr(CpuBackend, "prepare", lambda *_: iter(()))
    model = load(
        write_gguf(tmp_path / "m.gguf"), CpuBackend(threads=1) if backend == "cpu" else ReferenceBackend()
    )
    model.new_cache(512, "fp16", 1)  # libraries that are loaded at their first use are not counted
    process = psutil.Process(os.getpid())
    before = process.memory_info().rss
    store: Any = model.new_cache(512, "fp16", (1 << 30) // model.page_bytes("fp16"))
    assert store.nbytes > 1 << 30
    assert process.memory_info().rss - before < 100 << 20
    for page in range(3):
        store.write_page(page, np.ones(store.page_bytes, np.uint8))
    assert process.memory_info().rss - before < 200 << 20
    model.close()


def test_memory_for_chats_buys_no_pages_that_take_none() -> None:
    """A model without attention has pages of 0 bytes: a share of memory would be any number of them."""
    assert further_pages(1024, 0, 64, 1 << 30) == further_pages(1024, 0, 0, 1 << 30) == 4 * FURTHER_CONTEXTS
    assert further_pages(1024, 1 << 20, 64, 1 << 30) == 64 - context_pages(1024)
