"""Puts the evidence together, in the order in which it decides.

The checkpoint's own work on the file comes first (in flight, waiting, queued),
then the journals, then whether a poll would find it, then what is known of files
that none will.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from blizzard_core.handover.quarantine import quarantined, spelled
from blizzard_core.storage.protocol import Entry
from blizzard_core.table.committed import delta_versions
from blizzard_core.text import counted, iso
from blizzard_py.dead_letters.reader import put_away
from blizzard_py.dead_letters.reasons import reason_of
from blizzard_py.explain.evidence import (
    Journaled,
    Letter,
    journal_start,
    journaled,
    last_journaled,
    letter,
    out_of_time,
    records_replayed,
)
from blizzard_py.explain.explanation import DeltaStatus, Explanation, File, InBatch, Output
from blizzard_py.explain.location import Located
from blizzard_py.explain.verdict import waiting
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.protocol import Source
from blizzard_py.sources.story import Lateness, Standing, Story, Waiting, way_out
from blizzard_py.state.checkpoint_file import read_ledger, read_state
from blizzard_py.state.siblings import RECORDS_SUFFIX, REPLAY_SUFFIX
from blizzard_py.state.source_state import SourceState

# By how much the clocks of a source and of the table may differ.
CLOCK_SLACK_SECS = 5.0
_REQUESTED = "ingested by request, longer ago than the journal tells of; polls pass it"
_LONG_AGO = "ingested by `blizzard dlq replay`, longer ago than the journal tells of"


def unmatched(place: Located) -> Explanation:
    """The answer for a file of no source."""
    return Explanation(
        place.uri, "unmatched", place.reason, place.source, place.checked, place.path
    )


def explain(
    parts: Parts, source: Source[Any], place: Located, backfills: Mapping[str, str]
) -> Explanation:
    """The answer for a file below the root of the source, which ``parts`` are of.

    ``backfills`` maps the ids of the source's backfills whose range the file is
    in to the names of those ranges. Raises `StateError`, `StorageError`.
    """
    path = place.path or ""
    base = unmatched(place)
    story = source.explain(path)
    entry = story.entry
    if entry is not None:
        base = replace(base, file=File(entry.size, entry.modified))
    state = _state(parts, parts.id)
    if story.ignored is not None and not _is_known(parts, state, path):
        return _ignored(parts, base, story, story.ignored)
    standing = story.beside(state)
    partition, name = standing.place
    base = replace(base, compared_with=standing.compared, partition=partition, name=name)

    known = _in_work_or_replayed(parts, state, base, entry, backfills)
    if known is not None:
        return known
    new = entry is not None and story.ignored is None and standing.is_new()
    found = _journaled(parts, path, entry, backfills, state.anew_ts, thorough=not new)
    if found is not None:
        return _settled(parts, base, found, story, backfills, again=new)
    if entry is None:
        reason = "no such file, and neither the checkpoint nor the journal knows of one"
        return replace(base, verdict="missing", reason=reason)
    return _new(parts, state, standing, base) if new else _passed(parts, standing, base)


def _new(parts: Parts, state: SourceState, standing: Standing, base: Explanation) -> Explanation:
    """The answer for a file that polls have still to come to."""
    if state.ahead and _has_rows(parts, base.path or ""):
        return replace(base, verdict="ingested", reason=_REQUESTED)
    wait = standing.next_poll()
    return replace(base, verdict="pending", reason=wait.reason, pending=wait)


def _in_work_or_replayed(
    parts: Parts,
    state: SourceState,
    base: Explanation,
    entry: Entry | None,
    backfills: Mapping[str, str],
) -> Explanation | None:
    """The answer for a file that a run has taken, or a replay before its journal begins."""
    path = base.path or ""
    wait = _in_work(parts, state, path, backfills)
    if wait is not None:
        gone = "" if entry else "; the file is gone, so it will be let go of"
        return replace(base, verdict="pending", reason=wait.reason + gone, pending=wait)
    if _given(parts, path, state.anew_ts) is None and _replayed(parts, path, state.anew_ts):
        return replace(base, verdict="ingested", reason=_LONG_AGO)
    return None


def _ignored(parts: Parts, base: Explanation, story: Story, why: str) -> Explanation:
    """The answer for a file whose name no poll takes; somebody may have given it by hand."""
    path = base.path or ""
    wait = _replay_work(parts, path)
    if wait is not None:
        return replace(base, verdict="pending", reason=wait.reason, pending=wait)
    anew_ts = _state(parts, parts.id).anew_ts
    given = _given(parts, path, anew_ts)
    if given is None and _replayed(parts, path, anew_ts):
        return replace(base, verdict="ingested", reason=_LONG_AGO)
    if given is None:
        return replace(base, verdict="ignored", reason=why)
    return _settled(parts, base, given, story, {}, again=False)


def _is_known(parts: Parts, state: SourceState, path: str) -> bool:
    """Return whether a request has taken a file whose name no poll takes."""
    if waiting(state, path, 0) is not None:
        return True
    return read_ledger(parts.stores.sink, parts.id).settled_as(path) is not None


def _has_rows(parts: Parts, path: str) -> bool:
    """Return whether a file that polls have still to come to was brought by a request before."""
    return read_ledger(parts.stores.sink, parts.id).settled_as(path) == "rows"


def _state(parts: Parts, source_id: str) -> SourceState:
    return read_state(parts.stores.sink, source_id) or SourceState()


def _in_work(
    parts: Parts, state: SourceState, path: str, backfills: Mapping[str, str]
) -> Waiting | None:
    limit = parts.errors.advanced.max_retries
    found = waiting(state, path, limit)
    if found is not None:
        return found
    found = _replay_work(parts, path)
    if found is not None:
        return found
    for source_id, named in backfills.items():
        found = waiting(_state(parts, source_id), path, limit)
        if found is not None:
            return replace(found, reason=f"backfill {named}: {found.reason}")
    return None


def _replay_work(parts: Parts, path: str) -> Waiting | None:
    """What a replay has still to do with the file, whatever its name."""
    state = _state(parts, f"{parts.id}{REPLAY_SUFFIX}")
    found = waiting(state, path, parts.errors.advanced.max_retries)
    if found is None:
        return None
    return replace(found, reason=f"replay: {found.reason}")


def _journaled(
    parts: Parts,
    path: str,
    entry: Entry | None,
    backfills: Mapping[str, str],
    anew_ts: float,
    *,
    thorough: bool,
) -> Journaled | None:
    """The journal's entry, looked for from the file's modification on; a replay's before all.

    If ``thorough`` then before it as well: a file that was rewritten after it was
    ingested has a later time.
    """
    again = _given(parts, path, anew_ts)
    if parts.has_files and parts.files.units is not None:
        own = last_journaled(parts.stores.sink, parts.id, path, parts.concurrency, anew_ts)
        known = [found for found in (again, own) if found is not None]
        return max(known, key=lambda found: found.finished_ts, default=None)
    if again is not None:
        return again
    sink = parts.stores.sink
    if not parts.has_files:  # what is asked for may be read again, under the same name
        last = last_journaled(sink, parts.id, path, parts.concurrency, anew_ts)
        if last is not None:
            return last
    since = entry.modified - CLOCK_SLACK_SECS if entry else 0.0
    spans = [(since, None), (0.0, since)] if thorough and since > 0 else [(since, None)]
    for start, end in spans:
        for source_id in (parts.id, *backfills):
            anew = anew_ts if source_id == parts.id else 0.0
            found = journaled(sink, source_id, path, start, end, parts.concurrency, anew)
            if found is not None:
                return found
    return None


def _given(parts: Parts, path: str, anew_ts: float) -> Journaled | None:
    """Return what a replay or ``blizzard ingest`` has made of the file, whatever its name."""
    replay_id = f"{parts.id}{REPLAY_SUFFIX}"
    return last_journaled(parts.stores.sink, replay_id, path, parts.concurrency, anew_ts)


def _replayed(parts: Parts, path: str, anew_ts: float) -> bool:
    """Return whether a replay has ingested the file, also where its journal no longer says so."""
    ledger = read_ledger(parts.stores.sink, f"{parts.id}{REPLAY_SUFFIX}", anew_ts)
    return bool(ledger.ingested_since([path]))


def _settled(
    parts: Parts,
    base: Explanation,
    found: Journaled,
    story: Story,
    backfills: Mapping[str, str],
    *,
    again: bool,
) -> Explanation:
    """The answer for a file that a batch has settled."""
    named = backfills.get(found.source_id)
    replayed = found.source_id.endswith(REPLAY_SUFFIX)
    batch = InBatch(
        found.batch,
        found.attempt,
        found.started_ts,
        found.finished_ts,
        found.rows,
        found.bad_rows,
        named,
        replayed,
        found.group,
    )
    notes = _notes(parts, found, story, named, again=again)
    base = replace(base, batch=batch)
    path = base.path or ""
    if found.outcome == "reported":
        late = Lateness("report", f"late; reported in batch {found.batch} and left out{notes}")
        return replace(base, verdict="late", reason=late.reason, late=late)
    if found.outcome == "quarantined":
        stores = parts.stores
        dead = letter(stores.dlq, parts.letters_id, found.batch, f"{stores.source.uri}/{path}")
        why = f"{dead.stage}: {dead.error}" if dead.stage else "its dead letter is gone"
        way_in = _way_in(parts, found, dead, gone=story.entry is None)
        reason = f"given up in batch {found.batch}{notes}; {why}{way_in}"
        return replace(base, verdict="quarantined", reason=reason, dead_letter=dead)
    reason = f"{counted(found.rows, 'row')} in batch {found.batch}{notes}"
    if found.bad_rows:
        letters = f"{parts.stores.dlq.uri}/{parts.letters_id}/{found.batch}.records.ndjson"
        reason += f"; {counted(found.bad_rows, 'bad record')} in {letters}"
        if not _is_put_away(parts, f"{found.batch}.records"):
            reason += f", which {_replay(parts, f'{found.batch}.records')} ingests once mended"
    if parts.event_time is not None:
        uri = f"{parts.stores.source.uri}/{path}"
        apart = out_of_time(parts.stores.dlq, parts.letters_id, found.batch, uri)
        base = replace(base, out_of_time=apart)
        told = [f"{count:,} {stage}" for stage, count in apart.items() if count]
        if told:
            letters = f"{parts.stores.dlq.uri}/{parts.letters_id}/{found.batch}.records.ndjson"
            reason += f"; rows out of time in {letters}: {', '.join(told)}"
    records = records_replayed(
        parts.stores.sink, f"{parts.id}{RECORDS_SUFFIX}", path, parts.concurrency
    )
    if records:
        reason += f"; {counted(records, 'more row')} by replays of its dead records"
    outputs = _outputs(parts, story, found)
    refused = next((output for output in outputs if output.refusal is not None), None)
    if refused is not None:
        reason += (
            f"; its rows are not in the table, or not all, since Penguin refused {refused.path}:"
            f" {refused.refusal}. What helps: {way_out(parts)}"
        )
        if story.entry is None and parts.has_files and parts.event_time is None:
            reason += "; for that the file has to be there again, under its name"
    return replace(
        base,
        verdict="ingested" if refused is None else "refused",
        reason=reason,
        outputs=outputs,
        records_replayed=records,
    )


def _notes(parts: Parts, found: Journaled, story: Story, named: str | None, *, again: bool) -> str:
    """Whose batch it was (``named``: a backfill's range), and what became of the file since."""
    replayed = found.source_id.endswith(REPLAY_SUFFIX)
    notes = "" if named is None else f" of the backfill {named}"
    if replayed:
        notes = " of `blizzard dlq replay`"
    if found.request:
        notes = f" of request {found.request}"
    if found.group is not None and found.outcome == "ingested":
        notes += f", which replaces what it had before by group {found.group}"
    elif found.group is not None:
        notes += "; rows that it had before are kept"
    entry = story.entry
    if entry is None:
        notes += "; the file is gone since"
    elif entry.modified > found.finished_ts + CLOCK_SLACK_SECS:
        notes += f"; rewritten at {iso(entry.modified)}, which {_taken_again(parts, found)}"
    if again and named is None and not replayed:
        notes += "; the checkpoint does not know it, so the next poll takes it again"
    return notes


def _way_in(parts: Parts, found: Journaled, dead: Letter, *, gone: bool) -> str:
    """Return how a file that was given up gets in after all, or that it is not to."""
    if not dead.stage or parts.event_time is not None:
        return ""
    away = _is_put_away(parts, found.batch)
    closed = reason_of(parts.stores.dlq, parts.letters_id, found.batch) if away else None
    if closed is not None:
        return f"; closed by {closed.by} at {closed.at[:19]}: {closed.why}"
    once = "once it is there again" if gone else "once it is mended"
    if found.group is not None:  # a replay of its letter would leave it to whoever has its rows
        return (
            f"; {once} `blizzard backfill --replace` takes it, or `blizzard redo CONFIG"
            " --quarantined` where Penguin has refused its rows"
        )
    return "" if away else f"; {once} {_replay(parts, found.batch)} ingests it"


def _is_put_away(parts: Parts, letter_id: str) -> bool:
    """Return whether no replay would take the letters (any more)."""
    here, _away = put_away(parts.letters_id, letter_id)
    return parts.event_time is not None or parts.stores.dlq.stat(here) is None


def _replay(parts: Parts, letter_id: str) -> str:
    where = f"--pipeline {parts.pipeline} --source {parts.source_name}"
    return f"`blizzard dlq replay CONFIG {where} --letter {letter_id}`"


def _taken_again(parts: Parts, found: Journaled) -> str:
    units = parts.files.units if parts.has_files else None
    if units is None and found.outcome == "ingested" and parts.event_time is None:
        return "is not taken again by itself (`blizzard backfill --replace` takes it)"
    if units is None:
        return "is not taken again"
    due = found.finished_ts + units.cooldown
    return f"is taken again from {iso(due)} on"


def _outputs(parts: Parts, story: Story, found: Journaled) -> tuple[Output, ...]:
    """The batch's outputs that can hold the file's rows."""
    if not found.rows:
        return ()
    files = dict(found.outputs)
    if story.folder is not None:
        files = {f: rows for f, rows in files.items() if f.rpartition("/")[0] == story.folder}
    versions, whole = delta_versions(parts.stores.sink, files, found.started_ts, parts.concurrency)
    absent: DeltaStatus = "not committed yet" if whole else "unknown"
    missing = files.keys() - versions.keys()
    records = quarantined(parts.stores.sink) if missing else {}
    refused = {file: records[name].error for file in missing if (name := spelled(file)) in records}
    return tuple(
        Output(
            file,
            rows,
            "committed" if file in versions else "refused" if file in refused else absent,
            versions.get(file),
            refused.get(file),
        )
        for file, rows in sorted(files.items())
    )


def _passed(parts: Parts, standing: Standing, base: Explanation) -> Explanation:
    """The answer for an existing file that no poll finds and no journal holds."""
    found = standing.passed(partial(journal_start, parts.stores.sink, parts.id))
    return replace(base, verdict=found.verdict, reason=found.reason, late=found.late)
