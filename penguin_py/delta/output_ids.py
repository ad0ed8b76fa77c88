"""Every output id that was ever committed to a table, so that none is committed again.

An id is first in the commitInfo of its commit and in the memory (see
`penguin_py.planning.memory`). Before these grow long they are folded into *segments*: immutable
objects ``_penguin/output_ids/{version}-{uuid}-{table}.digests`` of sorted 16-byte digests
(`blizzard_core.checkpoint.digests`).

A segment's name has the log version up to which every id is in the segments. So a start reads only
later commits, and neither log clean-up nor a lost mirror can make an old id unknown. The name also
has the table and a fingerprint of that version's commit, its *anchor*: the first digits of the
UUID, which then has version 8. So `OutputIds.check` notices a log that lost commits or was
recreated, even if other commits have its version numbers by now. Otherwise the ids of lost commits
would reject valid files.

All instances of a table share the segments. Two instances that fold at the same time store the
same ids twice, which is harmless in a set.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from blizzard_core.checkpoint.digests import (
    Digests,
    among,
    digested,
    read_segment,
    segments_in,
    staying,
    write_segment,
)
from blizzard_core.errors import NotFound, StateError, Unavailable
from blizzard_core.storage.protocol import Storage

FOLDER = "_penguin/output_ids"
# More ids than this, or those of more versions, are folded away: the mirror that has
# them is written at each commit, and a start reads the commits since.
IDS_KEPT = 4096
VERSIONS_KEPT = 100
# A listing is outdated when another instance merges its segments.
TRIES = 5
_REMEDY = (
    "restore it, or delete it and accept that rows committed long ago are no longer recognised by"
    " their output ids"
)

_NAME = re.compile(
    r"(?P<version>\d{20})-(?:(?P<anchor>[0-9a-f]{12})8[0-9a-f]{19}|[0-9a-f]{32})"
    r"(?:-(?P<table>[0-9a-f]{16}))?\.digests"
)


def digests_of(output_ids: Iterable[str]) -> Digests:
    """Return the digests of ids: among a billion of them two agree once in 10²⁰ tables."""
    return digested(output_id.encode("utf-8", "replace") for output_id in output_ids)


def discard_mark(output_id: str) -> str:
    """Return the output-id mark of a discarded id: no row of it is or will be in the table."""
    return f"discarded/{output_id}"


def replaced_mark(output_id: str) -> str:
    """Return the output-id mark of an id whose rows a group has brought again."""
    return f"replaced/{output_id}"


@dataclass(frozen=True, slots=True)
class _Union:
    """The union of two containers."""

    one: Container[object]
    other: Container[object]

    def __contains__(self, wanted: object) -> bool:
        return wanted in self.one or wanted in self.other


class OutputIds:
    """The segments of one table; read when the first id is asked for. Not thread-safe.

    ``table_id`` is that of the table's metadata.
    """

    def __init__(self, storage: Storage, table_id: str = "") -> None:
        self._storage = storage
        self._mark = f"-{digests_of([table_id]).tobytes()[:8].hex()}" if table_id else ""
        self._segments: dict[str, Digests] | None = None
        self._paths = _listed(storage)
        self._folded = _version_of(self._paths)
        self._excluded: tuple[str, ...] = ()

    @property
    def folded(self) -> int:
        """The log's version up to which every id is in the segments; -1 if there are none."""
        return self._folded

    @property
    def left_out(self) -> tuple[str, ...]:
        """Segments that do not count, since the log has lost the commit they go up to."""
        return self._excluded

    def check(self, version: int | None, anchor: Callable[[int], str]) -> None:
        """Raise `StateError` for segments that a log of this table up to ``version`` contradicts.

        None stands for a table without a log. Segments whose last commit was replaced are left out,
        so `folded` is lower. ``anchor`` returns the fingerprint of a version's commit, or an empty
        text if the commit was cleaned up.
        """
        where = f"{self._storage.uri}/{FOLDER}"
        remedy = (
            "restore the log; or delete _penguin/ to build the table again from the files that are"
            " there"
        )
        if version is None and self._paths:
            raise StateError(f"{where}: is there, but the table has no log; {remedy}")
        if version is not None and self._folded > version:
            raise StateError(
                f"{where}: holds output ids of commits up to version {self._folded}, but the log"
                f" ends at {version}: it has lost commits; {remedy}"
            )
        for path in self._paths:
            table = _parse_name(path).get("table")
            if table and self._mark and f"-{table}" != self._mark:
                raise StateError(
                    f"{self._storage.uri}/{path}: holds output ids of another table that was in"
                    " this place; restore its log, or, if the table was replaced for good,"
                    f" delete {FOLDER}/"
                )
        self._excluded = tuple(path for path in self._paths if _is_lost(path, anchor))
        self._folded = _version_of({*self._paths} - {*self._excluded})

    def __contains__(self, output_id: object) -> bool:
        """Return whether the id is in a segment.

        Raises `StateError` and `StorageError` when first asked.
        """
        if not isinstance(output_id, str):
            return False
        wanted = digests_of([output_id])
        return any(among(wanted, digests)[0] for digests in self._loaded().values())

    def with_recent(self, recent: Iterable[str]) -> Container[str]:
        """Return the union of these ids and the ids in the segments."""
        return _Union(frozenset(recent), self)

    def are_due(self, recent: Sequence[str], version: int) -> bool:
        """Return whether ids of commits up to ``version`` in no segment are to be folded."""
        many = len(recent) >= IDS_KEPT or version - self._folded >= VERSIONS_KEPT
        return many or bool(self._excluded)

    def fold(self, output_ids: Iterable[str], version: int, anchor: str = "") -> None:
        """Add the ids of all commits up to ``version`` that are in no segment yet.

        ``anchor`` is that version's fingerprint. Durable on return. A crash in between leaves ids
        in two segments, or leaves out segments again.
        """
        fresh = np.unique(digests_of(output_ids))
        parts = sorted(self._loaded().items(), key=lambda part: -len(part[1]))
        place = staying([len(digests) for _, digests in parts], len(fresh))
        merged = dict(parts[place:])
        path = f"{FOLDER}/{version:020d}-{_unique(anchor)}{self._mark}.digests"
        digests = np.unique(np.concatenate([fresh, *merged.values()]))
        write_segment(self._storage, path, digests)
        self._segments = {**dict(parts[:place]), path: digests}
        self._folded = version
        for old in (*merged, *self._excluded):
            self._storage.delete(old)
        self._excluded = ()

    def _loaded(self) -> dict[str, Digests]:
        if self._segments is None:
            for _ in range(TRIES):
                paths = [path for path in _listed(self._storage) if path not in self._excluded]
                try:
                    self._segments = {
                        path: read_segment(self._storage, path, _REMEDY) for path in paths
                    }
                    return self._segments
                except NotFound:
                    continue
            raise Unavailable(f"{self._storage.uri}/{FOLDER}: changes faster than it can be read")
        return self._segments


def _listed(storage: Storage) -> list[str]:
    paths = [entry.path for entry in segments_in(storage, FOLDER)]
    return [path for path in paths if _NAME.fullmatch(path.removeprefix(f"{FOLDER}/"))]


def _parse_name(path: str) -> dict[str, str | None]:
    """Parse a segment's name: its version, and the commit and the table if it has them."""
    match = _NAME.fullmatch(path.removeprefix(f"{FOLDER}/"))
    return {} if match is None else match.groupdict()


def _unique(anchor: str) -> str:
    """Return 32 unique hex digits, beginning with the anchor if there is one."""
    drawn = uuid.uuid4().hex
    return f"{anchor}8{drawn[len(anchor) + 1 :]}" if anchor else drawn


def _is_lost(path: str, anchor: Callable[[int], str]) -> bool:
    """Return whether the commit that a segment goes up to is another one by now."""
    noted = _parse_name(path).get("anchor")
    return bool(noted) and anchor(_version_of([path])) not in ("", noted)


def _version_of(paths: Iterable[str]) -> int:
    return max((int(path.rpartition("/")[2][:20]) for path in paths), default=-1)
