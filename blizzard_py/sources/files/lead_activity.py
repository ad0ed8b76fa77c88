"""The activity of one worker for several sources, split into each source's own view.

It is the view of the first source and updates the views of the others. They get each turn of the
loop, and their own part of a state and of a batch (`blizzard_py.state.composite_state`). Each
source reports by itself what a scan of it has found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Concatenate, ParamSpec

from blizzard_core.observability.health import job_secs
from blizzard_py.sources.activity import SourceActivity, Step
from blizzard_py.state.batch import Batch
from blizzard_py.state.composite_state import of_source, part_of
from blizzard_py.state.source_state import SourceState

P = ParamSpec("P")


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
        self._pass_on(SourceActivity.cycle_began)

    def waiting(self, secs: float) -> None:
        self._pass_on(SourceActivity.waiting, secs)

    def cycle_done(self) -> None:
        self._pass_on(SourceActivity.cycle_done)

    def cycle_failed(self, error: Exception) -> None:
        self._pass_on(SourceActivity.cycle_failed, error)

    def stands_by(self, reason: str) -> None:
        self._pass_on(SourceActivity.stands_by, reason)

    def ended(self, exit_code: int) -> None:
        self._pass_on(SourceActivity.ended, exit_code)

    def knows(self, state: SourceState) -> None:
        """Of all; `saved` knows the first one's part already."""
        super().knows(of_source(state, self._first) if state.members else state)
        for name, other in self._others.items() if state.members else ():
            other.knows(of_source(state, name))

    def saved(self, state: SourceState) -> None:
        super().saved(of_source(state, self._first))
        for name, other in self._others.items():
            other.saved(of_source(state, name))

    def save_failed(self) -> None:
        self._pass_on(SourceActivity.save_failed)

    def batch_began(self, batch: Batch) -> None:
        self._pass_parts(SourceActivity.batch_began, batch)
        size = sum(file.size for file in batch.files)
        for other in self._others.values():
            other.expects(job_secs(size))  # the job is that of all

    def batch_cut_off(self, batch: Batch) -> None:
        self._pass_parts(SourceActivity.batch_cut_off, batch)

    def batch_enters(self, batch: Batch, step: Step) -> None:
        self._pass_on(SourceActivity.batch_enters, batch, step)  # goes by the batch's id alone

    def batch_done(self, batch: Batch) -> None:
        self._pass_parts(SourceActivity.batch_done, batch)

    def _pass_on(
        self,
        report: Callable[Concatenate[SourceActivity, P], None],
        *args: P.args,
        **options: P.kwargs,
    ) -> None:
        report(self, *args, **options)
        for other in self._others.values():
            report(other, *args, **options)

    def _pass_parts(self, report: Callable[[SourceActivity, Batch], None], batch: Batch) -> None:
        for name, view in {self._first: self, **self._others}.items():
            part = part_of(batch, name, is_first=view is self)
            if part is not None:
                report(view, part)
