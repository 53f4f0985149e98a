"""The report of an error."""

from __future__ import annotations

from desktop.report import build_report


def test_the_model_and_what_is_known_are_named() -> None:
    with_model = build_report("It failed.", "trace\n", ["last line"], {"Qt": "6"}, "tiny.gguf")
    assert with_model == (
        "It failed.\n\nQt: 6\nModel: tiny.gguf\n\n"
        "What was running:\ntrace\n\nLast lines of the log:\nlast line\n"
    )
    assert build_report("It failed.", "", [], {}) == "It failed.\n\nModel: none loaded\n"
