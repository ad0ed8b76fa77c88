"""Values as YAML for the first configuration, and the file that it becomes.

Foreign text cannot end a scalar or a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blizzard_core.errors import ConfigError, StorageError

_PLAIN = re.compile(r"[a-z]+[a-z0-9]*(_[a-z0-9]+)*")
# Words that YAML takes for booleans and nothing.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# The first lines of a configuration.
EDITOR_LINES = """\
# yaml-language-server: $schema=./blizzard.schema.json
# Editors complete and check keys after `blizzard schema-of-config > blizzard.schema.json` here."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that stands in the file as a reference to the environment, and never itself."""

    variable: str
    value: str = field(repr=False)


def quoted(text: str) -> str:
    """Return a double-quoted YAML scalar; ``${`` and ``$NAME`` stay literal."""
    from blizzard_core.settings.yaml_file import BEGINS_VARIABLE

    doubled = re.sub(rf"\$(?={BEGINS_VARIABLE.pattern})", "$$", text)
    raw = json.dumps(doubled, ensure_ascii=False)
    return "".join(c if " " <= c <= "~" else f"\\U{ord(c):08x}" for c in raw)


def commented(text: str) -> str:
    """Foreign text that cannot end a comment."""
    return "".join(c if c.isprintable() else "?" for c in text)


def flow(value: Any) -> str:
    """Return a value on one line; a `Secret` as ``"${VARIABLE}"``."""
    match value:
        case Secret():
            return f'"${{{value.variable}}}"'
        case str():
            plain = _PLAIN.fullmatch(value) and value not in _WORDS
            return value if plain else quoted(value)
        case Mapping():
            inner = ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case Sequence():
            return f"[{', '.join(map(flow, value))}]"
        case _:
            return json.dumps(value)


def filled(value: Any) -> Any:
    """Return the value as it will be once the environment is filled in."""
    match value:
        case Secret():
            return value.value
        case str():
            return value
        case Mapping():
            return {key: filled(item) for key, item in value.items()}
        case Sequence():
            return [filled(item) for item in value]
        case _:
            return value


def secrets_in(value: Any) -> list[Secret]:
    """Every secret in a value, in its order."""
    match value:
        case Secret():
            return [value]
        case Mapping():
            return [secret for item in value.values() for secret in secrets_in(item)]
        case _:
            return []


def write_configuration(path: Path, text: str) -> None:
    """Write it whole, or leave what is there as it is. Raises `ConfigError`.

    A disk that is full ends neither an older configuration nor the next try.
    """
    from blizzard_core.storage.local import LocalStorage

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
