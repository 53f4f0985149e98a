"""The driver's functions, structures and numbers as the toolkit's cuda.h has them, by a C compiler: sizes,
kinds, offsets, values."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Kind:
    """A C type: "int", "pointer" or "other"; `signed` None where C leaves it to the compiler (enumerations).
    Of a pointer to something that has a size, that one's."""

    kind: str
    size: int
    signed: bool | None = None
    to: Kind | None = None


@cache
def header() -> Path:
    """The one that comes with the compiler's packages; the test is left out where there is none, or no C
    compiler."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or [] if spec else [])]
    found = [file for place in places for file in place.glob("cu13/include/cuda.h")]
    if not found or not shutil.which("cc"):
        pytest.skip("needs cuda.h of nvidia-cuda-runtime and a C compiler")
    return found[0]


@cache
def _text() -> str:
    """The header as the compiler sees it: names that stand for versions are those versions."""
    done = subprocess.run(
        ["cc", "-E", "-P", "-xc", str(header())], capture_output=True, text=True, check=True
    )
    return re.sub(r"\s+", " ", done.stdout)


def prototype(function: str) -> list[str]:
    """The types of a function's parameters, which returns a CUresult."""
    found = re.search(rf"\bCUresult {function}\(([^)]*)\)", _text())
    assert found is not None, f"cuda.h has no {function}"
    parameters = [part.strip() for part in found[1].split(",")]
    return [re.sub(r"\b\w+$", "", part).strip() for part in parameters if part != "void"]


def kinds(types: Sequence[str]) -> dict[str, Kind]:
    """What the compiler makes of C types."""
    expected = [*types, *(pointee for each in types if (pointee := _pointee(each)))]
    rows = [f'P("{each}", {each})' for each in dict.fromkeys(expected)]
    macro = (
        '#define P(NAME, T) printf("%s\\t%d\\t%zu\\t%d\\n", NAME, __builtin_classify_type((T)0), sizeof(T), '
        "(int)((T)-1 < (T)0));"
    )
    lines = _compiled(macro, "\n".join(rows)).splitlines()
    table = {}
    for line in lines:
        name, number, size, negative = line.split("\t")
        enumerated = re.search(rf"\}} {re.escape(name)};", _text()) is not None
        signed = None if enumerated or number == "5" or name.endswith("char") else negative == "1"
        table[name] = Kind({"1": "int", "3": "int", "5": "pointer"}.get(number, "other"), int(size), signed)
    for each in types:
        pointee = _pointee(each)
        if pointee:
            table[each] = Kind("pointer", table[each].size, None, table[pointee])
    return table


def _pointee(name: str) -> str:
    """What a C type points to; "" for what is no pointer, or one to something without a size."""
    if not name.endswith("*"):
        return ""
    inner = name[:-1].strip()
    bare = inner.removeprefix("const ").strip()
    return "" if bare in ("void", "CUlaunchConfig", "CUuuid") else inner


def offsets(structure: str, fields: Sequence[str]) -> tuple[int, list[tuple[int, int]]]:
    """A structure's size, and where its fields lie and how long they are."""
    rows = "\n".join(
        f'printf("%zu %zu\\n", offsetof({structure}, {f}), sizeof((({structure} *)0)->{f}));' for f in fields
    )
    first, *rest = _compiled("", f'printf("%zu\\n", sizeof({structure}));\n{rows}').splitlines()
    pairs = [line.split() for line in rest]
    return int(first), [(int(at), int(size)) for at, size in pairs]


def values(names: Sequence[str]) -> Mapping[str, int]:
    """Of enumeration constants."""
    rows = "\n".join(f'printf("%lld\\n", (long long){name});' for name in names)
    return dict(zip(names, map(int, _compiled("", rows).splitlines()), strict=True))


def results() -> dict[int, str]:
    """All results of the driver, by their numbers."""
    body = re.search(r"typedef enum cudaError_enum \{(.*?)\} CUresult;", _text())
    assert body is not None
    return {int(number): name for name, number in re.findall(r"(CUDA_\w+) = (\d+)", body[1])}


def _compiled(macros: str, body: str) -> str:
    """What a C program prints that has `body` in its main function."""
    source = (
        f"#include <stdio.h>\n#include <stddef.h>\n#include <cuda.h>\n{macros}\nint main(void) "
        f"{{\n{body}\nreturn 0;\n}}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file, program = Path(folder) / "main.c", Path(folder) / "main"
        file.write_text(source, "utf-8")
        command = ["cc", "-w", f"-I{header().parent}", str(file), "-o", str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
