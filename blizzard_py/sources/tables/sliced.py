"""The common part of sources that are read in slices: windows or work units."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import ScanTimes
from blizzard_py.connections.query_spec import QuerySpec
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.ignored_names import NONE_SKIPPED
from blizzard_py.sources.protocol import CheckpointServices, SourceScan
from blizzard_py.sources.stale import World, adopt_numbers, require_current
from blizzard_py.sources.tables import newer_groups
from blizzard_py.sources.tables.newer_groups import Since
from blizzard_py.state.source_state import SourceState, checkpoint_path

# Another id has no state but the log has batches of the source: such a start is refused.
OWN_ID = "an `id:` of its own (start it once with --fresh)"


class SlicedSource:
    """See the module's docstring. How its items are found and read is each kind's own."""

    def __init__(
        self, parts: SourceContext, upkeep: CheckpointServices, query_spec: QuerySpec
    ) -> None:
        self._parts = parts
        self._query_spec = query_spec
        self._clock = upkeep.clock
        self._where = f"{parts.stores.sink.uri}/{checkpoint_path(parts.id)}"
        self._logged: set[str] = set()
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    @property
    def id(self) -> str:
        """Return what its rows are told by, whichever of its runs reads them."""
        return self._parts.letters_id

    @property
    def query_spec(self) -> QuerySpec:
        """Return what its connection is asked."""
        return self._query_spec

    def close(self) -> None:
        self._query_spec.connection.close()

    def start_over(self, state: SourceState, epoch: int) -> SourceState:  # noqa: ARG002  # nothing of it is kept aside
        return state

    def is_missing(self, name: str) -> bool:  # noqa: ARG002  # what was planned can be read again
        return False

    def reconcile(self, state: SourceState, world: World) -> SourceState:
        if not self._query_spec.replaces:
            return require_current(state, self._parts, world)
        since = newer_groups.find_newer(self._parts.stores.sink, self.id, state, world.groups)
        if since is not None:
            self._log.warning("checkpoint_stale", group=state.ids.group_seq, published=since.last)
            state = self._believed(state, since)
        return adopt_numbers(state, self._parts, world)

    def _believed(self, state: SourceState, since: Since) -> SourceState:
        """Return the earlier state without anything that newer commits made invalid."""
        raise NotImplementedError

    def _shown(self, state: SourceState) -> dict[str, Any]:
        return {
            "kind": getattr(self._parts.source, "kind", "table"),
            "rows": state.summary.totals.rows,
        }

    def _found(
        self, entries: tuple[Entry, ...], began: float, *, cost: int = 0, needs_rescan: bool
    ) -> SourceScan:
        scanned = ScanTimes(began, self._clock())
        return SourceScan(
            entries, (), cost, len(entries), scanned, NONE_SKIPPED, needs_rescan=needs_rescan
        )

    def _unheard(self, warnings: Iterable[str]) -> list[str]:
        """Return those of the warnings that are to be logged: each once."""
        found = [warning for warning in dict.fromkeys(warnings) if warning not in self._logged]
        self._logged.update(found)
        return found
