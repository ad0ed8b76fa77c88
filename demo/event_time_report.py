"""Report of `make demo-event-time`, with duckdb's results for the same files.

duckdb is told which edits are in which batch, and nothing else: the watermark of a batch is the
newest time of those before it less the delay, an edit is late if its window has ended by then, and
the windows that have ended by the last one are the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from demo.arrivals import Edit

# The beginning of a window, its channel, how many edits it has, and what they have added.
Windows = Counter[tuple[datetime, str, int, int]]

_JUDGED = """
CREATE TABLE judged AS
WITH newest AS (SELECT batch, max(time) AS time FROM edits GROUP BY batch),
marks AS (
    SELECT batch, max(time) OVER (
        ORDER BY batch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) - INTERVAL 10 MINUTE AS watermark FROM newest
)
SELECT edits.*, time_bucket(INTERVAL 5 MINUTE, time) AS begins,
    coalesce(begins + INTERVAL 5 MINUTE <= watermark, false) AS late
FROM edits JOIN marks USING (batch)
"""
_LATE = "SELECT file, line FROM judged WHERE late"
_WINDOWS = """
SELECT begins, channel, count(*), sum(added)::BIGINT,
    begins + INTERVAL 5 MINUTE <= (SELECT max(time) - INTERVAL 10 MINUTE FROM judged)
FROM judged WHERE NOT late GROUP BY ALL
"""
_READ = """
SELECT (window_start AT TIME ZONE 'UTC')::TIMESTAMP, channel, edits, added FROM read_parquet(?)
"""
_BUSIEST = 5


@dataclass(frozen=True, slots=True)
class Found:
    """Windows that are over, late edits by file and line, and how many windows are open."""

    windows: Windows
    late: set[tuple[str, int]]
    open: int


def answer(batches: Sequence[Sequence[Edit]]) -> Found:
    """Compute the expected windows and late rows with duckdb, batch by batch."""
    edits = [(number, edit) for number, batch in enumerate(batches) for edit in batch]
    table = pa.table(
        {
            "batch": [number for number, _ in edits],
            "file": [edit.file for _, edit in edits],
            "line": [edit.line for _, edit in edits],
            "time": pa.array(
                [edit.time.replace(tzinfo=None) for _, edit in edits], pa.timestamp("us")
            ),
            "channel": [edit.channel for _, edit in edits],
            "added": [edit.added for _, edit in edits],
        }
    )
    with duckdb.connect() as connection:
        connection.register("edits", table)
        connection.execute(_JUDGED)
        late = set(connection.execute(_LATE).fetchall())
        windows = connection.execute(_WINDOWS).fetchall()
    ended = Counter((*window,) for *window, is_over in windows if is_over)
    return Found(ended, late, len(windows) - ended.total())


def read(place: Path) -> Windows:
    """Return the windows in the Delta table."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        files = DeltaTable(str(place)).file_uris()
        return Counter(connection.execute(_READ, [files]).fetchall())


def show_batches(console: Console, history: Sequence[Mapping[str, Any]]) -> None:
    """Print each batch: what it brought, where the watermark was and is, what came out."""
    table = Table(title="Each batch, as `blizzard status --json` tells", title_justify="left")
    names = ("batch", "edits", "newest edit", "watermark", "late", "windows out", "open")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for line in history:
        table.add_row(
            f"{line['batch']}",
            f"{line['rows']:,}",
            _moment(line["max_event_time_ms"]),
            _moment(line["watermark_ms"]),
            f"{line['late_rows']:,}",
            f"{line['emitted_rows']:,}",
            f"{line['state_rows']:,}",
        )
    console.print(table)


def show_busiest(console: Console, windows: Windows) -> None:
    """Print the windows with most edits."""
    table = Table(title="The busiest five minutes, from the Delta table", title_justify="left")
    for name in ("window", "channel", "edits", "added"):
        table.add_column(name, justify="left" if name in {"window", "channel"} else "right")
    for begins, channel, edits, added in sorted(windows, key=lambda w: (-w[2], w[0]))[:_BUSIEST]:
        ends = begins + timedelta(minutes=5)
        table.add_row(
            f"{begins:%Y-%m-%d %H:%M} to {ends:%H:%M}", channel, f"{edits:,}", f"{added:,}"
        )
    console.print(table)


def show_check(console: Console, found: Found, expected: Found, edits: int) -> bool:
    """Print what was found beside what duckdb says; True if all of it is the same."""
    lines = {
        "windows": (found.windows.total(), expected.windows.total()),
        "windows that differ": ((found.windows - expected.windows).total(), 0),
        "edits in windows": (_edits(found.windows), _edits(expected.windows)),
        "late edits": (len(found.late), len(expected.late)),
        "late edits that differ, by file and line": (len(found.late ^ expected.late), 0),
        "windows still open": (found.open, expected.open),
    }
    table = Table(title=f"Of {edits:,} edits", title_justify="left")
    for name in ("", "found", "by duckdb", ""):
        table.add_column(name, justify="right" if name else "left")
    for name, (ours, theirs) in lines.items():
        verdict = "[green]ok[/green]" if ours == theirs else "[bold red]differs[/bold red]"
        table.add_row(name, f"{ours:,}", f"{theirs:,}", verdict)
    console.print(table)
    return found == expected


def _edits(windows: Windows) -> int:
    return sum(edits * times for (_, _, edits, _), times in windows.items())


def _moment(ms: int | None) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%m-%d %H:%M:%S}" if ms else "none yet"
