"""The screen of `blizzard watch`. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from blizzard_core.cli import rows_waiting
from blizzard_core.text import counted, in_utc, printable
from blizzard_py.app.pipeline_watch import Committing, PipelineSnapshot
from blizzard_py.commands.printing import request_progress, sources_in
from blizzard_py.slices.notation import short_text

_SOURCES = (
    "source",
    "state",
    "batch",
    "lag",
    "waiting",
    "letters",
    "rows",
    "uncommitted",
    "watermark",
)
_TABLES = ("table", "state", "version", "saved", "watermark")
_NUMBERS = frozenset({"lag", "waiting", "letters", "rows", "to commit", "version", "saved"})
# Headings, the space between the blocks, the line of what is left out, the last line.
_AROUND = 6
# How many lines of errors are shown at most.
_ERRORS = 3


def picture(sight: PipelineSnapshot, now: float, height: int) -> Group:
    """Return what the terminal shows.

    Foreign text is no markup and reaches no terminal raw.
    """
    known = list(sources_in(sight.document))
    sources = [_source_row(name, found) for name, found in known]
    tables = [_table_row(each, now) for each in sight.committing]
    down = [f"{name}: {problem['text']}" for name, found in known for problem in found["problems"]]
    errors = [Text(printable(text), "red") for text in [*down, *sight.errors][:_ERRORS]]
    requests = [
        Text(printable(f"{name}: {request_progress(each)}"), "yellow")
        for name, found in known
        for each in found["requests"]
    ][:_ERRORS]
    room = max(2, height - _AROUND - len(errors) - len(requests))
    shown_tables = _worst(tables, max(1, room // 3))
    shown = _worst(sources, max(1, room - len(shown_tables)))
    hidden = len(sources) - len(shown) + len(tables) - len(shown_tables)
    clock = f"{in_utc(now)} UTC"
    more = f"; {hidden:,} more are not shown" if hidden else ""
    return Group(
        _table(_SOURCES, shown),
        Text(),
        _table(_TABLES, shown_tables) if tables else Text("no Penguin has saved anything yet"),
        *requests,
        *errors,
        Text(f"{clock}, Ctrl-C ends{more}", "dim"),
    )


# True for a problem, and the cells.
_Row = tuple[bool, tuple[Text, ...]]


def _worst(rows: Sequence[_Row], most: int) -> list[_Row]:
    """Return as many rows as fit: those with problems first, each part in its order."""
    if len(rows) <= most:
        return list(rows)
    first = sorted(range(len(rows)), key=lambda place: (not rows[place][0], place))[:most]
    return [rows[place] for place in sorted(first)]


def _table(columns: Sequence[str], rows: Sequence[_Row]) -> Table:
    table = Table(box=None, pad_edge=False, expand=False)
    for name in columns:
        # The next command needs the full name; of a watermark the beginning is enough.
        table.add_column(
            name,
            justify="right" if name in _NUMBERS else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if name == "watermark" else _width(name, columns, rows),
        )
    for _, cells in rows:
        table.add_row(*cells)
    return table


def _width(name: str, columns: Sequence[str], rows: Sequence[_Row]) -> int:
    place = columns.index(name)
    return max([len(name), *(cells[place].cell_len for _, cells in rows)])


def _source_row(name: str, found: dict[str, Any]) -> _Row:
    lag, letters, refused = found["lag"], found["dead_letters"], found["refused"]
    batch = next(iter(found["in_flight"]), None)
    waiting = "-" if lag["files"] is None else f"{lag['files']:,}{'' if lag['complete'] else '+'}"
    lost = letters["letters"] + refused["rows"]
    cells = (
        Text(printable(name)),
        Text(found["state"]),
        Text("-" if batch is None else f"{batch['phase']}, {counted(batch['files'], 'file')}"),
        Text("-" if lag["secs"] is None else _span(lag["secs"]), "red" if lag["error"] else ""),
        Text(waiting),
        Text(f"{lost:,}", "red" if lost else ""),
        Text(f"{found['totals']['rows']:,}"),
        Text(rows_waiting(found["uncommitted"]) or "-"),
        Text(printable(_watermark(found["watermark"]))),
    )
    return bool(lost or lag["error"] or found["problems"]), cells


def _table_row(found: Committing, now: float) -> _Row:
    document = found.summary
    blocked = bool(document["blocked_groups"])
    version = document["version"]
    state = "blocked" if blocked else document["odd"] or document["state"] or "-"
    cells = (
        Text(printable(found.name)),
        Text(printable(state), "red" if blocked or document["odd"] else ""),
        Text("-" if version is None else f"{version:.0f}"),
        Text(f"{_span(max(0.0, now - found.saved))} ago"),
        Text(printable(document["watermark"] or "-")),
    )
    return blocked or bool(document["odd"]), cells


def _watermark(found: dict[str, Any] | str | None) -> str:
    return short_text(found) if isinstance(found, dict) else found or "-"


def _span(secs: float) -> str:
    return str(dt.timedelta(seconds=round(secs)))
