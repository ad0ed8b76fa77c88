"""A checkpoint made again where only the report of a request tells of a batch.

A report is written before its batch is published. So it proves no rows, and its files come neither
by polls nor by a replay, until an operator has looked into the table.
"""

from __future__ import annotations

import pytest

from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.edits.rebuild.decide import Doubt
from blizzard_py.edits.rebuild.evidence import Evidence
from blizzard_py.state.checkpoint_file import read_ledger, read_names
from tests.support.lost_state import (
    CHECKPOINT,
    STAGING,
    dies_before_publishing,
    lose,
    lose_last_batch,
    rebuild,
    reset,
)
from tests.support.request_harness import SOURCE_ID, RequestHarness

DAY = "date=2024-01-01"
FILE = f"{DAY}/3.json"
AHEAD = "date=2025-06-20/1.json"
BASE = ["1", "5", "52"]


def outputs(world: RequestHarness) -> set[str]:
    return {path for path in world.sink.objects if not path.startswith("_")}


def report_of(world: RequestHarness, batch: str) -> str:
    """Return the path of a batch's report."""
    [path] = [path for path in world.sink.objects if path.endswith(f"/{batch}.ndjson")]
    return path


def doubts(world: RequestHarness) -> list[Doubt]:
    """Return the doubts of a rebuild without a checkpoint."""
    return Evidence(world.parts(), None).doubts()


def mended_by_request() -> tuple[RequestHarness, str, str]:
    """A file that failed first and came by a request; its letter, and the report of its batch."""
    world = RequestHarness()
    world.put(f"{DAY}/6.json", "bad")
    world.drain()
    [letter] = world.open_letters()
    world.put(f"{DAY}/6.json", "mended")
    assert world.ingest(f"{DAY}/6.json") == ["ingested"]
    return world, letter.id, report_of(world, lose_last_batch(world))


@pytest.mark.promise("G-211")
def test_an_older_letter_brings_no_file_of_a_lost_batch() -> None:
    world, letter, _ = mended_by_request()
    rebuild(world)
    assert world.replay(letter) == {f"{DAY}/6.json": "refused"}
    request_id = world.submit(f"{DAY}/6.json", mode="replace")
    world.drain()
    refused = world.request(request_id)
    assert (refused.state, "or their batch was lost" in refused.reason) == ("rejected", True)
    world.go_on()
    assert world.rows() == [*BASE, "mended"]


@pytest.mark.promise("G-211")
def test_an_operator_brings_a_file_of_a_lost_batch_after_a_look() -> None:
    world = RequestHarness()
    before = outputs(world)
    world.put(FILE, "3")
    assert world.ingest(FILE) == ["ingested"]
    lose_last_batch(world)
    lose(world, *(outputs(world) - before))
    rebuild(world)
    world.go_on()
    assert world.rows() == BASE
    assert world.ingest(FILE) == ["refused"]
    assert world.ingest(FILE, assume_missing=True) == ["ingested"]
    world.go_on()
    assert world.rows() == ["1", "3", "5", "52"]
    assert world.ingest(FILE) == ["present"]


@pytest.mark.promise("G-045")
@pytest.mark.parametrize("keeps", [True, False], ids=["with its rows", "without its rows"])
def test_polls_leave_a_file_ahead_whose_batch_was_lost(*, keeps: bool) -> None:
    world = RequestHarness()
    before = outputs(world)
    world.put(AHEAD, "early")
    world.drain()
    assert world.ingest(AHEAD) == ["ingested"]
    lose_last_batch(world)
    if not keeps:
        lose(world, *(outputs(world) - before))
    assert Rebuild(world.parts()).plan(None).new == ()
    rebuild(world)
    assert world.checkpoint()["ahead"] == [AHEAD]
    assert world.ingest(AHEAD) == ["refused"]
    world.put("date=2025-06-20/2.json", "other")
    world.now += 6 * 86_400  # polls will find the partition now
    assert world.previewed(AHEAD) == ["refused"]
    world.go_on(1)
    assert world.rows() == sorted([*BASE, "other", *(["early"] if keeps else [])])
    if not keeps:
        assert world.ingest(AHEAD, assume_missing=True) == ["ingested"]


@pytest.mark.promise("G-211")
def test_a_request_that_is_accepted_again_doubles_nothing() -> None:
    world = RequestHarness()
    request_id = world.submit(f"{DAY}/1.json", mode="again")
    world.drain()
    assert world.rows() == ["1", "1", "5", "52"]
    # It died before the end record, and everything but the report is lost.
    [end] = [path for path in world.sink.objects if path.endswith(f"{request_id}.ended.json")]
    lose_last_batch(world)
    lose(world, end, CHECKPOINT)
    with pytest.raises(EditRefused, match="it would be guessing"):
        rebuild(world)
    rebuild(world, done_before="date=2024-01-02")
    world.go_on()
    assert world.rows() == ["1", "1", "5", "52"]
    assert world.outcomes(request_id)[f"{DAY}/1.json"] in {"present", "refused", "ingested"}


@pytest.mark.promise("G-211")
def test_a_report_leaves_the_batch_itself_in_doubt() -> None:
    world = RequestHarness()
    world.put(FILE, "3")
    world.submit(FILE)
    dies_before_publishing(world)
    # The outputs are staged still; their batch was committed, as its report shows.
    lose(world, CHECKPOINT)
    batch = lose_last_batch(world)
    assert any(f"names batch {batch}" in each.what for each in doubts(world))
    lose(world, STAGING)
    world.sink.put_atomic(report_of(world, batch), b"")
    assert any(f"names batch {batch}" in each.what for each in doubts(world))


@pytest.mark.promise("G-211")
def test_a_report_proves_no_rows() -> None:
    world = RequestHarness()
    world.put(FILE, "3")
    world.submit(FILE)
    dies_before_publishing(world)
    lose(world, CHECKPOINT, STAGING)
    lose_last_batch(world)
    rebuild(world, done_before="date=2023-01-01")
    world.go_on()
    assert world.rows() == BASE
    assert read_ledger(world.sink, SOURCE_ID).outcome_of(FILE) == "unknown"
    assert world.ingest(FILE) == ["refused"]
    assert world.ingest(FILE, assume_missing=True) == ["ingested"]
    assert world.rows() == ["1", "3", "5", "52"]


@pytest.mark.promise("G-211")
def test_a_set_of_names_counts_a_reported_file() -> None:
    world = RequestHarness(use_watermark=False)
    world.put(f"{DAY}/3.txt", "3")
    assert world.ingest(f"{DAY}/3.txt") == ["ingested"]
    lose_last_batch(world)
    rebuild(world)
    world.go_on()
    assert read_names(world.sink, SOURCE_ID).unseen([f"{DAY}/3.txt"]) == []
    assert world.ingest(f"{DAY}/3.txt") == ["refused"]
    assert world.rows() == ["1", "3", "5", "52"]


@pytest.mark.promise("G-211")
def test_a_file_reported_as_quarantined_may_have_rows() -> None:
    world, letter, path = mended_by_request()
    world.sink.put_atomic(path, world.sink.read(path).replace(b"ingested", b"quarantined"))
    rebuild(world)
    assert world.replay(letter) == {f"{DAY}/6.json": "refused"}
    assert world.rows() == [*BASE, "mended"]


@pytest.mark.promise("G-032")
def test_reports_after_a_reset_count_whatever_the_clock_says() -> None:
    world = RequestHarness()
    source = world.pipeline()
    stored = checkpoint_edit.read_checkpoint(source)
    # The operator's machine is ahead of the daemon's, and the store is ahead of both.
    checkpoint_edit.change(source, stored, checkpoint_edit.reset, world.now + 500)
    world.sink.clock = lambda: world.now + 1000
    for name in ("8", "9"):
        world.now += 100
        world.put(f"{DAY}/{name}.json", name)
        world.drain()
    world.put(FILE, "3")
    assert world.ingest(FILE) == ["ingested"]
    lose_last_batch(world)
    rebuild(world)
    assert world.ingest(FILE) == ["refused"]
    assert world.rows().count("3") == 1


@pytest.mark.promise("G-032")
def test_reports_from_before_a_reset_do_not_count() -> None:
    world = RequestHarness()
    world.put(FILE, "3")
    assert world.ingest(FILE) == ["ingested"]
    lose_last_batch(world)
    rebuild(world)
    world.now += 100
    reset(world)
    world.now += 100
    rebuild(world)
    world.go_on()
    assert world.rows().count("3") == 2


def test_a_damaged_report_is_a_doubt_that_names_it() -> None:
    world, _, path = mended_by_request()
    world.sink.put_atomic(path, b"{not json")
    with pytest.raises(EditRefused, match=path):
        rebuild(world)
    rebuild(world, done_before="date=2024-01-02")
    world.go_on()
    assert world.rows() == [*BASE, "mended"]
