"""Random histories of a source that is cleaned: writers, committers, operators, deaths, owners.

At each removal the object's content has to be in the table: every row of it, by the log of that
moment. In an archive there has to be a copy.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from blizzard_core.errors import FencedError, Unfinished
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import IngestJob, IngestResult
from blizzard_py.sources.context import SourceContext
from tests.simulation.deltalog import Table, checkpoint
from tests.support.cleaning_harness import DAY_SECS, CleaningHarness
from tests.support.memory_store import Died, MemoryStorage

_LOG = "_delta_log"


class CleaningHistory(CleaningHarness):
    """One history, which its seed decides. ``wrong`` has the removals that lost something."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.elapsed = 0.0
        # The files of the table by version; None stands for an entry that was taken back.
        self.tables: list[frozenset[str]] = []
        # The version of the last checkpoint of the log.
        self.checkpointed = -1
        self.written = 0
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.countdown = -1
        self._is_raced = False
        self._held = b""
        if self.chance.random() < 0.5:
            super().__init__(after="1d")
        else:
            super().__init__(mode="delete", archive_uri=None)
        self._outside = MemoryStorage("mem://lake")
        self._outside.objects = self.sink.objects
        self.owners: list[SourcePipeline] = [self.pipeline()]
        for storage in (self.source, self.sink, self.archive):
            storage.before_mutation = self._before
            storage.after_mutation = self._after
        self.source.before_mutation = self._before_source
        self.source.after_mutation = self._after_source
        ingest = self.engine.ingest

        def raced(job: IngestJob) -> IngestResult:
            # Between the listing and the reading.
            if self.chance.random() < 0.15:
                self.overwrite(self.chance.choice(job.files).path)
            return ingest(job)

        self.engine.ingest = raced  # type: ignore[method-assign]  # a producer beside each job

    def parts(self) -> SourceContext:
        return replace(super().parts(), monotonic=lambda: self.elapsed)

    def play(self, steps: int) -> None:
        """Let so many things happen, and then time pass until all that is due is cleaned."""
        deeds: tuple[tuple[Callable[[], None], float], ...] = (
            (self.write, 6),
            (self.overwrite_any, 2),
            (self.poll, 8),
            (self.commit_some, 6),
            (self.pass_hours, 5),
            (self.pass_days, 4),
            (self.die, 2),
            (self.take_over, 1),
            (self.restore, 1.5),
            (self.roll_back, 2),
            (self.clean_log, 1),
            (self.set_clock, 0.7),
        )
        chosen, weights = zip(*deeds, strict=True)
        for _ in range(steps):
            self.chance.choices(chosen, weights)[0]()
        for _ in range(10):
            self.commit_all()
            self.poll()
            self.pass_days()

    # -- writers -----------------------------------------------------------------------

    def write(self) -> None:
        """Write a new file, mostly in order."""
        self.written += 1
        day = self.chance.choice((15, 15, 16))
        self._put(f"date=2025-06-{day}/{self.written:04d}.ndjson")

    def overwrite_any(self) -> None:
        """Replace a file in place, or write one again that is gone."""
        if self.written:
            number = self.chance.randrange(self.written) + 1
            self.overwrite(f"date=2025-06-15/{number:04d}.ndjson")

    def overwrite(self, path: str) -> None:
        """Replace a file by other rows."""
        self.counts["overwritten"] += path in self.source.objects
        self._put(path)

    def _put(self, path: str) -> None:
        self.counts["versions"] += 1
        rows = [f"{path}@{self.counts['versions']}#{i}" for i in range(self.chance.choice((1, 2)))]
        if self.chance.random() < 0.05:
            rows.append(f"?{path}@{self.counts['versions']}")
        self.source.objects[path] = ("\n".join(rows).encode(), self.now)

    # -- owners ------------------------------------------------------------------------

    def poll(self) -> None:
        """Let one of the processes that believe to be the owner work."""
        owner = self.chance.choice(self.owners)
        try:
            self.drain(owner)
        except FencedError:
            self.counts["fenced"] += 1
            self.owners.remove(owner)
        except Died:
            self.counts["died"] += 1
            self.owners.remove(owner)
        self.countdown = -1
        if not self.owners:
            self.owners.append(self.pipeline())

    def die(self) -> None:
        """Let a process die at one of its next changes."""
        self.countdown = self.chance.randrange(40)
        self.poll()

    def take_over(self) -> None:
        """Start another owner beside the one that works."""
        self.owners.append(self.pipeline())
        self.poll()

    def drain(self, pipeline: SourcePipeline | None = None) -> SourcePipeline:
        before = self.now
        try:
            return super().drain(pipeline)
        finally:
            self.elapsed += self.now - before  # a wait for a retry

    # -- the table ---------------------------------------------------------------------

    def commit_some(self) -> None:
        """Commit some of what is published; the rest comes late."""
        files = self.published()
        self._commit({path for path in files if self.chance.random() < 0.7})

    def commit_all(self) -> None:
        """Commit everything."""
        self._commit(set(self.published()))

    def _commit(self, paths: set[str]) -> None:
        # What a RESTORE took out stays out: its outputs are known.
        known = frozenset[str]().union(*self.tables)
        if new := paths - known:
            self._add_version(frozenset(new) | self._table(), "WRITE")

    def restore(self) -> None:
        """Take the table back to an earlier version, by a new one."""
        if len(self.tables) > 1:
            self.counts["restored"] += 1
            back = self.chance.randrange(1, len(self.tables))
            self._add_version(self.tables[-1 - back], "RESTORE")

    def roll_back(self) -> None:
        """Remove the last entries of the log, which a committer then writes anew."""
        if len(self.tables) > 1:
            self.counts["rolled back"] += 1
            last = len(self.tables) - self.chance.randrange(1, len(self.tables)) - 1
            if last < self.checkpointed:
                return  # earlier entries may be cleaned up, and nobody has a copy
            for path in [*self.sink.objects]:
                digits = path.removeprefix(f"{_LOG}/")[:20]
                if digits.isdigit() and int(digits) > last:
                    del self.sink.objects[path]
            del self.tables[last + 1 :]
            if self.chance.random() < 0.5:
                self.commit_all()

    def clean_log(self) -> None:
        """Remove old entries, as a clean-up of the log behind a checkpoint does."""
        self.counts["log cleaned"] += 1
        last = len(self.tables) - 1
        if last < 1:
            return
        table = Table()
        table.apply([{"add": self._added(path)} for path in sorted(self._table())], last)
        self.checkpointed = last
        checkpoint(self._outside, table)  # type: ignore[arg-type]  # any storage that writes
        for version in range(last - self.chance.randrange(3)):
            self.sink.objects.pop(f"{_LOG}/{version:020d}.json", None)

    def _table(self) -> frozenset[str]:
        return self.tables[-1] if self.tables else frozenset()

    def _add_version(self, files: frozenset[str], operation: str) -> None:
        before = self._table()
        actions: list[dict[str, Any]] = [{"commitInfo": {"operation": operation}}]
        actions += [{"add": self._added(path)} for path in sorted(files - before)]
        actions += [{"remove": {"path": path}} for path in sorted(before - files)]
        path = f"{_LOG}/{len(self.tables):020d}.json"
        self.sink.objects[path] = ("\n".join(map(json.dumps, actions)).encode(), self.now)
        self.tables.append(files)

    @staticmethod
    def _added(path: str) -> dict[str, Any]:
        return {"path": path, "size": 1, "modificationTime": 0, "partitionValues": {}}

    # -- time --------------------------------------------------------------------------

    def pass_hours(self) -> None:
        """Let some minutes or hours pass."""
        self._pass(self.chance.choice((400.0, 4000.0, 40_000.0)))

    def pass_days(self) -> None:
        """Let a day or more pass, with polls in between."""
        for _ in range(self.chance.choice((1, 2, 4))):
            self._pass(DAY_SECS)
            self.poll()

    def _pass(self, secs: float) -> None:
        self.now += secs
        self.elapsed += secs

    def set_clock(self) -> None:
        """Set the store's clock forwards or backwards."""
        self.counts["clock set"] += 1
        self.now += self.chance.choice((-10, -2, 2, 10)) * DAY_SECS

    # -- removals ----------------------------------------------------------------------

    def _step(self) -> None:
        if self.countdown == 0:
            self.countdown = -1
            raise Died
        if self.countdown > 0:
            self.countdown -= 1

    def _before(self, _operation: str, _path: str) -> None:
        self._step()

    def _after(self, _operation: str, _path: str) -> None:
        self._step()

    def _before_source(self, operation: str, path: str) -> None:
        if operation == "delete_if":
            if self.chance.random() < 0.1:
                self.counts["overwritten at its removal"] += 1
                self.overwrite(path)
            if self.chance.random() < 0.05 and not self._is_raced:
                self._take_over_meanwhile()
            self._held = self.source.objects.get(path, (b"", 0.0))[0]
        self._step()

    def _take_over_meanwhile(self) -> None:
        self._is_raced = True
        self.counts["taken over at a removal"] += 1
        other = self.pipeline()
        try:
            super().drain(other)
        except Unfinished:
            pass
        finally:
            self._is_raced = False
        self.owners.append(other)

    def _after_source(self, operation: str, path: str) -> None:
        if operation == "delete_if":
            self._judge(path, self._held)
        self._step()

    def _judge(self, path: str, data: bytes) -> None:
        self.counts["cleaned"] += 1
        there = {
            row
            for file in self._table()
            for row in self.sink.objects[file][0].decode().splitlines()
        }
        rows = set(data.decode().splitlines())
        if not rows <= there:
            self.wrong.append(f"{path}: {min(rows - there)} is in no table")
        if self.parts().stores.archive is not None:
            copy = self.archive.objects.get(path)
            if copy is None or copy[0] != data:
                self.wrong.append(f"{path}: the archive has no copy")
