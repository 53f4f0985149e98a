"""`ExLlamaV2`: the loaded model, and passes over it by hand."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from engine.compat.absent import refusing
from engine.compat.exllamav2.absent import LAYERS
from engine.compat.exllamav2.attributes import Declared, check_config, refuse
from engine.compat.exllamav2.config import ExLlamaV2Config
from engine.core import Loading
from engine.drain import mapped
from engine.errors import BadSetting, EngineError, NotSupportedYet, forget_frames
from engine.settings import CacheSettings, LoadSettings

if TYPE_CHECKING:
    from engine.compat.exllamav2.cache import ExLlamaV2CacheBase
    from engine.models.base import Model
    from engine.weights.checkpoint import Checkpoint

__getattr__ = refusing(__name__, LAYERS)

R = TypeVar("R")
Progress = Callable[[int, int], Any]
ProgressSteps = Callable[[int, int], Iterable[Any]]


class LazyCache(Protocol):
    """A cache whose memory is allocated once its model is loaded."""

    def allocate(self) -> None: ...


_NO_MODULES = "the engine's decoder is not made of such modules"
_INSIDE = dict.fromkeys(
    ("modules_dict", "device_context", "cache_map", "head_layer_idx",
     "last_kv_layer_idx", "forward_chunk", "get_modules", "set_device_map", "set_cache_map",
     "get_cache_devices", "create_device_context", "drop_device_context", "free_device_context",
     "get_device_context", "update_loras"),
    _NO_MODULES,
) | {"archparams": "it describes parts of models for pictures"}  # fmt: skip


class ModuleCount:
    """As many as ExLlamaV2's modules: two for each layer, embeddings, norm and head. None can be had."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        raise NotSupportedYet(f"ExLlamaV2.modules[{place}] is not supported here: {_NO_MODULES}.")


class ExLlamaV2(Declared):
    """A model; `load`, or `load_autosplit` with a lazy cache, loads it.

    Which layers go to which GPU is decided by their free memory. `gpu_split` and `reserve_vram` say which
    GPUs may be used and how much of each is left free.
    """

    missing = _INSIDE
    config: ExLlamaV2Config
    loaded: bool

    def __init__(self, config: ExLlamaV2Config, lazy_load: bool = False, archparams: Any = None) -> None:
        """`lazy_load` makes no difference: nothing is loaded before `load`. `archparams` is refused."""
        check_config("ExLlamaV2", config)
        refuse("archparams", archparams, None, _INSIDE["archparams"])
        self.config = config
        self.loaded = False
        self._model: Model | None = None

    @property
    def model(self) -> Model:
        """The loaded model. Raises `EngineError` before it is loaded."""
        if self._model is None:
            raise EngineError("The model is not loaded: call load() or load_autosplit(cache) first.")
        return self._model

    @property
    def modules(self) -> ModuleCount:
        """Only its length counts, with which programs scale a progress bar."""
        if self.config.info is None:
            self.config.prepare()
        assert self.config.info is not None
        return ModuleCount(2 * self.config.info.layers + 3)

    @property
    def tp_context(self) -> None:
        """None, so that scripts make caches for one process: GPUs share the layers, not matrices."""

    def context_length(self) -> int:
        """The longest sequence, with positions scaled as the configuration says."""
        from engine.models.load import read_config

        if self._model is not None:
            return self._model.config.context_length
        checkpoint = self._checkpoint()
        try:
            return read_config(checkpoint).context_length
        finally:
            checkpoint.close()

    def is_quant(self) -> bool:
        """Whether the files hold quantised weights."""
        info = self.config.info
        return info is not None and info.bits_per_weight < 15

    def load(
        self,
        gpu_split: Sequence[float] | None = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Progress | None = None,
        callback_gen: ProgressSteps | None = None,
        progress: bool = False,
    ) -> None:
        """Load the weights. Calls `callback(done, total)`; with `progress` it is printed to stderr.

        `gpu_split` names by its entries above 0 the GPUs that share the layers; their sizes are not limits,
        as a warning says. `stats` was of no effect in ExLlamaV2 either. Raises what opening and loading a
        model raise, and `NotSupportedYet` for `lazy`, which loads layers one by one.
        """
        shown = self._printed(callback) if progress else callback
        for _ in self.load_gen(gpu_split, lazy, stats, shown, callback_gen):
            pass

    def load_gen(
        self,
        gpu_split: Sequence[float] | None = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Progress | None = None,
        callback_gen: ProgressSteps | None = None,
    ) -> Generator[Any, None, None]:
        """`load`, yielding the progress in percent, or what `callback_gen(done, total)` yields."""
        refuse("lazy", lazy, False, "all layers are loaded at once")
        yield from self._load(CacheSettings(), self._split(gpu_split), callback, callback_gen)

    def load_autosplit(
        self,
        cache: LazyCache,
        reserve_vram: float | Sequence[float] | None = None,
        last_id_only: bool = False,
        callback: Progress | None = None,
        callback_gen: ProgressSteps | None = None,
        progress: bool = False,
    ) -> None:
        """Load the weights and allocate the lazy cache.

        `reserve_vram` bytes of every GPU are left free (the most of a list). `last_id_only` makes no
        difference: a pass takes memory for as many logits as it is asked for.
        """
        shown = self._printed(callback) if progress else callback
        for _ in self.load_autosplit_gen(cache, reserve_vram, last_id_only, shown, callback_gen):
            pass

    def load_autosplit_gen(
        self,
        cache: LazyCache,
        reserve_vram: float | Sequence[float] | None = None,
        last_id_only: bool = False,
        callback: Progress | None = None,
        callback_gen: ProgressSteps | None = None,
    ) -> Generator[Any, None, None]:
        """`load_autosplit`, yielding as `load_gen`."""
        settings = self.config.load_settings
        if reserve_vram is not None:
            one = isinstance(reserve_vram, int | float)
            most = reserve_vram if one else max(reserve_vram, default=0)  # type: ignore[arg-type]
            settings = replace(settings, gpu_memory=int(-(-most // 2**20)))  # type: ignore[operator]
        yield from self._load(_cache_settings(cache), settings, callback, callback_gen)
        cache.allocate()

    def load_tp(
        self,
        gpu_split: Sequence[float] | None = None,
        callback: Progress | None = None,
        callback_gen: ProgressSteps | None = None,
        progress: bool = False,
        expect_cache_tokens: int = 0,
        expect_cache_base: type[ExLlamaV2CacheBase] | None = None,
    ) -> None:
        """`load` with room for a cache of `expect_cache_tokens`. GPUs share the layers, not matrices."""
        shown = self._printed(callback) if progress else callback
        for _ in self.load_tp_gen(gpu_split, shown, callback_gen, expect_cache_tokens, expect_cache_base):
            pass

    def load_tp_gen(
        self,
        gpu_split: Sequence[float] | None = None,
        callback: Progress | None = None,
        callback_gen: ProgressSteps | None = None,
        expect_cache_tokens: int = 0,
        expect_cache_base: type[ExLlamaV2CacheBase] | None = None,
    ) -> Generator[Any, None, None]:
        """`load_tp`, yielding as `load_gen`."""
        cache = CacheSettings(
            context_length=min(expect_cache_tokens, self.context_length()),
            dtype="auto" if expect_cache_base is None else expect_cache_base.dtype or "auto",
        )
        yield from self._load(cache, self._split(gpu_split), callback, callback_gen)

    def unload(self) -> None:
        """Release the memory of the weights."""
        if self._model is not None:
            self._model.close()
        self._model, self.loaded = None, False

    def forward(
        self,
        input_ids: Any,
        cache: ExLlamaV2CacheBase | Sequence[ExLlamaV2CacheBase] | None = None,
        input_mask: Any = None,
        preprocess_only: bool = False,
        last_id_only: bool = False,
        loras: Any = None,
        return_last_state: bool = False,
        position_offsets: Any = None,
        abort_event: threading.Event | None = None,
        cpu_logits: bool = False,
        **more: Any,
    ) -> Any:
        """Run `input_ids` (rows, n) after what `cache` holds, or alone without one; with a list of caches, a
        row after each.

        Returns logits (rows, n, V) float32 on the CPU, with `last_id_only` (rows, 1, V), with
        `preprocess_only` or once `abort_event` is set None. `input_mask` hides padding on the left, as
        `tokenizer.padding_mask` returns it; the logits of hidden columns are 0. `position_offsets` (rows, 1)
        can only be minus that padding. Other adapters (`loras`) than those of the cache's content need an
        empty cache. Raises ValueError for shapes that do not fit, `ContextTooLong` where the cache is full,
        and `NotSupportedYet` for the rest: `return_last_state`, embeddings, `attn_params`.
        """
        import torch

        from engine.compat.exllamav2.forward import borrowed, run_apart, run_rows

        refuse("return_last_state", return_last_state, False, "hidden states do not leave the engine")
        for name, value in more.items():
            refuse(name, value, None, "a pass takes token ids only")
        ids = np.asarray(input_ids).astype(np.int64)
        if ids.ndim != 2 or not ids.size:
            raise ValueError(f"input_ids have the shape {ids.shape}, but (rows, n) was expected")
        most = self.config.max_output_len
        if not (most is None or preprocess_only or last_id_only or ids.shape[1] <= most):
            raise ValueError(
                f"forward would return {ids.shape[1]} rows of logits, but max_output_len is {most}; set "
                "last_id_only, or max_output_len to None"
            )
        rows_of_logits = "none" if preprocess_only else "last" if last_id_only else "all"
        if isinstance(cache, list | tuple):
            refuse("input_mask", input_mask, None, "rows with caches of their own are not padded")
            refuse("position_offsets", position_offsets, None, "rows with caches of their own are not padded")
            found = run_apart(self, cache, ids, loras, rows_of_logits, abort_event)
        else:
            with borrowed(self, cache, *ids.shape) as held:  # type: ignore[arg-type]
                padding = (input_mask, position_offsets)
                found = run_rows(held, ids, padding, loras, rows_of_logits, abort_event)
        return None if found is None else torch.from_numpy(found)

    def _load(
        self, cache: CacheSettings, settings: LoadSettings, callback: Progress | None,
        callback_gen: ProgressSteps | None,
    ) -> Generator[Any, None, None]:  # fmt: skip
        from engine.backends import make_backend
        from engine.models import preparation, read_model
        from engine.models.memory.fit import fits_by_headers
        from engine.vision.describe import describe_checkpoint

        if self._model is None:
            checkpoint = self._checkpoint()
            try:
                settings = replace(settings, quantise="q4") if self.config.load_in_q4 else settings
                if not cache.context_length:
                    cache = replace(cache, context_length=self.config.max_seq_len)
                fits = fits_by_headers(describe_checkpoint(checkpoint), cache, settings)
                backend = make_backend(settings, fits)
                loading = read_model(checkpoint, backend, prepare=preparation(checkpoint, settings))

                def steps(progress: Loading) -> tuple[int, int]:
                    if callback is not None:
                        callback(progress.done, progress.total)
                    return progress.done, progress.total

                try:
                    self._model = yield from _flattened(mapped(loading, steps), callback_gen)
                except BaseException as error:
                    forget_frames(error)  # their locals hold what was loaded
                    backend.trim()
                    raise
            finally:
                checkpoint.close()
        self.loaded = True

    def _checkpoint(self) -> Checkpoint:
        """The model's files, with the changes that the configuration asks for."""
        from engine.models.load import read_config
        from engine.weights.checkpoint import open_checkpoint

        if self.config.model_dir is None:
            raise ValueError("model_dir must be set before the model is loaded")
        checkpoint = open_checkpoint(Path(self.config.model_dir))
        try:
            if self.config.info is None:
                self.config.prepare()
            return self.config.overrides(read_config(checkpoint)).on(checkpoint)
        except BaseException:
            checkpoint.close()
            raise

    def _split(self, gpu_split: Sequence[float] | None) -> LoadSettings:
        settings = self.config.load_settings
        if not gpu_split:
            return settings
        gpus = ",".join(str(place) for place, size in enumerate(gpu_split) if size > 0)
        if not gpus:
            raise BadSetting(
                f"gpu_split is {list(gpu_split)}, which leaves no GPU; give at least one a size."
            )
        warnings.warn(
            f"gpu_split: the layers are divided among the GPUs {gpus} by their free memory; the sizes "
            f"{list(gpu_split)} are not limits.",
            stacklevel=4,
        )
        return replace(settings, gpus=gpus)

    def _printed(self, callback: Progress | None) -> Progress:
        if callback is not None:
            raise NotSupportedYet("`progress` and `callback` cannot be combined; leave one of them out.")
        name = Path(str(self.config.model_dir)).name

        def show(done: int, total: int) -> None:
            print(f"\rLoading {name}: {done} / {total}", end="\n" if done == total else "", file=sys.stderr)

        return show


def _cache_settings(cache: LazyCache) -> CacheSettings:
    """What of a lazy cache decides where the model fits."""
    from engine.compat.exllamav2.cache import ExLlamaV2CacheBase

    if not isinstance(cache, ExLlamaV2CacheBase):
        return CacheSettings()
    length = min(cache.max_seq_len, cache.model.context_length())
    return CacheSettings(context_length=length, dtype=cache.dtype)


def _flattened(
    steps: Generator[tuple[int, int], None, R], callback_gen: ProgressSteps | None
) -> Generator[Any, None, R]:
    """Percent for each (done, total), or what `callback_gen` yields for it."""
    while True:
        try:
            done, total = next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        if callback_gen is None:
            yield 100.0 * done / max(total, 1)
        else:
            yield from callback_gen(done, total)
