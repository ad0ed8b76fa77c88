"""Files of letters, ranges and names that operators have brought by one kind of request."""

from __future__ import annotations

from tests.support.letter_harness import FailedFilesHarness
from tests.support.request_harness import DAY

BASE = ["1", "5", "52", "b"]


def test_a_file_that_is_replaced_takes_its_records_out() -> None:
    world = FailedFilesHarness()
    paths = [f"{DAY}/1.json", f"{DAY}/5.json"]
    world.put(paths[0], "new1", "new2")
    # Their rows lie in one output, and do not name their files.
    assert world.bring({"range": [paths[0], paths[0]]}, mode="replace") == {}
    found = world.bring({"files": paths}, mode="replace")
    assert found == dict.fromkeys(paths, "replaced")


def test_range_in_mode_again_adds_to_existing_rows() -> None:
    world = FailedFilesHarness()
    found = world.bring({"range": [DAY, DAY]}, mode="again")
    assert found[f"{DAY}/1.json"] == "ingested"
    assert world.rows() == sorted([*BASE, "1", "5", "52"])
