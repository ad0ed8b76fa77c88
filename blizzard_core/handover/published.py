"""Published outputs of a table, as committers read them in Blizzard's journals. Reads only.

``_blizzard/journal/{run}/{batch}.json`` holds one object per batch, written before its outputs are
renamed to their final paths. A batch that was taken over also has ``{batch}~{n}.json``, which
replaces the first object.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import parsed
from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Entry, Storage, listed

JOURNAL_FOLDER = "_blizzard/journal"


@dataclass(frozen=True, slots=True)
class PublishedOutput:
    """An output: where it lies in the table, or lay before it was renamed."""

    final: str
    rows: int
    output_id: str
    staged: str = ""
    earlier: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """All places where it may lie, in the order in which it goes through them."""
        return tuple(place for place in (self.staged, *self.earlier, self.final) if place)


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    outcome: str


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """An object of a journal. Outputs of a ``group`` travel by its manifest."""

    batch: str
    files: tuple[_File, ...]
    outputs: tuple[PublishedOutput, ...]
    group: dict[str, Any] | None = None

    @property
    def ingested(self) -> list[str]:
        """The source files whose rows the outputs have."""
        return [file.path for file in self.files if file.outcome == "ingested"]


def first_name(moment: float) -> str:
    """Return a prefix below every UUIDv7 of ``moment`` or later (RFC 9562: 48 bits of ms)."""
    return str(uuid.UUID(int=max(0, int(moment * 1000)) << 80))[:13]


def journal_objects(storage: Storage, since: float) -> Iterator[Entry]:
    """Yield the journal objects of batches named at ``since`` or later, run by run.

    Costs a LIST for each run, and for each thousand of its batches. Raises `StorageError`.
    """
    for run in runs_in(storage):
        folder = f"{JOURNAL_FOLDER}/{run}"
        # "0" follows "/".
        yield from latest_objects(storage, f"{folder}/{first_name(since)}", f"{folder}0")


def latest_objects(storage: Storage, after: str, until: str) -> Iterator[Entry]:
    """Yield the valid object of each batch in a range of paths. Raises `StorageError`."""
    newest: dict[str, Entry] = {}
    for entry in listed(storage, after, until):
        if entry.path.endswith(".json"):
            batch = entry.path.removesuffix(".json").partition("~")[0]
            newest[batch] = entry  # "~" sorts behind "."
    yield from newest.values()


def published_batch(storage: Storage, path: str) -> PublishedBatch | None:
    """Read an object of a journal; None if it is gone. Raises `StateError`."""
    where = f"{storage.uri}/{path}"
    try:
        document = parsed(storage.read(path), where)
    except NotFound:
        return None
    return decode_document(PublishedBatch, document, where, open_=True)


def runs_in(storage: Storage) -> Iterator[str]:
    """Yield the ids of all sources with a journal. Costs a LIST for each. Raises `StorageError`."""
    after = f"{JOURNAL_FOLDER}/"
    while (entry := next(listed(storage, after, f"{JOURNAL_FOLDER}0"), None)) is not None:
        run = entry.path.removeprefix(f"{JOURNAL_FOLDER}/").partition("/")[0]
        yield run
        after = f"{JOURNAL_FOLDER}/{run}0"  # "0" follows "/"
