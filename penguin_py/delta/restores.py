"""Output ids that a RESTORE removed, found by reading the log backwards.

A version made by RESTORE equals an older version. So the effective commits are found by going
back from the newest version: at a RESTORE the search continues at its target version, and the
commits in between do not count. An id whose commit was skipped has no row in the table, even if a
compaction moved its rows in the meantime.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping

from penguin_py.delta.log import COMMITS_SEARCHED, LogReader, ids_in
from penguin_py.delta.output_ids import discard_mark, replaced_mark

# Marks of a group's commit among its output ids: rows of groups come only from their source.
_GROUP_MARK = re.compile(r"[^/]+/\d+")


class RestoreRemovals:
    """The output ids that RESTORE removed, as of one version. Reads the log lazily.

    It covers the newest `COMMITS_SEARCHED`. The version of a RESTORE to a time is unknown, so all
    earlier commits count as in the table. Not thread-safe.
    """

    def __init__(self, log: LogReader, version: int) -> None:
        least = max(0, version + 1 - COMMITS_SEARCHED)
        self._infos: Iterator[tuple[int, Mapping[str, object]]] = log.newest_first(
            version, log.commit_info, least
        )
        # The newest effective version among those that were not read yet.
        self._counting = version
        self._there: set[str] = set()
        self._out: set[str] = set()

    def has(self, output_id: str) -> bool:
        """Return whether a RESTORE removed the id's commit. Raises `StateError`, `StorageError`."""
        while output_id not in self._there and (infos := next(self._infos, None)) is not None:
            self._take(*infos)
        return output_id in self._out and output_id not in self._there

    def _take(self, number: int, info: Mapping[str, object]) -> None:
        ids = ids_in(info)
        if number <= self._counting:
            self._there.update(ids)
        elif not any(map(_GROUP_MARK.fullmatch, ids)):
            self._out.update(ids)
        if number > self._counting or info.get("operation") != "RESTORE":
            return
        went_back = target_of(info)
        if went_back is None:
            self._infos = iter(())  # the effective versions before it are unknown
        else:
            self._counting = min(went_back, number - 1)


class BarredIds:
    """Output ids that must not be committed: all committed ones except those a RESTORE removed.

    Discarded ids, and ids whose rows a group has brought again, stay barred for ever. ``admitted``
    are the known ids that were requested and are not barred.
    """

    def __init__(self, known: Container[str], removals: RestoreRemovals) -> None:
        self._known = known
        self._removals = removals
        self.admitted: set[str] = set()

    def __contains__(self, output_id: object) -> bool:
        if not isinstance(output_id, str) or output_id not in self._known:
            return False
        if discard_mark(output_id) in self._known or replaced_mark(output_id) in self._known:
            return True
        if not self._removals.has(output_id):
            return True
        self.admitted.add(output_id)
        return False


def target_of(info: Mapping[str, object]) -> int | None:
    """Return the version that a RESTORE went back to, by its commitInfo; None if unknown."""
    parameters = info.get("operationParameters")
    version = parameters.get("version") if isinstance(parameters, Mapping) else None
    return int(version) if isinstance(version, int | str) and str(version).isdigit() else None
