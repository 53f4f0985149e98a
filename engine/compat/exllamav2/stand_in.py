"""This package under the name `exllamav2`, for libraries that import that."""

from __future__ import annotations

import importlib
import pkgutil
import sys

from engine.compat.exllamav2.absent import absent_modules
from engine.errors import EngineError

_OURS = __name__.rpartition(".")[0]


def stand_in(name: str = "exllamav2") -> None:
    """Let `import exllamav2` find this package, with its modules, in this process.

    Integrations of other libraries, such as lm-format-enforcer's and Formatron's, then work with it. Raises
    `EngineError` if another package of that name has been imported.
    """
    package = importlib.import_module(_OURS)
    found = sys.modules.get(name)
    if found is not None and found is not package:
        raise EngineError(f"{name} has been imported already; call stand_in() before anything imports it.")
    sys.modules[name] = package
    absent_modules(name)
    for module in pkgutil.walk_packages(package.__path__, _OURS + "."):
        sys.modules[name + module.name.removeprefix(_OURS)] = importlib.import_module(module.name)
