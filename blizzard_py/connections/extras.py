"""Optional drivers, imported when they are needed and named where they are missing."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from blizzard_core.errors import ConfigError


def driver(module: str, extra: str) -> Any:
    """The module of an optional package.

    Raises `ConfigError` with the install command where it is missing: a driver process or a
    worker without it was set up without that extra, and waiting does not mend it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        missing = f"{module.partition('.')[0]} is not installed"
    raise ConfigError(extra, [f"{missing}; run: pip install 'blizzard-penguin[{extra}]'"])


def installed(module: str) -> bool:
    """Whether `driver` would find the package, without importing it."""
    return importlib.util.find_spec(module) is not None
