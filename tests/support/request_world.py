"""A source in memory of which operators request files, done by its own pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blizzard_py.app.reingest import merged
from blizzard_py.app.request_effects import fingerprint_of
from blizzard_py.app.selecting import preview
from blizzard_py.dead_letters import reader
from blizzard_py.dead_letters.reader import DeadLetterObject
from blizzard_py.explain import Explanation, explain
from blizzard_py.explain.location import Located
from blizzard_py.requests.document import Kind, Request
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestState
from blizzard_py.state.checkpoint_file import read_state
from tests.support.blizzard_world import World

DAY = "date=2024-01-01"
SOURCE_ID = "events_main"


class RequestWorld(World):
    """A live source that is up to date, and whose grace is over."""

    def __init__(self, **source: Any) -> None:
        super().__init__(**{"grace_period": "1s", **source})
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

    def ask(
        self,
        select: Mapping[str, Any],
        kind: Kind = "reingest",
        config: str | None = None,
        *,
        once_more: bool = True,
        **options: Any,
    ) -> str:
        """Submit any request; its id."""
        request = self.made(select, kind, config, **options)
        state = read_state(self.sink, SOURCE_ID)
        known = {} if state is None else state.requests
        return self.mailbox.submit(request, known, once_more=once_more)[0]

    def made(
        self,
        select: Mapping[str, Any],
        kind: Kind = "reingest",
        config: str | None = None,
        **options: Any,
    ) -> Request:
        return Request(
            kind=kind,
            select=select,
            options=options,
            config=fingerprint_of(self.parts()) if config is None else config,
            by="ann@ops-3",
            at="2026-11-25T09:12:04+00:00",
            why="a test",
            release="0.1.0",
        )

    def request(self, request_id: str) -> RequestState:
        """What the checkpoint says of a request."""
        state = read_state(self.sink, SOURCE_ID)
        assert state is not None
        return state.requests[request_id]

    def outcomes(self, request_id: str) -> dict[str, str]:
        """The last that the report says of each file."""
        return {line.path: line.state for line in self.mailbox.report(request_id)}

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
        report = self.mailbox.report(request_id)
        return {line.path: line.state for line in merged(report, self.request(request_id).state)}

    def replay(self, *letters: str, **options: Any) -> dict[str, str]:
        """Replay dead letters, all that are open if none is named."""
        ids = letters or [each.id for each in self.open_letters()]
        return self.bring({"letters": list(ids)}, **options)

    def open_letters(self) -> list[DeadLetterObject]:
        return list(reader.objects(self.dlq, SOURCE_ID))

    def previewed(self, *paths: str, **options: Any) -> list[str]:
        state = read_state(self.sink, SOURCE_ID)
        assert state is not None
        request = self.made({"files": list(paths)}, **options)
        return [line.state for line in preview(self.parts(), state, request, self.now)]

    def explained(self, path: str) -> Explanation:
        place = Located(f"mem://raw/{path}", "events/main", path, "", ())
        pipeline = self.pipeline()
        return explain(pipeline.parts, pipeline.source, place)

    def go_on(self, days: int = 3) -> None:
        """The daemon polls and sweeps for some days."""
        for _ in range(days * 2):
            self.now += 86_400 / 2 + 1
            self.drain()
