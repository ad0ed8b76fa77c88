"""A source in memory whose requests replace rows, with its table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blizzard_core.errors import Unavailable
from blizzard_core.handover.groups import Group
from blizzard_core.settings.sources import MetadataColumn
from blizzard_py.app.request_selector import RequestSelector
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.requests.progress import RequestState
from blizzard_py.requests.report import ReportLine, latest_lines
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_file import read_state
from tests.support.published_groups import groups_of
from tests.support.request_harness import DAY, SOURCE_ID, RequestHarness, made


@dataclass(frozen=True)
class Outcome:
    """The end of a request, and what became of its files."""

    request: RequestState
    files: Sequence[ReportLine]

    @property
    def states(self) -> dict[str, str]:
        """Outcome of each file, by its name without folder and ending."""
        return {_stem(line.path): line.state for line in self.files}


class ReplaceHarness(RequestHarness):
    """A source whose rows are `file:text`, so that each row names its file."""

    def __init__(self, *, named: bool = True, **source: Any) -> None:
        self.named = named
        self.committed: dict[str, list[str]] = {}
        self.was: set[str] = set()
        self.listed: set[str] = set()
        self.applied = 0
        super().__init__(**source)

    def parts(self) -> SourceContext:
        parts = super().parts()
        columns: tuple[MetadataColumn, ...] = ("_source_file",) if self.named else ()
        added = replace(parts.ingest.added_columns, metadata=columns)
        return replace(parts, ingest=replace(parts.ingest, added_columns=added))

    def drain(self, pipeline: SourcePipeline | None = None) -> SourcePipeline:
        """Drain as the daemon's loop does, which retries unreadable files."""
        worker = self.pipeline() if pipeline is None else pipeline
        while True:
            try:
                return super().drain(worker)
            except Unavailable:
                self.now += 900

    def done(self, select: Mapping[str, Any], **options: Any) -> Outcome:
        """Request that files replace what they had, and have the daemon do it."""
        request_id = self.ask(select, **{"mode": "replace", **options})
        self.drain()
        found = self.request(request_id)
        return Outcome(found, latest_lines(self.mailbox.report(request_id)))

    def replace(self, first: str = DAY, last: str = DAY, **options: Any) -> Outcome:
        return self.done({"range": [first, last]}, **options)

    def only(self, *names: str, **options: Any) -> Outcome:
        return self.done({"files": [f"{DAY}/{name}.json" for name in names]}, **options)

    def replay_all_files(self, **options: Any) -> Outcome:
        """Have all files that open letters tell of replace what they had."""
        return self.done({"letters": [each.id for each in self.open_letters()]}, **options)

    def preview(self, *names: str, **options: Any) -> list[ReportLine]:
        """Return what a request would do with the stored state."""
        state = read_state(self.sink, SOURCE_ID)
        assert state is not None
        select = {"files": [f"{DAY}/{name}.json" for name in names]}
        request = made(self.parts(), select, **{"mode": "replace", **options})
        return list(RequestSelector(self.parts(), self.pipeline().source).preview(state, request))

    def mend(self, version: str, *names: str) -> None:
        """Write files again, with two rows each."""
        for name in names:
            self.put(f"{DAY}/{name}.json", f"{name}:{version}", f"{name}:{version}+")

    def cut(self) -> None:
        """Make the journal what it is when thirty days are over and it was folded."""
        self.now += 100
        for path in [p for p in self.sink.objects if p.startswith("_blizzard/journal/")]:
            del self.sink.objects[path]

    def table(self) -> list[str]:
        """Rows as Penguin has committed them by now: it lists outputs, then takes groups.

        Files of this world have their output id in the journal, and rows their file's name in
        their text: what it takes to do as a group says.
        """
        ids = self.output_ids()
        for path, found in self.published().items():
            if not path.rpartition("/")[2].startswith("unit-") and path not in self.listed:
                self.listed.add(path)
                self.committed[ids[path]] = found
                self.was.add(ids[path])
        groups = groups_of(self.sink)
        named = {file.path for group in groups for file in group.files}
        assert named == {path for path in self.published() if "unit-" in path}
        for group in groups[self.applied :]:
            assert set(group.outputs) <= self.was, "it waits for ever"
            for key, rows in self.committed.items():
                self.committed[key] = _left(group, key, rows)
            for file in group.files:
                self.committed[file.output_id] = self.sink.read(file.path).decode().splitlines()
                self.was.add(file.output_id)
        self.applied = len(groups)
        return sorted(row for found in self.committed.values() for row in found)

    def output_ids(self) -> dict[str, str]:
        return {
            path: output["output_id"]
            for name, (data, _) in self.sink.objects.items()
            if name.startswith("_blizzard/journal/")
            for output in json.loads(data)["outputs"]
            for path in (output["final"], *output["earlier"])
        }


def _left(group: Group, output_id: str, rows: list[str]) -> list[str]:
    if group.source_files:
        names = {_stem(name) for name in group.source_files}
        return [row for row in rows if row.partition(":")[0] not in names]
    return [] if output_id in group.outputs else rows


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json")


def is_rejected(found: Outcome, why: str) -> bool:
    """Return whether the request was rejected for this reason and has no files left."""
    assert found.request.state == "rejected", found
    assert found.files == []
    return why in found.request.reason


def with_a_bad_record(*, named: bool = True, raw: str = "6:bad") -> ReplaceHarness:
    """Return a source with an ingested file that has one bad record."""
    world = ReplaceHarness(named=named)
    world.put(f"{DAY}/6.json", "6:a", "?6:bad")
    world.drain()
    record = {"path": f"mem://raw/{DAY}/6.json", "line": 2, "raw": raw}
    world.put_records(record, batch=world.open_letters()[0].batch)
    return world
