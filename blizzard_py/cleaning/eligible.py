"""The files of a source that may be cleaned. Pure.

A file may be archived or deleted only if all of this holds:

1. its last outcome in the journal is ``ingested``, without a bad record: letters may be removed;
2. every output of its batch was found in the table at least ``after`` ago, by the store's clock;
3. no other writer has taken rows out of the outputs' folders since its batch was made;
4. the object has the version that was listed for its batch (`Storage.delete_if` compares);
5. it is in no request, queue or batch of the source;
6. the source is not bare. The caller looks.

``CleaningState`` proves 2 and 3. A `CommitCheck` says that all outputs of all batches up to one
were in the table at a moment. One a day is enough, so the state stays small.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from blizzard_core.text import counted, iso
from blizzard_py.state.journal import BatchDocument
from blizzard_py.state.source_state import CleaningState, CommitCheck

# Checks are at least this far apart. Files wait for up to a day longer than asked for.
COMMIT_CHECK_SECS = 86_400.0
# Without a new check for so long somebody should look.
_STUCK_SECS = 3 * COMMIT_CHECK_SECS
# So much of the time counts in which no process checked: a day between two checks, and some more.
ABSENCE_SECS = 2 * COMMIT_CHECK_SECS
# Folders that are remembered one by one; they are in the checkpoint.
_HELD_FOLDERS = 1000


@dataclass(frozen=True, slots=True)
class CleanableFile:
    """A file that may be cleaned, with the version that its ``batch`` was made of."""

    path: str
    size: int
    version: str
    batch: str = ""


@dataclass(frozen=True, slots=True)
class CleaningChoice:
    """Files to clean, and the last batch that has none behind them."""

    files: tuple[CleanableFile, ...]
    done: str


@dataclass(frozen=True, slots=True)
class LogCheck:
    """The newest commit of the table's log: its version (-1: no log) and its digest.

    ``lost`` are folders of the table that lost rows since the last check, None if any may have.
    """

    version: int
    digest: str
    lost: frozenset[str] | None


def is_commit_check_due(state: CleaningState, last_batch: str, now: float) -> bool:
    """Return whether the table has to be looked at again, for batches that no check has found."""
    if last_batch <= state.seen_through:
        return False
    return not state.commit_checks or now - state.commit_checks[-1].seen_ts >= COMMIT_CHECK_SECS


def with_commit_check(state: CleaningState, found: CommitCheck) -> CleaningState:
    """Return the state with one more check.

    The store's clock may have been set back. Then the later look does not count before its time.
    Of one moment the last check is enough.
    """
    if found.batch <= state.seen_through:
        return state
    earlier = state.commit_checks
    if earlier:
        found = replace(found, seen_ts=max(found.seen_ts, earlier[-1].seen_ts))
        if found.seen_ts == earlier[-1].seen_ts:
            earlier = earlier[:-1]
    return replace(state, commit_checks=(*earlier, found))


def after_log(state: CleaningState, log: LogCheck, last_batch: str, now: float) -> CleaningState:
    """Return the state after a look at the log.

    The files of all batches up to ``last_batch`` stay for good if rows may have left their folders.
    """
    state = replace(state, log_version=log.version, log_digest=log.digest, at=now)
    held = {**state.held, **dict.fromkeys(log.lost or (), last_batch)}
    if log.lost is None or len(held) > _HELD_FOLDERS:
        return replace(state, commit_checks=(), done=max(state.done, last_batch), held={})
    return replace(state, held=held)


def after_absence(state: CleaningState, now: float) -> CleaningState:
    """Return the state as a process that starts may believe it.

    Nobody looked between the last look and now, and one of the two times may be wrong. So no more
    than `ABSENCE_SECS` of it count: the checks become later by the rest.
    """
    more = max(0.0, now - state.at - ABSENCE_SECS)
    seen = tuple(replace(one, seen_ts=one.seen_ts + more) for one in state.commit_checks)
    return replace(state, commit_checks=seen, at=now) if more else state


class HeldFolders:
    """The folders in which rows were removed, each with the last batch by then."""

    def __init__(self, held: Mapping[str, str]) -> None:
        self._folders = held
        self._columns: dict[tuple[str, ...], str] = {}
        for folder, last in held.items():
            columns = _columns(folder)
            self._columns[columns] = max(last, self._columns.get(columns, ""))

    def has(self, batch: str, folders: Collection[str]) -> bool:
        """Return whether rows of a batch with outputs in these folders may have been removed.

        OPTIMIZE moves rows into other files, but within a partition. A folder of other columns may
        be of any partition: the table has fewer columns of partitions, or other names for them.
        """
        return any(batch <= self._folders.get(folder, "") for folder in folders) or any(
            batch <= last and any(_columns(folder) != columns for folder in folders)
            for columns, last in self._columns.items()
        )


def _columns(folder: str) -> tuple[str, ...]:
    return tuple(part.partition("=")[0] for part in folder.split("/"))


def due_through(state: CleaningState, now: float, after_secs: float) -> str:
    """Return the last batch whose rows have been in the table for that long, empty if none."""
    old = [one.batch for one in state.commit_checks if one.seen_ts <= now - after_secs]
    return max(old, default="")


def choose(
    batches: Iterable[BatchDocument], through: str, held: HeldFolders, limit: int
) -> tuple[CleaningChoice, ...]:
    """Return the files to clean of each batch, in order.

    ``batches`` are all of the journal behind the last ones that were cleaned, in order, also those
    above ``through``: a later outcome of a file counts. Files with bad records are left for good,
    as are files without a version. The limit is exceeded by less than one batch.
    """
    found: dict[str, CleanableFile] = {}
    chosen: dict[str, list[str]] = {}
    is_full = False
    for batch in batches:
        for file in batch.files:
            found.pop(file.path, None)
        if batch.batch > through or is_full:
            continue
        folders = {output.final.rpartition("/")[0] for output in batch.outputs}
        is_held = held.has(batch.batch, folders)
        for file in batch.files:
            is_whole = file.outcome == "ingested" and not file.bad_rows
            if is_whole and file.version and not is_held:
                found[file.path] = CleanableFile(file.path, file.size, file.version, batch.batch)
        chosen[batch.batch] = [file.path for file in batch.files]
        is_full = len(found) >= limit
    if not is_full:
        chosen.setdefault(through, [])
    return tuple(
        CleaningChoice(tuple(f for p in paths if (f := found.get(p)) and f.batch == batch), batch)
        for batch, paths in chosen.items()
    )


def without_files(
    choices: Iterable[CleaningChoice], paths: Collection[str]
) -> tuple[CleaningChoice, ...]:
    """Return the choices without these files."""
    return tuple(
        replace(each, files=tuple(file for file in each.files if file.path not in paths))
        for each in choices
    )


def first_files(
    choices: Iterable[CleaningChoice],
    done: str,
    through: str,
    limit: float,
    bytes_limit: float = math.inf,
) -> CleaningChoice:
    """Return the files of the first batches behind ``done``, up to the limits, as one choice.

    Each limit is exceeded by less than one batch.
    """
    files: list[CleanableFile] = []
    for each in choices:
        if done < each.done <= through:
            done = each.done
            files += each.files
            if len(files) >= limit or sum(file.size for file in files) >= bytes_limit:
                break
    return CleaningChoice(tuple(files), done)


def after_cleaning(state: CleaningState, done: str, cleaned: int = 0) -> CleaningState:
    """Return the state after the files up to that batch; checks of them are dropped."""
    done = max(done, state.done)
    later = tuple(one for one in state.commit_checks if one.batch > done)
    held = {folder: last for folder, last in state.held.items() if last > done}
    cleaned += state.cleaned
    return replace(state, commit_checks=later, done=done, cleaned=cleaned, held=held)


def cleaning_notes(
    state: CleaningState | None, last_batch: str, now: float, *, is_dry_run: bool
) -> list[str]:
    """Return notes for people on the cleaning."""
    if state is None:
        return ["cleaning: has not begun; files of the next batches are cleaned"]
    notes = [f"cleaning: {counted(state.cleaned, 'file')} cleaned so far"]
    if is_dry_run:
        notes = ["cleaning: dry run, no file is touched; `blizzard clean --dry-run` lists them"]
    seen = state.commit_checks[-1].seen_ts if state.commit_checks else None
    if seen is not None and last_batch > state.seen_through and now - seen > _STUCK_SECS:
        notes.append(
            f"cleaning: since {iso(seen)} no look found the rows of later batches in the table, so"
            " their files stay; see whether Penguin runs, and which outputs it refuses"
        )
    return notes
