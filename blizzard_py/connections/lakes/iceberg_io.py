"""pyiceberg's file access through the project's own storage: one set of options and errors.

A catalog's own files are read by the class that `properties` names. A table has properties too, and
they take precedence. So a writer of the table could name any Python function, and it would receive
the credentials of the stores. Therefore a table's files are read by an object that is made here. It
only reads: a source writes nothing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable, Table

from blizzard_core.storage.protocol import Storage, StorageOptions
from blizzard_core.storage.range_file import RangeFile
from blizzard_py.connections.lakes.locations import FileName, StorageCache, located

_OPTIONS = "blizzard.storage-options"


def properties(options: StorageOptions) -> dict[str, str]:
    """Return properties by which pyiceberg reads through our storage with these options."""
    return {"py-io-impl": f"{__name__}.StorageIO", _OPTIONS: json.dumps(dict(options))}


def table_of(catalog: Catalog, name: str, given: Mapping[str, str]) -> Table:
    """Return the catalog's table; ``given`` are the catalog's `properties`."""
    files = StorageIO(given)
    # Catalogs make a table's files with it. There is no public way to set it.
    catalog._load_file_io = lambda *_, **__: files  # type: ignore[method-assign]  # noqa: SLF001
    table = catalog.load_table(name)
    table.io = files
    return table


def table_at(place: str, given: Mapping[str, str]) -> Table:
    """Return the table with these metadata, without a catalog; ``given`` as in `table_of`."""
    files = StorageIO(given)
    metadata = FromInputFile.table_metadata(files.new_input(place))
    return StaticTable(("static-table", place), metadata, place, files, NoopCatalog("static-table"))


class StorageIO(FileIO):
    """Opens the files that metadata name, at any location."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(dict(properties))
        self._stores = StorageCache(json.loads(properties.get(_OPTIONS) or "{}"))

    def new_input(self, location: str) -> InputFile:
        """Return the file; it is first accessed when it is opened."""
        name = located("", location)
        return _Input(location, self._stores.at(name.root), name)

    def new_output(self, location: str) -> OutputFile:
        """Raise: a source is only read."""
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Raise: a source is only read."""
        raise NotImplementedError


class _Input(InputFile):
    def __init__(self, location: str, storage: Storage, name: FileName) -> None:
        super().__init__(location)
        self._storage = storage
        self._path = name.path

    def __len__(self) -> int:
        found = self._storage.stat(self._path)
        if found is None:
            raise FileNotFoundError(self.location)
        return found.size

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self._storage.stat(self._path) is not None

    def open(self, seekable: bool = True) -> InputStream:
        """Open the file. Only a seekable file is read in parts; metadata are read whole."""
        if seekable:
            ranges = partial(self._storage.read_range, self._path)
            return io.BufferedReader(RangeFile(ranges, len(self)))
        return io.BytesIO(self._storage.read(self._path))
