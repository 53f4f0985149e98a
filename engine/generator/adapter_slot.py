"""The LoRA adapters of a chat, put on the model when a request asks for other ones than the last."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core import Loading
from engine.errors import BadSetting, Cancelled
from engine.words import _

if TYPE_CHECKING:
    from engine.models.paged import PagedCache

MOST_STRENGTH = 100.0


def parse_adapters(lines: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """(path, strength) for each line "path" or "path = strength", of a folder or a GGUF file; empty lines and
    strength 0 are skipped.

    Raises `BadSetting` for a strength that is not a number from -100 to 100.
    """
    adapters = []
    for line in filter(None, map(str.strip, lines)):
        path, equals, number = line.rpartition("=")
        # An equals sign may be part of a name: then that file or folder exists.
        if not equals or Path(line).expanduser().exists():
            adapters.append((line, 1.0))
            continue
        try:
            strength = float(number)
        except ValueError:
            strength = float("nan")
        if not -MOST_STRENGTH <= strength <= MOST_STRENGTH:
            raise BadSetting(
                _(
                    "The adapter's strength in {line!r} is not a number from {least:g} to "
                    "{most_strength:g}; write the path, an equals sign and a number such as 0.8.",
                    line=line,
                    least=-MOST_STRENGTH,
                    most_strength=MOST_STRENGTH,
                )
            )
        adapters.append((path.strip(), strength))
    return tuple((path, strength) for path, strength in adapters if strength)


class AdapterSlot:
    """The adapters on the model of `cache`. The cache knows them, so several generators may share it.

    `usual` are those of requests that name none.
    """

    def __init__(self, cache: PagedCache) -> None:
        self._cache = cache
        self.usual: tuple[tuple[str, float], ...] = ()

    def chosen(self, lines: Sequence[str]) -> tuple[tuple[str, float], ...]:
        """The adapters of a request with these lines; raises as `parse_adapters`."""
        return parse_adapters(lines) or self.usual

    def make_usual(
        self, lines: Sequence[str], stop: threading.Event | None = None
    ) -> Generator[Loading, None, None]:
        """Put the adapters of these lines on the model, for all requests that name none. Raises as
        `parse_adapters` and `apply`.
        """
        usual = parse_adapters(lines)
        yield from self.apply(usual, stop)
        self.usual = usual

    def holds(self, adapters: Sequence[tuple[str, float]]) -> bool:
        """Whether exactly these adapters are on the model."""
        return self._cache.key == _key(adapters)

    def apply(
        self, adapters: Sequence[tuple[str, float]], stop: threading.Event | None = None
    ) -> Generator[Loading, None, None]:
        """Put exactly these adapters (path, strength) on the model. No sequence may be open.

        Raises `BadSetting`, `ModelNotFound`, `BadCheckpoint` and `UnsupportedModel`, `Cancelled` when `stop`
        was set, and `DeviceLost` where a GPU's kernels that only adapters need are wrong. The model is as
        before then, and when this is closed before its end.
        """
        if self.holds(adapters):
            return
        from engine.models.lora.apply import apply_adapters
        from engine.models.proof.first_use import prove_again
        from engine.weights.lora_adapter import open_adapter

        opened = []
        for done, (path, strength) in enumerate(adapters):
            yield Loading(_("Loading the adapters"), done, len(adapters))
            if stop is not None and stop.is_set():
                raise Cancelled(_("Loading the adapters was stopped."))
            opened.append((open_adapter(path), strength))
        put_back = apply_adapters(self._cache.model, opened)
        try:
            yield from self._cache.model.prepare(self._cache.store.dtype)
            yield from prove_again(self._cache.model)
            self._cache.record_again(_key(adapters))
        except BaseException:
            put_back()
            raise


def _key(adapters: Sequence[tuple[str, float]]) -> str:
    return "".join(f"{path}\0{strength}\0" for path, strength in adapters)
