"""Several sources in one checkpoint: what of it is whose. Pure.

The sources of a pipeline over event time share a watermark, so they share batches and one
checkpoint. Its id is that of the pipeline (`SourceContext.home_id`), and a save of it is one
commit point for all of them. Each source keeps its own journal, ledger and dead letters.

* ``members`` holds each source's state by its name, as if it stood alone, but for what follows;
* ``in_flight`` and ``retries`` stand at the top. A path of them is *qualified*, ``name:path``: no
  name of a source has a colon;
* so do ``stream``, ``last_batch``, ``last_output``, ``committed`` and ``anew_ts``, which are of
  all, and their ``totals`` together.

`of_source` gives a source its state as it would be if it stood alone, and `with_source` puts back
what became of it; the second undoes the first. Outputs are of no source: they stand, as the
state of the query does, with the first one by name, in its journal and its counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from blizzard_core.storage.protocol import Entry
from blizzard_py.job import FinishedFile, StagedBadRecords
from blizzard_py.state.journal_tally import JournalTally
from blizzard_py.state.source_state import Batch, CommitPoint, SourceState
from blizzard_py.state.stream_state import SourceStream, StreamState

_COLON = ":"


def qualified(name: str, path: str) -> str:
    """The path of a source's file among those of all."""
    return f"{name}{_COLON}{path}"


def parted(path: str) -> tuple[str, str]:
    """A qualified path as the source's name and the path below its root."""
    name, _, rest = path.partition(_COLON)
    return name, rest


def of_source(state: SourceState, name: str) -> SourceState:
    """The state of one source, with its part of what is in flight."""
    own = state.members.get(name) or SourceState(unfolded=_first_tally(state))
    retries = {parted(path): retry for path, retry in state.retries.items()}
    parts = (part_of(batch, name, is_first=_is_first(state, name)) for batch in state.in_flight)
    stream = state.stream
    return replace(
        own,
        in_flight=tuple(part for part in parts if part is not None),
        retries={path: retry for (whose, path), retry in retries.items() if whose == name},
        stream=None if stream is None else _share(stream, name, is_first=_is_first(state, name)),
        last_batch=state.last_batch,
        last_output=state.last_output,
        committed=state.committed,
        reset_ts=state.reset_ts,
        last_update_ts=state.last_update_ts,
    )


def _first_tally(state: SourceState) -> JournalTally | None:
    """Return what a source counts its journal from: the first batch on, if there was none yet."""
    return state.unfolded if state.unfolded == JournalTally() else None


def with_source(state: SourceState, name: str, after: SourceState) -> SourceState:
    """The state of all once that of one source is ``after``.

    A batch of it that is new joins those of all, and one that is gone leaves them, which is only
    right for one that had files of this source alone.
    """
    before = {batch.batch for batch in of_source(state, name).in_flight}
    now = {batch.batch: batch for batch in after.in_flight}
    stay = [one for one in state.in_flight if one.batch in now or one.batch not in before]
    known = {batch.batch for batch in stay}
    fresh = [lifted(batch, name) for key, batch in now.items() if key not in known]
    others = {path: retry for path, retry in state.retries.items() if parted(path)[0] != name}
    own = {qualified(name, path): retry for path, retry in after.retries.items()}
    kept = replace(
        after,
        in_flight=(),
        retries={},
        stream=None,
        last_batch="",
        last_output="",
        committed=CommitPoint(),
        reset_ts=0.0,
        last_update_ts=None,
    )
    return replace(
        state,
        in_flight=(*stay, *fresh),
        retries={**others, **own},
        last_batch=max(state.last_batch, after.last_batch),
        last_output=max(state.last_output, after.last_output),
        committed=max(state.committed, after.committed, key=lambda point: point.number),
        members={**state.members, name: kept},
    )


def part_of(batch: Batch, name: str, *, is_first: bool) -> Batch | None:
    """A source's part of a batch, with its own paths; None if it has none of it.

    The first one's has the outputs, and is there once a query has settled the batch.
    """
    mine = [(entry, path) for entry in batch.files if (path := _own(entry.path, name)) is not None]
    if not mine and not (is_first and (batch.outputs or batch.settled is not None)):
        return None
    finished = ((file, _own(file.path, name)) for file in batch.finished)
    return replace(
        batch,
        files=tuple(replace(entry, path=path) for entry, path in mine),
        finished=tuple(replace(file, path=path) for file, path in finished if path is not None),
        letters=tuple(_letters_of(batch.letters, name)),
        outputs=batch.outputs if is_first else (),
    )


def lifted(batch: Batch, name: str) -> Batch:
    """A batch of one source among those of all."""
    return replace(
        batch,
        files=tuple(lifted_entries(batch.files, name)),
        finished=tuple(lifted_files(batch.finished, name)),
        letters=tuple(lifted_letters(batch.letters, name)),
    )


def lifted_entries(entries: Iterable[Entry], name: str) -> list[Entry]:
    """Listed files of one source among those of all."""
    return [replace(entry, path=qualified(name, entry.path)) for entry in entries]


def lifted_files(files: Iterable[FinishedFile], name: str) -> list[FinishedFile]:
    """Outcomes of one source among those of all."""
    return [replace(file, path=qualified(name, file.path)) for file in files]


def lifted_letters(letters: Iterable[StagedBadRecords], name: str) -> list[StagedBadRecords]:
    """Staged letters of one source among those of all."""
    return [_renamed(each, lambda path: qualified(name, path)) for each in letters]


def _letters_of(letters: Iterable[StagedBadRecords], name: str) -> list[StagedBadRecords]:
    """An object of them is of one task, and so of one source."""
    return [
        _renamed(each, lambda path: parted(path)[1])
        for each in letters
        if each.files and parted(each.files[0][0])[0] == name
    ]


def _renamed(letters: StagedBadRecords, rename: Callable[[str], str]) -> StagedBadRecords:
    return replace(letters, files=tuple((rename(path), count) for path, count in letters.files))


def _own(path: str, name: str) -> str | None:
    whose, rest = parted(path)
    return rest if whose == name else None


def _is_first(state: SourceState, name: str) -> bool:
    return name == min(state.members, default=name)


def _share(stream: StreamState, name: str, *, is_first: bool) -> StreamState:
    """Return what of a query is told with one source: its own rows, and its newest time.

    What is of the query as a whole counts once, with the first.
    """
    own = stream.sources.get(name, SourceStream())
    mine = replace(
        stream,
        max_event_time_ms=own.max_event_time_ms,
        late_rows=own.late_rows,
        partly_late_rows=own.partly_late_rows,
        ahead_rows=own.ahead_rows,
    )
    if is_first:
        return mine
    return replace(mine, unaccounted_rows=0, state_rows=0, state_bytes=0, operators=(), history=())
