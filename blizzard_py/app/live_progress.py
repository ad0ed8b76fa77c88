"""Progress for people and for logs: a live table on a terminal, an event now and then elsewhere."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from blizzard_core.log import get_logger
from blizzard_core.threads import in_background
from blizzard_py.sources.meter import Meter, MeterReading

if TYPE_CHECKING:  # off a terminal nothing is drawn
    from rich.console import Console
    from rich.table import Table

LOG_INTERVAL_SECS = 30.0
_BAR_WIDTH = 24


@contextmanager
def show_progress(
    meters: Mapping[str, Meter], console: Console | None, interval_secs: float = LOG_INTERVAL_SECS
) -> Iterator[None]:
    """Show the progress of each source while the block runs.

    With a ``console`` it is a table that is redrawn and stays at the end; log lines appear above
    it. Without one it is a ``progress`` event per working source and interval, so a long batch is
    visible as work.
    """
    if console is not None:
        from rich.live import Live  # noqa: PLC0415  # see above

        with Live(get_renderable=lambda: table_of(meters), console=console):
            yield
        return
    with in_background("progress", partial(_log, meters, interval_secs)):
        yield


def table_of(meters: Mapping[str, Meter]) -> Table:
    """One row per source: a bar by bytes, files, rows, speed, time left."""
    from rich.progress_bar import ProgressBar  # noqa: PLC0415  # see above
    from rich.table import Table  # noqa: PLC0415  # see above

    from blizzard_core.cli import cell  # noqa: PLC0415  # see above

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


def _log(meters: Mapping[str, Meter], interval_secs: float, ended: threading.Event) -> None:
    log = get_logger()
    while not ended.wait(interval_secs):
        for name, meter in meters.items():
            reading = meter.read()
            if reading.working:
                log.info(
                    "progress",
                    source=name,
                    files=reading.files,
                    found_files=reading.found_files,
                    rows=reading.rows,
                    mb_per_sec=round(reading.bytes_per_sec / 1e6, 1),
                    left_secs=None
                    if reading.remaining_secs is None
                    else round(reading.remaining_secs),
                )
