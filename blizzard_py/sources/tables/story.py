"""The stories of a query source's items, by their names, and of its tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from blizzard_core.storage.protocol import Entry
from blizzard_py.sources.story import Compared, ItemStatus, Passed, Story, Waiting
from blizzard_py.sources.tables.window_tasks import is_item_name, parse_name
from blizzard_py.sources.tables.windows import text_of
from blizzard_py.state.column_state import ColumnState
from blizzard_py.state.source_state import SourceState

# Tells whether the next poll reads an item of that name.
Finds = Callable[[SourceState, str], bool]


def named_story(
    name: str,
    ignored: str | None,
    check: Callable[[SourceState], None],
    stands: Callable[[SourceState], ItemStatus],
) -> Story:
    """Return the story of an item that is no file: its name has all the facts.

    ``ignored`` is the reason if the name is no item's. ``stands`` returns the item's status in a
    state, after ``check`` has accepted the state.
    """

    def status_in(state: SourceState) -> ItemStatus:
        check(state)
        return stands(state)

    return Story(None if ignored else Entry(name, 0, 0.0), ignored, status_in)


@dataclass(frozen=True, slots=True)
class NamedStatus:
    """The standing of an item that is no file: it lies nowhere."""

    name: str
    state: SourceState

    @property
    def watermark(self) -> str | None:
        """The watermark that is shown."""
        return self.state.position.progress.value

    @property
    def comparison(self) -> Compared:
        at = self.watermark
        return Compared(self.state.position.progress.state, None, at, at, None, at)

    @property
    def place(self) -> tuple[str | None, str | None]:
        return None, None


@dataclass(frozen=True, slots=True)
class TaskStatus(NamedStatus):
    """The standing of a task in a state; ``finds`` asks the connection where it has to."""

    finds: Finds

    @property
    def watermark(self) -> str | None:
        return text_of((self.state.kind.columns or ColumnState()).watermark)

    def is_new(self) -> bool:
        return self.finds(self.state, self.name)

    def next_poll(self) -> Waiting:
        return Waiting("poll", "above the watermark; the next poll reads it")

    def verdict(self, journal_start: Callable[[], float | None]) -> Passed:  # noqa: ARG002  # the seam gives it
        found = parse_name(self.name)
        seq = (self.state.kind.columns or ColumnState()).seq
        if found is None:
            return Passed("missing", "of no request that reads it, nor known to the journal")
        if found[0] >= seq:
            return Passed("missing", f"no such task was planned; the next window is number {seq}")
        return Passed("done", "of a window that is published, longer ago than the journal tells of")


def task_story(name: str, finds: Finds, check: Callable[[SourceState], None]) -> Story:
    """Return the story of one task."""
    ignored = None
    if not is_item_name(name):
        ignored = "is no task's name; they are like 000000000017#0"
    return named_story(name, ignored, check, lambda state: TaskStatus(name, state, finds))
