"""Certificates of complete partitions: the claims of Blizzard, and the markers of Penguin. Pure.

``_blizzard/complete/{source id}.json`` mirrors the claims of a source's checkpoint. A claim says:
everything of a partition that lay at the source when a scan began is settled. The save of a batch
with files of a claimed partition revokes the claim, and the mirror is written before any output of
the batch is renamed. So a reader that has seen an output sees the revocation in the mirror.

``_penguin/complete/{source id}/{partition}.json`` is a marker. It exists only while the partition
is claimed, and all its rows are in the version of the table that the marker names.

``era`` changes whenever the counts of a source begin anew; claims and markers of another era do
not count. ``seq`` is the number of the claim of a partition within its era.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from blizzard_core.checkpoint.decode import decode_document

CLAIMS_FOLDER = "_blizzard/complete"
MARKERS_FOLDER = "_penguin/complete"

# A marker that was removed leaves a note beside it: no partition with this ending is claimed.
REVOKED_SUFFIX = ".revoked"

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
class Contents:
    """The counts of a partition, up to a claim.

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
class Claim:
    """A partition as the mirror has it.

    ``claimed_ts`` is when it was claimed, 0 if it is not complete. ``scan_ts`` is when the scan
    began that found nothing more. ``first`` and ``last`` are the first and the last batch with
    files of it. ``revoked_by`` is the file that came behind a claim, at ``revoked_ts``.
    """

    seq: int = 0
    claimed_ts: float = 0.0
    scan_ts: float = 0.0
    first: str = ""
    last: str = ""
    contents: Contents = Contents()
    revoked_by: str = ""
    revoked_ts: float = 0.0


@dataclass(frozen=True, slots=True)
class Claims:
    """The mirror: the claimed partitions, and those whose claims ended. ``epoch`` is its writer's.

    A claimed partition that is not listed was dropped because there are many; its marker stays.
    """

    epoch: int
    era: str
    partitions: Mapping[str, Claim] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker: the partition is complete in this ``version`` of the table."""

    source: str
    partition: str
    version: int
    era: str
    seq: int
    confirmed_ts: float
    claimed_ts: float
    scan_ts: float
    contents: Contents


@dataclass(frozen=True, slots=True)
class Missing:
    """The outputs of a claim that are not in the table: all, and the ``refused`` of them."""

    outputs: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The state of a source's markers: era and epoch of its claims, and those that wait."""

    era: str
    epoch: int
    waiting: Mapping[str, Missing] = field(default_factory=dict)


def claims_path(source_id: str) -> str:
    """Return where the claims of a source are mirrored."""
    return f"{CLAIMS_FOLDER}/{source_id}.json"


def confirmed_path(source_id: str) -> str:
    """Return where the state of a source's markers is."""
    return f"{MARKERS_FOLDER}/{source_id}.json"


def marker_path(source_id: str, partition: str) -> str:
    """Return where the marker of a partition is."""
    return f"{MARKERS_FOLDER}/{source_id}/{partition}.json"


def revoked_path(source_id: str, partition: str) -> str:
    """Return where the note about a removed marker is."""
    return marker_path(source_id, f"{partition}{REVOKED_SUFFIX}")


def claims_from_json(document: Any, where: str) -> Claims:
    """Decode the mirror. Raises `StateError`."""
    return decode_document(Claims, document, where, _REMEDY, open_=True)


def marker_from_json(document: Any, where: str) -> Marker:
    """Decode a marker. Raises `StateError`."""
    return decode_document(Marker, document, where, _REMEDY, open_=True)


def confirmed_from_json(document: Any, where: str) -> Confirmed:
    """Decode the state of markers. Raises `StateError`."""
    return decode_document(Confirmed, document, where, _REMEDY, open_=True)


def to_json(found: Claims | Marker | Confirmed) -> dict[str, Any]:
    """Return the document of a mirror, a marker, or the state of markers."""
    return asdict(found)


def stands(marker: Marker | None, claims: Claims, partition: str) -> bool:
    """Return whether a marker is that of a claim that holds."""
    claim = claims.partitions.get(partition)
    return (
        marker is not None
        and claim is not None
        and bool(claim.claimed_ts)
        and (marker.era, marker.seq) == (claims.era, claim.seq)
    )


def holds(marker: Marker, claims: Claims | None) -> bool:
    """Return whether a marker is true, also that of a claim that the mirror has dropped."""
    if claims is None or marker.era != claims.era:
        return False
    return marker.partition not in claims.partitions or stands(marker, claims, marker.partition)


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
