"""Which output ids a RESTORE took out of the table, read from the log backwards.

A version made by RESTORE holds what an older version held. So the versions whose commits count
are found by going back from the newest one: from a RESTORE the way goes on at the version that
it went back to, and the commits in between count no more. An id whose commit was passed over so
has no row in the table, wherever a compaction has put its rows in the meantime.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from concurrent.futures import Executor

from blizzard_core.storage.protocol import Storage
from penguin_py.delta.log import COMMITS_SEARCHED, SEARCHED_AT_ONCE, commit_info, ids_in
from penguin_py.delta.output_ids import discard_mark, replaced_mark

# What a group's commit has among its output ids: rows of groups come by their source alone.
_GROUP_MARK = re.compile(r"[^/]+/\d+")


class TakenOut:
    """The ids that RESTORE has taken out, as of one version. Reads the log as far as it is asked.

    Among the newest `COMMITS_SEARCHED`. Of a RESTORE to a time the version is not known, so what
    came before it counts as in the table. Not thread-safe.
    """

    def __init__(self, storage: Storage, version: int, pool: Executor) -> None:
        self._storage = storage
        self._pool = pool
        self._next = version
        self._last = max(0, version + 1 - COMMITS_SEARCHED)
        # The newest version whose content counts, of those that were not read yet.
        self._counting = version
        self._there: set[str] = set()
        self._out: set[str] = set()

    def has(self, output_id: str) -> bool:
        """Whether its commit counts no more. Raises `StateError`, `StorageError`."""
        while output_id not in self._there and self._next >= self._last:
            self._read_on()
        return output_id in self._out and output_id not in self._there

    def _read_on(self) -> None:
        first = max(self._last, self._next + 1 - SEARCHED_AT_ONCE[-1])
        numbers = range(self._next, first - 1, -1)
        self._next = first - 1
        infos = self._pool.map(lambda number: commit_info(self._storage, number), numbers)
        for number, info in zip(numbers, infos, strict=True):
            if number < self._last:
                return
            self._take(number, info)

    def _take(self, number: int, info: Mapping[str, object]) -> None:
        ids = ids_in(info)
        if number <= self._counting:
            self._there.update(ids)
        elif not any(map(_GROUP_MARK.fullmatch, ids)):
            self._out.update(ids)
        if number > self._counting or info.get("operation") != "RESTORE":
            return
        went_back = _version_of(info.get("operationParameters"))
        if went_back is None:
            self._last = number  # nobody knows what counts before it
        else:
            self._counting = min(went_back, number - 1)


class BarredIds:
    """Output ids that must not be committed: those that are, but for what a RESTORE took out.

    Ids that were given up, or whose rows a group has brought again, stay barred for ever.
    ``admitted`` are those that were asked for and are known and not barred.
    """

    def __init__(self, known: Container[str], taken_out: TakenOut) -> None:
        self._known = known
        self._taken_out = taken_out
        self.admitted: set[str] = set()

    def __contains__(self, output_id: object) -> bool:
        if not isinstance(output_id, str) or output_id not in self._known:
            return False
        if discard_mark(output_id) in self._known or replaced_mark(output_id) in self._known:
            return True
        if not self._taken_out.has(output_id):
            return True
        self.admitted.add(output_id)
        return False


def _version_of(parameters: object) -> int | None:
    version = parameters.get("version") if isinstance(parameters, Mapping) else None
    return int(version) if isinstance(version, int | str) and str(version).isdigit() else None
