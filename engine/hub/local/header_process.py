"""A process that reads the headers of models: it receives paths and sends `ModelInfo`, as lines of JSON.

Reading the headers of many models holds Python's interpreter lock for seconds; in a separate process that
does not slow down the window. It ends when its input ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import typing
from typing import Any, TextIO

from engine.core import ModelInfo, WorkSpace
from engine.errors import EngineError

__all__ = ["info_from_json", "info_to_json", "main"]

_NICE = 5


def info_to_json(info: ModelInfo) -> dict[str, Any]:
    """A `ModelInfo` as JSON values."""
    return dataclasses.asdict(info)


def info_from_json(data: object) -> ModelInfo:
    """The inverse of `info_to_json`. Raises ValueError for anything else."""
    if not isinstance(data, dict):
        raise ValueError("not the facts of a model")
    values = {**data, "stop_token_ids": tuple(data.get("stop_token_ids", ()))}
    try:
        values["defaults"] = tuple((str(name), value) for name, value in values["defaults"])
        for name in ("kv_shapes", "picture_shapes"):
            values[name] = tuple((int(heads), int(dim)) for heads, dim in values.get(name, ()))
        values["plain"] = tuple(int(number) for number in values["plain"])
        values["remarks"] = tuple(map(str, values.get("remarks", ())))
        values["lacks"] = tuple((str(what), str(why)) for what, why in values.get("lacks", ()))
        for name in ("thinking", "thinking_levels"):
            values[name] = tuple((str(first), str(second)) for first, second in values.get(name, ()))
        values["work"], values["gpu_work"] = WorkSpace(**values["work"]), WorkSpace(**values["gpu_work"])
        info = ModelInfo(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("not the facts of a model") from error
    for name, kind in typing.get_type_hints(ModelInfo).items():
        if kind in (str, int, bool, float) and not isinstance(
            values.get(name), (int, float) if kind is float else kind
        ):
            raise ValueError(f"{name} is no {kind.__name__}")
    return info


def main(lines: TextIO = sys.stdin, out: TextIO = sys.stdout) -> None:
    """Answer each line, a path, with {"info": ...}, or {"trouble": SENTENCE} if the model is unusable."""
    from engine.vision.describe import describe

    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICE)
    for line in lines:
        try:
            answer: dict[str, Any] = {"info": info_to_json(describe(json.loads(line)))}
        except EngineError as error:
            answer = {"trouble": str(error)}
        out.write(json.dumps(answer) + "\n")
        out.flush()
