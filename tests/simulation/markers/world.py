"""A schedule: both daemons on one store, and what must hold at each instant."""

from __future__ import annotations

import json
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from blizzard_core.delta_json import COMMIT, STAMP_BYTES, anchored, commit_path
from blizzard_core.errors import BlizzardError, FencedError
from blizzard_core.handover.complete import (
    MARKERS_FOLDER,
    REVOKED_SUFFIX,
    Completions,
    Marker,
    completions_path,
    holds,
    parser,
    partitions_of,
)
from blizzard_core.handover.published import JOURNAL_FOLDER
from blizzard_py.app.certificates import ask
from tests.simulation.faults import Faults, Shot
from tests.simulation.markers.blizzard import LAKE, RAW, SOURCE_ID, Blizzard, context
from tests.simulation.markers.penguin import Penguin
from tests.simulation.markers.people import PARTITIONS, People
from tests.simulation.plan import START
from tests.simulation.scheduler import Owner, Scheduler, Task
from tests.simulation.store import Bucket, Client

_HEAD = f"{MARKERS_FOLDER}/{SOURCE_ID}/"
_NOTE = f"{REVOKED_SUFFIX}.json"
# Outcomes that settle a file without its rows.
_ROWLESS = frozenset({"reported", "quarantined"})


@dataclass(frozen=True)
class MarkerPlan:
    """The events of a schedule with their times. ``base`` names the world that it begins with."""

    seed: int
    base: str = "empty"
    tracked: int = 64
    late_files: str = "ingest"
    events: tuple[tuple[float, str], ...] = ()
    length: float = 0.9


@dataclass
class Held:
    """Everything that a schedule begins with."""

    lake: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    appeared: dict[str, float] = field(default_factory=dict)
    outputs: dict[str, list[str]] = field(default_factory=dict)
    versions: dict[int, frozenset[str]] = field(default_factory=dict)
    rowless: frozenset[str] = frozenset()
    now: float = START


class _Scheduler(Scheduler):
    """Requests take milliseconds; one of thirty takes so long that others do much meanwhile."""

    def io(self) -> None:
        draw = self._chance.random()
        self.sleep(draw * 0.02 if draw < 0.97 else draw - 0.6)


class MarkerWorld:
    """One schedule. ``violations`` has each wrong marker once."""

    def __init__(self, plan: MarkerPlan, held: Held) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed)
        self.scheduler = _Scheduler(self.chance, held.now)
        self.partitions = PARTITIONS
        self.counts: Counter[str] = Counter()
        self.violations: dict[str, None] = {}
        self.history: list[str] = []
        self.revoking: dict[Owner, int] = {}
        self.step = 0
        self._buckets = {uri: Bucket(uri, self.clock) for uri in (LAKE, RAW)}
        self.lake, self.raw = self._buckets[LAKE], self._buckets[RAW]
        for bucket, objects in ((self.lake, held.lake), (self.raw, held.raw)):
            bucket.page_keys = 1000
            for path, data in objects.items():
                bucket.put(path, data)
        # When each source file appeared, the files of each output, the outputs of each version.
        self.appeared = dict(held.appeared)
        self.outputs = dict(held.outputs)
        self.versions = dict(held.versions)
        # Files that were settled without their rows, also if the journal is lost.
        self.rowless = set(held.rowless)
        self._put, self.lake.put = self.lake.put, self.put  # type: ignore[method-assign]
        self._written: dict[str, int] = {}
        # Markers of a log that is gone: until a cycle that begins later ends.
        self._doubtful = self._log_gone = -1
        self.living: dict[Owner, str] = {}
        self._numbers = 0
        self.people = People(self)

    def clock(self) -> float:
        return self.scheduler.now

    def held(self) -> Held:
        """Return what another schedule can begin with."""
        return Held(
            {path: found.data for path, found in self.lake.objects.items()},
            {path: found.data for path, found in self.raw.objects.items()},
            self.appeared,
            self.outputs,
            self.versions,
            frozenset(self.rowless),
            self.scheduler.now,
        )

    # -- what must hold -----------------------------------------------------------------

    def put(self, path: str, data: bytes, modified: float | None = None) -> str:
        """Write an object of the lake and look at what it changes."""
        version = self._put(path, data, modified)
        self.step += 1
        if path.endswith(".parquet") and path[0] != "_":
            document = json.loads(data)
            self.outputs[document["id"]] = [name for name, _ in document["rows"]]
        elif path.startswith(_HEAD) and not path.endswith(_NOTE):
            self.counts["markers"] += 1
            self._written[path] = self.step
            self._check(path, self._marker(path), "was written")
        elif path.startswith(JOURNAL_FOLDER):
            files = json.loads(data)["files"]
            self.rowless |= {f["path"] for f in files if f["outcome"] in _ROWLESS}
        elif match := COMMIT.fullmatch(path):
            self._committed(int(match[1]), json.loads(data))
        return version

    def _marker(self, path: str) -> Marker:
        return parser(Marker)(json.loads(self.lake.objects[path].data), path)

    def _markers(self) -> list[str]:
        return [p for p in self.lake.objects if p.startswith(_HEAD) and not p.endswith(_NOTE)]

    def _lacks(self, marker: Marker) -> str:
        """Return what makes a marker wrong: the table, or a file that it lacks."""
        inside = self.versions.get(marker.version)
        if inside is None:
            return f"there is no version {marker.version}"
        there = {name for output in inside for name in self.outputs.get(output, ())}
        for path, at in self.appeared.items():
            mine = marker.partition in partitions_of([path], 1)
            if mine and at < marker.scan_ts and path not in there and path not in self.rowless:
                return f"{path} is not in version {marker.version}"
        return ""

    def _check(self, path: str, marker: Marker, when: str) -> None:
        why = self._lacks(marker)
        if not why or self._is_lost_since():
            return
        if self._log_gone >= 0 and self._is_of_another_log(marker):
            # Its writer had looked at the log before it went. `wait` believes no such marker.
            self.counts["markers of a log that is gone"] += 1
        else:
            self._violate(f"a marker {when} and is wrong: {path}: {why}")

    def _is_of_another_log(self, marker: Marker) -> bool:
        found = self.lake.objects.get(commit_path(marker.version))
        stamp = b"" if found is None else found.data[:STAMP_BYTES]
        return anchored(stamp) != marker.anchor

    def _is_lost_since(self) -> bool:
        return self._doubtful >= 0

    def _committed(self, version: int, entry: dict[str, Any]) -> None:
        before = self.versions.get(version - 1, frozenset())
        self.versions[version] = inside = frozenset(entry["all"])
        fresh = {name for output in inside - before for name in self.outputs.get(output, ())}
        if not entry["ours"] or self._is_lost_since():
            return
        owner = self._owner()
        began = self.revoking.get(owner, -1) if owner else -1
        for path in self._markers():
            marker = self._marker(path)
            late = self._late_rows(marker, fresh)
            if not late or version <= marker.version:
                continue
            if self._written.get(path, -1) > began:
                self.counts["markers written during another's commit"] += 1
            else:
                self._violate(f"a marker is there while late rows come: {path}: {late}")

    def _late_rows(self, marker: Marker, names: Iterable[str]) -> str:
        """Return one of the files of its partition that a marker's version lacks, or nothing."""
        mine = [name for name in names if marker.partition in partitions_of([name], 1)]
        if not mine:
            return ""
        known = self.versions.get(marker.version, frozenset())
        there = {name for output in known for name in self.outputs.get(output, ())}
        return next((name for name in mine if name not in there), "")

    def _owner(self) -> Owner | None:
        task = self.scheduler.current
        return None if task is None else task.owner

    def revoked_markers(self) -> list[tuple[str, int]]:
        """Return the markers of revoked partitions, each with the version of its object."""
        mirror = self.lake.objects.get(completions_path(SOURCE_ID))
        paths = self._markers()
        if mirror is None or not paths:
            return []
        completions = parser(Completions)(json.loads(mirror.data), "")
        found = []
        for path in paths:
            marker = self._marker(path)
            completion = completions.partitions.get(marker.partition)
            is_complete = completion is not None and completion.complete_ts
            if not (holds(marker, completions) or is_complete):
                found.append((path, self.lake.objects[path].version))
        return found

    def cycle_over(self, began: int, revoked: list[tuple[str, int]]) -> None:
        """Check all markers once a cycle of Penguin has ended that began at a step.

        ``revoked`` are the markers that the cycle has found at its begin and must have removed.
        """
        if began >= self._doubtful:
            self._doubtful = -1
        for path in self._markers():
            self._check(path, self._marker(path), "stands")
        for path, version in revoked:
            found = self.lake.objects.get(path)
            if found is not None and found.version == version:
                self._violate(f"a marker of a revoked partition stands after a look: {path}")

    def shown(self) -> list[str]:
        """Return the files whose rows the newest version of the table has."""
        if not self.versions:
            return []
        newest = self.versions[max(self.versions)]
        return [name for output in newest for name in self.outputs.get(output, ())]

    def believed(
        self, marker: Marker | None, before: dict[int, frozenset[str]], shown: list[str]
    ) -> None:
        """Check what a consumer was told, who could see the rows of some files when it asked."""
        if marker is None:
            return
        self.counts["consumers told complete"] += 1
        why = self._lacks(marker)
        if why:
            now, self.versions = self.versions, before
            why = self._lacks(marker)
            self.versions = now
        if why:
            self._violate(f"wait says complete and is wrong: {marker.partition}: {why}")
        elif late := self._late_rows(marker, shown):
            self._violate(f"wait says complete behind late rows: {marker.partition}: {late}")

    def _violate(self, text: str) -> None:
        self.violations.setdefault(text)

    def note(self, what: str) -> None:
        """Add a line to the history."""
        self.history.append(f"{self.scheduler.now - START:8.3f} {what}")

    # -- processes -----------------------------------------------------------------------

    def _client(self, uri: str, faults: Faults) -> Client:
        return Client(self._buckets[uri], self.scheduler, faults)

    def start(self, kind: str, shot: Shot | None = None) -> Owner:
        """Start a daemon, with a fault that waits for it."""
        self._numbers += 1
        owner = Owner(f"{kind}-{self._numbers}")
        self.living[owner] = kind
        faults = Faults(owner, self.scheduler, self.counts, self.note, self.later)
        faults.armed = [] if shot is None else [shot]
        faults.on_death = lambda: self.dies(owner)
        lake = self._client(LAKE, faults)
        raw = self._client(RAW, faults)
        bodies: dict[str, Callable[[], None]] = {
            "blizzard": lambda: self._blizzard(owner, lake, raw),
            "penguin": lambda: self._penguin(owner, lake),
        }
        self.scheduler.spawn(owner, lambda: self._life(bodies[kind]))
        return owner

    def _life(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self._violate(f"a daemon died of {error!r} at {place}")

    def later(self, secs: float, effect: Callable[[], Any], _what: str) -> None:
        """Let a request arrive after a while."""

        def land() -> None:
            self.scheduler.sleep(secs)
            try:
                effect()
            except BlizzardError:
                self.counts["refused later"] += 1

        self.scheduler.spawn(Owner("network"), land)

    def _blizzard(self, owner: Owner, lake: Client, raw: Client) -> None:
        import threading  # noqa: PLC0415

        worker, stop = Blizzard(self, lake, raw), threading.Event()
        while True:
            try:
                worker.cycle(stop)
            except FencedError as error:
                self.note(f"{owner.name}: {error}"[:150])
                self.living.pop(owner, None)
                return
            except BlizzardError as error:
                self.counts[f"blizzard {type(error).__name__}"] += 1
                self.note(f"{owner.name}: {error}"[:150])
            self.scheduler.sleep(self.chance.random() * 0.25)

    def _penguin(self, owner: Owner, lake: Client) -> None:
        worker = Penguin(self, owner, lake)
        while True:
            began, revoked = self.step, self.revoked_markers()
            try:
                worker.cycle(worker.stop)
                self.cycle_over(began, revoked)
            except BlizzardError as error:
                self.counts[f"penguin {type(error).__name__}"] += 1
                self.note(f"{owner.name}: {error}"[:150])
            self.scheduler.sleep(self.chance.random() * 0.2)

    def _consumer(self) -> None:
        owner = Owner("consumer")
        faults = Faults(owner, self.scheduler, self.counts, self.note, self.later)
        lake, raw = self._client(LAKE, faults), self._client(RAW, faults)
        parts = context(lake, raw, self.clock, self.plan.late_files)

        def life() -> None:
            while True:
                self.scheduler.sleep(self.chance.random() * 0.5)
                if not self._markers():
                    continue  # it would only be told why
                before, shown = dict(self.versions), self.shown()
                try:
                    answer = ask(parts, self.chance.choice(PARTITIONS[:2]))
                except BlizzardError as error:
                    self.counts[f"consumer {type(error).__name__}"] += 1
                    continue
                self.believed(answer.marker, before, shown)

        self.scheduler.spawn(owner, life)

    # -- the schedule ---------------------------------------------------------------------

    def play(self) -> None:
        """Play the plan to its end."""
        self.start("blizzard")
        self.start("penguin")
        self._consumer()
        people = Owner("people")
        for at, kind in self.plan.events:
            self.scheduler.spawn(people, self._event(at, kind))

        def supervise() -> None:
            while True:
                self.scheduler.sleep(0.1)
                for kind in {"blizzard", "penguin"} - set(self.living.values()):
                    self.start(kind)

        self.scheduler.spawn(people, supervise)
        self.scheduler.run(self.scheduler.now + self.plan.length)
        for task in [task for _, _, task in self.scheduler._queue]:
            _end(self.scheduler, task)

    def _event(self, at: float, kind: str) -> Callable[[], None]:
        def life() -> None:
            self.scheduler.sleep(at)
            self.note(f"people: {kind}")
            self.counts[kind] += 1
            getattr(self.people, kind)()

        return life

    def dies(self, owner: Owner) -> None:
        """End a process at once."""
        self.living.pop(owner, None)
        self.scheduler.kill(owner)

    def forget_log(self) -> None:
        """Forget the versions; markers may be wrong until Penguin has looked."""
        self.versions = {}
        self.step += 1
        self._doubtful = self._log_gone = self.step

    def stage(self) -> str:
        """Return how far the first files are."""
        objects = self.lake.objects
        mirror = objects.get(completions_path(SOURCE_ID))
        complete = [] if mirror is None else json.loads(mirror.data)["partitions"].values()
        done = sum(bool(each["complete_ts"]) for each in complete)
        if len(self._markers()) == len(PARTITIONS[:2]):
            return "marked"
        if done == len(PARTITIONS[:2]) and not self._markers():
            return "complete"
        is_in = any(COMMIT.fullmatch(path) for path in objects)
        return "open" if is_in and not done and not self._markers() else ""


def _end(scheduler: Scheduler, task: Task) -> None:
    if task.done or task.body is None:
        return
    task.owner.dead = True
    scheduler.current = task
    task.body.switch()
    scheduler.current = None
