"""The answer as values, as JSON and as lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from blizzard_core.text import counted, iso, printable
from blizzard_py.explain.content import Content, content_lines
from blizzard_py.explain.evidence import InBatch, LetterEvidence
from blizzard_py.explain.location import Checked
from blizzard_py.sources.story import Compared, Lateness, Verdict, Waiting

DeltaStatus = Literal[
    "committed", "not committed yet", "refused", "unknown", "moved", "changed", "removed"
]
# What has happened to the rows of a file that is no longer in the table.
_DEPARTURES: Mapping[str, str] = {
    "moved": "rewritten into other files in version",
    "changed": "rewritten into other files, and maybe changed or removed, in version",
    "removed": "removed in version",
}


@dataclass(frozen=True, slots=True)
class File:
    """An existing file's size in bytes and its modification time."""

    size: int
    modified_ts: float


@dataclass(frozen=True, slots=True)
class TaskEvidence:
    """A task of a table or an API: its window, in stored notation, and by what.

    Both are None of a window that is published: only its outcome is kept. ``unit`` is what is known
    of a work unit.
    """

    window: Mapping[str, Any] | None
    statement: str | None
    unit: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A Parquet file of the batch and the Delta version that added it; ``rows`` are all of it.

    ``refusal`` is why a committer has refused it. ``removed_version`` and ``removed_by``, an
    operation, are of the latest commit that took its rows away or into other files.
    """

    path: str
    rows: int
    delta_status: DeltaStatus
    delta_version: int | None
    refusal: str | None = None
    removed_version: int | None = None
    removed_by: str | None = None

    @property
    def status_text(self) -> str:
        """Return for people where its rows are."""
        if self.removed_version is not None:
            what = _DEPARTURES[self.delta_status]
            return f"{what} {self.removed_version:,} ({self.removed_by})"
        if self.delta_version is not None:
            return f"committed in version {self.delta_version}"
        return self.delta_status


@dataclass(frozen=True, slots=True)
class Merged:
    """The keyed table, and its version with all rows of the file; None: not merged yet.

    That merge took changes up to the version ``changes``; ``outcomes`` count all of its keys.
    """

    table: str
    version: int | None = None
    changes: int | None = None
    outcomes: Mapping[str, int] | None = None

    @property
    def text(self) -> str:
        """Return for people where the rows are."""
        if self.version is None:
            return f"{self.table}: not merged yet"
        counts = ", ".join(f"{n:,} {name}" for name, n in (self.outcomes or {}).items())
        return (
            f"{self.table}: merged in version {self.version:,}, with changes up to version"
            f" {self.changes:,}: {counts.replace('_', ' ')}"
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer; its fields are the JSON keys of the package's docstring.

    ``out_of_time`` counts rows that a query over event time was not given: ``late``, ``ahead``, and
    ``more`` of both without a letter, if there are any.
    """

    uri: str
    verdict: Verdict
    reason: str
    source: str | None
    sources: tuple[Checked, ...]
    path: str | None
    file: File | None = None
    partition: str | None = None
    name: str | None = None
    compared_with: Compared | None = None
    batch: InBatch | None = None
    outputs: tuple[Output, ...] | None = None
    records_replayed: int | None = None
    dead_letter: LetterEvidence | None = None
    pending: Waiting | None = None
    late: Lateness | None = None
    untaken: tuple[str, ...] | None = None
    added_since: tuple[str, ...] | None = None
    content: Content | None = None
    task: TaskEvidence | None = None
    out_of_time: Mapping[str, int] | None = None
    merged: Merged | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the documented keys; the last three only if they apply."""
        document = asdict(self)
        for key in ("task", "out_of_time", "merged"):
            if document[key] is None:
                del document[key]
        return document


def lines(found: Explanation) -> Iterator[str]:
    """Return the answer for people, the verdict first, with control codes escaped."""
    yield from map(printable, _lines(found))


def _lines(found: Explanation) -> Iterator[str]:
    yield f"{found.verdict}: {found.reason}"
    if found.task is not None:
        yield f"  task       {found.uri}"
        if found.task.window is not None:
            yield f"  window     {json.dumps(found.task.window, ensure_ascii=False)}"
        for key, value in (found.task.unit or {}).items():
            yield f"  {key:<10} {json.dumps(value, ensure_ascii=False)}"
        if found.task.statement is not None:
            yield f"  reads      {found.task.statement}"
        yield from _work(found)
        return
    yield f"  file       {found.uri}" + (
        f" ({found.file.size:,} bytes, modified {iso(found.file.modified_ts)})"
        if found.file
        else " (does not exist)"
        if found.source
        else ""
    )
    for checked in found.sources:
        if checked.matches or found.source is None:
            yield f"  source     {checked.source} at {checked.root}: {checked.reason}"
    compared = found.compared_with
    if compared is not None:
        if found.partition is not None:
            yield f"  partition  {found.partition or '(none)'}, name {found.name}"
        yield (
            f"  compared   watermark {compared.watermark or '-'}, scan start"
            f" {compared.scan_start or '-'}, floor {compared.floor or '-'}"
            f" ({compared.state}, source's watermark {compared.source_watermark or '-'})"
        )
    yield from _work(found)
    if found.content is not None:
        yield from content_lines(found.content)
    yield from _fields(found)


def _fields(found: Explanation) -> Iterator[str]:
    """Yield lines on fields that the file's rows lack."""
    if found.untaken:
        yield f"  no column  for {', '.join(found.untaken)}; see `blizzard schema CONFIG --diff`"
    elif found.content is not None and found.content.unexpected:
        yield f"  no column  for {', '.join(found.content.unexpected)}"
    if found.added_since:
        yield (
            f"  added      {', '.join(found.added_since)}: a column since it was ingested;"
            " `blizzard backfill CONFIG --replace` takes it again"
        )


def _work(found: Explanation) -> Iterator[str]:
    """Return what a batch has made of it."""
    if found.batch is not None:
        batch = found.batch
        yield (
            f"  batch      {batch.batch}, attempt {batch.attempt}, started"
            f" {iso(batch.started_ts)}, finished {iso(batch.finished_ts)}"
        )
    for output in found.outputs or ():
        why = "" if output.refusal is None else f": {output.refusal}"
        yield (
            f"  parquet    {output.path} ({counted(output.rows, 'row')}), {output.status_text}{why}"
        )
    if found.merged is not None:
        yield f"  keyed      {found.merged.text}"
    if found.dead_letter is not None:
        dead = found.dead_letter
        yield f"  letter     {dead.object}" + (f" of {dead.timestamp}" if dead.timestamp else "")
