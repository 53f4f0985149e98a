"""`import engine` is light, and every public name is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import engine


def test_every_name_resolves():
    for name in engine.__all__:
        assert getattr(engine, name) is not None
    assert dir(engine) == engine.__all__ == sorted(set(engine.__all__))
    assert {"StreamingGenerator", "LocalChat", "open_chat", "SamplerSettings", "Done", "EngineError"} <= set(
        engine.__all__
    )
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = engine.no_such_name


def test_every_error_is_public():
    from engine import errors

    declared = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.EngineError)
    }
    assert declared <= set(engine.__all__)
    assert all(f"── {name} " in str(errors.__doc__) for name in declared - {"EngineError"})


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("engine", "numpy torch numba tokenizers jinja2"),
        ("engine.chat", "torch numba tokenizers"),
        ("engine.__main__", "torch numba numpy"),
        ("engine.cli", "torch numba tokenizers jinja2"),
    ],
)
def test_what_an_import_costs(module, heavy):
    code = f"import sys, {module}; print([name for name in {heavy.split()!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
