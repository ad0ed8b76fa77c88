"""State of a run: buckets, time, files, scans, and the operators' edits."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.certificates import CertificateWatch
from tests.simulation.hints import HintSender
from tests.simulation.plan import START, Plan, moment, source_uri
from tests.simulation.scheduler import Owner, Scheduler
from tests.simulation.store import Bucket

if TYPE_CHECKING:
    from tests.simulation.losses import Copy
    from tests.simulation.replicas import Leases

SINK = "s3://lake/events"
DLQ = "s3://lake-dlq"


@dataclass
class Version:
    """One version of a source file: when it became listable, and its good rows."""

    number: int
    appeared: float
    rows: tuple[str, ...]
    bad_rows: int = 0
    # ``bad`` for good, or ``v2``: only a later release reads it.
    flavour: str | None = None


@dataclass
class SourceFile:
    """A name at a source with all its versions, and when it was deleted if it was."""

    source: str
    path: str
    manner: str
    versions: list[Version] = field(default_factory=list)
    deleted: float | None = None


@dataclass(frozen=True)
class Scan:
    """A completed scan of a source: its time, and the new files in it."""

    by: str
    began: float
    ended: float
    paths: frozenset[str]
    requests: int
    # How far the store's clock was off.
    skew: float


@dataclass(frozen=True)
class Edit:
    """A watermark that operators moved, with the announced effect, which excuses violations."""

    again: frozenset[str]
    skipped: frozenset[str]
    said: tuple[str, str]


class SimulatedWorld:
    """Shared state of a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.settings = plan.settings
        # What people mean the configuration to be, while a wrong one is rolled out.
        self.right = plan.settings
        # Since when each grace period was meant.
        self.graces: list[tuple[float, float]] = [(START, plan.settings.grace)]
        self.chance = random.Random(plan.seed)
        self.scheduler = Scheduler(self.chance, START)
        self.counts: Counter[str] = Counter()
        self.history: list[tuple[float, str]] = []
        self.buckets: dict[str, Bucket] = {}
        self.files: dict[tuple[str, str], SourceFile] = {}
        self.unreadable: dict[str, float] = {}
        self.scans: defaultdict[str, list[Scan]] = defaultdict(list)
        self.hints = HintSender(self)
        self.release = 1
        self.store_skew = plan.settings.store_skew
        # Until when it was off by how much before.
        self.skew_before = (START, plan.settings.store_skew)
        self.slow_secs = 0.0
        # Faults have ended; daemons wait longer between polls, which changes nothing but costs.
        self.calm = False
        # Errors that ended a worker and were not to, and what else went wrong on the way.
        self.problems: Counter[str] = Counter()
        # Checkpoints that held more names than they may.
        self.oversized: list[str] = []
        # Texts of errors that what people did excuses, and refusals that are final.
        self.excused: set[str] = set()
        self.refused = False
        # Late files that the log told of, by the source's number and path.
        self.reported: set[tuple[int, str]] = set()
        # Rows that a RESTORE took out of the table or put back, by the version of its entry.
        self.withdrawn: dict[int, Counter[str]] = {}
        # Requests that are on their way and have not landed.
        self.on_their_way = 0
        # What people are going to do when faults end, if not before.
        self.to_do: list[Callable[[], None]] = []
        # What people did, as far as it widens what is right.
        self.deeds: Counter[str] = Counter()
        # Sources whose next start is told to begin from nothing.
        self.fresh: set[int] = set()
        # Files by source and path: given to `blizzard ingest`, and done by the original before
        # our first start.
        self.given: set[tuple[str, str]] = set()
        self.inherited: set[tuple[str, str]] = set()
        # Up to which name everything of a partition was done, because the original said so.
        self.said: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        # Below which partition, by its key, the original's checkpoint closes everything.
        self.closed: dict[str, bytes] = {}
        # Files that `blizzard ingest` said it has ingested.
        self.told_ingested: set[tuple[str, str]] = set()
        # By source: changes of its checkpoint that nobody has undone, those that were in force
        # in each version that was kept, by its epoch, and copies of the checkpoint.
        self.edits: defaultdict[str, tuple[Edit, ...]] = defaultdict(tuple)
        self.held: dict[tuple[str, int], tuple[Edit, ...]] = {}
        self.copies: list[tuple[str, bytes]] = []
        # A copy of the table's folder; what people do about a source that refuses its state; and
        # the sources whose checkpoint was made again.
        self.copy: Copy | None = None
        self.on_refusal: dict[int, Callable[[int], None]] = {}
        self.rebuilt: set[int] = set()
        # Files that a rebuild took for done, since nobody knows better, and those of which it could
        # not tell whether rows are in.
        self.accepted: set[tuple[str, str]] = set()
        self.unsure: set[tuple[str, str]] = set()
        # Up to which key people have said that everything of a source was done.
        self.done_before: dict[str, bytes] = {}
        # Files whose letters people have closed, or were about to; those that a replay of what
        # was refused said are in.
        self.closing: set[str] = set()
        # Files that a replay has left to somebody, by source and path: their letters stay open
        # until they are replayed again.
        self.left: set[tuple[str, str]] = set()
        self.redone: set[tuple[str, str]] = set()
        # How often more a file may come, since requests brought it again.
        self.again: Counter[tuple[str, str]] = Counter()
        # Whether any daemon is at work that reads the sources.
        self.has_reader: Callable[[], bool] = lambda: False
        # The lease of each replica, by its id.
        self.replicas: dict[str, Leases] = {}
        # Source files that were removed although their content is in no table.
        self.wrongly_cleaned: list[str] = []
        # So many outputs to come are of a type that the table does not take.
        self.spoiling = 0
        # What commands were given files, by the second at which they were given.
        self.chosen: dict[float, list[str]] = {}
        for uri in (SINK, DLQ, *(source_uri(n) for n in range(plan.settings.sources))):
            self.bucket(uri)
        self.certificates = (
            None if plan.settings.complete is None else CertificateWatch(self, self.bucket(SINK))
        )

    @property
    def now(self) -> float:
        """The true time."""
        return self.scheduler.now

    def recent_skew(self) -> float:
        """Return the store clock's offset at the time when the current scan was prepared."""
        until, skew = self.skew_before
        return max(skew, self.store_skew) if self.now < until + 10 else self.store_skew

    def bucket(self, uri: str) -> Bucket:
        """Return the bucket below a root; make it at the first call."""
        if uri not in self.buckets:
            bucket = Bucket(uri, lambda: self.scheduler.now + self.store_skew)
            # What we write ourselves is listed by the dozen, which leaves time for more seeds.
            ours = uri in (SINK, DLQ)
            bucket.page_keys = self.settings.page_keys * (6 if ours else 1)
            self.buckets[uri] = bucket
        return self.buckets[uri]

    def edited(self, uri: str, epoch: int, edits: tuple[Edit, ...]) -> None:
        """Set the edits in force; the previous ones belong to the kept version of that epoch."""
        self.deeds[f"edits of {uri}"] += 1
        # Who comes after has seen the same version, and is refused.
        self.held.setdefault((uri, epoch), self.edits[uri])
        self.edits[uri] = edits

    def log_entries(self) -> dict[str, str]:
        """Every commit of the table's log that ever was, cleaned up or not, oldest first."""
        kept = self.bucket(SINK).written
        paths = sorted(p for p in kept if re.fullmatch(r"_delta_log/\d{20}\.json", p))
        return {path: kept[path].decode() for path in paths}

    def note(self, what: str) -> None:
        """Add a line to the history."""
        self.history.append((self.now, what))

    def later(self, secs: float, effect: Callable[[], Any], what: str) -> None:
        """Let a request arrive after a while, whichever processes are alive then."""

        def land() -> None:
            self.on_their_way += 1
            self.scheduler.sleep(secs)
            self.on_their_way -= 1
            try:
                effect()
            except Exception as refused:  # nobody is there to be told
                self.note(f"network: {what} arrives and is refused: {type(refused).__name__}")
            else:
                self.note(f"network: {what} arrives")

        self.scheduler.spawn(Owner("network"), land)

    def after(self, secs: float, action: Callable[[], None]) -> None:
        """People do it in a while, or when faults end."""
        self.to_do.append(action)

        def wait() -> None:
            self.scheduler.sleep(secs)
            if action in self.to_do:
                self.to_do.remove(action)
                action()

        self.scheduler.spawn(Owner("people"), wait)

    def story(self) -> list[str]:
        """Return the history as lines for people."""
        return [
            f"{moment(at):%d %H:%M:%S}.{int(at % 1 * 1000):03d}  {what}"
            for at, what in self.history
        ]
