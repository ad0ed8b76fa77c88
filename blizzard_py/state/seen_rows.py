"""Digests of published rows that may be read again, in segments beside the checkpoint.

``_blizzard/{source id}_seen/{epoch}~{uuidv7}.digests``, in the format of
`blizzard_py.state.processed_set`: 16 bytes a row. The checkpoint lists the valid segments
(`blizzard_py.state.column_state`), so a segment counts from the save that names it. Each has the
upper end of its rows, and is dropped once the next window begins there or above.

Small segments are merged with their neighbours, so that a poll a minute does not leave thousands
of them. A merged segment expires with its latest row, so up to about three times the digests of
the look-back remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile

from blizzard_core.checkpoint.digests import TAIL, Digests, from_bytes, np, staying
from blizzard_core.storage.protocol import Storage
from blizzard_py.state import processed_set
from blizzard_py.state.column_state import SeenSegment
from blizzard_py.state.processed_set import Segment
from blizzard_py.state.state_paths import StatePaths


def segment_path(source_id: str, segment: SeenSegment) -> str:
    """Return where a segment is, relative to the table."""
    return processed_set.path_of(StatePaths(source_id).row_digests, segment.segment)


@dataclass(slots=True)
class SeenRows:
    """The segments of one source, for the owner of its checkpoint in its ``epoch``."""

    storage: Storage
    source_id: str
    epoch: int
    _replaced: list[SeenSegment] = field(default_factory=list, init=False)

    def sweep(self, listed: Iterable[SeenSegment]) -> None:
        """Delete segments of older epochs that no checkpoint lists: crashes left them."""
        segments = [Segment(one.segment, one.count) for one in listed]
        processed_set.sweep(self.storage, self._folder, segments, self.epoch)

    def adding(
        self,
        listed: Sequence[SeenSegment],
        staged: Iterable[str],
        like: SeenSegment,
        expired: Callable[[SeenSegment], bool],
    ) -> tuple[SeenSegment, ...]:
        """Return the segments to save, with the ``staged`` digests added to one ``like`` this.

        ``expired`` segments are dropped. A written segment counts from the save. After it call
        `clean_up`, which deletes replaced segments. Raises `StateError`, `StorageError`.
        """
        current = [one for one in listed if not expired(one)]
        fresh = b"".join(self.storage.read(path) for path in staged)
        if fresh:
            parts: list[Digests] = [from_bytes(fresh)]
            alike = list(takewhile(partial(_are_alike, like), reversed(current)))[::-1]
            joining = alike[staying([one.count for one in alike], len(parts[0]), TAIL) :]
            for one in joining:
                path = segment_path(self.source_id, one)
                parts.append(processed_set.digests_at(self.storage, path))
            current = current[: len(current) - len(joining)]
            digests = np.unique(np.concatenate(parts))
            written = processed_set.write(self.storage, self._folder, digests, self.epoch)
            current.append(replace(like, segment=written.segment, count=written.count))
        names = {one.segment for one in current}
        self._replaced += [one for one in listed if one.segment not in names]
        return tuple(current)

    def clean_up(self) -> None:
        """Delete replaced segments, once the checkpoint lists the new ones."""
        while self._replaced:
            self.storage.delete(segment_path(self.source_id, self._replaced.pop()))

    @property
    def _folder(self) -> str:
        return StatePaths(self.source_id).row_digests


def _are_alike(one: SeenSegment, other: SeenSegment) -> bool:
    return (one.told_by, one.whole) == (other.told_by, other.whole)
