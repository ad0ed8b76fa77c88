"""A task that writes dead letters for late rows of a batch, and for rows ahead of time.

It reads only times and positions of the staged rows again. It decides by the same rule as the
reader (`blizzard_py.kernels.lateness`), and takes the raw lines from the source files by their
numbers. A letter has the form of a bad record's, with ``stage`` ``late`` or ``ahead``. For each
file a task writes at most as many letters as for bad records. The last letter says how many more
rows there are (``more``).
"""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.errors import Unavailable
from blizzard_core.limits import RAW_BYTES
from blizzard_core.storage.protocol import Storage, join, order_key
from blizzard_core.text import source_file_text
from blizzard_py.formats.names import format_of
from blizzard_py.formats.protocol import BadRecord
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import POSITION, IngestJob, JobFile, StagedBadRecords
from blizzard_py.kernels.bad_records import BadRecordWriter, FileLetters
from blizzard_py.kernels.lateness import Limits, Rule, key_us, split, times_of
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import RefusedRecord

_FILE, _LINE = POSITION
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class LatenessTask:
    """Some staged ``files`` of a batch, whose source files are those of the job.

    Without ``keep`` late rows get no letters; rows ahead of time always do.
    """

    index: int
    job: IngestJob
    files: tuple[JobFile, ...]
    rule: Rule
    limits: Limits
    keep: bool = True


@dataclass(slots=True)
class _Wanted:
    """A file's lines that get a letter, with kind and time; and how many more get none."""

    lines: dict[int, tuple[str, int]] = field(default_factory=dict)
    more: int = 0


def run_lateness_task(
    task: LatenessTask, source: Storage, sink: Storage, attempt_id: int
) -> StagedBadRecords | None:
    """Write the letters, if any; ``attempt_id`` is unique among all writers to the directory.

    Raises `StorageError`, also if a source file cannot be read any more.
    """
    wanted: dict[str, _Wanted] = {}
    most = task.job.settings.tolerance.limits.letters
    for batch in _staged(task, sink):
        times = times_of(batch.column(task.rule.column))
        found = split(task.rule, task.limits, times)
        chosen = {"ahead": found.ahead} | ({"late": found.late} if task.keep else {})
        for kind, flags in chosen.items():
            _want(wanted, batch.filter(pa.array(flags)), kind, times[flags].tolist(), most)
    return _lettered(task, wanted, source, sink, attempt_id) if wanted else None


def _staged(task: LatenessTask, sink: Storage) -> Iterator[pa.RecordBatch]:
    columns = [task.rule.column, _FILE, _LINE]
    for file in task.files:
        staged = pq.ParquetFile(io.BytesIO(sink.read(file.path)))
        yield from staged.iter_batches(columns=columns)


def _want(
    wanted: dict[str, _Wanted], rows: pa.RecordBatch, kind: str, times: list[int], most: int
) -> None:
    files, lines = rows.column(_FILE).to_pylist(), rows.column(_LINE).to_pylist()
    for file, line, time in zip(files, lines, times, strict=True):
        found = wanted.setdefault(file, _Wanted())
        if len(found.lines) < most:
            found.lines[line] = (kind, time)
        else:
            found.more += 1


def _lettered(
    task: LatenessTask,
    wanted: Mapping[str, _Wanted],
    source: Storage,
    sink: Storage,
    attempt_id: int,
) -> StagedBadRecords:
    # As in the rows: by the store's URI, however the configuration spells it.
    files = {source_file_text(source.uri, file.path): file for file in task.job.files}
    found = ((files.get(text) or _named(source, text), text) for text in wanted)
    counts = []
    with closing(BadRecordWriter(source.uri, task.job.started_ts)) as writer:
        for file, text in sorted(found, key=_by_path):
            letters = FileLetters(writer, file.path, task.job.settings.tolerance.limits.letters)
            each = wanted[text]
            known = text in files
            read = (
                _records(task, file, each.lines, source) if known else _lineless(task, each, text)
            )
            for bad in read:
                letters.add(bad)
            letters.pass_over(each.more)
            letters.close()
            counts.append((file.path, letters.count))
        name = f"late-{task.index:05d}-{attempt_id}.letters.ndjson"
        staged = writer.stage(sink, join(task.job.staging, name))
    return StagedBadRecords(staged, tuple(counts))


def _by_path(item: tuple[JobFile, str]) -> bytes:
    return order_key(item[0].path)


def _named(source: Storage, text: str) -> JobFile:
    """Return the file that rows name although the batch does not have it."""
    return JobFile(text.removeprefix(f"{source.uri}/"), 0)


def _lineless(task: LatenessTask, wanted: _Wanted, text: str) -> Iterator[BadRecord]:
    """Yield letters without their lines: a transform may give rows another file name."""
    for line, (kind, time) in sorted(wanted.lines.items()):
        reason = (
            f"{_reason(task, kind, time)}; the line is missing, since the batch has no file"
            f" {text!r}: the transform must keep {_FILE} unchanged"
        )
        yield BadRecord(line - 1, 0, 0, b"", reason, kind)


def _records(
    task: LatenessTask, file: JobFile, lines: Mapping[int, tuple[str, int]], source: Storage
) -> Iterator[BadRecord]:
    """Yield the letters of a file's lines, in order."""
    left = sorted(lines, reverse=True)
    settings = task.job.settings
    form = format_of(settings.format)
    decoder = form.decoder(settings.schema, tolerant=True, fast=False)
    try:
        with SourceFile(source, file) as opened_file:
            before = 0  # numbers that were read before
            for item in opened_file.pieces(form, settings.schema):
                if not left:
                    break
                before += item.skipped
                if isinstance(item, RefusedRecord):
                    before += 1
                    continue
                count = item.lines or item.data.count(b"\n")
                records = decoder.records(item) if left[-1] <= before + count else {}
                while left and left[-1] <= before + count:
                    number = left.pop()
                    index = number - before - 1
                    offset, raw, header = records[index]
                    kind, time = lines[number]
                    late = BadRecord(
                        index,
                        offset,
                        len(raw),
                        raw[:RAW_BYTES],
                        _reason(task, kind, time),
                        kind,
                        header,
                        item.member,
                    )
                    yield late.moved(before, item.offset)
                before += count
    except FileFailed as error:
        raise Unavailable(f"{source.uri}/{file.path}: {error.reason}") from error
    if left:
        raise Unavailable(
            f"{source.uri}/{file.path}: line {left[-1]} was read before and is now missing; the"
            " file has changed"
        )


def _reason(task: LatenessTask, kind: str, time: int) -> str:
    rule, limits = task.rule, task.limits
    if kind == "ahead":
        return (
            f"{rule.column} {_text(time)} is later than {_text(limits.ahead_us)}, which is"
            " max_ahead after the batch began"
        )
    until = int(key_us(rule, np.array([time], np.int64))[0])
    waited = f", waited for until {_text(until)}" if until != time else ""
    return (
        f"{rule.column} {_text(time)}{waited}: late, the watermark was"
        f" {_text(limits.watermark_ms * 1000)}"
    )


def _text(micros: int) -> str:
    seconds, rest = divmod(micros, _MICRO)
    try:
        moment = dt.datetime.fromtimestamp(seconds, dt.UTC).replace(microsecond=rest)
    except (ValueError, OverflowError, OSError):  # a year outside Python's calendar
        return f"{micros} us after 1970"
    return moment.isoformat().replace("+00:00", "Z")
