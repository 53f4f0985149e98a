"""The verdict on a model's memory, and the speed by the bytes that are read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.backends.choice import Gpu, Usable, targets
from engine.backends.cpu.backend import CpuBackend
from engine.core import ModelInfo, WorkSpace
from engine.models import read_model
from engine.models.load import read_config
from engine.models.memory.estimate import cache_bytes
from engine.models.memory.fit import (
    bandwidth_from,
    fit,
    freed_bytes,
    head_of,
    likely_target,
    prefill_rows,
    work_space,
)
from engine.models.quantising import preparation
from engine.settings import CacheSettings, LoadSettings
from engine.units import size_text
from engine.vision.describe import describe
from engine.weights import open_checkpoint
from tests.engine.models.oracle import finish
from tests.tiny import WIDE, write_folder, write_gguf

GB = 10**9
INFO = ModelInfo(
    path="/m/eight.gguf", name="eight", architecture="llama", format="gguf", parameters=8 * GB,
    bits_per_weight=4.5, weights_bytes=4_500_000_000, layers=32, context_length=131072, vocab_size=128256,
    kv_bytes_per_token=131072, stop_token_ids=(2,), has_chat_template=True, kv_shapes=((8, 128),) * 32,
    work=WorkSpace(rows=32, row=300_000, position=512, fixed=3_000_000),
)  # fmt: skip


def test_the_parts_add_up() -> None:
    judged = fit(INFO, CacheSettings(), 16 * GB)
    assert judged.verdict == "fits"
    assert judged.weights == INFO.weights_bytes
    assert judged.cache == cache_bytes(INFO, CacheSettings()).context_bytes
    assert judged.context_length == 8192
    assert judged.total == judged.weights + judged.cache + judged.work
    assert judged.sentence.startswith(f"It needs {size_text(judged.total)} (")
    assert judged.tokens_per_second == 0.0
    assert judged.work == 32 * 300_000 + 8192 * 512 + 3_000_000


@pytest.mark.parametrize(("name", "fixed"), [("cpu", 3 + 480 * WIDE.vocab_size), ("cuda", 3)])
def test_work_space_includes_rotary_tables_and_the_tokenizer(tmp_path: Path, name: str, fixed: int) -> None:
    """A cosine and a sine of 4 bytes for each pair of channels and position; 480 bytes for each token."""
    config = read_config(open_checkpoint(write_folder(tmp_path, WIDE)))
    backend: Any = SimpleNamespace(name=name, work_space=lambda pass_: (7, 5, 3))
    rows = prefill_rows(config, name)
    assert work_space(config, backend, lambda *_: None) == WorkSpace(rows, 7, 5 + 32 * (4 + 4), fixed)


def test_verdicts() -> None:
    total = fit(INFO, CacheSettings(), 16 * GB).total
    assert fit(INFO, CacheSettings(), total).verdict == "tight"
    assert fit(INFO, CacheSettings(), total - 1).verdict == "too large"
    assert fit(INFO, CacheSettings(context_length=65536), 10 * GB).verdict == "too large"
    assert fit(INFO, CacheSettings(context_length=65536, dtype="q4"), 10 * GB).verdict == "fits"
    assert "but 3 GB of memory are free" in fit(INFO, CacheSettings(), 3 * GB).sentence


def test_what_does_not_fit_stays_on_the_disk_if_that_is_wanted() -> None:
    offload = LoadSettings(offload=True)
    needed = fit(INFO, CacheSettings(), 16 * GB)
    found = fit(INFO, CacheSettings(), 4 * GB, 30 * GB, load=offload, measured=9.5)
    assert (found.verdict, found.tokens_per_second, found.measured) == ("on disk", 0.0, False)
    in_memory = 4 * GB - GB // 2 - needed.cache - needed.work
    assert f"{size_text(needed.weights - in_memory)} of its weights are read from the disk" in found.sentence
    assert fit(INFO, CacheSettings(), needed.total, load=offload).verdict == "tight"
    edge = (needed.cache + needed.work) * 8 // 7  # an eighth is the system's; below it nothing is left
    assert fit(INFO, CacheSettings(), edge + 16, load=offload).verdict == "on disk"
    assert fit(INFO, CacheSettings(), edge - 16, load=offload).verdict == "too large"
    assert fit(INFO, CacheSettings(), 4 * GB, load=offload, backend="cuda").verdict == "too large"


def test_memory_after_loading_counts_rather_than_the_file_size() -> None:
    assert fit(dataclasses.replace(INFO, resident_bytes=9 * GB), CacheSettings(), 16 * GB).weights == 9 * GB


def test_a_context_beyond_the_models_own() -> None:
    short = dataclasses.replace(INFO, context_length=2048)
    assert fit(short, CacheSettings(context_length=4096), 16 * GB).context_length == 2048


def test_speed() -> None:
    slow, fast = (
        fit(INFO, CacheSettings(), 16 * GB, bandwidth=rate * GB).tokens_per_second for rate in (20, 40)
    )
    assert 3.0 < slow < 20 * GB / INFO.weights_bytes  # never above what the bandwidth allows
    assert slow < fast < 2 * slow
    experts = dataclasses.replace(INFO, read_bytes=INFO.weights_bytes // 8)
    assert fit(experts, CacheSettings(), 16 * GB, bandwidth=20 * GB).tokens_per_second > 4 * slow
    reading = INFO.weights_bytes / (0.7 * 20 * GB)
    assert slow == pytest.approx(1 / (reading + INFO.layers * 80e-6))


def test_a_measured_speed_takes_the_place_of_the_estimate() -> None:
    judged = fit(INFO, CacheSettings(), 16 * GB, 30 * GB, measured=9.5)
    assert (judged.tokens_per_second, judged.measured) == (9.5, True)
    assert not fit(INFO, CacheSettings(), 16 * GB, 30 * GB).measured


def test_the_bandwidth_behind_a_speed_is_that_which_gives_it() -> None:
    for bandwidth in (20e9, 300e9):
        speed = fit(INFO, CacheSettings(), 16 * GB, bandwidth).tokens_per_second
        assert bandwidth_from(INFO, speed) == pytest.approx(bandwidth)
    # Faster than its layers alone, or nearly so: the weights tell nothing.
    assert bandwidth_from(INFO, 1 / (32 * 80e-6)) == 0.0
    assert bandwidth_from(INFO, 1e9) == 0.0
    assert bandwidth_from(INFO, 0.51 / (32 * 80e-6)) == 0.0
    assert bandwidth_from(INFO, 0.49 / (32 * 80e-6)) > 0


def test_a_tight_fit_takes_more_than_nine_tenths() -> None:
    total = fit(INFO, CacheSettings(), 16 * GB).total
    assert fit(INFO, CacheSettings(), int(total / 0.9) + 2).verdict == "fits"
    for where, words in (
        ("", "free memory; close other programs"),
        (GPU, f"free on {GPU}; close other programs"),
    ):
        tight = fit(INFO, CacheSettings(), int(total / 0.9) - 2, where=where)
        assert tight.verdict == "tight"
        assert words in tight.sentence


@pytest.mark.parametrize(
    ("kind", "head", "bits", "head_bits"),
    [("none", "same", 16, 16), ("q8", "same", 8.5, 8.5), ("q6", "none", 6.75, 16), ("none", "q4", 16, 5),
     ("q4", "q8", 5, 8.5)],
)  # fmt: skip
def test_what_quantising_while_loading_saves(kind: str, head: str, bits: float, head_bits: float) -> None:
    """It is taken from the memory and from what each token reads."""
    plain = dataclasses.replace(INFO, weights_bytes=20 * GB, plain=(8 * GB, 16 * GB, GB, 2 * GB))
    judged = fit(plain, CacheSettings(), 40 * GB, 20 * GB, LoadSettings(quantise=kind, quantise_head=head))
    expected = 2 * GB + int(8 * GB * bits / 8) + int(GB * head_bits / 8)
    assert judged.weights == expected
    assert judged.tokens_per_second == pytest.approx(1 / (expected / (14 * GB) + INFO.layers * 80e-6))


GPU = "NVIDIA H200"


def test_on_a_gpu() -> None:
    """Weights may take other space there, and a step has more rows."""
    info = dataclasses.replace(INFO, resident_bytes=5 * GB, gpu_bytes=6 * GB)
    judged = fit(info, CacheSettings(), 16 * GB, backend="cuda", where=GPU)
    assert (judged.weights, judged.work) == (6 * GB, 1024 * 300_000 + 8192 * 512 + 3_000_000)
    assert f"16 GB free on {GPU}" in judged.sentence
    assert fit(INFO, CacheSettings(), 16 * GB, backend="cuda").weights == INFO.weights_bytes
    own = dataclasses.replace(info, gpu_work=WorkSpace(rows=1024, row=7, position=5, fixed=3))
    assert fit(own, CacheSettings(), 16 * GB, backend="cuda").work == 1024 * 7 + 8192 * 5 + 3
    assert fit(own, CacheSettings(), 16 * GB).weights == 5 * GB


def test_the_memory_of_a_model_that_is_closed_is_free_where_it_is() -> None:
    loaded = dataclasses.replace(INFO, resident_bytes=5 * GB, gpu_bytes=6 * GB, cache_bytes=GB)
    there = dataclasses.replace(loaded, where=GPU)
    assert freed_bytes(None, "") == freed_bytes(loaded, GPU) == freed_bytes(there, "") == 0
    assert (freed_bytes(loaded, ""), freed_bytes(there, GPU)) == (6 * GB, 7 * GB)


def test_a_head_that_drafts_is_one_layer_beside_the_model() -> None:
    """It has matrices and a cache of its own; all else is the model's, and counted there."""
    whole = dataclasses.replace(
        INFO, mtp=True, mtp_bytes=GB // 2, gpu_bytes=6 * GB, state_bytes=1 << 20, plain=(8, 16, 1, 2),
        gpu_work=WorkSpace(rows=9, row=9),
    )  # fmt: skip
    head = head_of(whole)
    assert head is not None
    for backend in ("cpu", "cuda"):
        judged = fit(head, CacheSettings(), 16 * GB, load=LoadSettings(quantise="q4"), backend=backend)
        cache = cache_bytes(INFO, CacheSettings(), backend).context_bytes
        assert (judged.weights, judged.cache, judged.work) == (GB // 2, cache // 32, 0)
    assert head_of(INFO) is None


def test_the_device_that_is_likely() -> None:
    """The first on which the model fits, in the place of the one that is loaded; else the last."""
    load, cache = LoadSettings(), CacheSettings()
    known = Usable((Gpu(0, GPU, 80 * GB, 80 * GB),))
    kept = 80 * GB - targets(load, known)[0].free
    needed = fit(INFO, cache, 0, backend="cuda").total
    known = Usable((Gpu(0, GPU, 80 * GB, needed + kept - 1),))
    leaving = dataclasses.replace(INFO, where=targets(load, known)[0].where, weights_bytes=1)
    assert likely_target(INFO, cache, load, known).backend == "cpu"
    assert likely_target(INFO, cache, load, known, leaving).gpus == (0,)
    unable = dataclasses.replace(INFO, cpu_only="recurrent layers")
    assert likely_target(unable, cache, load, known, leaving).backend == "cpu"
    missing = likely_target(INFO, cache, LoadSettings(backend="cuda", gpus="3"), known)
    assert (missing.backend, missing.gpus, missing.free) == ("cuda", (), 0)


@pytest.mark.slow
def test_quantising_while_loading_counts(tmp_path: Path) -> None:
    """The estimate equals what loading takes, the head separately; quantised matrices stay unchanged."""
    folder = write_folder(tmp_path / "m", WIDE.but(tied=False), dtype="BF16")
    info, plain = describe(folder), 0
    for kind, head in (("none", "same"), ("q8", "same"), ("q6", "none"), ("q4", "q8")):
        settings = LoadSettings(quantise=kind, quantise_head=head)
        checkpoint = open_checkpoint(folder)
        model = finish(read_model(checkpoint, CpuBackend(1), prepare=preparation(checkpoint, settings)))
        judged = fit(info, CacheSettings(), 16 * GB, load=settings).weights
        assert abs(judged - model.resident_bytes) <= 0.02 * model.resident_bytes, kind
        plain = plain or judged
        assert kind == "none" or judged < 0.9 * plain
        model.close()
    file = write_gguf(tmp_path / "m.gguf", WIDE, "Q4_0")
    packed = describe(file)
    assert packed.plain == (0, 0, 0, 0)
    assert fit(packed, CacheSettings(), GB, load=LoadSettings(quantise="q4")).weights == packed.resident_bytes
