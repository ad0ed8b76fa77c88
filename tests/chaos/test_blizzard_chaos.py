"""The short version of the chaos run; `python -m tests.chaos.blizzard` is the long one.

That one draws a fresh seed each time, and runs on a disk as well. Here the seed is fixed, and the
store is the one with more troubles: it also loses answers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.blizzard.pace import Pace
from tests.chaos.blizzard.run import planned, run_s3
from tests.support.s3_server import S3Server

PACE = Pace(grace=4, poll=0.3, sweep=2, files_per_sec=6)
SECS = 16.0


def something_happened(counts: dict[str, int]) -> None:
    """Check that the run met faults; else its result proves nothing."""
    assert counts["files out of order"] > 10
    assert counts["files with old times"] > 10
    assert counts["slow jobs"] > 0
    assert counts["actions"] > 0


@pytest.mark.promise("G-020")
def test_files_in_time_are_ingested_once_when_answers_are_lost(
    tmp_path: Path, s3: S3Server
) -> None:
    something_happened(run_s3(tmp_path, planned(SECS, 1, PACE), s3))
