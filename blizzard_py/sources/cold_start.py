"""Detection of a lost checkpoint: a cold start where earlier work exists.

A fresh start there would ingest everything again. So a start without a checkpoint looks for traces
of earlier work, and refuses to run if it finds any. Traces are a fence record, the journal and
segments of processed names. A checkpoint of another name over the same files is one, too, and so is
a ``txn`` in the table's log. If no source of the table has a state, traces of any source count,
since the source may have had another name. This costs a few requests, once in a source's life.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.errors import ColdStartRefused
from blizzard_core.handover.outputs import sources_in
from blizzard_core.storage.protocol import Storage, listed
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.shared_files import check_ranges, documents
from blizzard_py.sources.stale import World, names_in_log, summary_of, waiting_of, world_of
from blizzard_py.state.checkpoint_document import MOVED_DOCUMENT, MOVED_TO, SHARED
from blizzard_py.state.checkpoint_file import live_states, load_state
from blizzard_py.state.fence_record import fence_path
from blizzard_py.state.journal import Journal
from blizzard_py.state.source_state import checkpoint_path
from blizzard_py.state.state_paths import StatePaths
from blizzard_py.state.waiting_outputs import newest_waiting

_LIVE = (
    "Bring the checkpoint back, make it again with `blizzard checkpoint rebuild`, take over the"
    " state of an earlier name with `blizzard rename` or `id:`, or insist with --fresh"
)
_ASKED = (
    "Bring the checkpoint back, say from where to read with `blizzard checkpoint set --column`,"
    " take over the state of an earlier name with `blizzard rename` or `id:`, or insist with"
    " --fresh"
)
_REPLACING = (
    "Bring the checkpoint back, give the source the earlier name as `id:`, or insist with --fresh,"
    " which replaces what was published under this id"
)


def check_cold_start(parts: SourceContext) -> None:
    """Raise `ColdStartRefused` if there is no checkpoint, but traces of one.

    Raises `ConfigError` as `check_ranges` does, `StorageError`, `StateError` for what cannot be
    read.
    """
    sink = parts.stores.sink
    if sink.stat(checkpoint_path(parts.id)) is not None:
        if parts.identity.range is not None:
            check_ranges(parts, load_state(sink, parts.id), parts.clock())
        return
    for each in parts.members:
        _check_shares(each, sink)
    world = world_of(parts, None)
    traces = (trace for each in parts.members or (parts,) for trace in _traces(each, sink, world))
    trace = next(chain(_fenced(parts, sink, world), traces), None)
    # Another daemon may have begun since, and left its checkpoint before any trace.
    if trace is not None and sink.stat(checkpoint_path(parts.id)) is None:
        raise ColdStartRefused(
            f"{parts.name}: {sink.uri}/{checkpoint_path(parts.id)} is missing, but {trace}; a start"
            f" from nothing would ingest everything again. {_remedy(parts)}"
        )
    check_ranges(parts, None, parts.clock())


def _check_shares(member: SourceContext, sink: Storage) -> None:
    """Raise `ColdStartRefused` for a source that is to share a checkpoint and has its own."""
    path = checkpoint_path(member.id)
    document = checkpoint.load(sink, path, lambda found, _where: found)
    if document is not None and SHARED not in document:
        raise ColdStartRefused(
            f"{member.name}: {sink.uri}/{path} is of the source alone, and what it has done is no"
            " part of a query that several share; set the configuration back, or give the source an"
            " `id:` of its own, and the pipeline another table"
        )


def _remedy(parts: SourceContext) -> str:
    """Return the remedy; `checkpoint rebuild` is for files only."""
    if parts.query_spec is None:
        return _LIVE
    return _REPLACING if parts.query_spec.replaces else _ASKED


def _fenced(parts: SourceContext, sink: Storage, world: World) -> Iterator[str]:
    """Return what the fence record and the table's log say of the source."""
    record = world.record
    if record is not None and (record.moved_to or record.number):
        moved = record.moved_to and f"the state was renamed to {record.moved_to}"
        where = f"{sink.uri}/{fence_path(parts.id)}"
        yield f"{where} says that {moved or f'batch {record.batch} was committed'}"
    if world.committed_ms or world.groups:
        yield f"the table's log commits batches of {world.committed_names or 'it'}"
    elif (output := waiting_of(parts, world)) is not None:
        yield summary_of(output)


def _traces(parts: SourceContext, sink: Storage, world: World) -> Iterator[str]:
    """Return what earlier work has left, the surest first."""
    if parts.home_id != parts.id and sink.stat(checkpoint_path(parts.id)) is not None:
        yield f"{checkpoint_path(parts.id)} names it"
    yield from work_of(sink, parts.id)
    yield from other_names(parts, sink, world)


def work_of(sink: Storage, source_id: str) -> Iterator[str]:
    """Return what the state folder has, beside a checkpoint, of work under an id."""
    for batch in Journal(sink, source_id).batches():
        yield f"the journal has batch {batch} of it"
    paths = StatePaths(source_id)
    for folder in (paths.ledger, paths.processed, paths.row_digests):
        for entry in listed(sink, f"{folder}/", f"{folder}0"):
            yield f"{entry.path} holds names that were done"


def other_names(parts: SourceContext, sink: Storage, world: World) -> Iterator[str]:
    """Yield what says that the files' state has another name, is on its way from there, or lost."""
    yield from _orphans(parts, sink, world)
    own = parts.identity.range  # where one of the two has a range, `check_ranges` decides
    for source_id, document in documents(sink, parts.id):
        path = checkpoint_path(source_id)
        if MOVED_TO in document:
            # Its state is elsewhere by now, or on its way to there.
            if document[MOVED_TO] == parts.id and MOVED_DOCUMENT in document:
                yield f"{path} is being renamed to it, which `blizzard rename` has to finish"
            continue
        state = load_state(sink, source_id)
        source = None if state is None else state.source
        if source and source.uri == parts.stores.source.uri and not (source.range or own):
            yield f"{path} is of the same files"


def _orphans(parts: SourceContext, sink: Storage, world: World) -> Iterator[str]:
    """Return what the table has of other sources, where the state of all of them is gone.

    A name that the source itself has by its id is none of another.
    """
    if live_states(sink):
        return
    own = names_in_log(parts, None)
    if sources_in(world.log) - own:
        evidence = "the table's log commits batches of other names"
    else:
        output = newest_waiting(sink, lambda name: name not in own, world.log, parts.concurrency)
        evidence = "" if output is None else summary_of(output)
    # Another source may have begun since, and have published.
    if evidence and not live_states(sink):
        yield f"{evidence}, and the state of every source is gone"
