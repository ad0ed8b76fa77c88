"""One document from all files of a configuration, with defaults and absolute paths.

A configuration is a file, or a folder of files. Files of a folder share nothing but names: each
block at the first level is in one file, and each connection, pipeline and table is in one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from blizzard_core.errors import ConfigError
from blizzard_core.limits import CONFIG_VALUES
from blizzard_core.settings.secret_files import SecretFiles
from blizzard_core.settings.yaml_file import Document, Key, SettingPlace, load_yaml
from blizzard_core.storage.opening import problems_of, scheme_of
from blizzard_core.text import did_you_mean

# Blocks that several files may add names to.
_NAMED = frozenset({"connections", "pipelines", "tables"})
_ALL = "*"
_SOURCES = ("pipelines", _ALL, "sources", _ALL)
# What each block of `defaults` goes below.
_DEFAULTS: Mapping[str, Key] = {
    "pipeline": ("pipelines", _ALL),
    "source": _SOURCES,
    "table": ("tables", _ALL),
}
# Keys that may hold a local path.
_PATHS: Mapping[Key, tuple[str, ...]] = {
    _SOURCES: ("source_uri", "path"),
    (*_SOURCES, "format"): ("avro_schema",),
    (*_SOURCES, "clean"): ("archive_uri",),
    ("pipelines", _ALL, "sink"): ("table_uri",),
    ("pipelines", _ALL, "keyed"): ("table_uri",),
    ("pipelines", _ALL, "error_handling", "advanced"): ("dlq_path",),
    ("tables", _ALL): ("table_uri",),
    ("connections", _ALL): ("uri",),
    ("global", "replicas"): ("uri",),
    (): ("lineage",),
}
_ALIASES = {"path": "source_uri"}
# Options of stores that name a file with a key.
KEY_FILE_OPTIONS = frozenset(
    ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_APPLICATION_CREDENTIALS")
)
# Drivers whose `uri` is another address than a local path.
_SERVERS = frozenset({"postgresql", "mysql", "jdbc", "http", "iceberg"})
_SQLITE = re.compile(r"^(?:sqlite|file):(?://)?")


class _Block(NamedTuple):
    key: Key
    values: dict[Any, Any]


def load_document(path: Path, environment: Mapping[str, str]) -> Document:
    """Return the file, or all files of the folder, as one document.

    Raises `ConfigError` if a file is no YAML, or if the folder has none.
    """
    source, files = str(path), _files(path)
    documents, unreadable = [], list[ConfigError]()
    for file in files:
        try:
            documents.append(load_yaml(file, environment, source))
        except ConfigError as error:
            unreadable.append(error)
    if len(files) == 1 and unreadable:
        raise unreadable[0]
    if unreadable:
        found = [f"{error.source}: {text}" for error in unreadable for text in error.problems]
        raise ConfigError(source, found)
    merged = _Merged(source)
    for document in documents:
        merged.add(document)
    merged.apply_defaults()
    merged.make_absolute()
    return merged.document()


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(
        each
        for each in path.iterdir()
        if each.suffix in {".yaml", ".yml"} and not each.name.startswith(".")
    )
    if not found:
        raise ConfigError(str(path), ["has no file whose name ends with .yaml or .yml"])
    return found


class _Merged:
    """The files that were added, as one."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.data: dict[Any, Any] = {}
        self.places: dict[Key, SettingPlace] = {}
        self.problems: list[str] = []
        self.filled: dict[str, str] = {}
        self.secrets = SecretFiles()

    def document(self) -> Document:
        """Return the result."""
        return Document(
            self.source, self.data, tuple(self.problems), self.places, self.filled, self.secrets
        )

    def add(self, document: Document) -> None:
        """Add a file; a name that an earlier file has is a problem."""
        self.problems += document.problems
        for block, value in document.data.items():
            present = self.data.setdefault(block, value)
            if present is value:
                continue
            if block in _NAMED and isinstance(present, dict) and isinstance(value, dict):
                for name, each in value.items():
                    if name in present:
                        self._report_twice((block, str(name)), document)
                    else:
                        present[name] = each
            elif block not in _NAMED:
                self._report_twice((block,), document)
            elif isinstance(present, dict):  # of the others the model says so
                self.problems.append(f"{document.locate((block,))}: must be a block of keys")
        self.places = {**document.places, **self.places}
        self.filled |= document.filled
        self.secrets.take(document.secrets)

    def _report_twice(self, key: Key, document: Document) -> None:
        first = self._place_of(key)
        where = f"{first.file}, line {first.line}"
        self.problems.append(f"{document.locate(key)}: is in {where}, too; give it once")

    def apply_defaults(self) -> None:
        """Put each block of `defaults` below the blocks that it is for; their own values win."""
        defaults = self.data.pop("defaults", None) or {}
        if not isinstance(defaults, dict):
            self.problems.append(f"{self._located(('defaults',))}: must be a block of keys")
            return
        for name, values in defaults.items():
            if str(name).startswith("x-"):
                continue
            where = self._located(("defaults", str(name)))
            if name not in _DEFAULTS:
                hint = did_you_mean(str(name), [*_DEFAULTS])
                self.problems.append(f"{where}: unknown key{hint}")
            elif not isinstance(values, dict):
                self.problems.append(f"{where}: must be a block of keys")
        for name, pattern in _DEFAULTS.items():
            if isinstance(values := defaults.get(name), dict):
                for block in _blocks(self.data, pattern):
                    self._complete(block, values, ("defaults", name))

    def _place_of(self, key: Key) -> SettingPlace:
        """Return the place of a value, or of the nearest block around it: keys have more forms."""
        return next(
            self.places[key[:end]] for end in range(len(key), -1, -1) if key[:end] in self.places
        )

    def _located(self, key: Key) -> str:
        return self._place_of(key).shown(self.source)

    def _complete(self, block: _Block, defaults: dict[Any, Any], origin: Key) -> None:
        own = _spellings(block)
        for name, value in defaults.items():
            here, there = (*block.key, str(name)), (*origin, str(name))
            if name not in block.values and _spelled(name, block.key) in own:
                continue
            if name not in block.values:
                block.values[name] = self._copied(value, here, there)
            elif isinstance(value, dict) and isinstance(block.values[name], dict):
                self._complete(_Block(here, block.values[name]), value, there)

    def _copied(self, value: Any, here: Key, there: Key) -> Any:
        """Return a copy of a default that stands at ``there``, for use at ``here``."""
        self.places[here] = self._place_of(there)
        if len(self.places) > CONFIG_VALUES:
            text = f"has more than {CONFIG_VALUES:,} values, defaults counted; split it"
            raise ConfigError(self.source, [text])
        if isinstance(value, dict):
            return {
                name: self._copied(each, (*here, str(name)), (*there, str(name)))
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [
                self._copied(each, (*here, index), (*there, index))
                for index, each in enumerate(value)
            ]
        return value

    def make_absolute(self) -> None:
        """Make local paths absolute: each is relative to the folder of its own file."""
        for pattern, keys in _PATHS.items():
            for block in _blocks(self.data, pattern):
                for key in keys:
                    self._resolve(block, key)
        for block in _store_options(self.data):
            for key in block.values:
                if str(key).upper() in KEY_FILE_OPTIONS:
                    self._resolve(block, key)

    def _resolve(self, block: _Block, key: Any) -> None:
        value = block.values.get(key)
        path = (
            relative_path(value, str(block.values.get("driver")))
            if isinstance(value, str)
            else None
        )
        if path is not None:
            folder = self._place_of((*block.key, str(key))).file.absolute().parent
            block.values[key] = str(folder / path)


def _spellings(block: _Block) -> set[Any]:
    """Return the keys that a block has, in any notation; stores' options count in any case."""
    return {*block.values, *(_spelled(name, block.key) for name in block.values)}


def _spelled(name: Any, key: Key) -> Any:
    if _are_store_options(key):
        return str(name).upper()
    return _ALIASES.get(name, name)


def relative_path(value: str, driver: str | None = None) -> str | None:
    """Return the path if a text is a relative one; None for other paths, URIs and JSON."""
    if driver in _SERVERS:
        return None
    path = _SQLITE.sub("", value) if driver == "sqlite" else value
    is_other = path.startswith(("/", "{", "[")) or scheme_of(path) or problems_of(path, {})
    return None if is_other else path


def _blocks(data: Any, pattern: Key, at: Key = ()) -> Iterator[_Block]:
    """Yield the blocks whose keys fit the pattern, in which `*` is any name."""
    if not isinstance(data, dict):
        return
    if not pattern:
        yield _Block(at, data)
        return
    for name in list(data) if pattern[0] == _ALL else [pattern[0]]:
        if name in data:
            yield from _blocks(data[name], pattern[1:], (*at, str(name)))


def _store_options(data: Any, at: Key = ()) -> Iterator[_Block]:
    """Yield the options of stores, wherever they stand."""
    if not isinstance(data, dict):
        return
    if at and _are_store_options(at):
        yield _Block(at, data)
    for name, value in data.items():
        yield from _store_options(value, (*at, str(name)))


def _are_store_options(key: Key) -> bool:
    return str(key[-1]).endswith("storage_options")
