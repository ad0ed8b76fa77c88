"""Outputs that wait for their commit, and the newest of a source among them. Read-only.

The footer of each output names its batch. So files in the table's directory that no committer has
passed show how far a source is, even if its state is lost. They are listed as committers list
them, above their watermarks: the cost depends on waiting files, not on stored ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import ProgressDocument, progress_of
from blizzard_core.errors import NotFound, StateError
from blizzard_core.handover.outputs import OUTPUT_ID_KEY, OutputId, committer_app, output_id_of
from blizzard_core.limits import FOOTER_BYTES
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.threads import ThreadPool
from blizzard_core.watermark.progress import Progress
from blizzard_core.watermark.scan import scan
from blizzard_py.state.committers import committer_of, committer_states

# The name of an output that is in no manifest.
OUTPUT_NAME = re.compile(
    r"([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})\.parquet"
)
# One request reads this much of a file's end, enough for nearly every footer.
_TAIL_BYTES = 1 << 16
_END_BYTES = 8  # the footer's length and the magic
# The header of a text in Thrift's compact protocol that is the field behind the key.
_TEXT = 0x18


@dataclass(frozen=True, slots=True)
class WaitingOutput:
    """An output that no committer has passed."""

    path: str
    batch: str
    attempt: int

    @property
    def name(self) -> str:
        """Return the file's name, a UUID like that of its batch."""
        return self.path.rpartition("/")[2].removesuffix(".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mirror(ProgressDocument):
    """The part of a committer's state that shows what is committed."""

    txn_version: int


def newest_waiting(
    sink: Storage, is_wanted: Callable[[str], bool], log: Mapping[str, int], concurrency: int
) -> WaitingOutput | None:
    """Return the newest output of a wanted run that may wait for its commit, or None.

    ``log`` has the newest ``txn`` of each application. Files that were committed within the
    committer's grace period are also examined. Output names rise with the batches of a source. So
    files are examined from the newest name down, until one belongs to a wanted run. Costs the LISTs
    of a committer's poll and a GET for each examined file. Raises `StorageError`.
    """
    try:
        found = scan(sink, _marks(sink, log), _is_output, concurrency).entries
    except NotFound:  # a local directory that nothing was written to yet
        return None
    newest = sorted(found, key=lambda entry: entry.path.rpartition("/")[2], reverse=True)
    for entry, output_id in _output_ids(sink, newest, concurrency):
        if output_id is not None and is_wanted(output_id.source):
            return WaitingOutput(entry.path, output_id.batch, output_id.attempt)
    return None


def _is_output(entry: Entry) -> bool:
    return OUTPUT_NAME.fullmatch(entry.path.rpartition("/")[2]) is not None


def _marks(sink: Storage, log: Mapping[str, int]) -> Progress:
    """Return the progress of the committer that reported last; empty if all outputs may wait.

    A state that is ahead of the log is of another moment and is ignored, like an invalid one.
    """
    newest, marks = 0, Progress()
    for entry in committer_states(sink):
        try:
            mirror = checkpoint.load(sink, entry.path, _mirror)
            if mirror is None:
                continue
            progress = progress_of(mirror, entry.path)
        except StateError:
            continue
        name = committer_of(entry)
        committed = max(log.get(app, 0) for app in (committer_app(name), name))
        if newest < mirror.last_update_ts and mirror.txn_version <= committed:
            newest, marks = mirror.last_update_ts, progress
    return marks


def _mirror(document: object, where: str) -> _Mirror:
    return decode_document(_Mirror, document, where, open_=True)


def _output_ids(
    sink: Storage, entries: list[Entry], concurrency: int
) -> Iterator[tuple[Entry, OutputId | None]]:
    """Yield each of these files with its output id. The first alone is usually enough."""
    if entries:
        yield entries[0], _read_id(sink, entries[0])
    with ThreadPool(max_workers=concurrency) as pool:
        for start in range(1, len(entries), concurrency):
            some = entries[start : start + concurrency]
            ids = pool.map(lambda entry: _read_id(sink, entry), some)
            yield from zip(some, ids, strict=True)


def _read_id(sink: Storage, entry: Entry) -> OutputId | None:
    """Return the output id in a file's footer, or None if there is none or the file is gone."""
    if entry.size <= _END_BYTES:
        return None
    try:
        tail = sink.read_range(entry.path, max(0, entry.size - _TAIL_BYTES), entry.size)
        length = int.from_bytes(tail[-_END_BYTES:-4], "little")
        if len(tail) - _END_BYTES < length <= min(FOOTER_BYTES, entry.size - _END_BYTES):
            tail = sink.read_range(entry.path, entry.size - length - _END_BYTES, entry.size)
    except NotFound:
        return None
    return output_id_of(_text_behind(tail[-_END_BYTES - length : -_END_BYTES]))


def _text_behind(footer: bytes) -> str:
    """Return the value of our key in a Parquet footer, without decoding the footer.

    Any program may have written the file. Key-value pairs are the last but one field of a footer,
    so the last match is used.
    """
    key = OUTPUT_ID_KEY.encode()
    at = footer.rfind(key)
    value = footer[at + len(key) :]
    if at < 0 or value[:1] != bytes([_TEXT]):
        return ""
    length = shift = 0
    for place, byte in enumerate(value[1:4], 2):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # the last byte of a number
            return value[place : place + length].decode("utf-8", "replace")
    return ""
