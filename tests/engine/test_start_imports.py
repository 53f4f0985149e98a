"""What a process imports until its first token: each module takes a third of a millisecond."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.tiny import TINY, write_gguf

CODE = """
import sys, threading
texts = []
def heard(event, given):
    if event == "compile" and given[1] == "<string>":
        texts.append(sys._getframe(1).f_globals["__name__"])
sys.addaudithook(heard)
from engine.chat import finished, open_chat
print(len([name for name in sys.modules if name.startswith("engine.")]))
from engine.core import ChatRequest, Done, Message
from engine.settings import LoadSettings, SamplerSettings, StopSettings
chat = finished(open_chat(sys.argv[1], LoadSettings(backend="cpu", threads=1)))
request = ChatRequest((Message("user", "Hi"),), stops=StopSettings(max_tokens=2))
assert isinstance(list(chat.stream(request, threading.Event()))[-1], Done)
print(len([name for name in texts if name.startswith("engine.")]))
print(*sorted(sys.modules))
"""
UNUSED = (
    "torch", "PIL", "engine.models.lora.apply", "engine.models.dense",
    "engine.weights.safetensors.folder", "engine.weights.pytorch.file", "engine.weights.packed.table",
    "engine.vision.opening", "engine.vision.families", "engine.vision.encoder_cache",
    "engine.backends.cuda.lowering.estimate", "engine.models.proof.first_use",
    "engine.models.architectures.drafters.eagle3", "engine.models.drafting.eagle3",
    "engine.models.architectures.drafters.dflash", "engine.models.drafting.dflash",
    "engine.speculation.dflash",
    "engine.models.architectures.llama.qwen",
    "engine.constraint.calls.filter", "engine.text.tools.parser", "regex",
)  # fmt: skip
COMPILER = ("numba.cpython.listobj", "numba.np.arrayobj")
"""Parts of Numba that only compiling needs."""


def started(path: Path) -> tuple[int, int, set[str]]:
    """The number of the engine's modules before a chat is opened; that of the texts that the engine compiled
    until the first reply was there, and all modules then.
    """
    command = [sys.executable, "-c", CODE, str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return int(lines[0]), int(lines[1]), set(lines[2].split())


def test_a_start_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, TINY)
    started(path)  # compiles what is missing
    before, texts, loaded = started(path)
    assert {"numba", "tokenizers", "engine.chat.local"} <= loaded
    assert sorted(loaded & {*UNUSED, *COMPILER}) == []
    assert before < 60
    assert texts < 200  # `__init__` of classes that are used; the standard decorator compiles 1,600


def test_a_command_imports_nothing_of_the_others() -> None:
    code = "import sys; from engine.__main__ import parser; parser('run').parse_args(['run', 'x']); "
    command = [sys.executable, "-c", code + "print(*sys.modules)"]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert {"engine.cli.run", "engine.hub.local.stores"} <= loaded
    others = {"engine.cli.serve", "engine.cli.bench", "engine.hub.catalogue.choose", "engine.hub.client.http"}
    assert sorted(loaded & {*others, "asyncio", "filelock", "importlib.metadata", "PIL"}) == []
