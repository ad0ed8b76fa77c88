"""A source whose server offers its files again."""

from __future__ import annotations

from typing import Any

from blizzard_core.settings.units import FileUnits
from blizzard_py.ingest.source_pipeline import SourcePipeline
from tests.support.replace_harness import ReplaceHarness

DAY_SECS = 86_400.0


class OfferedFilesHarness(ReplaceHarness):
    """Three files were taken; a server may put them there again."""

    def __init__(self, days: float = 7, *, named: bool = True, **source: Any) -> None:
        units = FileUnits(cooldown=f"{days}d")
        super().__init__(named=named, use_watermark=False, units=units, **source)

    def drain(self, pipeline: SourcePipeline | None = None) -> SourcePipeline:
        self.now += 2  # nothing is looked at in the second in which it came
        return super().drain(pipeline)

    def read(self) -> int:
        """Return how many files the jobs have read so far."""
        return sum(len(job.files) for job in self.engine.jobs)
