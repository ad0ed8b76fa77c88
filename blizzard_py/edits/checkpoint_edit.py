"""Manual changes of a source's watermark, and a source's reset.

These can skip files or double rows. So the effect is shown first (`plan` before and after), and a
running daemon is fenced: its next save is refused and it stops with exit code 3. The old
checkpoint stays as ``…_checkpoint.json.epoch-{n}.bak``. Batches that are ``running`` are dropped,
because they are not committed; their files are found again if they are above the watermark. No
change is possible while a batch is ``publishing``, because its rows will be in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blizzard_core.storage.protocol import Entry, order_key
from blizzard_core.watermark.paths import joined
from blizzard_core.watermark.progress import PartitionProgress, Progress, closed_by, is_new
from blizzard_py.edits.checkpoint_store import (
    CheckpointStore,
    EditRefused,
    Note,
    Stored,
    current_user,
)
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import first_running, with_state
from blizzard_py.slices.units.state import UnitsState
from blizzard_py.sources.stale import World, adopt_numbers, newer_work, was_published, world_of
from blizzard_py.sources.tables.newer_groups import find_newer
from blizzard_py.sources.tables.window_tasks import progress_of_text
from blizzard_py.sources.tables.windows import is_below, text_of
from blizzard_py.state.column_state import ColumnState
from blizzard_py.state.fence_record import FenceRecord
from blizzard_py.state.journal import Journal
from blizzard_py.state.journal_tally import JournalTally
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.source_state import (
    NO_BATCH,
    IssuedIds,
    KindState,
    PendingWork,
    Position,
    SourceState,
    Summary,
)
from blizzard_py.state.transitions import requests_of, without_request


def read_checkpoint(source: SourceView) -> Stored:
    """Return the source's checkpoint. Raises `StateError`, `StorageError`."""
    return CheckpointStore(source.sink, source.id).load()


def require_known(source: SourceView, partition: str) -> None:
    """Raise `EditRefused` for a partition that holds no file and never did, `StorageError`.

    The watermark of a mistyped partition would apply to all partitions that sort before it.
    """
    state = read_checkpoint(source).state
    if (
        not partition
        or partition in state.position.progress.partitions
        or state.kind.columns is not None
    ):
        return
    files = source.parts.stores.source.list_range(f"{partition}/", f"{partition}0")  # after "/"
    if not any(page.entries for page in files):
        raise EditRefused(
            f"{partition!r} is no partition of this source: it has no files, and none of it was"
            " ingested. `blizzard checkpoint show` lists the known ones"
        )


def with_watermark(state: SourceState, partition: str, name: str) -> SourceState:
    """Return the state with the partition's watermark at ``name``.

    With an empty ``name`` no file of the partition is done. Raises `EditRefused`.
    """
    if state.kind.columns is not None:
        raise EditRefused("this is a table or an API; give --column for each column that moves")
    if state.names.processed is not None:
        raise EditRefused(
            "this source keeps a set of names and no watermark (use_watermark: false); reset it,"
            " or bring the files back under new names"
        )
    progress = state.position.progress
    if progress.state == "Initial":
        raise EditRefused("nothing was ingested yet, so there is no watermark to move; run it once")
    depth = progress.depth or 0  # only files at the root so far
    if partition.count("/") + bool(partition) > depth:
        raise EditRefused(
            f"{partition!r} is deeper than this source's partitions, which have {depth} components"
        )
    floor = closed_by(progress, f"{partition}/")
    if floor is not None:
        raise EditRefused(
            f"{partition!r} is below the floor {floor!r}, so polls do not list it. Use `blizzard"
            " backfill --again` for it"
        )
    if name.startswith("/") or (partition and name.startswith(f"{partition}/")):
        raise EditRefused(f"--watermark {name!r} must be relative to the partition")
    partitions = {p: known for p, known in progress.partitions.items() if p != partition}
    if name:
        partitions[partition] = PartitionProgress(name, name)
    progress = _revalued(replace(progress, partitions=partitions))
    # The journal must not bring names back that are to come again; those that stay done
    # the checkpoint lists itself.
    state = state.with_position(progress=progress, window=())
    return state.with_work(
        in_flight=(),
        # What is new again is for polls to find; it must not be done twice.
        queue=tuple(entry for entry in state.work.queue if not is_new(progress, entry.path)),
    )


def set_columns(
    state: SourceState, watermark: Mapping[str, Any], names: Sequence[str]
) -> SourceState:
    """Return the state of a query source with its watermark at these stored values.

    A window that is being read is dropped; the next one begins above the values. The known
    published rows are dropped too, so rows above the values come again, and ``new_only`` looks back
    no further than the values. ``names`` are the configured columns. Raises `EditRefused`.
    """
    known = state.kind.columns
    if known is None:
        if state.position.progress.value is not None:
            raise EditRefused("this is a source of files; give --partition and --watermark")
        known = ColumnState()
    if state.ids.group_seq and not known.boundaries:
        raise EditRefused(
            "--column: the source starts over, and its next replacement removes all published rows."
            " Let it be read once, then set the column"
        )
    odd = sorted(set(watermark) - set(names))
    if names and odd:
        raise EditRefused(f"{odd[0]!r} is not one of watermark.columns: {', '.join(names)}")
    missing = sorted(set(names) - set(watermark) - set(known.watermark))
    if missing:
        raise EditRefused(
            f"give a value for {missing[0]!r}, too: without it all rows would be read again"
        )
    merged = {**known.watermark, **watermark}
    values = {c: v for c, v in merged.items() if v is not None and (not names or c in names)}
    fresh = not known.watermark and known.window is None
    if known.watermark and set(known.names) != set(names):
        known = replace(known, origin=None)  # rows were read by other columns
    origin = values if fresh else known.origin
    if origin is not None and is_below(values, origin):
        origin = values  # polls read what is above, so a backfill may not
    columns = ColumnState(
        values,
        tuple(names),
        known.bound,
        known.seq + 1,
        known.boundaries,
        origin=origin,
        covered=known.covered,
        chunk=known.chunk,
    )
    text = text_of(values)
    progress = Progress() if text is None else progress_of_text(text)
    state = state.with_position(progress=progress).with_kind(columns=columns)
    return state.with_work(in_flight=(), retries={})


def _revalued(progress: Progress) -> Progress:
    """Return the source's watermark from those of its partitions."""
    tops = [
        joined(p, known.watermark) for p, known in progress.partitions.items() if known.watermark
    ]
    if not tops:
        raise EditRefused("that would leave nothing done in the whole source; reset it instead")
    return replace(progress, value=max(tops, key=order_key), state="Active")


def reset(state: SourceState) -> SourceState:
    """Return the state for a cold start; counters stay, those of groups too.

    `change` finds out which batch was the last: a restored checkpoint does not know it. The
    operator has been told that files come again.
    """
    columns = None
    if state.kind.columns is not None:
        # Names of items are for ever, so windows go on being counted.
        columns = ColumnState(seq=state.kind.columns.seq + 1)
    units = None if state.kind.units is None else UnitsState(anew=True)
    return SourceState(
        source=state.source,
        position=Position(reached=state.position.reached),
        work=PendingWork(requests=state.work.requests),
        ids=IssuedIds(
            group_seq=state.ids.group_seq,
            last_output=state.ids.last_output,
            committed=state.ids.committed,
        ),
        kind=KindState(columns=columns, units=units),
        summary=Summary(totals=state.summary.totals),
    )


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a change on the files that are at the source now.

    ``skipped`` would have been ingested and are not any more; ``again`` were passed
    and will be ingested (again, if they had been).
    """

    skipped: tuple[str, ...]
    again: tuple[str, ...]


def effect(source: SourceView, before: SourceState, after: SourceState) -> Effect:
    """Compare what polls from the two states would find. Raises `StorageError`."""
    now = {entry.path for entry in _found(source, before)}
    then = {entry.path for entry in _found(source, after)}
    return Effect(
        tuple(sorted(now - then, key=order_key)), tuple(sorted(then - now, key=order_key))
    )


def _found(source: SourceView, state: SourceState) -> list[Entry]:
    found = source.discover(state, full=True)
    return [*found.files, *found.young]


def require_not_publishing(source: SourceView, state: SourceState) -> None:
    """Raise `EditRefused` while a batch is being published.

    A stale checkpoint's batch does not count, so the operator may still set a start.
    """
    if not any(batch.phase == "publishing" for batch in state.work.in_flight):
        return
    parts = source.parts
    world = world_of(parts, state)
    if was_published(state, parts, world):
        return
    # Other runs may have replaced files, too, so groups of files prove nothing here.
    if not parts.has_files and find_newer(source.sink, parts.letters_id, state, world.groups):
        return
    raise EditRefused(
        "a batch is being published; let the daemon finish it (or start it: `blizzard run"
        " --once`), then try again"
    )


def change(
    source: SourceView,
    seen: Stored,
    edit: Callable[[SourceState], SourceState],
    now: float,
    why: str = "",
) -> str | None:
    """Save the edited state; return the path of the backup, None if there was no checkpoint.

    The backup has author, time and ``why``. Only the newest backups are stored. A running daemon is
    fenced. Raises `EditRefused` if the checkpoint is not the ``seen`` one, or is publishing.
    """
    require_not_publishing(source, seen.state)
    parts = source.parts
    world = world_of(parts, seen.state)
    after = _without_requested(source, seen.state, edit(seen.state), now)
    why = why or _what(seen.state, after)
    # With several sources each member has its own progress, and the top has none.
    if after.position.progress.state == "Initial" and not after.members:
        # It starts over. Files of replays come again as well, and late files must not look like
        # files that were processed before.
        now_there = CheckpointStore(source.sink, source.id).now()
        journal = Journal(source.sink, parts.letters_id, parts.concurrency)
        ledger = Ledger(source.sink, source.id)
        ledger.load((), _next_epoch(seen, world))
        reported = [batch for batch, _ in Mailbox(source.sink, parts.letters_id).outcomes()]
        after = (
            after.with_position(reset_ts=journal.latest_commit(now_there))
            .with_ids(last_batch="")
            .with_names(ledger=ledger.start_over(reported), unfolded=JournalTally())
        )
        after = adopt_numbers(after, parts, world)
    elif after.kind.columns != seen.state.kind.columns:
        # The operator decides where reading begins.
        after = adopt_numbers(after.with_ids(last_batch=""), parts, world)
        is_lost = seen.raw is None and after.ids.last_batch != NO_BATCH
        if after.kind.columns is not None and (is_lost or newer_work(seen.state, parts, world)):
            # Rows below the value may have been read since, or by a lost checkpoint.
            after = after.with_kind(columns=replace(after.kind.columns, origin=None))
    return _swapped(source, seen, after, world, Note(current_user(), now, why))


def _without_requested(
    source: SourceView, seen: SourceState, after: SourceState, now: float
) -> SourceState:
    """Return the state with its seen requests, without their queued files.

    Raises `EditRefused` while a request runs. Cancelling it needs no daemon.
    """
    requests, mailbox = seen.work.requests, Mailbox(source.sink, source.id)
    while running := first_running(requests):
        if not mailbox.is_cancelled(running):
            raise EditRefused(
                f"request {running} is running. Let the daemon finish it, or cancel it first:"
                f" `blizzard requests cancel CONFIG {running}`"
            )
        kind, why = requests[running].kind, "cancelled before the checkpoint was changed"
        requests = with_state(requests, running, kind, "cancelled", why, now)
    for request in requests_of(after.work):
        after = without_request(after, request)
    return after.with_work(requests=requests)


def put(source: SourceView, seen: Stored, after: SourceState, note: Note) -> str | None:
    """Put a state there as it is; the path of the backup. Raises as `change`."""
    require_not_publishing(source, seen.state)
    return _swapped(source, seen, after, world_of(source.parts, seen.state), note)


def _swapped(
    source: SourceView, seen: Stored, after: SourceState, world: World, note: Note
) -> str | None:
    store = CheckpointStore(source.sink, source.id)
    return store.swap(seen, after, _next_epoch(seen, world), note)


def _next_epoch(seen: Stored, world: World) -> int:
    """Return the epoch of the checkpoint that takes the place of what was seen."""
    written = 0 if seen.writer is None else seen.writer.epoch
    return max(written, (world.record or FenceRecord()).epoch) + 1


def _what(before: SourceState, after: SourceState) -> str:
    """Return a description of a change without a given reason."""
    if after.position.progress.state == "Initial" and not after.members:
        return "started over"
    old, new = before.position.progress, after.position.progress
    for partition in old.partitions.keys() | new.partitions.keys():
        known = (old.partitions.get(partition), new.partitions.get(partition))
        if known[0] != known[1]:
            names = [str(each.watermark) if each else "-" for each in known]
            return f"watermark of {partition or 'the root'}: {' -> '.join(names)}"
    if new.value != old.value:
        return f"watermark: {old.value or '-'} -> {new.value or '-'}"
    return "windows or units"
