"""Progress for people and for logs: a live table on a terminal, an event now and then elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from blizzard_core.log import get_logger
from blizzard_core.threads import in_background
from blizzard_py.sources.meter import Meter

if TYPE_CHECKING:  # off a terminal nothing is drawn
    from rich.console import Console

LOG_INTERVAL_SECS = 30.0


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
        from blizzard_py.app.progress_table import live_table  # noqa: PLC0415  # see above

        with live_table(meters, console):
            yield
        return
    with in_background("progress", partial(_log, meters, interval_secs)):
        yield


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
