"""Optional drivers: imported where they are used, and asked for by name where they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from blizzard_core.errors import ConfigError


def needed(module: str, extra: str) -> ModuleType:
    """The module. Raises `ConfigError` that names the extra and the command that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # it is there, and something that it needs is not
        problem = f"{module} is not installed: pip install 'blizzard-penguin[{extra}]'"
        raise ConfigError(f"the extra [{extra}]", [problem]) from None
