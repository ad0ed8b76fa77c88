"""The files of a source that may be cleaned. Pure.

A file may be archived or deleted only if all of this holds:

1. its last outcome in the journal is ``ingested``, and it has no open letter;
2. every output of its batch was seen in the table at least ``after`` ago, by the store's clock;
3. the table was not restored since its batch was made;
4. the object has the version that was listed for its batch (`Storage.delete_if` compares);
5. it is in no request, queue or batch of the source;
6. the source is not bare. The caller looks.

``CleaningState`` proves 2 and 3. A `Sighting` says that all outputs of all batches up to one were
in the table at a moment. One a day is enough, so the state stays small.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from blizzard_core.text import counted, iso
from blizzard_py.state.cleaning_state import CleaningState, Sighting
from blizzard_py.state.journal import BatchDocument

# Sightings are at least this far apart. Files wait for up to a day longer than asked for.
SIGHTING_SECS = 86_400.0
# Without a new sighting for so long somebody should look.
_STUCK_SECS = 3 * SIGHTING_SECS


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


def is_sighting_due(state: CleaningState, last_batch: str, now: float) -> bool:
    """Return whether the table has to be looked at again, for batches that no sighting has."""
    if last_batch <= state.seen_through:
        return False
    return not state.sightings or now - state.sightings[-1].seen_ts >= SIGHTING_SECS


def with_sighting(state: CleaningState, found: Sighting) -> CleaningState:
    """Return the state with one more sighting.

    The store's clock may have been set back. Then the later look does not count before its time.
    Of one moment the last sighting is enough.
    """
    if found.batch <= state.seen_through:
        return state
    earlier = state.sightings
    if earlier:
        found = replace(found, seen_ts=max(found.seen_ts, earlier[-1].seen_ts))
        if found.seen_ts == earlier[-1].seen_ts:
            earlier = earlier[:-1]
    return replace(state, sightings=(*earlier, found))


def after_log(
    state: CleaningState, version: int, last_batch: str, *, is_restored: bool
) -> CleaningState:
    """Return the state after a look at the log up to ``version``, for RESTORE.

    ``is_restored``: there was one since the last look, or the log does not reach back to it. Then
    rows may have left the table, and the files of all batches up to ``last_batch`` stay for good.
    """
    if is_restored:
        done = max(state.done, last_batch)
        return replace(state, sightings=(), done=done, log_version=version)
    return replace(state, log_version=version)


def due_through(state: CleaningState, now: float, after_secs: float) -> str:
    """Return the last batch whose rows have been in the table for that long, empty if none."""
    old = [one.batch for one in state.sightings if one.seen_ts <= now - after_secs]
    return max(old, default="")


def choose(
    batches: Iterable[BatchDocument], through: str, lettered: Collection[str], limit: int
) -> tuple[CleaningChoice, ...]:
    """Return the files to clean of each batch, in order.

    ``batches`` are all of the journal behind the last ones that were cleaned, in order, also those
    above ``through``: a later outcome of a file counts. ``lettered`` are batches with open letters
    on records: files that have some are left for good, as are files without a version. The limit
    is exceeded by less than one batch.
    """
    found: dict[str, CleanableFile] = {}
    chosen: dict[str, list[str]] = {}
    is_full = False
    for batch in batches:
        for file in batch.files:
            found.pop(file.path, None)
        if batch.batch > through or is_full:
            continue
        for file in batch.files:
            has_letter = file.bad_rows and batch.batch in lettered
            if file.outcome == "ingested" and file.version and not has_letter:
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
    limit: int,
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
    """Return the state after the files up to that batch; sightings of them are dropped."""
    done = max(done, state.done)
    later = tuple(one for one in state.sightings if one.batch > done)
    return replace(state, sightings=later, done=done, cleaned=state.cleaned + cleaned)


def cleaning_notes(
    state: CleaningState | None, last_batch: str, now: float, *, is_dry_run: bool
) -> list[str]:
    """Return notes for people on the cleaning."""
    if state is None:
        return ["cleaning: has not begun; files of the next batches are cleaned"]
    notes = [f"cleaning: {counted(state.cleaned, 'file')} cleaned so far"]
    if is_dry_run:
        notes = ["cleaning: dry run, no file is touched; `blizzard clean --dry-run` lists them"]
    seen = state.sightings[-1].seen_ts if state.sightings else None
    if seen is not None and last_batch > state.seen_through and now - seen > _STUCK_SECS:
        notes.append(
            f"cleaning: since {iso(seen)} no look found the rows of later batches in the table, so"
            " their files stay; see whether Penguin runs, and which outputs it refuses"
        )
    return notes
