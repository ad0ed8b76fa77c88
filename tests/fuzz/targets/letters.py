"""Dead letters and Penguin's quarantine, which every writer of the table can write."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from blizzard_core.storage.protocol import Entry
from blizzard_py.dead_letters import reader
from blizzard_py.state.record_names import letter_batch_of, record_file, stem_of
from penguin_py.intake.quarantine import Quarantine
from penguin_py.model import Rejection
from tests.fuzz.mutate import json_lines
from tests.fuzz.target import Target, hold
from tests.support.memory_store import MemoryStorage

_BATCH = "0190a0a0-0000-7000-8000-000000000000"
_NAMES = (f"p_s/{_BATCH}.ndjson", f"p_s/{_BATCH}.records.ndjson")


def letters(data: bytes) -> None:
    """Read a line as a letter or name it as none; print it as JSON."""
    store = MemoryStorage()
    for name in _NAMES:
        store.objects[name] = (data, 0.0)
    for found in reader.objects(store, "p_s"):
        try:
            for letter in reader.read(store, found):
                json.dumps(letter.to_json(found), allow_nan=False)
                name = record_file(stem_of(letter.uri), found.batch, 0)
                folder = letter.uri.rpartition("/")[0]
                hold("a record's file lies beside its own", name.rpartition("/")[0] == folder, name)
                long = len(name.rpartition("/")[2].encode("utf-8", "surrogatepass"))
                hold("its name is short enough for a disk", long <= 255, long)
                hold("it is known again", letter_batch_of(name) == _BATCH, name)
        except reader.UnreadableDeadLetter as error:
            hold("the line is named", "line " in str(error), error)
            hold("a message is bounded", len(str(error)) < 20_000, len(str(error)))


def quarantine(data: bytes) -> None:
    """Read a damaged record as empty; find and remove an entry that is added to it."""
    store = MemoryStorage()
    store.objects["_penguin/events_quarantine.ndjson"] = (data, 0.0)
    kept = Quarantine(store, "events")
    before = kept.records()
    rejection = Rejection(Entry("new/a.parquet", 1, 2.0), "read", "is junk")
    kept.keep([rejection], 1e9)
    hold("what is kept is on record", "new/a.parquet" in kept.records())
    kept.release(["new/a.parquet"])
    before.pop("new/a.parquet", None)
    hold("what is released leaves the others", kept.records() == before)


def _letter_seeds() -> Iterator[bytes]:
    letter = {"path": "s3://raw/date=1/a.ndjson", "error": "e", "stage": "parse",
              "timestamp": "2024-01-28T00:00:00+00:00"}  # fmt: skip
    place = {"line": 3, "offset": 20, "length": 4, "truncated": False}
    yield json.dumps(letter).encode() + b"\n\n"
    yield json.dumps(letter | place | {"raw": "nope"}).encode()
    packed = base64.b64encode(b"\xff").decode()
    yield json.dumps(letter | place | {"raw_base64": packed, "truncated": True}).encode()


def _quarantine_seeds() -> Iterator[bytes]:
    store = MemoryStorage()
    Quarantine(store, "events").keep([Rejection(Entry("a", 1, 2.0), "read", "is junk")], 1e9)
    [(data, _)] = store.objects.values()
    yield data + b'{"path":"a","released":true}\nnope\n' + data


TARGETS = (
    Target("letters", letters, _letter_seeds, json_lines),
    Target("quarantine", quarantine, _quarantine_seeds, json_lines),
)
