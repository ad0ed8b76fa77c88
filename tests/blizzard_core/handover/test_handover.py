"""The ``txn`` versions that output ids prove."""

from __future__ import annotations

from blizzard_core.handover.outputs import group_app, newest_by_app, source_app

# The first 48 bits of a UUIDv7 are its milliseconds.
EARLY = "0000000f-4240-7000-8000-000000000001"
LATE = "0000000f-4241-7fff-bfff-ffffffffffff"


def test_output_ids_prove_the_newest_batch_of_each_source() -> None:
    ids = [f"p/s/{LATE}/1/00000-0/0", f"p/s/{EARLY}/2/m/0", f"p/t/{EARLY}/1/0"]
    assert newest_by_app(ids) == {source_app("p/s"): 1_000_001, source_app("p/t"): 1_000_000}


def test_marks_of_groups_prove_the_last_one() -> None:
    assert newest_by_app(["p_s/3", "p_s/12", "other/1"]) == {
        group_app("p_s"): 12,
        group_app("other"): 1,
    }


def test_ids_of_other_writers_prove_nothing() -> None:
    odd = ["", "x", "a/b/c", f"p/{LATE}"]
    assert newest_by_app(odd) == {}
