"""A source in memory whose files are archived once their rows are in the table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from blizzard_core.storage.protocol import is_hidden
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import CleaningState
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness

DAY_SECS = 86_400.0
DAY = "date=2025-06-15"
FIRST, SECOND = (f"{DAY}/{number}.ndjson" for number in (1, 2))


class CleaningHarness(PipelineHarness):
    """A source whose files are archived, and the commits of its table."""

    def __init__(self, **clean: Any) -> None:
        settings = {
            "mode": "archive",
            "archive_uri": "mem://archive",
            "after": "7d",
            "dry_run": False,
        }
        super().__init__(clean=settings | clean)
        self.archive = MemoryStorage("mem://archive", lambda: self.now)
        self.version = -1
        self.drain()

    def parts(self) -> SourceContext:
        parts = super().parts()
        stores = parts.stores
        if self.settings.get("clean", {}).get("mode") == "archive":
            stores = replace(stores, archive=self.archive)
        return replace(parts, stores=stores)

    def commit(self, operation: str = "WRITE") -> None:
        """Commit every published file."""
        actions: list[object] = [{"commitInfo": {"operation": operation}}]
        actions += [{"add": {"path": path, "size": 1}} for path in self.published()]
        self.version += 1
        text = "\n".join(map(json.dumps, actions))
        self.sink.put_atomic(f"_delta_log/{self.version:020d}.json", text.encode())

    def ingest(self, path: str, *rows: str) -> None:
        self.put(path, *(rows or ("row",)))
        self.drain()
        self.commit()

    def wait(self, secs: float) -> None:
        """Let time pass, in which a daemon runs once a day."""
        end = self.now + secs
        while self.now < end:
            self.now = min(end, self.now + DAY_SECS)
            self.drain()

    def wait_idle(self, secs: float) -> None:
        """Let time pass; what is due in the last day and a half waits for the next cycle."""
        end = self.now + secs
        self.wait(secs - 1.5 * DAY_SECS)
        self.now = end

    def see(self) -> None:
        """Let the next look at the table come."""
        self.wait(DAY_SECS)

    def left(self) -> list[str]:
        return sorted(self.source.objects)

    @property
    def cleaning(self) -> CleaningState:
        state = read_state(self.sink, "events_main")
        assert state is not None
        assert state.cleaning is not None
        return state.cleaning


def archived(world: CleaningHarness) -> list[str]:
    return sorted(path for path in world.archive.objects if not is_hidden(path))


def with_seen_file(**clean: Any) -> CleaningHarness:
    """Return a source with a file whose rows were seen in the table."""
    found = CleaningHarness(**clean)
    found.ingest(FIRST)
    found.see()
    return found
