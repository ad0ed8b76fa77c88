"""Checks of the stores of a configuration, each as its daemon uses it.

A source is only listed and read, unless ``writes_sources`` is set: it is often another team's
bucket. What is a property of the server is tried once for each bucket: conditions, order, region
and clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from blizzard_core.daemon import StopEvent
from blizzard_core.doctor.findings import CheckResult
from blizzard_core.doctor.store_probe import Step, StoreProbe
from blizzard_core.errors import (
    BlizzardError,
    BucketMissing,
    NotFound,
    StorageError,
    Unavailable,
)
from blizzard_core.storage.environment import S3_SCHEMES
from blizzard_core.storage.objects import ObjectStorage, Patience, bucket_root
from blizzard_core.storage.opening import (
    normalize_uri,
    open_private,
    open_source,
    open_storage,
    scheme_of,
)
from blizzard_core.storage.protocol import (
    Entry,
    ServerFacts,
    Storage,
    StorageOptions,
    is_hidden,
)
from blizzard_core.text import counted
from blizzard_core.threads import ThreadPool

Use = Literal["source", "table", "dead letters", "leases", "archive"]

# A person waits.
_PATIENCE = Patience(connect_secs=5, read_secs=10, retry_secs=1)
_AT_ONCE = 8
# Stores refuse signed requests from a quarter of an hour on.
SKEW_NOTED_SECS = 60.0
SKEW_REFUSED_SECS = 900.0


@dataclass(frozen=True, slots=True)
class UsedStore:
    """A store that the configuration names, and what for.

    ``cleans``: its files are removed, or get the ``tag`` if there is one.
    """

    use: Use
    uri: str
    options: StorageOptions = field(default_factory=dict, repr=False)
    cleans: bool = False
    tag: str = ""

    @property
    def subject(self) -> str:
        """Return what lines about it begin with."""
        return f"{self.use} {normalize_uri(self.uri)}"

    @property
    def server(self) -> tuple[str, frozenset[tuple[str, str]]]:
        """Return what stores in one bucket with the same options share."""
        uri = normalize_uri(self.uri)
        bucket = f"{uri.partition('://')[0]}://{bucket_root(uri).partition('/')[0]}"
        return bucket if "://" in uri else uri, frozenset(self.options.items())


def check_stores(
    stores: Iterable[UsedStore],
    stop: StopEvent,
    *,
    writes_sources: bool = False,
    now: Callable[[], float] = time.time,
) -> Iterator[CheckResult]:
    """Yield the results for each store, in their order; several are checked at once.

    Ends early if ``stop`` is set. Probe objects are deleted in any case.
    """
    distinct = list(
        {(each.use, each.uri, each.server, each.cleans, each.tag): each for each in stores}.values()
    )
    # The first table of a bucket stands for its server, or else the first source.
    by_need = sorted(distinct, key=lambda each: each.use == "source" and not writes_sources)
    first: dict[object, UsedStore] = {}
    for each in by_need:
        first.setdefault(each.server, each)
    checks = [
        _StoreCheck(
            each,
            now,
            is_first=first[each.server] is each,
            writes=writes_sources or each.use != "source",
        )
        for each in distinct
    ]
    with ThreadPool(max_workers=_AT_ONCE) as pool:
        for found in pool.map(lambda check: check.run(stop), checks):
            yield from found


class _StoreCheck:
    """The checks of one store."""

    def __init__(
        self, used: UsedStore, now: Callable[[], float], *, is_first: bool, writes: bool
    ) -> None:
        self._used = used
        self._now = now
        self._is_first = is_first
        self._writes = writes

    def run(self, stop: StopEvent) -> list[CheckResult]:
        """Return what was found, up to the first failure that makes the rest pointless."""
        found: list[CheckResult] = []
        if stop.is_set():
            return found
        try:
            found.extend(self._findings(stop))
        except BlizzardError as error:
            found.append(self._failed("store", error))
        return found

    def _findings(self, stop: StopEvent) -> Iterator[CheckResult]:
        storage = _opened(self._used)
        facts = ServerFacts()
        if isinstance(storage, ObjectStorage) and self._is_first:
            facts = storage.server_facts()
            if facts.now is not None:
                yield self._finding(_clock(facts.now - self._now()))
            yield from map(self._finding, region_steps(facts, is_table=self._used.use != "source"))
        try:
            entries, keys = _first_page(storage)
        except NotFound as error:
            yield self._missing(Path(storage.uri), error)
            return
        except StorageError as error:
            yield self._failed("list", error)
            if isinstance(error, BucketMissing | Unavailable):
                return
        else:
            yield self._finding(Step("list", "ok", f"{counted(keys, 'name')} on the first page"))
            if self._used.use == "source":
                yield from map(self._finding, _read_source(storage, entries))
        if self._writes and not stop.is_set():
            yield from map(
                self._finding, self._probe(storage, partial(self._tries, storage, facts, stop))
            )
        if self._used.cleans and not stop.is_set():
            needs = scheme_of(self._used.uri) in S3_SCHEMES
            tag = self._used.tag
            tries = (
                partial(StoreProbe.tagging, tag=tag)
                if tag
                else partial(StoreProbe.removal, must_write=needs)
            )
            yield from map(self._finding, self._probe(storage, tries))

    def _finding(self, step: Step, exit_code: int = 1) -> CheckResult:
        uri = normalize_uri(self._used.uri)
        text = step.text
        for start in (f"{uri}/: ", f"{uri}: ", f"{uri}/"):  # the line begins with it already
            text = text.removeprefix(start)
        return CheckResult(self._used.subject, step.check, step.result, text, exit_code)

    def _failed(self, check: str, error: BlizzardError) -> CheckResult:
        return self._finding(Step(check, "failed", str(error)), error.exit_code)

    def _missing(self, root: Path, error: NotFound) -> CheckResult:
        """Say of a local directory that does not exist whether the daemon can make it."""
        if self._used.use == "source" or root.exists():  # as a file
            return self._failed("list", error)
        parent = next(each for each in root.parents if os.access(each, os.F_OK))
        if os.access(parent, os.W_OK | os.X_OK) and parent.is_dir():
            return self._finding(Step("write", "ok", "the first batch makes this directory"))
        text = f"does not exist, and {parent} takes no directory of this user; make it"
        return self._finding(Step("write", "failed", text))

    def _probe(
        self, storage: Storage, tries: Callable[[StoreProbe], Iterator[Step]]
    ) -> Iterator[Step]:
        probe = StoreProbe(storage, self._open_below)
        try:
            yield from tries(probe)
        finally:
            left = probe.clean_up()
        if left is not None:
            yield left

    def _tries(
        self, storage: Storage, facts: ServerFacts, stop: StopEvent, probe: StoreProbe
    ) -> Iterator[Step]:
        has_failed = False
        for step in probe.basics():
            has_failed |= step.result == "failed"
            yield step
        if has_failed or stop.is_set():
            return
        if self._is_first and self._used.use == "table":
            yield from probe.conditions()
        if stop.is_set():
            return
        if self._is_first:
            yield from probe.order()
        written = probe.written_at()
        if self._is_first and isinstance(storage, ObjectStorage) and facts.now is None:
            yield _clock(written - self._now())
        probe.clear_abandoned(written)

    def _open_below(self, folder: str) -> Storage:
        return _opened(replace(self._used, uri=f"{self._used.uri.rstrip('/')}/{folder}"))


def _opened(used: UsedStore) -> Storage:
    uri = normalize_uri(used.uri)
    if "://" in uri:
        return open_storage(uri, used.options, _PATIENCE)
    opens = {
        "source": open_source,
        "table": open_storage,
        "dead letters": open_private,
        "leases": open_storage,
        "archive": open_private,
    }
    return opens[used.use](uri, used.options)


def _first_page(storage: Storage) -> tuple[Sequence[Entry], int]:
    """Return files of the first pages of a listing, and how many names they had."""
    entries: list[Entry] = []
    keys = 0
    # A local disk has a page for each directory.
    for page in islice(storage.list_range("", None), 20):
        entries += page.entries
        keys += page.keys
        if any(_is_readable(entry) for entry in page.entries):
            break
    return entries, keys


def _is_readable(entry: Entry) -> bool:
    return entry.size > 0 and not is_hidden(entry.path)


def _read_source(storage: Storage, entries: Sequence[Entry]) -> Iterator[Step]:
    """Read one byte of a file, and list behind it."""
    entry = next(filter(_is_readable, entries), None)
    if entry is None:
        yield Step("read", "note", "there is no file yet, so reading was not tried")
        return
    try:
        storage.read_range(entry.path, 0, 1)
        yield Step("read", "ok", f"{entry.path} can be read")
        if isinstance(storage, ObjectStorage):
            next(iter(storage.list_range(entry.path, None)), None)
            yield Step("start_after", "ok", "a listing begins behind a given name")
    except NotFound:
        yield Step("read", "note", f"{entry.path} was deleted before it could be read")
    except StorageError as error:
        yield Step("read", "failed", str(error))


def region_steps(facts: ServerFacts, *, is_table: bool) -> Iterator[Step]:
    """Compare the bucket's region with that of requests; delta-rs follows no redirect."""
    if facts.region is None or facts.asked_region is None:
        return
    if facts.region == facts.asked_region:
        yield Step("region", "ok", facts.region)
        return
    text = (
        f"the bucket is in {facts.region}, and requests are signed for {facts.asked_region}; set"
        f" AWS_REGION: {facts.region} in storage_options or the environment"
    )
    yield Step("region", "failed" if facts.checks_region and is_table else "note", text)


def _clock(ahead_secs: float) -> Step:
    """Judge how far the store's clock is ahead of this machine's."""
    skew = abs(ahead_secs)
    if skew < SKEW_NOTED_SECS:
        return Step("clock", "ok", "differs from the store's by less than a minute")
    text = (
        f"this machine's clock is {skew:,.0f} s {'behind' if ahead_secs > 0 else 'ahead of'} the"
        " store's; set it right (NTP). Stores refuse requests from 15 minutes on"
    )
    return Step("clock", "failed" if skew >= SKEW_REFUSED_SECS else "note", text)
