"""The configuration as Blizzard reads it: checked as a whole, work units among it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from blizzard_core.settings import load
from blizzard_core.settings.document import Config
from blizzard_py.app.unit_checks import unit_problems


def load_config(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """The validated configuration. Raises `ConfigError` with every problem, each with its line."""
    return load.load_config(path, environment, [unit_problems])
