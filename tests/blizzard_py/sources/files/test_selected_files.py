"""A source with ``include`` and ``exclude``: nothing else is listed, lost or read twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from blizzard_core.storage.protocol import ListingPage, order_key
from blizzard_core.text import iso
from blizzard_py.selection.candidates import read_page
from blizzard_py.sources.files.late_file_sweep import LateSweep
from blizzard_py.state.ledger import Ledger
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import polls, sweeps
from tests.support.request_harness import explained, ingest_files
from tests.support.request_harness import made as submitted

TRACKINGS = pytest.mark.parametrize("use_watermark", [True, False])
FILES = ("tenant=1/a.json", "tenant=2/a.json", "tenant=2/tmp/b.json", "tenant=3/a.json")


def made(**source: Any) -> PipelineHarness:
    world = PipelineHarness(grace_period="1s", **source)
    for path in FILES:
        world.put(path, path)
    return world


@TRACKINGS
def test_source_reads_what_is_selected(use_watermark: bool) -> None:
    world = made(include=["tenant={2,3}/**"], exclude=["**/tmp/**"], use_watermark=use_watermark)
    calls: list[tuple[str, str | None]] = []
    list_range = world.source.list_range

    def recorded(after: str, until: str | None) -> Iterator[ListingPage]:
        calls.append((after, until))
        yield from list_range(after, until)

    world.source.list_range = recorded  # type: ignore[method-assign]
    worker = world.drain()
    assert world.rows() == ["tenant=2/a.json", "tenant=3/a.json"]
    polls(world, worker, 2)
    sweeps(world, worker)
    looks = [each for each in calls if each != ("", None)]  # whether the store shows anything
    assert looks
    for after, until in looks:
        assert order_key(after) >= b"tenant=2/"
        assert order_key(until) <= b"tenant=40"
    assert world.letters() == []


def test_broad_patterns_and_fixed_ends_are_noted() -> None:
    world = made(include=["tenant=2/**", "*/a.json", "**/b.json"], modified_before="2026-01-01T00Z")
    worker = world.pipeline()
    broad, fixed = worker.source.status_fields(worker.load())["notes"]
    assert broad.startswith("include '*/a.json' begins with a wildcard, so a poll costs a LIST")
    assert fixed.startswith("modified_before is a fixed time")


def test_explain_names_the_pattern() -> None:
    world = made(include=["tenant={2,3}/**"], exclude=["**/tmp/**"])
    world.drain()
    assert "no pattern of include matches it: tenant={2,3}/**" in str(
        explained(world, "tenant=1/a.json")
    )
    assert "exclude has a pattern that matches it: **/tmp/**" in str(
        explained(world, "tenant=2/tmp/b.json")
    )


@TRACKINGS
def test_wider_selection_loses_and_doubles_nothing(use_watermark: bool) -> None:
    """Read all, then one tenant for long, then all again."""
    world = made(use_watermark=use_watermark, late_files="ingest", late_sweep_interval="1h")
    world.drain()
    world.settings["include"] = ["tenant=2/**"]
    world.put("tenant=1/0.json", "below the watermark")
    world.put("tenant=4/a.json", "new partition")
    worker = world.pipeline()
    for _ in range(12):
        worker = polls(world, worker, 1, 7200)
    assert len(world.rows()) == len(FILES)
    del world.settings["include"]
    worker = world.pipeline()
    for _ in range(4):
        worker = polls(world, worker, 1, 7200)
    assert sorted(world.rows()) == sorted([*FILES, "below the watermark", "new partition"])


class OutgrownLedger:
    """A ledger that holds many more names than any listing."""

    def outgrows(self, _files: int) -> bool:
        return True

    def unprocessed(self, paths: list[str]) -> list[str]:
        return paths

    not_history = unprocessed


@pytest.mark.parametrize(
    ("include", "forgets"), [([], True), (["**/*.json"], True), (["tenant=2/**"], False)]
)
def test_ledger_forgets_only_what_is_listed(include: list[str], forgets: bool) -> None:
    world = made(include=include)
    ledger = cast("Ledger", OutgrownLedger())
    sweep = LateSweep(world.source, world.parts().files, ledger)
    sweep.next_slice(world.drain().load())
    sweep.over()
    assert sweep.has_outgrown is forgets


@TRACKINGS
def test_files_of_other_times_hold_nothing_and_come_back(use_watermark: bool) -> None:
    """Old and young files are passed; a file that is modified again is a late one."""
    begin, end = PipelineHarness.begins, PipelineHarness.begins + 1000
    world = PipelineHarness(
        grace_period="1s",
        late_files="ingest",
        late_sweep_interval="1h",
        use_watermark=use_watermark,
        modified_after=iso(begin),
        modified_before=iso(end),
    )
    for number, at in enumerate((begin - 1, begin, end - 1, end)):
        world.source.objects[f"d={number}/a.json"] = (f"{number}".encode(), at)
        world.source.objects[f"d=2/{number}.json"] = (f"2/{number}".encode(), at)
    worker = world.drain()
    assert sorted(world.rows()) == ["1", "2", "2/1", "2/2"]
    found = worker.discover(worker.load(), full=True)
    assert (found.files, found.young, found.ignored.wanted) == ((), (), True)
    polls(world, worker, 2)
    assert len(world.rows()) == 4
    shown = str(explained(world, "d=3/a.json"))
    assert "ignored" in shown
    assert "not before modified_before" in shown
    world.source.objects["d=2/0.json"] = (b"again", begin + 5)
    sweeps(world, worker)
    assert sorted(world.rows()) == ["1", "2", "2/1", "2/2", "again"]
    assert world.letters() == []


def test_backfill_lists_what_is_selected_alone() -> None:
    world = made(include=["tenant={2,3}/**"])
    parts = world.parts()
    calls: list[tuple[str, str | None]] = []
    list_range = world.source.list_range

    def recorded(after: str, until: str | None) -> Iterator[ListingPage]:
        calls.append((after, until))
        yield from list_range(after, until)

    world.source.list_range = recorded  # type: ignore[method-assign]
    page = read_page(parts, submitted(parts, {"range": ["tenant=1", "tenant=2"]}), "")
    assert [each.path for each in page.candidates] == ["tenant=2/a.json", "tenant=2/tmp/b.json"]
    assert [after for after, _ in calls] == ["tenant=2/"]


@TRACKINGS
def test_request_reads_a_file_of_another_time_once(use_watermark: bool) -> None:
    """It comes by request, and is written again at a time that polls take."""
    world = PipelineHarness(use_watermark=use_watermark, modified_after=iso(PipelineHarness.begins))
    world.source.objects["d=1/a.json"] = (b"old", world.now - 5)
    world.source.objects["d=1/0.json"] = (b"new", world.now)
    world.drain()
    world.source.objects["d=2/b.json"] = (b"older", world.now - 9)
    paths = ("d=1/a.json", "d=2/b.json", "d=1/0.json")
    assert ingest_files(world.parts(), *paths) == ["ingested", "ingested", "present"]
    assert sorted(world.rows()) == ["new", "old", "older"]
    world.source.objects["d=2/b.json"] = (b"older", world.now + 9)
    sweeps(world)
    assert sorted(world.rows()) == ["new", "old", "older"]
