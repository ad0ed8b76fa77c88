"""Files named in a manifest, checked against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor

from blizzard_core.handover.groups import GroupFile
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.intake.footers import read_footers
from penguin_py.model import Footer

_OR_DISCARD = ", or discard its group with `penguin discard --group`"


def footers_of(storage: Storage, files: Sequence[GroupFile], pool: Executor | None) -> list[Footer]:
    """Return the footers of the files, in order; read concurrently if there is a ``pool``.

    Raises `SchemaMismatch` for the first file that is missing or differs from its manifest, and
    `StorageError`.
    """
    paths = [file.path for file in files]
    found = list(map(storage.stat, paths) if pool is None else pool.map(storage.stat, paths))
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


def _footers(storage: Storage, entries: Sequence[Entry], pool: Executor | None) -> Iterator[Footer]:
    """Yield all footers, or raise the first error."""
    while entries:
        found = read_footers(storage, entries, pool)
        if found.failed:
            raise found.failed[0].error
        for rejection in found.rejected:
            raise SchemaMismatch(f"{rejection.entry.path} {rejection.reason}")
        for entry in found.missing:
            raise SchemaMismatch(f"{entry.path} is missing; restore it{_OR_DISCARD}")
        yield from found.sound
        entries = found.unread


def _check(file: GroupFile, footer: Footer) -> None:
    if footer.output_id != file.output_id:
        raise _other(file, f"output id {footer.output_id!r}", repr(file.output_id))
    if footer.metadata.num_rows != file.rows:
        raise _other(file, f"{footer.metadata.num_rows:,} rows", f"{file.rows:,}")


def _other(file: GroupFile, found: str, declared: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"{file.path} has {found}, and the manifest says {declared}; restore it as it was written"
    )
