"""What a source that is asked says of one of its tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from blizzard_core.storage.protocol import Entry
from blizzard_py.sources.story import Compared, Passed, Standing, Waiting
from blizzard_py.sources.tables.names import parsed_name
from blizzard_py.sources.tables.windows import text_of
from blizzard_py.state.column_state import ColumnState
from blizzard_py.state.source_state import SourceState

# Tells whether the next poll reads an item of that name.
Finds = Callable[[SourceState, str], bool]


@dataclass(frozen=True, slots=True)
class TaskStanding:
    """How a task stands to a state; ``finds`` asks the connection where it has to."""

    name: str
    state: SourceState
    finds: Finds

    @property
    def compared(self) -> Compared:
        columns = self.state.columns or ColumnState()
        at = text_of(columns.watermark)
        return Compared(self.state.progress.state, None, at, at, None, at)

    @property
    def place(self) -> tuple[str | None, str | None]:
        return None, None

    def is_new(self) -> bool:
        return self.finds(self.state, self.name)

    def next_poll(self) -> Waiting:
        return Waiting("poll", "above the watermark; the next poll reads it")

    def passed(self, journal_start: Callable[[], float | None]) -> Passed:  # noqa: ARG002  # the seam gives it
        found = parsed_name(self.name)
        seq = (self.state.columns or ColumnState()).seq
        if found is None or found[0] >= seq:
            return Passed("missing", f"no such task was planned; the next window is number {seq}")
        return Passed("done", "of a window that is published, longer ago than the journal tells of")


@dataclass(frozen=True, slots=True)
class TaskStory:
    """One task, as its source tells of it."""

    name: str
    finds: Finds
    check: Callable[[SourceState], None]

    @property
    def entry(self) -> Entry | None:
        return None if self.ignored else Entry(self.name, 0, 0.0)

    @property
    def ignored(self) -> str | None:
        if parsed_name(self.name) is None:
            return "is no task's name; they are like 000000000017#0"
        return None

    @property
    def folder(self) -> str | None:
        return None

    def beside(self, state: SourceState) -> Standing:
        self.check(state)
        return TaskStanding(self.name, state, self.finds)
