"""A source with files in folders of hours."""

from __future__ import annotations

from tests.support.pipeline_harness import PipelineHarness

HOURS = {
    "date=1/hour=00/1.ndjson": ["a1", "?1", "a2", "?2"],
    "date=1/hour=00/2.ndjson": ["?3", "a3"],
    "date=1/hour=01/1.ndjson": ["b1"],
    "date=2/hour=00/1.ndjson": ["c1", "c2", "c3"],
    "date=2/hour=00/2.ndjson": ["bad"],
}

ROWS = sorted(row for rows in HOURS.values() for row in rows if row != "bad" and row[0] != "?")


def source_with_hours(**source: object) -> PipelineHarness:
    world = PipelineHarness(**source)
    for path, rows in HOURS.items():
        world.put(path, *rows)
    return world
