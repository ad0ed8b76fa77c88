"""Files named in a manifest, checked against it, and the active file that carries an output id.

The log shows the commit that brought an id, and the footers of that commit's files show the file.
If the log does not go back so far, footers of active files with Blizzard's names are read; the
results are cached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor

from blizzard_core.handover.groups import GroupFile
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.delta.table import DeltaLog
from penguin_py.intake.footers import read_portions
from penguin_py.intake.naming import is_blizzards, is_grouped
from penguin_py.model import Footer


class Outputs:
    """Output ids of active files, as far as they were asked for. Not thread-safe."""

    def __init__(self, storage: Storage, log: DeltaLog, pool: Executor) -> None:
        self._storage = storage
        self._delta = log
        self._pool = pool
        self._ids: dict[str, str | None] = {}

    def places(
        self, wanted: Collection[str], active: Mapping[str, int], version: int
    ) -> dict[str, list[str]]:
        """Return the active files of each of these ids; ``active`` maps paths to sizes."""
        for path in self._ids.keys() - active.keys():
            del self._ids[path]
        brought = self._delta.paths_of(wanted, version)
        self._look([path for path in brought if path in active], active)
        found = self._found(wanted)
        if len(found) < len(set(wanted)):
            self._look([p for p in active if is_blizzards(p) or is_grouped(p)], active)
            found = self._found(wanted)
        return found

    def _look(self, paths: Sequence[str], sizes: Mapping[str, int]) -> None:
        """Read the footers of these files that were not read yet."""
        unread = [Entry(path, sizes[path], 0.0) for path in paths if path not in self._ids]
        for footers in read_portions(self._storage, unread, self._pool):
            self._ids.update((footer.path, footer.output_id) for footer in footers.sound)
            # A rejected file carries none of our ids.
            self._ids.update((rejection.entry.path, None) for rejection in footers.rejected)
            self._ids.update((entry.path, None) for entry in footers.missing)

    def _found(self, wanted: Collection[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path, output_id in self._ids.items():
            if output_id in wanted and output_id is not None:
                found.setdefault(output_id, []).append(path)
        return found


_OR_DISCARD = ", or discard its group with `penguin discard --group`"


def footers_of(storage: Storage, files: Sequence[GroupFile], pool: Executor) -> list[Footer]:
    """Return the footers of the files, in order, read in ``pool``.

    Raises `SchemaMismatch` for the first file that is missing or differs from its manifest, and
    `StorageError`.
    """
    paths = [file.path for file in files]
    found = pool.map(storage.stat, paths)
    there = [_there(file, entry) for file, entry in zip(files, found, strict=True)]
    footers = list(_footers(storage, there, pool))
    for file, footer in zip(files, footers, strict=True):
        _check(file, footer)
    return footers


def _there(file: GroupFile, entry: Entry | None) -> Entry:
    if entry is None:
        raise SchemaMismatch(f"{file.path} is missing; restore it{_OR_DISCARD}")
    if entry.size != file.size:
        raise _other(file, f"{entry.size:,} bytes", f"{file.size:,}")
    return entry


def _footers(storage: Storage, entries: Sequence[Entry], pool: Executor) -> Iterator[Footer]:
    """Yield all footers, or raise the first error."""
    for found in read_portions(storage, entries, pool):
        for rejection in found.rejected:
            raise SchemaMismatch(f"{rejection.entry.path} {rejection.reason}")
        for entry in found.missing:
            raise SchemaMismatch(f"{entry.path} is missing; restore it{_OR_DISCARD}")
        yield from found.sound


def _check(file: GroupFile, footer: Footer) -> None:
    if footer.output_id != file.output_id:
        raise _other(file, f"output id {footer.output_id!r}", repr(file.output_id))
    if footer.metadata.num_rows != file.rows:
        raise _other(file, f"{footer.metadata.num_rows:,} rows", f"{file.rows:,}")


def _other(file: GroupFile, found: str, declared: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"{file.path} has {found}, and the manifest says {declared}; restore it as it was written"
    )
