"""The state of a query source that reads rows above a watermark on its columns. Pure.

It is ``columns`` of the checkpoint. Values are JSON in the notation of
`blizzard_py.slices.notation.serialize`, such as ``{"n": {"__decimal__": "1.5"}}``. ``names`` are
the watermark's configured columns. ``window`` and ``tasks`` are being read. They are saved with
their batch before its job starts, so a process that takes the batch over reads the same. A source
knows its items only from the saved state (`blizzard_py.sources.protocol`), so they stand here.
``above`` limits what the next window may read again. ``done`` are the published tasks. The save
that ends the last task moves the watermark, raises ``seq`` and removes the window.

``seen`` are segments with digests of rows that a later window may read again
(`blizzard_py.state.seen_rows`). They contain all rows from ``seen_from`` on (absent: there are no
digests), and a look-back reaches no further. With ``at_known`` they contain the rows at the
watermark's own values, which are then read again.

``origin`` is the value that the watermark was set to before the first batch. Rows below it are
left to backfills. ``covered`` are the ranges that backfills have read, as rising half-open pairs,
and ``chunk`` is the range that the running one reads. ``boundaries`` are the points where
replacing windows were cut into slices. ``slices`` are the `_unit` texts of the current window's
slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from blizzard_py.reading import BoundKind, ReadTask

Stored = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredWindow:
    """A `blizzard_py.reading.Window`, its values in the stored notation, and when it was planned.

    ``kind`` is the kind of its bound. ``told_by`` and ``whole`` belong to the segment that takes
    the digests of its rows.
    """

    kind: BoundKind
    after: Stored = field(default_factory=dict)
    up_to: Stored = field(default_factory=dict)
    low: Stored = field(default_factory=dict)
    above: Stored = field(default_factory=dict)
    inclusive: bool = False
    nulls_first: bool = False
    planned_ts: float = 0.0
    told_by: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True


@dataclass(frozen=True, slots=True)
class SeenSegment:
    """Digests of rows, none of which lies above ``up_to``.

    ``told_by`` are the columns that went into the digests, with their types. ``whole`` means that
    these were all columns.
    """

    segment: Annotated[str, msgspec.Meta(pattern="^[^/]+$")]
    count: Annotated[int, msgspec.Meta(ge=1)]
    up_to: Stored = field(default_factory=dict)
    told_by: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True


@dataclass(frozen=True, slots=True)
class RequestChunk:
    """A part of a request's range, ``[begin, end)``, that is being read.

    The names of its items begin with ``name``. It counts as covered with the last of them.
    """

    name: str
    begin: Stored
    end: Stored
    window: StoredWindow
    tasks: tuple[ReadTask, ...]

    @property
    def items(self) -> dict[str, ReadTask]:
        """The tasks by the names of their items."""
        return {f"{self.name}#{task.name}": task for task in self.tasks}


@dataclass(frozen=True, slots=True)
class ColumnState:
    """See above. ``ColumnState()`` is a cold start."""

    watermark: Stored = field(default_factory=dict)
    names: tuple[str, ...] = ()
    bound: BoundKind | None = None
    seq: Annotated[int, msgspec.Meta(ge=0)] = 0
    boundaries: tuple[str, ...] = ()
    seen: tuple[SeenSegment, ...] = ()
    seen_from: Stored | None = None
    at_known: bool = False
    origin: Stored | None = None
    window: StoredWindow | None = None
    tasks: tuple[ReadTask, ...] = ()
    done: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()
    covered: tuple[tuple[Stored, Stored], ...] = ()
    chunk: RequestChunk | None = None
