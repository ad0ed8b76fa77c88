"""Files of a lake, wherever they lie, opened through the project's own storage.

A table's files are named relative to it, or absolutely (shallow clones, Iceberg): a `FileName` is
the root to open, and the path below it. What a store answers is told as `Connection` promises:
what passes by itself is raised as it came, the rest is a `SourceError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from blizzard_core.errors import AccessDenied, SourceError, StorageError
from blizzard_core.storage.opening import normalize_uri, open_source, open_storage, scheme_of
from blizzard_core.storage.protocol import Storage, StorageOptions
from blizzard_py.reading import Access

_STORAGE_OPTIONS = "storage_options"


@dataclass(frozen=True, slots=True)
class FileName:
    """``path`` below the storage root ``root``."""

    root: str
    path: str


def storage_options(access: Access) -> StorageOptions:
    """The connection's ``storage_options``: one block for our storage, deltalake and pyiceberg."""
    return cast("StorageOptions", access.options.get(_STORAGE_OPTIONS) or {})


def format_options(access: Access) -> dict[str, str]:
    """The connection's other options: the format's own."""
    return {name: str(value) for name, value in access.options.items() if name != _STORAGE_OPTIONS}


def place_of(access: Access, table: str) -> str:
    """The URI of ``table`` below the connection's, which may itself be the table."""
    if scheme_of(table) or table.startswith("/"):
        return normalize_uri(table)
    base = normalize_uri(access.uri)
    return normalize_uri(f"{base}/{table}") if table else base


def located(table: str, path: str) -> FileName:
    """The file that a table's metadata call ``path``: relative to the table, or absolute."""
    if not scheme_of(path) and not path.startswith(("/", "file:/")):
        return FileName(table, path)
    if path.startswith("file:/"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    whole = normalize_uri(path)
    if table and whole.startswith(f"{table}/"):
        return FileName(table, whole[len(table) + 1 :])
    if not scheme_of(whole):
        return FileName("/", whole.lstrip("/"))
    scheme, _, rest = whole.partition("://")
    bucket, _, key = rest.partition("/")
    return FileName(f"{scheme}://{bucket}", key)


class StorageCache:
    """The storages of one task or plan, each opened once."""

    def __init__(self, options: StorageOptions) -> None:
        self._options = options
        self._open: dict[str, Storage] = {}

    def at(self, root: str) -> Storage:
        """The storage with that root, for files whose names are known: links are followed."""
        if root not in self._open:
            self._open[root] = open_storage(root, self._options)
        return self._open[root]

    def listed(self, root: str) -> Storage:
        """The storage with that root, for listing what others write."""
        return open_source(root, self._options)


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Storage errors that do not pass become a `SourceError` about ``what``."""
    try:
        yield
    except StorageError as error:
        if error.retryable or isinstance(error, AccessDenied):
            raise
        raise SourceError(f"{what}: {error}") from error
