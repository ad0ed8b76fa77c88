"""An operator's changes of a query over event time. Pure: gives the next state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from blizzard_core.settings.base import to_micros
from blizzard_core.settings.event_time import Branch, EventTimeSettings
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.kernels.lateness import rules_of
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.stream_query import forgotten
from blizzard_py.state.stream_state import moment

_MILLI = 1000


def advance_watermark(
    state: SourceState,
    given: EventTimeSettings,
    branches: Sequence[Branch],
    to_ms: int,
    now: float,
) -> SourceState:
    """Return the state whose next batch moves the watermark to a time or further.

    Running batches do not change. Raises `EditRefused`.
    """
    stream = state.kind.stream
    if stream is None or stream.is_watched:
        raise EditRefused(
            "no batch has ended yet, so there is no watermark; run the source once first"
        )
    rules = rules_of(given, branches).values()
    if given.mode == "complete" or any(rule.kind == "never" for rule in rules):
        raise EditRefused(
            "this pipeline's results never close, so no result waits for its watermark"
        )
    if to_ms <= stream.watermark_ms:
        raise EditRefused(
            f"--to {moment(to_ms) or to_ms}: the watermark is at {moment(stream.watermark_ms)}"
            " already, and never falls"
        )
    most = round(now * _MILLI) + to_micros(given.advanced.max_ahead) // _MILLI
    if to_ms > most:
        raise EditRefused(
            f"--to {moment(to_ms)} is later than {moment(most)}, which is max_ahead after now:"
            " every row up to then would be late"
        )
    return state.with_kind(stream=replace(stream, advance_to_ms=to_ms))


def with_empty_state(state: SourceState) -> SourceState:
    """Return the state with an empty query state; the query may then change.

    The watermark stays, so windows that were published are not published again. Counts and the
    number of the batch stay, too. Raises `EditRefused`.
    """
    stream = state.kind.stream
    if stream is None or not stream.packs:
        raise EditRefused("the query has no state, so there is nothing to forget")
    return state.with_kind(
        stream=replace(
            stream,
            query=forgotten(stream.query),
            packs={},
            state_rows=0,
            state_bytes=0,
            operators=(),
        )
    )
