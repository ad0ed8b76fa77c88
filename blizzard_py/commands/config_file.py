"""Configurations that commands write for people."""

from __future__ import annotations

from pathlib import Path

from blizzard_core.errors import ConfigError, StorageError
from blizzard_core.storage.local import LocalStorage


def write_configuration(path: Path, text: str) -> None:
    """Write it whole, or leave what is there as it is. Raises `ConfigError`.

    A disk that is full ends neither an older configuration nor the next try.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a device or a pipe stays what it is
        else:
            place = path.resolve()
            LocalStorage(str(place.parent)).put_atomic(place.name, text.encode())
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be written: {error.strerror}"]) from error
    except StorageError as error:
        raise ConfigError(str(path), [f"cannot be written: {error}"]) from error
