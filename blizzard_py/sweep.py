"""The late sweep: a full listing at a low rate, for files that no poll would find."""

from __future__ import annotations

from blizzard_py.core.config import SourceSettings
from blizzard_py.core.storage import Storage
from blizzard_py.core.watermark import is_hidden
from blizzard_py.discovery import accepts
from blizzard_py.late import LateFile, auto_grace, find_late
from blizzard_py.state import SourceState


def is_due(state: SourceState, source: SourceSettings, now: float) -> bool:
    """Whether the time has come; the first interval begins with the first poll."""
    return (
        source.use_watermark
        and source.late_sweep_interval_secs > 0
        and state.progress.state != "Initial"
        and now - state.passed.swept >= source.late_sweep_interval_secs
    )


def grace_of(source: SourceSettings, state: SourceState) -> float:
    """The grace period in seconds, as configured or as measured lateness asks for."""
    configured = source.grace_period_secs
    return auto_grace(state.passed) if configured == "auto" else configured


def find(storage: Storage, source: SourceSettings, state: SourceState) -> tuple[LateFile, ...]:
    """List everything, a page in memory at a time, and tell which files are late.

    Costs a request per thousand files stored. Raises `StorageError`.
    """
    accept = accepts(source.compression)
    listed = (
        entry
        for page in storage.list_range("", None)
        for entry in page.entries
        if accept(entry.path) and not is_hidden(entry.path)
    )
    return find_late(state.passed, state.progress, listed)
