"""The pictures of docs/reference/event-time.md are of what streams do today."""

from __future__ import annotations

from pathlib import Path

from blizzard_py.engines.spark.engine import SparkEngine
from tests.support.event_time_picture import pictures

DOCS = Path(__file__).parents[3] / "docs"


def test_the_pictures_are_what_real_streams_give(tmp_path: Path, spark_engine: SparkEngine) -> None:
    for name, text in pictures(tmp_path, spark_engine).items():
        assert (DOCS / name).read_text() == text, f"draw {name} again (its module says how)"
