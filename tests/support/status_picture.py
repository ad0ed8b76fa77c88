"""Drawing of ``docs/status-page.png``: an hour of three sources, one of them unreadable.

    python -m tests.support.status_picture docs/status-page.png

The pipelines, the checkpoints and the page are the product's own; the stores are in
memory and the clock is turned by hand, so an hour takes seconds and the picture is the
same each time.
"""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path
from typing import Any

from blizzard_core import log
from blizzard_core.errors import AccessDenied, BlizzardError
from blizzard_core.observability.status import Panel
from blizzard_core.observability.web import Server
from blizzard_core.settings.document import ErrorSettings
from blizzard_core.settings.sources import CheckpointSettings, SourceSettings
from blizzard_core.storage.protocol import ListingPage
from blizzard_py.app.workers import source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import (
    FieldSpec,
    IngestJob,
    IngestResult,
    IngestSettings,
    OutputLayout,
    Place,
    RowSchema,
)
from blizzard_py.sources.context import SourceContext, Stores
from tests.support.browser import chromium
from tests.support.flat_settings import settings_of
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import LineEngine

BEGIN = 1_800_000_000.0
ROWS = 2_400


class StatusPictureHarness:
    """The time, and a chance that falls the same way each time."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.chance = random.Random(4)

    def clock(self) -> float:
        return self.now


class Store(MemoryStorage):
    """A bucket that can be closed."""

    page_keys = 1000

    def __init__(self, uri: str, world: StatusPictureHarness) -> None:
        super().__init__(uri, world.clock)
        self.page_keys = 1000
        self.closed = False

    def list_range(self, after: str, until: str | None) -> Any:
        if self.closed:
            raise AccessDenied(f"{self.uri}/: access denied (ExpiredToken)")
        empty = True
        for page in super().list_range(after, until):
            empty = False
            yield page
        if empty:
            yield ListingPage((), 1, 0)


class Engine(LineEngine):
    """Jobs that take their time; the page may be read while they run."""

    def __init__(self, source: Store, sink: Store, world: StatusPictureHarness) -> None:
        super().__init__(source, sink)
        self.world = world
        self.looked: threading.Event | None = None
        self.running = threading.Event()

    def ingest(self, job: IngestJob) -> IngestResult:
        if self.looked is not None:
            self.running.set()
            assert self.looked.wait(60)
        self.world.now += 0.06 * len(job.files) + self.world.chance.random()
        return super().ingest(job)


def source(name: str, world: StatusPictureHarness) -> tuple[SourcePipeline, Store, Engine]:
    pipeline, _, part = name.partition("/")
    raw, lake = Store(f"s3://raw/{name}", world), Store(f"s3://lake/{pipeline}", world)
    engine = Engine(raw, lake, world)
    settings = settings_of(
        SourceSettings,
        source_uri=raw.uri,
        compression="none",
        checkpoint=CheckpointSettings(interval_files=100),
        partition_depth=2,
    )
    ingest = IngestSettings(
        source=Place(raw.uri),
        sink=Place(lake.uri),
        schema=RowSchema((FieldSpec("a", "string", nullable=True),)),
        layout=OutputLayout("snappy", file_bytes=1 << 27),
    )
    stores = Stores(raw, lake, Store(f"s3://lake/{pipeline}/_blizzard/dlq", world))
    parts = SourceContext(
        pipeline,
        part,
        settings,
        ErrorSettings(),
        ingest,
        stores,
        engine,
        4,
        world.clock,
        world.clock,
    )
    return source_pipeline(parts), raw, engine


def arrive(raw: Store, world: StatusPictureHarness, count: int, *, bad: bool = False) -> None:
    """Files of the last minute."""
    row = "x" * 40
    for number in range(count):
        at = world.now - 40 + number * 40 / max(1, count)
        hour = f"date=2027-01-15/hour={int(at // 3600) % 24:02d}"
        lines = [row] * round(ROWS * (0.5 + world.chance.random()))
        if bad and number == 0:
            lines[7] = "bad"
        path = f"{hour}/{int(at)}-{number:04d}.ndjson"
        raw.objects[path] = ("\n".join(lines).encode(), at)


def turn(worker: SourcePipeline) -> None:
    """Play one turn, with the events of the daemon's loop."""
    worker.activity.cycle_began()
    try:
        worker.cycle(threading.Event())
    except BlizzardError as error:
        worker.activity.cycle_failed(error)
        worker.activity.waiting(64)
    else:
        worker.activity.cycle_done()
        worker.activity.waiting(60)


def hour(
    world: StatusPictureHarness, sources: dict[str, tuple[SourcePipeline, Store, Engine]]
) -> None:
    usual = {"events/asia": 24, "events/europe": 46, "clicks/web": 9}
    for minute in range(62):
        for name, (worker, raw, _engine) in sources.items():
            mean = usual[name] * (1.6 if 22 <= minute <= 31 else 1.0)
            count = round(mean * (0.6 + 0.8 * world.chance.random()))
            raw.closed = name == "clicks/web" and minute > 57
            arrive(raw, world, count, bad=name == "events/asia" and minute in {40, 55})
            turn(worker)
        world.now = BEGIN + (minute + 1) * 60


def main(target: Path) -> None:
    log.configure("error")
    world = StatusPictureHarness()
    sources = {n: source(n, world) for n in ("events/asia", "events/europe", "clicks/web")}
    panel = Panel("blizzard", [w.activity for w, _, _ in sources.values()], world.clock)
    hour(world, sources)
    worker, raw, engine = sources["events/europe"]
    arrive(raw, world, 85)
    engine.looked = threading.Event()
    busy = threading.Thread(target=turn, args=(worker,))
    busy.start()
    assert engine.running.wait(60)
    world.now += 9
    with Server("127.0.0.1:0", panel) as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 765})
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.wait_for_selector(".card")
        page.screenshot(path=target)
    engine.looked.set()
    busy.join()
    print(f"{target}: {target.stat().st_size:,} bytes")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
