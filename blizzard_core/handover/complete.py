"""Certificates of complete partitions: Blizzard's completions, Penguin's markers. Pure.

``_blizzard/complete/{source id}.json`` mirrors the completions in a source's checkpoint. One says:
everything of a partition that lay at the source when a scan began is settled. The save of a batch
with files of the partition revokes it, and the mirror is written before any output of the batch is
renamed. So a reader that has seen an output sees the revocation in the mirror.

``_penguin/complete/{source id}/{partition}.json`` is a marker. It exists only while the partition
is complete, and all its rows are in the version of the table that the marker names.

``era`` changes whenever the counts of a source begin anew; completions and markers of another era
do not count. ``seq`` is the number of the completion of a partition within its era.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from blizzard_core.checkpoint.decode import decode_document

T = TypeVar("T")

COMPLETIONS_FOLDER = "_blizzard/complete"
MARKERS_FOLDER = "_penguin/complete"

# A marker that was removed leaves a note beside it: no partition with this ending is complete.
REVOKED_SUFFIX = ".revoked"

# A marker is a file with the partition's name and an ending; stores of all kinds take names of
# such a length. Counted in bytes: of each folder, and of the whole.
_LONGEST_FOLDER, _LONGEST_NAME = 200, 600

_BYTES = 32
NO_DIGEST = f"{0:064x}"
_REMEDY = "delete it: the daemon that wrote it writes it again"


def add_digest(total: str, *texts: str) -> str:
    """Return the sum of a digest and those of the texts, modulo 2^256, in 64 hexadecimal digits.

    The order of the texts does not matter, and a repeated text changes the sum.
    """
    value = int(total, 16)
    for text in texts:
        raw = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()
        value += int.from_bytes(raw)
    return f"{value % (1 << (8 * _BYTES)):064x}"


def file_text(path: str, size: int) -> str:
    """Return the text of a source file for the digest of its partition."""
    return f"{size} {path}"


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The counts of a partition, up to a completion.

    ``files`` are those that polls settled, ``quarantined`` the ones of them without their rows in
    the table: dead-lettered or reported. ``bytes`` and ``digest`` are of all settled files.
    ``requested`` are files that requests of operators ingested, a file each time. ``outputs`` and
    ``outputs_digest`` are the number and the sum of all output ids.
    """

    files: int = 0
    rows: int = 0
    bad_rows: int = 0
    quarantined: int = 0
    bytes: int = 0
    digest: str = NO_DIGEST
    requested: int = 0
    outputs: int = 0
    outputs_digest: str = NO_DIGEST

    @property
    def is_clean(self) -> bool:
        """Return whether every file and record is in the table."""
        return not (self.quarantined or self.bad_rows)


@dataclass(frozen=True, slots=True)
class Completion:
    """A partition as the mirror has it.

    ``complete_ts`` is since when it is complete, 0 if it is not. ``scan_ts`` is when the scan
    began that found nothing more. ``first`` and ``last`` are the first and the last batch with
    files of it. ``revoked_by`` is the file that came later, at ``revoked_ts``.
    """

    seq: int = 0
    complete_ts: float = 0.0
    scan_ts: float = 0.0
    first: str = ""
    last: str = ""
    contents: PartitionCounts = PartitionCounts()
    revoked_by: str = ""
    revoked_ts: float = 0.0


@dataclass(frozen=True, slots=True)
class Completions:
    """The mirror: counted partitions, complete or not. ``epoch`` is that of its writer.

    A complete partition that is not listed was dropped because there are many; its marker stays.
    """

    epoch: int
    era: str
    partitions: Mapping[str, Completion] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker: the partition is complete in this ``version`` of the table.

    ``anchor`` is the fingerprint of the version's commit, as `LogReader.anchor` has it.
    """

    source: str
    partition: str
    version: int
    era: str
    seq: int
    confirmed_ts: float
    complete_ts: float
    scan_ts: float
    contents: PartitionCounts
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """The outputs of a completion that are not in the table: all, and the ``refused`` of them.

    ``unnamed`` are outputs that the journal does not name, since it is pruned or was lost.
    """

    outputs: int = 0
    refused: int = 0
    unnamed: int = 0


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The state of a source's markers: era and epoch of its completions, and those that wait.

    ``version`` is the highest that a marker may name, -1 without one; ``anchor`` is its commit's.
    """

    era: str
    epoch: int
    waiting: Mapping[str, Missing] = field(default_factory=dict)
    version: int = -1
    anchor: str = ""


def completions_path(source_id: str) -> str:
    """Return where the completions of a source are mirrored."""
    return f"{COMPLETIONS_FOLDER}/{source_id}.json"


def confirmed_path(source_id: str) -> str:
    """Return where the state of a source's markers is."""
    return f"{MARKERS_FOLDER}/{source_id}.json"


def marker_path(source_id: str, partition: str) -> str:
    """Return where the marker of a partition is."""
    return f"{MARKERS_FOLDER}/{source_id}/{partition}.json"


def revoked_path(source_id: str, partition: str) -> str:
    """Return where the note about a removed marker is."""
    return marker_path(source_id, f"{partition}{REVOKED_SUFFIX}")


def why_unmarkable(partition: str) -> str | None:
    """Return why no store can keep a marker of a partition by its name; None if it can."""
    try:
        folders = [len(folder.encode()) for folder in partition.split("/")]
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    if partition.endswith(REVOKED_SUFFIX):
        return f"its name ends with {REVOKED_SUFFIX}"
    if not all(folders) or {".", ".."}.intersection(partition.split("/")):
        return "a folder of its name is empty, . or .."
    if max(folders) > _LONGEST_FOLDER or sum(folders) > _LONGEST_NAME:
        return f"a folder of its name is longer than {_LONGEST_FOLDER} bytes, or all are too long"
    return None


def parser(kind: type[T]) -> Callable[[Any, str], T]:
    """Return the function that decodes such documents. It raises `StateError`."""
    return partial(_decoded, kind)


def _decoded(kind: type[T], document: Any, where: str) -> T:
    return decode_document(kind, document, where, _REMEDY, open_=True)


def to_json(found: Completions | Marker | Confirmed) -> dict[str, Any]:
    """Return the document of a mirror, a marker, or the state of markers."""
    document: dict[str, Any] = msgspec.to_builtins(found)
    return document


def holds(marker: Marker, completions: Completions | None) -> bool:
    """Return whether a marker is of a completion that holds, or that the mirror has dropped.

    An older checkpoint that is brought back gives the same ``seq`` again, at another time.
    """
    if completions is None or marker.era != completions.era:
        return False
    found = completions.partitions.get(marker.partition)
    if found is None:
        return True
    is_of = (marker.seq, marker.complete_ts) == (found.seq, found.complete_ts)
    return is_of and bool(found.complete_ts)


def partitions_of(paths: Iterable[str], depth: int) -> set[str]:
    """Return the partitions of exactly this depth that paths lie in.

    Files of single records lie at the path of their file, below ``//records/``.
    """
    found = set()
    for path in paths:
        parts = path.removeprefix("//records/").split("/")
        if len(parts) > depth > 0:
            found.add("/".join(parts[:depth]))
    return found
