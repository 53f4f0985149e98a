"""`ExLlamaV2Config` and `ExLlamaV2`: a model folder or GGUF file, and the loaded model."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from engine.core import Loading, ModelInfo
from engine.drain import mapped
from engine.errors import EngineError, forget_frames
from engine.settings import CacheSettings, LoadSettings

if TYPE_CHECKING:
    from engine.models.base import Model

Progress = Callable[[int, int], Any]


class LazyCache(Protocol):
    """A cache whose memory is allocated once its model is loaded."""

    def allocate(self) -> None: ...


class ExLlamaV2Config:
    """Where a model is and how long its sequences may be. The constructor raises what `describe` raises."""

    def __init__(self, model_dir: str | Path | None = None) -> None:
        self.model_dir = model_dir
        self.max_seq_len = 0
        self.load_settings = LoadSettings()
        self.info: ModelInfo | None = None
        if model_dir is not None:
            self.prepare()

    def prepare(self) -> None:
        """Read the headers and set the attributes from them. Raises what `describe` raises."""
        from engine.models import describe

        if self.model_dir is None:
            raise ValueError("model_dir must be set before prepare()")
        self.info = describe(Path(self.model_dir))
        self.max_seq_len = self.max_seq_len or self.info.context_length
        self.vocab_size = self.info.vocab_size
        self.num_hidden_layers = self.info.layers
        self.eos_token_id = next(iter(self.info.stop_token_ids), None)

    def arch_compat_overrides(self, quiet: bool = False, warn_only: bool = False) -> None:
        """Does nothing: no model needs overrides here."""


class ExLlamaV2:
    """A model; `load`, or `load_autosplit` with a lazy cache, loads it."""

    def __init__(self, config: ExLlamaV2Config, lazy_load: bool = False) -> None:
        self.config = config
        self.loaded = False
        self._model: Model | None = None

    @property
    def model(self) -> Model:
        """The loaded model. Raises `EngineError` before it is loaded."""
        if self._model is None:
            raise EngineError("The model is not loaded: call load() or load_autosplit(cache) first.")
        return self._model

    def load(
        self,
        gpu_split: Any = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Progress | None = None,
        **_: Any,
    ) -> None:
        """Load the weights; calls `callback(done, total)` with the progress.

        `gpu_split` is ignored.
        """
        for _progress in self.load_gen(gpu_split, lazy, stats, callback):
            pass

    def load_gen(
        self,
        gpu_split: Any = None,
        lazy: bool = False,
        stats: bool = False,
        callback: Progress | None = None,
        **_: Any,
    ) -> Generator[float, None, None]:
        """`load`, yielding the progress in percent."""
        from engine.backends import make_backend
        from engine.models import preparation, read_model
        from engine.models.describe import describe_checkpoint
        from engine.models.memory.fit import fits_by_headers
        from engine.weights.checkpoint import open_checkpoint

        if self._model is None:
            assert self.config.model_dir is not None
            checkpoint = open_checkpoint(Path(self.config.model_dir))
            try:
                settings = self.config.load_settings
                fits = fits_by_headers(
                    describe_checkpoint(checkpoint),
                    CacheSettings(context_length=self.config.max_seq_len),
                    settings,
                )
                backend = make_backend(settings, fits)
                loading = read_model(checkpoint, backend, prepare=preparation(checkpoint, settings))

                def share(progress: Loading) -> float:
                    if callback is not None:
                        callback(progress.done, progress.total)
                    return 100.0 * progress.done / max(progress.total, 1)

                try:
                    self._model = yield from mapped(loading, share)
                except BaseException as error:
                    forget_frames(error)  # their locals hold what was loaded
                    backend.trim()
                    raise
            finally:
                checkpoint.close()
        self.loaded = True

    def load_autosplit(
        self,
        cache: LazyCache,
        reserve_vram: Any = None,
        last_id_only: bool = False,
        callback: Progress | None = None,
        **_: Any,
    ) -> None:
        """Load the weights and allocate the lazy cache."""
        self.load(callback=callback)
        cache.allocate()

    def unload(self) -> None:
        """Release the memory of the weights."""
        if self._model is not None:
            self._model.close()
        self._model, self.loaded = None, False
