"""Requests for ranges of values of tables and APIs: accepted, read chunk by chunk, previewed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from blizzard_core.errors import WatermarkError
from blizzard_core.storage.protocol import Entry
from blizzard_py.edits.checkpoint_edit import set_columns
from blizzard_py.ingest.request_acceptance import Applied, PageRequest, RequestRefused, SelectedPage
from blizzard_py.requests.document import Request
from blizzard_py.requests.report import ReportLine
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import Source
from blizzard_py.sources.tables import ranges, windows
from blizzard_py.sources.tables.ranges import RangePiece, RangeRefused, ValueRange
from blizzard_py.sources.tables.source import WindowSource
from blizzard_py.state.column_state import ColumnState, RequestChunk, Stored
from blizzard_py.state.source_state import SourceState


def accept_range(
    parts: SourceContext, source: Source[Any], state: SourceState, request: Request
) -> Applied:
    """Return the state with a request for values accepted; of rows that are replaced it is done.

    Asks the server. Raises `RequestRefused`, `StorageError`.
    """
    found = _table_source(parts, source)
    try:
        if request.options.get("mode", "add") == "replace":
            return Applied(_lower_watermark(found, state, request), {})
        return Applied(_accept_chunks(found, state, request), {}, is_running=True)
    except (RangeRefused, WatermarkError) as error:
        raise RequestRefused(f"{parts.name}: {error}") from error


def select_chunk(
    parts: SourceContext,
    source: Source[Any],
    state: SourceState,
    request: Request,
    wanted: PageRequest,
) -> SelectedPage:
    """Return the next chunk of a request as a page. Raises `RequestRefused`, `StorageError`."""
    found = _table_source(parts, source)
    known = state.kind.columns or ColumnState()
    try:
        value_range = _range_of(found, request)
        _check(
            state.kind.columns,
            value_range.column,
            ranges.last_of(found.query_spec, value_range.end),
        )
        begin = (
            _cursor_value(wanted.cursor, value_range.column) if wanted.cursor else value_range.begin
        )
        piece = next(ranges.pieces(value_range, known, begin))
        name = f"{wanted.request_id}-{state.work.requests[wanted.request_id].pages:06}"
        chunk = None if piece.is_covered else _chunk(found, value_range, piece, name, wanted.now)
    except (RangeRefused, WatermarkError) as error:
        raise RequestRefused(f"{parts.name}: {error}") from error
    shown_values = _values_text(value_range, piece)
    files: tuple[Entry, ...] = ()
    if chunk is not None:
        files = tuple(Entry(item, task.size, wanted.now) for item, task in chunk.items.items())
        known = replace(known, chunk=chunk)
    elif not piece.is_covered:
        known = ranges.with_covered(known, value_range.column, piece.begin, piece.end)
    empty = ReportLine(shown_values, "present" if piece.is_covered else "empty")
    lines = tuple(ReportLine(entry.path, "taken", shown_values) for entry in files) or (empty,)
    is_last = piece.end == value_range.end
    return SelectedPage(
        files, lines, _cursor_text(value_range.column, piece.end), is_last, columns=known
    )


def preview_range(
    parts: SourceContext, source: Source[Any], state: SourceState, request: Request
) -> Iterator[ReportLine]:
    """Yield what a request would do with each part of its range. Raises as `accept_range` does."""
    state = accept_range(parts, source, state, request).state
    if request.options.get("mode", "add") == "replace":
        yield ReportLine(request.select["values"][0], "taken", "and all that lies above")
        return
    value_range = _range_of(_table_source(parts, source), request)
    known = state.kind.columns or ColumnState()
    for piece in ranges.pieces(value_range, known, value_range.begin):
        yield ReportLine(
            _values_text(value_range, piece), "present" if piece.is_covered else "taken"
        )


def _table_source(parts: SourceContext, source: Source[Any]) -> WindowSource:
    if not isinstance(source, WindowSource) or source.query_spec.snapshot:
        raise RequestRefused(f"{parts.name}: is no table or API that is read above a watermark")
    return source


def _range_of(source: WindowSource, request: Request) -> ValueRange:
    query_spec, (first, last) = source.query_spec, request.select["values"]
    bound = query_spec.connection.bound(query_spec.bound_kind, query_spec.settle_secs)
    return ranges.range_of(query_spec, (first, last), request.options.get("chunk", ""), bound)


def _check(known: ColumnState | None, column: str, last: object) -> None:
    why = ranges.refusal(known, column, last)
    if why is not None:
        raise RangeRefused(why)


def _chunk(
    source: WindowSource, value_range: ValueRange, piece: RangePiece, name: str, now: float
) -> RequestChunk | None:
    """Return the piece with its tasks; None if there is nothing to read."""
    query_spec = source.query_spec
    window = ranges.window_of_piece(query_spec, value_range.column, piece, now)
    tasks = query_spec.connection.tasks(windows.window_of(window), query_spec.split)
    if not tasks:
        return None
    begin, end = ({value_range.column: value} for value in (piece.begin, piece.end))
    return RequestChunk(
        name, windows.to_stored(begin), windows.to_stored(end), window, tuple(tasks)
    )


def _accept_chunks(source: WindowSource, state: SourceState, request: Request) -> SourceState:
    """Return the state of a source that reads a range for the first time."""
    query_spec = source.query_spec
    if query_spec.replaces:
        raise RangeRefused(
            "what it reads again replaces what it published; give --replace, with which it reads"
            " everything from --from on once more"
        )
    if request.options.get("mode") == "again":
        raise RangeRefused("rows of tables and APIs cannot be added a second time")
    value_range = _range_of(source, request)
    last = ranges.last_of(query_spec, value_range.end)
    if request.options.get("begin_live_at_end") and not ranges.has_started(state.kind.columns):
        state = set_columns(
            state, windows.to_stored({value_range.column: last}), query_spec.columns
        )
    _check(state.kind.columns, value_range.column, last)
    found = list(ranges.pieces(value_range, ColumnState(), value_range.begin))
    for piece in (found[0], found[-1]):  # what their ends cannot be is known before it is saved
        window = ranges.window_of_piece(query_spec, value_range.column, piece, 0.0)
        query_spec.connection.tasks(windows.window_of(window), query_spec.split)
    return state


def _lower_watermark(source: WindowSource, state: SourceState, request: Request) -> SourceState:
    """Return the state of a replacing source with its watermark below ``values``."""
    query_spec, known = source.query_spec, state.kind.columns or ColumnState()
    first, last = request.select["values"]
    if not query_spec.replaces:
        raise RangeRefused(
            "its rows were published to stay, so none can be replaced: that takes `reread: replace`"
        )
    if last or request.options.get("chunk"):
        raise RangeRefused("what is read again is all from --from on; leave --to and --chunk out")
    if not known.watermark:
        raise RangeRefused("it has not begun, and will read everything; have it run once first")
    column = ranges.column_of(query_spec)
    value = ranges.value_of(first, column, windows.from_stored(known.watermark)[column])
    below: Stored = windows.to_stored({column: ranges.last_of(query_spec, value)})
    if not windows.is_below(below, known.watermark):
        raise RangeRefused(f"--from {first} is not below the watermark, so polls will read it")
    return set_columns(state, below, query_spec.columns)


def _values_text(value_range: ValueRange, piece: RangePiece) -> str:
    return f"{value_range.column} from {piece.begin} up to {piece.end}"


def _cursor_text(column: str, value: object) -> str:
    return json.dumps(windows.to_stored({column: value}))


def _cursor_value(cursor: str, column: str) -> object:
    return windows.from_stored(json.loads(cursor))[column]
