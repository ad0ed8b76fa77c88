"""Sample daemons for the status page, with any number of sources and without a store.

python -m tests.support.page_samples 300     # serves them until Ctrl-C
"""

from __future__ import annotations

import datetime as dt
import random
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from blizzard_core.errors import AccessDenied, Unavailable
from blizzard_core.observability.activity import FinishedBatch
from blizzard_core.observability.background_cache import BackgroundCache
from blizzard_core.observability.heartbeat import Life
from blizzard_core.observability.status import PageProviders, Panel
from blizzard_core.observability.web import Server
from blizzard_core.storage.clock import elapsed
from blizzard_core.storage.protocol import Entry
from blizzard_core.text import shell_word
from blizzard_core.watermark.progress import PartitionProgress, Progress
from blizzard_py.app.page_providers import commit_lag_notices, source_commands
from blizzard_py.job import FinishedFile
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.ignored_names import NONE_SKIPPED
from blizzard_py.state.batch import Batch, BatchResults, PlannedOutput
from blizzard_py.state.source_state import Position, SourceState, Summary, Totals
from penguin_py.activity import TableActivity

BEGIN = 1_800_000_000.0
CONFIG = "/etc/blizzard/config.yaml"
_WORDS = ("orders", "clicks", "payments", "returns", "visits", "stock", "prices", "sessions")
_PARTS = ("asia", "europe", "america", "africa", "oceania")


class Clock:
    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> float:
        return self.now


def names(count: int) -> list[str]:
    each = len(_PARTS)
    return [
        f"{_WORDS[n // each % len(_WORDS)]}-{n // each:02d}/{_PARTS[n % each]}"
        for n in range(count)
    ]


def batch(number: int, at: float, files: list[Entry], rows: int) -> Batch:
    outputs = (PlannedOutput("s", f"date=2027-01-15/{number}.parquet", rows, 1 << 20, "o"),)
    finished = tuple(FinishedFile(entry.path, "ingested", rows // len(files)) for entry in files)
    name = f"019f{number:04x}-0000-7000-8000-000000000000"
    return Batch(
        name,
        1,
        "publishing",
        at,
        tuple(files),
        at,
        results=BatchResults(outputs=outputs, finished=finished),
    )


def entries(at: float, count: int, chance: random.Random) -> list[Entry]:
    paths = (
        f"date=2027-01-15/hour={int(at // 3600) % 24:02d}/{n:05d}.ndjson.gz" for n in range(count)
    )
    return [
        Entry(path, chance.randrange(1 << 19, 1 << 22), at - 45 + n) for n, path in enumerate(paths)
    ]


def activities(count: int, clock: Clock, *, trouble: bool = True) -> list[SourceActivity]:
    """Return an hour of activity for each source; some are in trouble, some are working."""
    chance = random.Random(7)
    found = [SourceActivity(name, f"s3://raw/{name}", clock) for name in names(count)]
    usual = [chance.choice((0, 200, 3_000, 40_000)) for _ in found]
    for minute in range(0, 60, 3):
        clock.now = BEGIN + minute * 60
        for activity, rows in zip(found, usual, strict=True):
            activity.cycle_began()
            files = entries(clock.now, 4 if rows else 0, chance)
            activity.polled(0.2, files, [], (2, 120), NONE_SKIPPED)
            if files:
                done = batch(minute, clock.now - 9, files, round(rows * chance.uniform(0.6, 1.4)))
                activity.batch_began(done)
                activity.batch_done(done)
            activity.cycle_done()
            activity.waiting(60)
    clock.now = BEGIN + 3600
    for number, activity in enumerate(found):
        activity.cycle_began()
        late = number % 7 == 3
        files = entries(clock.now - (200 if late else 0), 60 if late else 0, chance)
        activity.polled(0.2, files, [], (2, 120), NONE_SKIPPED)
        activity.knows(_state(clock.now, usual[number]))
        if number % 9 == 4:
            activity.batch_began(batch(90, clock.now - 11, entries(clock.now, 40, chance), 9000))
        activity.cycle_done()
        activity.waiting(60)
    if trouble and found:
        _trouble(found)
    return found


def _state(now: float, rows: int) -> SourceState:
    marks = {
        f"date=2027-01-1{day}": PartitionProgress(f"{day}.ndjson.gz", None) for day in range(5)
    }
    progress = Progress("Active", "date=2027-01-14/4.ndjson.gz", marks, depth=1)
    return SourceState(
        position=Position(progress),
        summary=Summary(
            totals=Totals(900, 3_600, 2, rows * 900, 1 << 40, 900, 3), last_update_ts=int(now)
        ),
    )


def _trouble(found: list[SourceActivity]) -> None:
    for activity in found[5::97]:
        for _ in range(4):
            activity.cycle_failed(AccessDenied(f"{activity.place}/: access denied (ExpiredToken)"))
        activity.waiting(64)
    for activity in found[2::61]:
        letter = FinishedFile(
            "date=2027-01-15/broken.ndjson.gz",
            "quarantined",
            error="line 7: no JSON",
            stage="parse",
        )
        activity.gave_up([letter])
    for activity in found[11::140]:
        activity.refused(
            2,
            48_211,
            "date=2027-01-15/a.parquet: column amount: string is no double",
            "mend the table or the schema, then `blizzard replay CONFIG --refused`",
        )
    for activity in found[17::120]:
        activity.cycle_failed(Unavailable(f"GET {activity.place}: 503 SlowDown"))


# The source whose history is that of a query over event time.
WINDOWED = "clicks-01/asia"


def _event_time_report(at: float, n: int) -> dict[str, Any]:
    newest = round((at - 30) * 1000)
    behind = 600_000 if n % 9 else 900_000
    return {
        "watermark_ms": 0 if n > 50 else newest - behind,
        "max_event_time_ms": newest,
        "times": {
            "count": 5_000,
            "min_ms": newest - 700_000,
            "max_ms": newest,
            "avg_ms": newest - 20_000.5,
            "behind": [[0, 4_900], [60, 80], [300, 19], [None, 1]],
        },
        "operators": [
            {
                "name": "stateStoreSave",
                "state_rows": 40 + n % 7,
                "state_bytes": 2_048_000,
                "updated_rows": 31,
                "removed_rows": 6,
                "dropped_rows": 0,
            }
        ],
        "state_rows": 40 + n % 7,
        "late_rows": 12 if n == 20 else 0,
    }


def past(name: str, clock: Clock) -> dict[str, Any]:
    """Return a history as the page reads it."""
    chance = random.Random(name)
    batches, commits = [], []
    for n in range(60):
        at, rows = clock.now - 180 * n - 20, chance.randrange(2_000, 60_000)
        size = rows * 41
        batches.append(
            {
                "odd": "",
                "batch": f"019f{n:04x}-0000-7000-8000-000000000000",
                "at": at,
                "secs": 7 + n % 5,
                "attempt": 1,
                "files": chance.randrange(2, 40),
                "failed": int(n == 9),
                "bytes": size,
                "rows": rows,
                "bad_rows": 0,
                "outputs": 1,
                "versions": [] if n == 0 else [4_711 - n],
                "missing": int(n == 0),
                "event_time": _event_time_report(at, n) if name == WINDOWED else None,
            }
        )
        commits.append(
            {
                "version": 4_711 - n - 1,
                "at": at - 120,
                "operation": "WRITE",
                "ours": "penguin-orders",
                "files": 1,
                "rows": rows,
                "bytes": size // 4,
                "removed": 0,
                "whole": True,
            }
        )
    failed = {
        "at": clock.now - 1640,
        "batch": "019f0009",
        "path": "date=2027-01-15/broken.ndjson.gz",
        "uri": f"s3://raw/{name}/date=2027-01-15/broken.ndjson.gz",
        "outcome": "quarantined",
        "stage": "parse",
        "error": "line 7: no JSON: Expecting value",
    }
    return {
        "batches": batches,
        "failed": [failed],
        "letters": open_letters(name, clock),
        "partitions": partitions(name),
        "commits": commits,
    }


def partitions(name: str) -> dict[str, Any]:
    """Return two days of hours, with a file in each of the states in the last ones."""
    found = []
    for hour in range(48):
        folder = f"date=2027-01-{14 + hour // 24}/hour={hour % 24:02d}"
        file = {"files": 40 + hour, "uri": f"s3://raw/{name}/{folder}/00039.ndjson.gz"}
        states = {"ingested": file}
        for state, at in (("dead-lettered", 31), ("late", 17), ("rejected", 40), ("missing", 9)):
            if hour == at:
                states[state] = {"files": 2, "uri": f"s3://raw/{name}/{folder}/{state}.json"}
        found.append({"name": folder, "states": states})
    return {"more": 0, "list": found}


def open_letters(name: str, clock: Clock) -> dict[str, Any]:
    """Return dead letters of two reasons."""
    pipeline, _, source = name.partition("/")
    here = f"{CONFIG} --pipeline {pipeline} --source {source}"
    uri = f"s3://raw/{name}/date=2027-01-15"
    at = dt.datetime.fromtimestamp(clock.now - 1640, dt.UTC).isoformat()
    groups = [
        {
            "kind": "records",
            "stage": "parse",
            "error": "line 7, column amount: The string 'n/a' is not a valid decimal128 number",
            "reason": "is not a valid decimal",
            "count": 214,
            "newest": at,
            "letter": "019f0009.records",
            "files": [f"{uri}/{n:05d}.ndjson.gz" for n in range(3)],
            "sample": {"line": 7, "text": '{"id": 4711, "amount": "n/a", "city": "<Köln>"}'},
        },
        {
            "kind": "files",
            "stage": "decompress",
            "error": "is cut off after 1,204 bytes",
            "reason": "is cut off after",
            "count": 1,
            "newest": at,
            "letter": "019f0007",
            "files": [f"{uri}/cut.ndjson.gz"],
            "sample": None,
        },
    ]
    for group in groups:
        which = f"--stage {group['stage']} --reason {shell_word(str(group['reason']))}"
        group["commands"] = [
            {
                "why": "After a fix: show what a replay would ingest; without --dry-run it does",
                "command": f"blizzard replay {here} {which} --dry-run",
            }
        ]
    return {"objects": 61, "read": 50, "complete": False, "more_reasons": 0, "groups": groups}


def saved_penguin(clock: Clock) -> list[Mapping[str, Any]]:
    """Return the saved state of a Penguin."""
    return [
        {
            "name": "orders",
            "saved": clock.now - 100,
            "life": Life("running", clock.now - 60, "penguin-0", 7).to_json(),
            "state": "active",
            "updated": clock.now - 100,
            "watermark": "date=2027-01-15/0190.parquet",
            "version": 4_710,
            "commits": 4_700,
            "odd": "",
            "blocked": {},
            "blocked_groups": 0,
            "files": None,
            "rows": None,
            "quarantined": None,
            "in_flight": 0,
            "host": None,
            "pid": None,
        }
    ]


def story(uri: str) -> dict[str, Any]:
    """Return the story of an ingested file."""
    return {
        "uri": uri,
        "verdict": "ingested",
        "reason": "ingested with 812 rows",
        "source": "orders-00/asia",
        "sources": 3,
        "path": uri.rpartition("/")[2],
        "file": {"size": 52_113, "modified_ts": BEGIN},
        "partition": "date=2027-01-15",
        "name": uri.rpartition("/")[2],
        "compared_with": {"watermark": "00012.ndjson.gz", "scan_start": None},
        "batch": {
            "batch": "019f0001-0000-7000-8000-000000000000",
            "attempt": 1,
            "started_ts": BEGIN + 9,
            "finished_ts": BEGIN + 16,
            "rows": 812,
            "bad_rows": 1,
            "backfill": None,
            "replay": False,
        },
        "outputs": [
            {
                "path": "date=2027-01-15/019f0001.parquet",
                "rows": 40_112,
                "delta_status": "committed",
                "delta_version": 4_702,
                "refusal": None,
                "status_text": "committed in version 4,702",
            }
        ],
        "more_outputs": 0,
        "dead_letter": None,
        "pending": None,
        "late": None,
        "commands": [
            {"why": "The same on a terminal", "command": f"blizzard explain {CONFIG} {uri}"}
        ],
        "untaken": ["device", "<b>os</b>"],
        "added_since": ["price"],
    }


def providers(clock: Clock, tell: Callable[[str], dict[str, Any]] = story) -> PageProviders:
    return PageProviders(
        peer=BackgroundCache("beside", lambda _name: saved_penguin(clock), clock, elapsed, 1000),
        history=BackgroundCache("past", lambda name: past(name, clock), clock, elapsed, 1000),
        story=BackgroundCache("story", tell, clock, elapsed, 2),
        notices=commit_lag_notices,
        commands=lambda target: source_commands(CONFIG, target),
    )


def panel(
    count: int,
    *,
    trouble: bool = True,
    providers_: PageProviders | None = None,
    penguin_page: str | None = None,
) -> Panel:
    clock = Clock()
    found = activities(count, clock, trouble=trouble)
    given = providers(clock) if providers_ is None else providers_
    return Panel("blizzard", found, clock, given, penguin_page)


class CommittingTable(TableActivity):
    """A table that a sample commits to."""

    def commit(self, version: int) -> None:
        self._version, self._committed = version, self.clock()
        self._did(FinishedBatch(self.clock(), str(version), 1, 1_000 + version, 1 << 20, 0.5))


def penguin_panel() -> Panel:
    """Return Penguin's page of two tables, with a commit an hour for half a day."""
    clock = Clock()
    tables = [CommittingTable(name, f"s3://lake/{name}", clock) for name in ("orders", "stock")]
    for hour in range(13):
        clock.now = BEGIN + 3600 - (12 - hour) * 3600
        for table in tables:
            files = [Entry(f"date=2027-01-15/{hour}.parquet", 1 << 20, clock.now)]
            table.cycle_began()
            table.polled(0.1, files, (2, 40))
            table.commit(hour)
            table.files_done(files)
            table.cycle_done()
            table.waiting(60)

    def commits(name: str) -> dict[str, Any]:
        return {"commits": past(name, clock)["commits"]}

    history = BackgroundCache("past", commits, clock, elapsed, 9)
    return Panel("penguin", tables, clock, PageProviders(history=history))


if __name__ == "__main__":
    shown = panel(int(sys.argv[1]))
    with shown.providers.open(), Server("127.0.0.1:0", shown) as server:
        print(f"http://127.0.0.1:{server.port}/", flush=True)  # noqa: T201  # it is what to open
        signal.pause()
