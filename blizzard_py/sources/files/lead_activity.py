"""The activity of one worker for several sources, split into each source's own view.

It is the view of the first source and updates the views of the others. They get each turn of the
loop, and their own part of a state and of a batch (`blizzard_py.state.composite_state`). Each
source reports by itself what a scan of it has found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from blizzard_core.observability.health import job_secs
from blizzard_py.sources.activity import SourceActivity, Step
from blizzard_py.state.batch import Batch
from blizzard_py.state.composite_state import of_source, part_of
from blizzard_py.state.source_state import SourceState


class LeadActivity(SourceActivity):
    """The view of the source ``first``, which passes events on to the views of ``others``."""

    def __init__(
        self,
        place: tuple[str, str],
        clock: Callable[[], float],
        first: str,
        others: Mapping[str, SourceActivity],
    ) -> None:
        """``place`` is the first one's name for people, and where its files are."""
        super().__init__(*place, clock)
        self._first = first
        self._others = others

    def cycle_began(self) -> None:
        super().cycle_began()
        for other in self._others.values():
            other.cycle_began()

    def waiting(self, secs: float) -> None:
        super().waiting(secs)
        for other in self._others.values():
            other.waiting(secs)

    def cycle_done(self) -> None:
        super().cycle_done()
        for other in self._others.values():
            other.cycle_done()

    def cycle_failed(self, error: Exception) -> None:
        super().cycle_failed(error)
        for other in self._others.values():
            other.cycle_failed(error)

    def stands_by(self, reason: str) -> None:
        super().stands_by(reason)
        for other in self._others.values():
            other.stands_by(reason)

    def ended(self, exit_code: int) -> None:
        super().ended(exit_code)
        for other in self._others.values():
            other.ended(exit_code)

    def knows(self, state: SourceState) -> None:
        """Of all; `saved` knows the first one's part already."""
        super().knows(of_source(state, self._first) if state.kind.members else state)
        for name, other in self._others.items() if state.kind.members else ():
            other.knows(of_source(state, name))

    def saved(self, state: SourceState) -> None:
        super().saved(of_source(state, self._first))
        for name, other in self._others.items():
            other.saved(of_source(state, name))

    def save_failed(self) -> None:
        super().save_failed()
        for other in self._others.values():
            other.save_failed()

    def batch_began(self, batch: Batch) -> None:
        if (own := part_of(batch, self._first, is_first=True)) is not None:
            super().batch_began(own)
        size = sum(file.size for file in batch.files)
        for other, part in self._parts(batch):
            if part is not None:
                other.batch_began(part)
            other.expects(job_secs(size))  # the job is that of all

    def batch_cut_off(self, batch: Batch) -> None:
        if (own := part_of(batch, self._first, is_first=True)) is not None:
            super().batch_cut_off(own)
        for other, part in self._parts(batch):
            if part is not None:
                other.batch_cut_off(part)

    def batch_enters(self, batch: Batch, step: Step) -> None:
        super().batch_enters(batch, step)  # goes by the batch's id alone
        for other, _ in self._parts(batch):
            other.batch_enters(batch, step)

    def batch_done(self, batch: Batch) -> None:
        if (own := part_of(batch, self._first, is_first=True)) is not None:
            super().batch_done(own)
        for other, part in self._parts(batch):
            if part is not None:
                other.batch_done(part)

    def _parts(self, batch: Batch) -> Iterator[tuple[SourceActivity, Batch | None]]:
        for name, other in self._others.items():
            yield other, part_of(batch, name, is_first=False)
