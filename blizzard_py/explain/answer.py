"""Puts the evidence together, in the order in which it decides.

The checkpoint's own work on the file comes first (in flight, waiting, queued),
then the journals, then whether a poll would find it, then what is known of files
that none will.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from blizzard_core.errors import StateError
from blizzard_core.handover.quarantine import quarantined, spelled
from blizzard_core.storage.protocol import Entry
from blizzard_core.table.committed import Fate, delta_fates
from blizzard_core.text import counted, iso
from blizzard_py.cleaning.lists import CleaningLists
from blizzard_py.dead_letters.reader import put_away
from blizzard_py.dead_letters.reasons import reason_of
from blizzard_py.explain.evidence import (
    InBatch,
    Journaled,
    LetterEvidence,
    RecordReplays,
    journal_start,
    last_journaled,
    letter,
    out_of_time,
    record_replays,
    waiting,
)
from blizzard_py.explain.explanation import DeltaStatus, Explanation, File, Output
from blizzard_py.explain.location import Located
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import Source
from blizzard_py.sources.story import DOUBTFUL, ItemStatus, Lateness, Story, way_out
from blizzard_py.state.checkpoint_file import read_ledger, read_state
from blizzard_py.state.ledger import Settled
from blizzard_py.state.source_state import SourceState

# By how much the clocks of a source and of the table may differ.
CLOCK_SLACK_SECS = 5.0
_REQUESTED = "ingested by request, longer ago than the journal reaches; polls skip it"


def explain_unmatched(place: Located) -> Explanation:
    """Explain a file of no source."""
    return Explanation(
        place.uri, "unmatched", place.reason, place.source, place.checked, place.path
    )


def explain(parts: SourceContext, source: Source[Any], place: Located) -> Explanation:
    """Explain a file below the root of the source of ``parts``.

    Raises `StateError`, `StorageError`.
    """
    path = place.path or ""
    base = explain_unmatched(place)
    story = source.explain(path)
    entry = story.entry
    if entry is not None:
        base = replace(base, file=File(entry.size, entry.modified))
    state = _state(parts)
    if story.ignored is not None and not _is_known(parts, state, path):
        return replace(base, verdict="ignored", reason=story.ignored)
    status = story.status_in(state)
    partition, name = status.place
    base = replace(base, compared_with=status.comparison, partition=partition, name=name)
    wait = waiting(state.work, path, parts.errors.advanced.max_retries)
    if wait is not None:
        missing_note = "" if entry else "; the file is missing, so it will be dropped"
        return replace(base, verdict="pending", reason=wait.reason + missing_note, pending=wait)
    new = entry is not None and story.ignored is None and status.is_new()
    found = _journaled(parts, path, entry, state, thorough=not new)
    cleaned = _cleaned_note(parts, path, entry)
    if found is not None:
        explained = _explain_processed(parts, base, found, story, again=new)
        return replace(explained, reason=f"{explained.reason}{cleaned}")
    if cleaned:
        return replace(base, verdict="ingested", reason=f"ingested{cleaned}")
    if entry is None:
        reason = "no such file, and neither the checkpoint nor the journal knows of one"
        return replace(base, verdict="missing", reason=reason)
    return _new(parts, state, status, base) if new else _passed(parts, status, base)


def _cleaned_note(parts: SourceContext, path: str, entry: Entry | None) -> str:
    """Return when a file was cleaned and where it is, empty if it was not.

    A file that is there may be tagged. The lists are read only if files are tagged now.
    """
    files = parts.source.as_files
    if entry is not None and (files is None or files.clean is None or not files.clean.put_tag):
        return ""
    found = CleaningLists(parts.stores.sink, parts.id).find(path)
    if found is None or found[1] not in {"cleaned", "gone"}:
        return ""
    made, outcome = found
    if made.tag and outcome == "cleaned":
        return f"; its file was tagged at {iso(made.at)} (`clean` of the source)"
    if entry is not None:
        return ""
    where = f"archived in {made.archive}" if made.archive else "deleted"
    if outcome == "gone":
        to = f", perhaps to {made.archive}" if made.archive else ""
        where = f"gone{to}, when it was to be cleaned,"
    return f"; its file was {where} at {iso(made.at)} (`clean` of the source)"


def _new(
    parts: SourceContext, state: SourceState, status: ItemStatus, base: Explanation
) -> Explanation:
    """Explain a file that polls have not reached yet."""
    # Only requests settle files before polls reach them.
    settled = _ledger_outcome(parts, base.path or "") if state.position.ahead else None
    if settled == "rows":
        return replace(base, verdict="ingested", reason=_REQUESTED)
    if settled == "unknown":
        return replace(base, verdict="unknown", reason=DOUBTFUL)
    wait = status.next_poll()
    return replace(base, verdict="pending", reason=wait.reason, pending=wait)


def _is_known(parts: SourceContext, state: SourceState, path: str) -> bool:
    """Return whether a request has ingested a file whose name polls ignore."""
    if waiting(state.work, path, 0) is not None:
        return True
    return _ledger_outcome(parts, path) is not None


def _ledger_outcome(parts: SourceContext, path: str) -> Settled | None:
    """Return the outcome of a file in the ledger."""
    return read_ledger(parts.stores.sink, parts.id).outcome_of(path)


def _state(parts: SourceContext) -> SourceState:
    return read_state(parts.stores.sink, parts.id) or SourceState()


def _journaled(
    parts: SourceContext, path: str, entry: Entry | None, state: SourceState, *, thorough: bool
) -> Journaled | None:
    """Return the file's last journal record, searched from its modification on.

    If ``thorough`` then before it as well: a file that was rewritten after it was
    ingested has a later time.
    """
    sink, width, reset_ts = parts.stores.sink, parts.concurrency, state.position.reset_ts
    since = entry.modified - CLOCK_SLACK_SECS if entry and parts.has_files else 0.0
    # Rows that are in come again only in batches that replace, and what is asked for may.
    replaces = state.ids.group_seq > 0 or not parts.has_files
    for start in (since, 0.0) if thorough and since > 0 else (since,):
        found = last_journaled(sink, parts.id, path, width, start, reset_ts, replaces=replaces)
        if found is not None:
            return found
    return None


def _explain_processed(
    parts: SourceContext,
    base: Explanation,
    found: Journaled,
    story: Story,
    *,
    again: bool,
) -> Explanation:
    """Explain a file that a batch has processed."""
    batch = found.batch
    notes = _notes(parts, found, story, again=again)
    base = replace(base, batch=batch)
    path = base.path or ""
    if found.outcome == "reported":
        late = Lateness("report", f"late; reported in batch {batch.batch} and left out{notes}")
        return replace(base, verdict="late", reason=late.reason, late=late)
    if found.outcome == "quarantined":
        stores = parts.stores
        dead = letter(stores.dlq, parts.letters_id, batch.batch, f"{stores.source.uri}/{path}")
        why = f"{dead.stage}: {dead.error}" if dead.stage else "its dead letter is missing"
        way_in = _way_in(parts, batch, dead, is_missing=story.entry is None)
        reason = f"given up in batch {batch.batch}{notes}; {why}{way_in}"
        return replace(base, verdict="quarantined", reason=reason, dead_letter=dead)
    reason = f"{counted(batch.rows, 'row')} in batch {batch.batch}{notes}"
    replays = RecordReplays()
    if batch.bad_rows:
        replays = record_replays(parts.stores.sink, parts.id, path, batch, parts.concurrency)
        reason += _bad_records(parts, batch, replays)
    if parts.event_time is not None:
        uri = f"{parts.stores.source.uri}/{path}"
        out_of_time_counts = out_of_time(parts.stores.dlq, parts.letters_id, batch.batch, uri)
        base = replace(base, out_of_time=out_of_time_counts)
        parts_of_text = [
            f"{count:,} {stage}" for stage, count in out_of_time_counts.items() if count
        ]
        if parts_of_text:
            letters = f"{parts.stores.dlq.uri}/{parts.letters_id}/{batch.batch}.records.ndjson"
            reason += f"; rows out of time in {letters}: {', '.join(parts_of_text)}"
    if replays.rows:
        reason += f"; {counted(replays.rows, 'more row')} by replays of its dead records"
    outputs = _outputs(parts, story, found)
    refused = next((output for output in outputs if output.refusal is not None), None)
    if refused is not None:
        reason += (
            f"; its rows are not in the table, or not all, since Penguin refused {refused.path}:"
            f" {refused.refusal}. What helps: {way_out(parts)}"
        )
        if story.entry is None and parts.can_reingest:
            reason += "; for that the file has to be there again, under its name"
    elif outputs:
        reason += _removal_note(parts, outputs)
    is_gone = bool(outputs) and all(output.delta_status == "removed" for output in outputs)
    return replace(
        base,
        verdict="removed" if is_gone else "ingested" if refused is None else "refused",
        reason=reason,
        outputs=outputs,
        records_replayed=replays.rows,
    )


def _bad_records(parts: SourceContext, batch: InBatch, replays: RecordReplays) -> str:
    """Return where letters of a file's bad records are now, and what ingests them."""
    dlq, first = parts.stores.dlq, f"{batch.batch}.records"
    note = f"; {counted(batch.bad_rows, 'bad record')} in {dlq.uri}/"
    here, away = put_away(parts.letters_id, first)
    if not _is_put_away(parts, first):
        return f"{note}{here}, which {_replay(parts, first)} ingests once mended"
    if parts.event_time is not None:
        return f"{note}{here}"
    closed = reason_of(dlq, parts.letters_id, first)
    why = "replayed" if closed is None else f"closed by {closed.by}: {closed.why}"
    note = f"{note}{away} ({why})"
    again = [each for each in replays.letters if not _is_put_away(parts, each)]
    if not again:
        return note
    newest = put_away(parts.letters_id, again[-1])[0]
    return (
        f"{note}, and bad again in {dlq.uri}/{newest},"
        f" which {_replay(parts, again[-1])} ingests once mended"
    )


def _notes(parts: SourceContext, found: Journaled, story: Story, *, again: bool) -> str:
    """Return notes about the file's request, its replacement and later changes."""
    batch = found.batch
    notes = f" of request {batch.request}" if batch.request else ""
    if batch.group is not None and found.outcome == "ingested":
        notes += f", which replaces what it had before by group {batch.group}"
    elif batch.group is not None:
        notes += "; its earlier rows stay"
    if batch.row_groups:
        notes += f"; {batch.row_groups}"
    entry = story.entry
    if entry is None:
        notes += "; the file has been deleted since"
    elif entry.modified > batch.finished_ts + CLOCK_SLACK_SECS:
        notes += f"; rewritten at {iso(entry.modified)}, which {_next_reading(parts, found)}"
    elif parts.has_files and found.size != entry.size:  # copied with its older time
        change = f"{found.size:,} bytes then and {entry.size:,} now"
        notes += f"; rewritten ({change}), which {_next_reading(parts, found)}"
    if again and not batch.request:
        notes += "; the checkpoint does not know it, so the next poll ingests it again"
    return notes


def _way_in(parts: SourceContext, batch: InBatch, dead: LetterEvidence, *, is_missing: bool) -> str:
    """Return how a dead-lettered file can be ingested, or that it was closed."""
    if not dead.stage or parts.event_time is not None:
        return ""
    away = _is_put_away(parts, batch.batch)
    closed = reason_of(parts.stores.dlq, parts.letters_id, batch.batch) if away else None
    if closed is not None:
        return f"; closed by {closed.by} at {closed.at[:19]}: {closed.why}"
    once = "once it is back" if is_missing else "once it is mended"
    if batch.group is not None:  # a replay of its letter would leave it to whoever has its rows
        return (
            f"; {once} `blizzard backfill --replace` takes it, or `blizzard replay CONFIG"
            " --refused` where Penguin has refused its rows"
        )
    return "" if away else f"; {once} {_replay(parts, batch.batch)} ingests it"


def _is_put_away(parts: SourceContext, letter_id: str) -> bool:
    """Return whether no replay would take the letters (any more)."""
    here, _away = put_away(parts.letters_id, letter_id)
    return parts.event_time is not None or parts.stores.dlq.stat(here) is None


def _replay(parts: SourceContext, letter_id: str) -> str:
    where = f"--pipeline {parts.pipeline} --source {parts.source_name}"
    return f"`blizzard replay CONFIG {where} --letter {letter_id}`"


def _next_reading(parts: SourceContext, found: Journaled) -> str:
    files = parts.source.as_files
    units = None if files is None else files.units
    if units is None and found.outcome == "ingested" and parts.event_time is None:
        return "is not ingested again by itself (`blizzard backfill --replace` does it)"
    if units is None:
        return "is not taken again"
    due = found.batch.finished_ts + units.cooldown
    return f"is ingested again from {iso(due)} on"


def _outputs(parts: SourceContext, story: Story, found: Journaled) -> tuple[Output, ...]:
    """Return the batch's outputs that can hold the file's rows."""
    if not found.batch.rows:
        return ()
    files = dict(found.outputs)
    if story.folder is not None:
        files = {f: rows for f, rows in files.items() if f.rpartition("/")[0] == story.folder}
    fates, whole = delta_fates(parts.stores.sink, files, found.batch.started_ts, parts.concurrency)
    absent: DeltaStatus = "not committed yet" if whole else "unknown"
    missing = files.keys() - fates.keys()
    records = quarantined(parts.stores.sink) if missing else {}
    refused = {file: records[name].error for file in missing if (name := spelled(file)) in records}
    return tuple(
        _committed_output(file, rows, fates[file])
        if file in fates
        else Output(file, rows, "refused" if file in refused else absent, None, refused.get(file))
        for file, rows in sorted(files.items())
    )


def _committed_output(file: str, rows: int, fate: Fate) -> Output:
    gone = fate.departure
    if gone is None:
        return Output(file, rows, "committed", fate.version)
    return Output(file, rows, gone.kind, fate.version, None, gone.version, gone.operation)


def _removal_note(parts: SourceContext, outputs: Sequence[Output]) -> str:
    """Return that rows have left the table since, and how to have them again."""
    gone = [each for each in outputs if each.delta_status in {"removed", "changed"}]
    if not gone:
        return ""
    latest = max(gone, key=lambda each: each.removed_version or 0)
    which = "its rows were" if len(gone) == len(outputs) else "rows of its batch were"
    note = f"; {which} {latest.status_text}"
    if latest.delta_status != "removed" or not parts.can_reingest:
        return note
    return (
        f"{note}. If the table needs them, `blizzard backfill --again` or `--replace` reads the"
        " file again (docs/guides/go-back.md)"
    )


def _passed(parts: SourceContext, status: ItemStatus, base: Explanation) -> Explanation:
    """Explain an existing file that no poll finds and no journal holds."""
    # A set of names tells also where the journal lacks batches; the next start names these.
    with contextlib.suppress(StateError):
        if _ledger_outcome(parts, base.path or "") == "unknown":
            return replace(base, verdict="unknown", reason=DOUBTFUL)
    found = status.verdict(partial(journal_start, parts.stores.sink, parts.id))
    return replace(base, verdict=found.verdict, reason=found.reason, late=found.late)
