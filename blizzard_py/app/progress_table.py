"""The live table of progress on a terminal. Only who watches loads what draws it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from blizzard_core.cli import cell
from blizzard_py.sources.meter import Meter, MeterReading

_BAR_WIDTH = 24


def live_table(meters: Mapping[str, Meter], console: Console) -> Live:
    """Return the table of the meters, redrawn while its block runs."""
    return Live(get_renderable=lambda: table_of(meters), console=console)


def table_of(meters: Mapping[str, Meter]) -> Table:
    """One row per source: a bar by bytes, files, rows, speed, time left."""
    table = Table("source", "", "files", "rows", "MB/s", "left", box=None, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for name, meter in meters.items():
        reading = meter.read()
        table.add_row(
            cell(name),
            # Until the first of it is read it pulses: something is being done.
            ProgressBar(
                total=max(1, reading.found_bytes),
                completed=reading.bytes,
                width=_BAR_WIDTH,
                pulse=reading.working and not reading.bytes,
            ),
            f"{reading.files:,}/{reading.found_files:,}",
            f"{reading.rows:,}",
            f"{reading.bytes_per_sec / 1e6:,.1f}",
            _left(reading),
        )
    return table


def _left(reading: MeterReading) -> str:
    if reading.remaining_secs is None:
        return "-"
    return str(dt.timedelta(seconds=round(reading.remaining_secs)))
