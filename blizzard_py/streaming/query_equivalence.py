"""Comparison of a query with the stored one if its spelling or the time zone has changed.

If the spelling is equal, Spark is neither used nor started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blizzard_core.settings.event_time import EventTimeSettings
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.stream_query import change_error, spelling_changes
from blizzard_py.state.stream_state import StreamState


class QueryEquivalence:
    """The present form of a pipeline's query, and its ``fingerprint``."""

    def __init__(self, parts: SourceContext, settings: EventTimeSettings) -> None:
        self.fingerprint: Mapping[str, Any] = parts.query_fingerprint or {}
        self._parts = parts
        self._settings = settings
        # The form that was found equal; the stored form stays until the next batch.
        self._same: Mapping[str, Any] | None = None

    def check(self, stream: StreamState | None, where: str) -> None:
        """Raise `StateError` if Spark now computes something else.

        Raises `ConfigError` if it cannot compute the configured query.
        """
        if stream is None or stream.query == self._same:
            return
        if changes := spelling_changes(stream.query, self.fingerprint):
            from blizzard_py.streaming.plans import differing  # noqa: PLC0415  # brings Spark along

            parts, stored = self._parts, {**self.fingerprint, **stream.query}
            found = differing(
                parts.engine.session(),
                parts.pipeline,
                (self._settings, parts.branches),
                parts.ingest,
                (stored, self.fingerprint),
            )
            if found:
                raise change_error([changes[key] for key in found], where)
        self._same = stream.query
