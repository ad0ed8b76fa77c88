"""Locations of a lake's files, opened through the project's own storage.

A table names its files relative to itself, or absolutely (shallow clones, Iceberg). A `FileName` is
the root to open, and the path below it. Errors of a store follow the contract of
`SourceConnection`: temporary errors are raised as they came, all others as `SourceError`.
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
    """A file: ``path`` below the storage root ``root``."""

    root: str
    path: str


def storage_options(access: Access) -> StorageOptions:
    """Return the connection's ``storage_options``, for our storage, deltalake and pyiceberg."""
    return cast("StorageOptions", access.options.get(_STORAGE_OPTIONS) or {})


def format_options(access: Access) -> dict[str, str]:
    """Return the connection's other options: the format's own."""
    return {name: str(value) for name, value in access.options.items() if name != _STORAGE_OPTIONS}


def place_of(access: Access, table: str) -> str:
    """Return the URI of ``table`` below the connection's, which may itself be the table."""
    if scheme_of(table) or table.startswith("/"):
        return normalize_uri(table)
    base = normalize_uri(access.uri)
    return normalize_uri(f"{base}/{table}") if table else base


def located(table: str, path: str) -> FileName:
    """Return the file that a table's metadata call ``path``: relative to the table, or absolute."""
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
        """Return the storage with that root, for known file names: links are followed."""
        if root not in self._open:
            self._open[root] = open_storage(root, self._options)
        return self._open[root]

    def listed(self, root: str) -> Storage:
        """Return the storage with that root, for listing files that others write."""
        return open_source(root, self._options)


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Turn permanent storage errors into a `SourceError` about ``what``."""
    try:
        yield
    except StorageError as error:
        if error.retryable or isinstance(error, AccessDenied):
            raise
        raise SourceError(f"{what}: {error}") from error
