"""Packages that only some formats and connections need."""

from __future__ import annotations

import importlib
from typing import Any

from blizzard_core.errors import ConfigError


def optional_package(module: str, extra: str) -> Any:
    """Return the module of an optional package.

    Raises `ConfigError` with the install command if the package is missing. A missing package is an
    installation error: a retry does not help.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        missing = f"{module.partition('.')[0]} is not installed"
    raise ConfigError(extra, [f"{missing}; run: pip install 'blizzard-penguin[{extra}]'"])
