"""A process that reads headers for another one: paths come in, facts go out, each as one line of JSON.

Reading the headers of many models keeps Python's interpreter lock busy for seconds; in a process of its own
that costs a window none of its frames. It ends with its input.
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
    """A model's facts, ready for JSON."""
    return dataclasses.asdict(info)


def info_from_json(data: object) -> ModelInfo:
    """What `info_to_json` gave. Raises ValueError when it is something else."""
    if not isinstance(data, dict):
        raise ValueError("not the facts of a model")
    values = {**data, "stop_token_ids": tuple(data.get("stop_token_ids", ()))}
    try:
        values["defaults"] = tuple((str(name), value) for name, value in values["defaults"])
        values["plain"] = tuple(int(number) for number in values["plain"])
        values["thinking"] = tuple((str(begin), str(finish)) for begin, finish in values.get("thinking", ()))
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
    """Answer each line, a path, with {"info": ...}, or {"trouble": SENTENCE} where it is no usable model."""
    from engine.models.describe import describe

    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICE)
    for line in lines:
        try:
            answer: dict[str, Any] = {"info": info_to_json(describe(json.loads(line)))}
        except EngineError as error:
            answer = {"trouble": str(error)}
        out.write(json.dumps(answer) + "\n")
        out.flush()
