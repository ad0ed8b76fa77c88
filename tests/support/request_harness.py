"""A source in memory that ingests files and records by request."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from blizzard_py.app.request_effects import fingerprint_of
from blizzard_py.app.request_selector import RequestSelector
from blizzard_py.app.workers import source_pipeline
from blizzard_py.dead_letters import reader
from blizzard_py.dead_letters.reader import DeadLetterObject
from blizzard_py.explain import Explanation, explain
from blizzard_py.explain.location import Located
from blizzard_py.requests.document import Kind, Request
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestState
from blizzard_py.requests.report import ReportLine, latest_lines
from blizzard_py.selection.ingested_since_request import first_after
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import PendingWork
from tests.support.pipeline_harness import PipelineHarness
from tests.support.record_engine import RecordEngine

DAY = "date=2024-01-01"
SOURCE_ID = "events_main"
BATCH = "019aa000-0000-7000-8000-000000000001"
RECORDS = f"{SOURCE_ID}~records"


def made(
    parts: SourceContext,
    select: Mapping[str, Any],
    kind: Kind = "reingest",
    config: str | None = None,
    **options: Any,
) -> Request:
    """Return a request of a source, as a command makes it."""
    state = read_state(parts.stores.sink, parts.id)
    return Request(
        kind=kind,
        select=select,
        options=options,
        config=fingerprint_of(parts) if config is None else config,
        by="ann@ops-3",
        at="2026-11-25T09:12:04+00:00",
        why="a test",
        release="0.1.0",
        since="" if state is None else first_after(state),
    )


def submit(
    parts: SourceContext,
    select: Mapping[str, Any],
    kind: Kind = "reingest",
    *,
    once_more: bool = True,
    **options: Any,
) -> str:
    """Submit a request of a source, as a command does; its id."""
    state = read_state(parts.stores.sink, parts.id)
    known = {} if state is None else state.work.requests
    mailbox = Mailbox(parts.stores.sink, parts.id)
    return mailbox.submit(made(parts, select, kind, **options), known, once_more=once_more)[0]


def outcomes_of(parts: SourceContext, request_id: str) -> dict[str, str]:
    """Return the last that the report of a request says of each file."""
    report = Mailbox(parts.stores.sink, parts.id).report(request_id)
    return {line.path: line.state for line in report}


def drain_requests(parts: SourceContext) -> None:
    """Do what is requested as the source's owner, as a command does where no daemon runs."""
    worker = source_pipeline(parts, requests_only=True)
    while worker.cycle(threading.Event()):
        pass


def ingest_files(parts: SourceContext, *paths: str, **options: Any) -> list[str]:
    """Request files of a source and do that here, as `blizzard ingest` does; what became of each.

    Nothing else of the source is done.
    """
    request_id = submit(parts, {"files": list(paths)}, **options)
    drain_requests(parts)
    found = outcomes_of(parts, request_id)
    return [found.get(path, "") for path in paths]


def preview_files(parts: SourceContext, *paths: str, **options: Any) -> list[str]:
    """Return what a request for files of a source would do with each, as things are."""
    return [line.state for line in preview_of(parts, {"files": list(paths)}, **options)]


def preview_of(parts: SourceContext, select: Mapping[str, Any], **options: Any) -> list[ReportLine]:
    """Return what a request would do, as things are."""
    state = read_state(parts.stores.sink, parts.id)
    assert state is not None
    request = made(parts, select, **options)
    return list(RequestSelector(parts, source_pipeline(parts).source).preview(state, request))


def explained(world: PipelineHarness, path: str) -> Explanation:
    """Return what `blizzard explain` says of a file."""
    place = Located(f"mem://raw/{path}", "events/main", path, "", ())
    pipeline = world.pipeline()
    return explain(pipeline.parts, pipeline.source, place)


class RequestHarness(PipelineHarness):
    """A live source that is up to date and past its grace period."""

    def __init__(self, **source: Any) -> None:
        super().__init__(**{"grace_period": "1s", **source})
        self.engine: RecordEngine = RecordEngine(self.source, self.sink, self.dlq)
        self.template = "date=%Y-%m-%d"
        for name in ("1", "5"):
            self.put(f"{DAY}/{name}.json", name)
        self.drain()
        self.now += 100
        self.put(f"{DAY}/52.json", "52")  # the save of its batch says that the grace is over
        self.drain()

    @property
    def mailbox(self) -> Mailbox:
        return Mailbox(self.sink, SOURCE_ID)

    def submit(self, *paths: str, **options: Any) -> str:
        """Submit a request for files, as a command does; its id."""
        return self.ask({"files": list(paths)}, **options)

    def ask(self, select: Mapping[str, Any], kind: Kind = "reingest", **options: Any) -> str:
        """Submit any request; its id."""
        return submit(self.parts(), select, kind, **options)

    @property
    def work(self) -> PendingWork:
        """Work that is under way by the checkpoint."""
        state = read_state(self.sink, SOURCE_ID)
        assert state is not None
        return state.work

    def request(self, request_id: str) -> RequestState:
        """Return the checkpoint's entry of a request."""
        return self.work.requests[request_id]

    def ended(self) -> list[str]:
        """Return how the requests that are over have ended."""
        found = map(self.mailbox.end_record, self.mailbox.contents().ended)
        return [end.state for end in found if end is not None]

    def outcomes(self, request_id: str) -> dict[str, str]:
        """Return the last reported outcome of each file."""
        return outcomes_of(self.parts(), request_id)

    def ingest(self, *paths: str, **options: Any) -> list[str]:
        """Request files and have the daemon bring them; what became of each."""
        request_id = self.submit(*paths, **options)
        self.drain()
        found = self.outcomes(request_id)
        return [found.get(path, "") for path in paths]

    def bring(self, select: Mapping[str, Any], **options: Any) -> dict[str, str]:
        """Request files and have the daemon bring them; what became of each."""
        request_id = self.ask(select, **options)
        self.drain()
        return {line.path: line.state for line in self.report(request_id)}

    def report(self, request_id: str) -> list[ReportLine]:
        """Return the outcome of each file of a request, as commands print it."""
        return latest_lines(self.mailbox.report(request_id))

    def replay(self, *letters: str, **options: Any) -> dict[str, str]:
        """Replay dead letters, all that are open if none is named."""
        ids = letters or [each.id for each in self.open_letters()]
        return self.bring({"letters": list(ids)}, **options)

    def open_letters(self) -> list[DeadLetterObject]:
        return list(reader.objects(self.dlq, SOURCE_ID))

    def previewed(self, *paths: str, **options: Any) -> list[str]:
        return preview_files(self.parts(), *paths, **options)

    def explained(self, path: str) -> Explanation:
        return explained(self, path)

    def go_on(self, days: int = 3) -> None:
        """Let the daemon poll and sweep for some days."""
        for _ in range(days * 2):
            self.now += 86_400 / 2 + 1
            self.drain()

    def put_records(self, *found: dict[str, Any], batch: str = BATCH) -> None:
        """Write a letter of single records, as a batch does."""
        self._put_letter(f"{batch}.records", *({"line": 3, "offset": 0, **each} for each in found))

    def put_letter(self, name: str, **found: Any) -> None:
        """Write a letter of a whole file."""
        self._put_letter(name, found)

    def _put_letter(self, name: str, *found: dict[str, Any]) -> None:
        common = {"error": "bad", "stage": "parse", "timestamp": "1970-01-12T13:46:40+00:00"}
        lines = []
        for each in found:
            length = {"length": len(str(each.get("raw", "")))} if "line" in each else {}
            lines.append(json.dumps({**common, **length, **each}))
        data = "".join(f"{line}\n" for line in lines).encode()
        self.dlq.put_atomic(f"{SOURCE_ID}/{name}.ndjson", data)

    def open_ids(self) -> list[str]:
        return [each.id for each in self.open_letters()]

    def open_uris(self) -> list[str]:
        """Return the file of each open letter."""
        found = (reader.read(self.dlq, each) for each in self.open_letters())
        return sorted(letter.uri for letters in found for letter in letters)

    def record_files(self) -> list[str]:
        """Return the written files of single records, below their folder."""
        return sorted(
            path.removeprefix(f"{RECORDS}/")
            for path in self.dlq.objects
            if path.startswith(f"{RECORDS}/")
        )
