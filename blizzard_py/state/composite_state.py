"""The states of several sources that share one checkpoint. Pure.

The sources of a pipeline over event time share a watermark, so they share batches and one
checkpoint. Its id is that of the pipeline (`SourceContext.home_id`), and a save of it is one
commit point for all of them. Each source keeps its own journal, ledger and dead letters.

* ``members`` holds each source's own state by its name, without the following keys;
* ``in_flight`` and ``retries`` are at the top level. Their paths are *qualified*, ``name:path``,
  because no name of a source has a colon;
* ``stream``, ``last_batch``, ``last_output``, ``committed``, ``reset_ts`` and the common ``totals``
  are at the top level too. They belong to all sources.

`of_source` returns the state of one source as if it had no others. `with_source` puts a changed
one back: it is the inverse. Outputs belong to no source. Like the query's state they are counted
for the first source by name, and stand in its journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from blizzard_core.storage.protocol import Entry
from blizzard_py.job import FinishedFile, JobFile, StagedBadRecords
from blizzard_py.state.batch import Batch
from blizzard_py.state.journal_tally import JournalTally
from blizzard_py.state.source_state import CommitPoint, ProcessedNames, SourceState
from blizzard_py.state.stream_state import SourceStream, StreamState

F = TypeVar("F", Entry, FinishedFile, JobFile)

_COLON = ":"


def qualify_path(name: str, path: str) -> str:
    """Return a file's path prefixed with its source's name."""
    return f"{name}{_COLON}{path}"


def split_path(path: str) -> tuple[str, str]:
    """Split a qualified path into the source's name and the path below its root."""
    name, _, rest = path.partition(_COLON)
    return name, rest


def of_source(state: SourceState, name: str) -> SourceState:
    """Return the state of one source, with its part of the batches in flight."""
    own = state.members.get(name) or SourceState(names=ProcessedNames(unfolded=_first_tally(state)))
    retries = {split_path(path): retry for path, retry in state.work.retries.items()}
    parts = (
        part_of(batch, name, is_first=_is_first(state, name)) for batch in state.work.in_flight
    )
    stream = state.kind.stream
    return (
        own.with_position(reset_ts=state.position.reset_ts)
        .with_work(
            in_flight=tuple(part for part in parts if part is not None),
            retries={path: retry for (whose, path), retry in retries.items() if whose == name},
        )
        .with_ids(
            last_batch=state.ids.last_batch,
            last_output=state.ids.last_output,
            committed=state.ids.committed,
        )
        .with_kind(
            stream=None if stream is None else _share(stream, name, is_first=_is_first(state, name))
        )
        .with_summary(last_update_ts=state.summary.last_update_ts)
    )


def _first_tally(state: SourceState) -> JournalTally | None:
    """Return the tally that a new source starts with: empty if no batch ran yet, else None."""
    return state.names.unfolded if state.names.unfolded == JournalTally() else None


def with_source(state: SourceState, name: str, after: SourceState) -> SourceState:
    """Return the state of all sources, with ``after`` as the state of one.

    Its new batches are added to those of all sources, and its missing batches are removed. A
    removed batch may only have had files of this source.
    """
    before = {batch.batch for batch in of_source(state, name).work.in_flight}
    now = {batch.batch: batch for batch in after.work.in_flight}
    stay = [one for one in state.work.in_flight if one.batch in now or one.batch not in before]
    known = {batch.batch for batch in stay}
    fresh = [qualify_batch(batch, name) for key, batch in now.items() if key not in known]
    others = {
        path: retry for path, retry in state.work.retries.items() if split_path(path)[0] != name
    }
    own = {qualify_path(name, path): retry for path, retry in after.work.retries.items()}
    updated = (
        after.with_position(reset_ts=0.0)
        .with_work(in_flight=(), retries={})
        .with_ids(last_batch="", last_output="", committed=CommitPoint())
        .with_kind(stream=None)
        .with_summary(last_update_ts=None)
    )
    state = state.with_work(in_flight=(*stay, *fresh), retries={**others, **own}).with_ids(
        last_batch=max(state.ids.last_batch, after.ids.last_batch),
        last_output=max(state.ids.last_output, after.ids.last_output),
        committed=max(state.ids.committed, after.ids.committed, key=lambda point: point.number),
    )
    return replace(state, members={**state.members, name: updated})


def part_of(batch: Batch, name: str, *, is_first: bool) -> Batch | None:
    """Return a source's part of a batch, with its own paths; None if it has none of it.

    The first source's part has the outputs. It exists once a query has processed the batch.
    """
    mine = [(entry, path) for entry in batch.files if (path := _own(entry.path, name)) is not None]
    if not mine and not (is_first and (batch.results.outputs or batch.results.settled is not None)):
        return None
    finished = ((file, _own(file.path, name)) for file in batch.results.finished)
    return replace(
        batch, files=tuple(replace(entry, path=path) for entry, path in mine)
    ).with_results(
        finished=tuple(replace(file, path=path) for file, path in finished if path is not None),
        letters=tuple(_letters_of(batch.results.letters, name)),
        outputs=batch.results.outputs if is_first else (),
    )


def qualify_batch(batch: Batch, name: str) -> Batch:
    """Return a batch of one source with qualified paths."""
    return replace(batch, files=tuple(qualify_all(batch.files, name))).with_results(
        finished=tuple(qualify_all(batch.results.finished, name)),
        letters=tuple(qualify_letters(batch.results.letters, name)),
    )


def qualify_all(files: Iterable[F], name: str) -> list[F]:
    """Return files of one source with qualified paths."""
    return [replace(file, path=qualify_path(name, file.path)) for file in files]


def qualify_letters(letters: Iterable[StagedBadRecords], name: str) -> list[StagedBadRecords]:
    """Return staged dead letters of one source with qualified paths."""
    return [_renamed(each, lambda path: qualify_path(name, path)) for each in letters]


def _letters_of(letters: Iterable[StagedBadRecords], name: str) -> list[StagedBadRecords]:
    """Return the staged dead letters of one source. Each object belongs to one source."""
    return [
        _renamed(each, lambda path: split_path(path)[1])
        for each in letters
        if each.files and split_path(each.files[0][0])[0] == name
    ]


def _renamed(letters: StagedBadRecords, rename: Callable[[str], str]) -> StagedBadRecords:
    return replace(letters, files=tuple((rename(path), count) for path, count in letters.files))


def _own(path: str, name: str) -> str | None:
    whose, rest = split_path(path)
    return rest if whose == name else None


def _is_first(state: SourceState, name: str) -> bool:
    return name == min(state.members, default=name)


def _share(stream: StreamState, name: str, *, is_first: bool) -> StreamState:
    """Return one source's part of a query's state: its own counts and its newest time.

    Counts of the whole query appear once, for the first source.
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
