"""Comparison of a query with the kept one, where its spelling or the time zone has changed.

Where nothing is spelled otherwise Spark is not asked, nor started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from blizzard_core.settings.event_time import EventTimeSettings
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.stream_query import changed, respelled
from blizzard_py.state.stream_state import StreamState


class QueryEquivalence:
    """The present spelling of a pipeline's query: ``asked``, its fingerprint."""

    def __init__(
        self, parts: SourceContext, given: EventTimeSettings, session: Callable[[], Any]
    ) -> None:
        """``session`` gives the Spark session that the engine has by then."""
        self.asked: Mapping[str, Any] = parts.query_fingerprint or {}
        self._parts = parts
        self._given = given
        self._session = session
        # What was found to be the same query: until the next batch it stays in its spelling.
        self._same: Mapping[str, Any] | None = None

    def check(self, stream: StreamState | None, where: str) -> None:
        """Raise `StateError` if Spark computes something else by now.

        `ConfigError` if it cannot compute what is asked for.
        """
        if stream is None or stream.query == self._same:
            return
        if said := respelled(stream.query, self.asked):
            from blizzard_py.streaming.plans import differing  # noqa: PLC0415  # brings Spark along

            parts, kept = self._parts, {**self.asked, **stream.query}
            found = differing(
                self._session(),
                parts.pipeline,
                (self._given, parts.branches),
                parts.ingest,
                (kept, self.asked),
            )
            if found:
                raise changed([said[key] for key in found], where)
        self._same = stream.query
