"""The demo of work units from a stranger's view, and the changes below it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from demo.surveys import OPENED, SETTLED_DAYS, SURVEYS, Surveys, served
from tests.support.forked_process import call_forked

DAY = timedelta(days=1)


@pytest.mark.timeout(600)
def test_lake_equals_the_api_at_the_end_of_each_day(tmp_path: Path) -> None:
    place = tmp_path / "demo"
    done = call_forked("demo.units", ["--days", "38"], DEMO_DIR=str(place))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "differ" not in done.stdout
    assert "scored January of south anew" in done.stdout
    files = DeltaTable(place / "lake/answers").file_uris()
    with duckdb.connect() as db:
        found = db.execute(
            "SELECT count(*), count(DISTINCT id), count(_unit), sum((text LIKE '%corrected')::int)"
            " FROM read_parquet(?)",
            [files],
        ).fetchone()
    assert found[0] == found[1] == found[2] > 3000
    assert found[3] > 1000  # a whole month of a survey among them


def test_the_api_changes_its_last_days_and_nothing_before() -> None:
    surveys = Surveys()
    for number in range(20):
        midnight = OPENED + number * DAY
        settled = set(surveys.answers(end=midnight - SETTLED_DAYS * DAY))
        changes = surveys.live(midnight)
        assert changes.new > 0
        assert set(surveys.answers(end=midnight - SETTLED_DAYS * DAY)) == settled
    whole = Surveys()
    for number in range(20):
        whole.live(OPENED + number * DAY)
    assert whole.answers() == surveys.answers()  # a demo is the same each time


def test_the_api_answers_for_a_time_and_counts() -> None:
    surveys = Surveys()
    surveys.live(OPENED)
    with served(surveys) as port:
        base = f"http://127.0.0.1:{port}/surveys"
        query = "from=2023-01-01T00:00:00.000Z&to=2023-01-02T00:00:00.000Z"
        with urllib.request.urlopen(f"{base}/{SURVEYS[0]}/answers?{query}") as response:
            found = json.load(response)["answers"]
        assert len(found) == len(surveys.answers(survey=SURVEYS[0])) > 0
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/east/answers?{query}")
    assert (surveys.requests, surveys.sent) == (1, len(found))
