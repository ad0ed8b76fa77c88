"""The shares of several sources in one batch, and the sources that the watermark waits for. Pure.

A source that brings no file holds a watermark of policy ``min`` back, for ever if need be. With
``idle_after`` it does so for that long: then it has a tick in each batch, at the newest time that
the others have brought, until it brings a file again. When that is so follows from the saved state
and from when the batch began, so another attempt at the batch has the same ticks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from blizzard_core.settings.event_time import Branch
from blizzard_core.storage.protocol import join
from blizzard_py.job import IngestJob, IngestResult
from blizzard_py.kernels.late_letters import LatenessReport
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.composite_state import lifted_files, lifted_letters, parted, qualified
from blizzard_py.state.stream_state import SourceStream, StreamState

_MILLI, _MICRO = 1000, 1_000_000


def jobs_of(job: IngestJob, members: Sequence[SourceContext]) -> dict[str, IngestJob]:
    """The job of each source with its own files: from its own place, into staging of its own."""
    if len(members) == 1:
        return {members[0].source_name: job}
    files = [(file, *parted(file.path)) for file in job.files]
    return {
        parts.source_name: replace(
            job,
            settings=replace(
                job.settings,
                source=parts.ingest.source,
                fields=parts.ingest.fields,
            ),
            staging=join(job.staging, parts.source_name),
            files=tuple(replace(file, path=p) for file, n, p in files if n == parts.source_name),
        )
        for parts in members
    }


def missing_columns(lead: SourceContext) -> dict[str, frozenset[str]]:
    """Of each of the lead's members the columns that only others have."""
    names = {field.name for field in lead.ingest.fields}
    return {
        parts.source_name: frozenset(names - {field.name for field in parts.ingest.fields})
        for parts in lead.members
    }


def join_reports(results: Mapping[str, IngestResult]) -> IngestResult:
    """Join the reports of all jobs, with qualified paths; of one it is that one's report."""
    if len(results) == 1:
        return next(iter(results.values()))
    found = list(results.items())
    return IngestResult(
        tuple(output for _, each in found for output in each.outputs),
        tuple(file for name, each in found for file in lifted_files(each.files, name)),
        sum(each.tasks for _, each in found),
        tuple(one for name, each in found for one in lifted_letters(each.letters, name)),
        sum(each.rows_dropped for _, each in found),
        unexpected=tuple(
            replace(one, path=qualified(name, one.path))
            for name, each in found
            for one in each.unexpected
        ),
    )


def idle_in(
    known: StreamState, branches: Iterable[Branch], present: Collection[str], started_ts: float
) -> frozenset[str]:
    """The sources that a batch of that time waits for no more; ``present`` ones have files in it.

    One that never had any is waited for since the first batch.
    """
    return frozenset(
        branch.source
        for branch in branches
        if branch.idle_us is not None
        and branch.source not in present
        and (own := known.sources.get(branch.source)) is not None
        and (started_ts - own.files_ts) * _MICRO >= branch.idle_us
    )


def ticks_of(
    known: StreamState,
    branches: Sequence[Branch],
    idle: Collection[str],
    newest_us: Mapping[str, int],
) -> dict[str, int]:
    """Return where a tick moves the watermark of a source, by its name (microseconds).

    ``newest_us`` are the newest times of the batch's own rows. What an operator advances to is
    of all sources, whichever the query follows.
    """
    found: dict[str, list[int]] = {branch.source: [] for branch in branches}
    for branch in branches:
        if known.is_to_advance:
            found[branch.source].append(known.advance_to_ms * _MILLI + branch.delay_us)
        if branch.source in idle:
            others = (each.source for each in branches if each.source != branch.source)
            times = [time for name in others for time in _times(known, newest_us, name)]
            found[branch.source] += [max(times)] if times else []
    # A watermark begins at 1970: up to there a tick moves nothing, and would count as a row.
    return {name: max(times) for name, times in found.items() if max(times, default=0) > 0}


def _times(known: StreamState, newest_us: Mapping[str, int], name: str) -> list[int]:
    times = [newest_us[name]] if name in newest_us else []
    own = known.sources.get(name)
    if own is not None and own.max_event_time_ms is not None:
        times.append(own.max_event_time_ms * _MILLI)
    return times


def newest_of(found: Mapping[str, Sequence[LatenessReport]]) -> dict[str, int]:
    """The newest time of each source's rows that are neither late nor ahead, if it has any."""
    times = {
        name: [one.newest_us for one in judged if one.newest_us is not None]
        for name, judged in found.items()
    }
    return {name: max(some) for name, some in times.items() if some}


def sources_after(
    known: StreamState,
    found: Mapping[str, Sequence[LatenessReport]],
    present: Collection[str],
    idle: Collection[str],
    started_ts: float,
) -> dict[str, SourceStream]:
    """Return the state of each of several sources after a batch; nothing of one that is alone."""
    if len(found) == 1:
        return {}
    newest = newest_of(found)
    after: dict[str, SourceStream] = {}
    for name, judged in found.items():
        own = known.sources.get(name, SourceStream(files_ts=started_ts))
        times = [own.max_event_time_ms] if own.max_event_time_ms is not None else []
        times += [newest[name] // _MILLI] if name in newest else []
        after[name] = SourceStream(
            max_event_time_ms=max(times, default=None),
            files_ts=started_ts if name in present else own.files_ts,
            idle=name in idle,
            late_rows=own.late_rows + sum(one.late for one in judged),
            partly_late_rows=own.partly_late_rows + sum(one.partly for one in judged),
            ahead_rows=own.ahead_rows + sum(one.ahead for one in judged),
        )
    return after
