"""Recovery of a table's memory: reads the log and the mirror, writes nothing.

A log is cleaned up in time, and Penguin's state may be lost or restored from a copy. Then output
ids come from other mirrors and from files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import unquote

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.errors import StateError
from blizzard_core.handover.groups import COMMITTERS_FOLDER
from blizzard_core.storage.protocol import Entry, is_hidden, listed_below
from blizzard_core.watermark.closed_partitions import raise_floors
from blizzard_core.watermark.partition_time import lookback_floor
from blizzard_core.watermark.progress import Progress
from penguin_py.delta.log import COMMITS_SEARCHED, COMMON_APP_ID
from penguin_py.delta.output_ids import OutputIds
from penguin_py.intake.footers import read_portions
from penguin_py.intake.naming import is_grouped
from penguin_py.model import CHORES, OwnCommit, TableState
from penguin_py.planning.memory import (
    SETTLED_SECS,
    Memory,
    add_commits,
    memory_of_commit,
    merged_ids,
    mirror_from_json,
    mirror_path,
    rebuild_memory,
)
from penguin_py.table.part import TablePart


class Recovery(TablePart):
    """The recovery of one table's memory."""

    def _ids_of_mirrors(self, state: TableState, after: int) -> tuple[str, ...] | None:
        """Return the output ids in other instances' mirrors, of commits behind version ``after``.

        None if no mirror of this log covers the commits that are gone. Raises `StorageError`.
        """
        found: list[str] = []
        is_covered = False
        for mirror in self._mirrors():
            seen = mirror.seen
            if seen.table_id != state.table_id or not after < seen.version <= state.version:
                continue
            if seen.anchor and self._delta.anchor(seen.version) not in ("", seen.anchor):
                continue
            found += mirror.output_ids
            is_covered |= seen.version == state.version or self._delta.has_commit(seen.version + 1)
        return tuple(found) if is_covered else None

    def _ids_of_files(self) -> tuple[tuple[str, ...], int]:
        """Return the output ids in the footers of the table's files, and the number of files read.

        Rows that a compaction has rewritten carry none. Raises `StorageError`.
        """
        active = self._delta.active_files()
        paths, sizes = map(unquote, active.paths.to_pylist()), active.sizes.to_pylist()
        files = [
            Entry(path, size, 0.0)
            for path, size in zip(paths, sizes, strict=True)
            if is_grouped(path) or self._accept(path)
        ]
        found = tuple(
            footer.output_id
            for footers in read_portions(self._storage, files, self._pool)
            for footer in footers.sound
            if footer.output_id is not None
        )
        return found, len(files)

    def _mirrors(self) -> list[Memory]:
        suffix = mirror_path("").rpartition("/")[2]
        found = []
        for entry in listed_below(self._storage, COMMITTERS_FOLDER):
            if not entry.path.endswith(suffix):
                continue
            try:
                mirror = checkpoint.load(self._storage, entry.path, mirror_from_json)
            except StateError:
                continue  # of another instance; its own start stops for it
            found += [] if mirror is None else [mirror]
        return found

    def recover(self, state: TableState | None, folded: int) -> Memory:
        """Recover the memory for ``state``, from places in `penguin_py.planning.memory`'s order.

        All paths are read only if nothing else is left; then `Memory.commit_id` is empty. Output
        ids of versions up to ``folded`` are in segments; later ones are in the mirror, and
        `gather_output_ids` adds the others. Raises `StateError` and `StorageError`.
        """
        table, now = self._table, self._clock()
        oldest = lookback_floor(table.advanced.partition_filter, now)
        if state is None:
            depth = None if table.partition_types is None else len(table.partition_types)
            return Memory(
                Progress(depth=depth, floor=oldest), chores=dict.fromkeys(CHORES, int(now))
            )
        memory = self._remembered(state, folded)
        depth = len(state.partition_columns)
        if memory is None or memory.progress.depth not in (None, depth):
            known = self._delta.known_paths(state.version)
            own_files = [e for e in known if not is_hidden(e.path) and self._accept(e.path)]
            self._log.info(
                "progress_rebuilt_from_log", files=len(own_files), txn_version=state.txn_version
            )
            if state.removal_retention_secs < SETTLED_SECS:
                # A lower file may be one whose removal the log has forgotten.
                own_files = [replace(entry, modified=0.0) for entry in own_files]
            memory = rebuild_memory(
                own_files, depth, state.txn_version, now, table.advanced.grace_period
            )
            # Otherwise the first poll would list every partition the table ever had.
            floored = raise_floors(
                memory.progress, table.advanced.max_tracked_partitions, oldest, (), now
            )
            memory = replace(memory, progress=floored)
            if not own_files and oldest is not None:
                memory = replace(memory, progress=replace(memory.progress, floor=oldest))
        return replace(memory, progress=replace(memory.progress, depth=depth))

    def gather_output_ids(
        self,
        memory: Memory,
        state: TableState,
        segments: OutputIds,
        transactions: Mapping[str, int],
    ) -> Memory:
        """Add the output ids of all commits that no segment has.

        ``transactions`` are the newest of every application in the log. If they equal those that
        the memory has seen, no Penguin committed since, and nothing is read. If segments are left
        out, all commits behind the others are read, or `StateError` is raised. Other mirrors have
        the ids of commits that the log has lost. Without a mirror they come from the footers of the
        table's files.
        """
        folded = segments.folded
        if segments.left_out:
            if folded < state.version and not self._delta.has_commit(folded + 1):
                raise StateError(
                    f"{segments.left_out[-1]}: holds output ids up to a commit that is another one"
                    f" by now, and the log does not go back to version {folded + 1}, so which"
                    " output ids are committed is not certain; restore the log, or delete the file"
                    " and accept that rows committed long ago are no longer recognised by their"
                    " output ids"
                )
            news = self._delta.penguin_news(folded, state.version)
            return add_commits(replace(memory, output_ids=()), news.output_ids, news.document)
        if memory.seen.version >= 0 and dict(memory.seen.transactions) == dict(transactions):
            return memory
        after = max(folded, memory.seen.version)
        if after < 0:
            after = max(after, state.version - COMMITS_SEARCHED)
        news = self._delta.penguin_news(after, state.version)
        memory = add_commits(memory, news.output_ids, news.document)
        has_penguin = bool(state.txn_version) or COMMON_APP_ID in transactions
        if not has_penguin or after >= state.version or self._delta.has_commit(after + 1):
            return memory
        ids = self._ids_of_mirrors(state, after)
        if ids is None and memory.seen.version < 0:
            ids, files = self._ids_of_files()
            self._log.warning("output_ids_rebuilt", files=files, output_ids=len(ids))
        return replace(memory, output_ids=merged_ids(memory.output_ids, ids or ()))

    def check_no_state(self) -> None:
        """Raise `StateError` if the log is gone and the state is not.

        Files that the log had removed would come back.
        """
        table, path = self._table, mirror_path(self._table.state_name)
        mirror = checkpoint.load(self._storage, path, mirror_from_json)
        if mirror is not None and mirror.txn_version:
            raise StateError(
                f"{self._storage.uri}/{path}: remembers commit {mirror.txn_version} of"
                f" {table.app_id}, but the table has no log; restore the log; or delete _penguin/"
                " to build the table again from the files that are there"
            )

    def check_partitioning(self, state: TableState) -> None:
        """Refuse a configuration that contradicts the table. Raises `StateError`."""
        configured = self._table.partition_types
        if configured is not None and tuple(configured) != state.partition_columns:
            raise StateError(
                f"{self._table.uri}: the table is partitioned by"
                f" {list(state.partition_columns)}, but the configuration has {list(configured)}."
                " Change partition_by to the table's columns"
            )

    def _remembered(self, state: TableState, folded: int) -> Memory | None:
        path = mirror_path(self._table.state_name)
        damaged: StateError | None = None
        try:
            mirror = checkpoint.load(self._storage, path, mirror_from_json)
        except StateError as error:
            mirror, damaged = None, error
        hint = None if mirror is None else mirror.seen.own_version
        own = self._delta.own_commit(state.txn_version, state.version, hint)
        if damaged is not None:
            if own is None:
                raise damaged
            self._log.warning("mirror_ignored", error=str(damaged))
        chores = {} if mirror is None else mirror.chores
        why = None if mirror is None else self._contradiction(mirror, state, own)
        if why is not None:
            self._log.warning("mirror_ignored", error=f"{path}: {why}")
            mirror = None
            if folded < state.version and not self._delta.has_commit(folded + 1):
                raise StateError(
                    f"{self._storage.uri}/{path}: {why}, and the log does not go back to version"
                    f" {folded + 1}, so which output ids are committed is not certain; restore the"
                    " log, or delete the file and accept that rows committed long ago are no longer"
                    " recognised by their output ids"
                )
        if mirror is not None:
            self._check_own_commits(mirror, state, own, folded)
        if own is None:
            same = mirror is not None and mirror.txn_version == state.txn_version
            return mirror if same else None
        where = f"{self._storage.uri}: commitInfo of version {own.version}"
        earlier = () if mirror is None else mirror.output_ids
        memory = memory_of_commit(own.document, state.txn_version, earlier, where)
        if mirror is None:
            return replace(memory, chores=chores)
        if mirror.commit_id == memory.commit_id:
            return mirror
        return replace(memory, chores=chores, seen=mirror.seen)

    def _check_own_commits(
        self, mirror: Memory, state: TableState, own: OwnCommit | None, folded: int
    ) -> None:
        """Raise `StateError` for a mirror older than commits that the log no longer has.

        It was put back from a copy. The output ids of these commits are in nothing that is left, so
        rows that come again would not be recognised. Raises `StateError`.
        """
        known = max(folded, mirror.seen.version)
        newer = state.txn_version - mirror.txn_version - (own is not None)
        if newer <= 0 or known >= state.version or self._delta.has_commit(known + 1):
            return
        raise StateError(
            f"{self._storage.uri}/{mirror_path(self._table.state_name)}: is older than the table:"
            f" it knows commit {mirror.txn_version}, the log has commit {state.txn_version}, and"
            f" does not go back to version {known + 1}, so which output ids are committed is not"
            " certain; put the newest _penguin/ back that there is; or delete this file, and the"
            " ids are read from the footers of the table's files (rows that were compacted since"
            " are then not recognised if they come again)"
        )

    def _contradiction(
        self, mirror: Memory, state: TableState, own: OwnCommit | None
    ) -> str | None:
        """Return why the mirror is not of this log, which may be restored or another table's."""
        seen = mirror.seen
        if seen.table_id not in ("", state.table_id):
            return "is of another table that was in this place"
        if mirror.txn_version > state.txn_version:
            return f"remembers commit {mirror.txn_version}, the log has {state.txn_version} at most"
        if mirror.txn_version < state.txn_version:
            hint = seen.own_version
            own = self._delta.own_commit(mirror.txn_version, hint, hint) if hint >= 0 else None
        if own is not None and own.document.get("commit_id") != mirror.commit_id:
            return f"remembers a commit {mirror.txn_version} that is not the one in the log"
        if seen.version > state.version:
            return f"has seen version {seen.version} of the log, which ends at {state.version}"
        if seen.anchor and self._delta.anchor(seen.version) not in ("", seen.anchor):
            return f"has seen a commit {seen.version} of the log that is another one by now"
        return None
