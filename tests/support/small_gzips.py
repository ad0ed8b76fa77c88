"""Small files that unpack to as much as possible, each ingested between two good ones.

``python -m tests.support.small_gzips CODEC FRACTION FOLDER`` ingests each in a process of its own,
forked from one that has imported everything, and prints what that cost as a line of JSON. Where
fewer than all lines may be bad it takes those alone that have bad ones.
"""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import zstandard

from blizzard_core.settings.schema import UnexpectedFields
from blizzard_py.formats.child_process import prepare_process
from blizzard_py.job import FieldSpec, PartitionRule
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs

PACKED_BYTES = 8 << 10
# As many as a gzip of that size can have, and twice as many for codecs that know better.
_UNPACKED_BYTES = 16 << 20

ID = specs(id="int64")
_BY_ID = (PartitionRule("id", key="of"),)
_WIDE = tuple(FieldSpec(f"c{number}", "int64", True) for number in range(200))
_OBJECTS = (*ID, FieldSpec("l", "list", True, (FieldSpec("element", "struct", True, _WIDE),)))
_RAW = tuple(FieldSpec(f"j{number}", "json", True) for number in range(40))


@dataclass(frozen=True)
class Kind:
    """A repeated text, the head before it, the tail behind it, and the table's fields."""

    repeated: bytes
    fields: tuple[FieldSpec, ...] = ID
    head: bytes = b""
    tail: bytes = b""
    unexpected: UnexpectedFields = "ignore"
    rules: tuple[PartitionRule, ...] = ()


KINDS: dict[str, Kind] = {
    "no objects": Kind(b"1\n"),
    "no JSON": Kind(b"{x}\n"),
    "not as declared": Kind(b'{"id":""}\n'),
    "names given twice": Kind(b'{"id":1,"id":2}\n'),
    "control characters": Kind(b"\x01" * 4000 + b"\n"),
    "empty rows": Kind(b"{}\n", _WIDE),
    "empty rows of many columns": Kind(
        b"{}\n", tuple(specs(**{f"c{n}": "int64" for n in range(1000)}))
    ),
    "empty rows of raw JSON": Kind(b"{}\n", _RAW),
    "empty objects in a list": Kind(b"{},", _OBJECTS, b'{"l":[', b"{}]}\n"),
    "lists of empty objects": Kind(b'{"l":[{},{},{},{}]}\n', _OBJECTS),
    "blank lines": Kind(b"\n"),
    "lines of blanks": Kind(b" " * 80 + b"\r\n"),
    "a long line": Kind(b"x", specs(s="string"), b'{"s":"', b'"}\n'),
    "a line without an end": Kind(b"{"),
    "deep arrays": Kind(b"[", ID, b'{"x":'),
    "deep objects": Kind(b'{"a":', ID, b'{"x":'),
    "lines of deep arrays": Kind(b'{"x":' + b"[" * 900 + b"]" * 900 + b"}\n"),
    "one name very often": Kind(b'"k":1,', ID, b"{", b'"id":1}\n', "capture"),
    "captured lines": Kind(b'{"k":[1,{"a":2}]}\n', ID, unexpected="capture"),
    "rows of a directory": Kind(b'{"id":1}\n', rules=_BY_ID),
}


def _names() -> Iterable[bytes]:
    return (b'"%x":0,' % number for number in itertools.count())


def _dates() -> Iterable[bytes]:
    return (b'{"id":%d}\n' % number for number in itertools.count())


# What is never the same: less of it goes into a small file.
CHANGING: dict[str, tuple[Callable[[], Iterable[bytes]], Kind]] = {
    "many names": (_names, Kind(b"", ID, b"{", b'"id":1}\n', "capture")),
    "many directories": (_dates, Kind(b"", rules=_BY_ID)),
}
# What can be hopeless. All others cost the same, however many bad lines a file may have.
BAD = (
    "no objects",
    "no JSON",
    "not as declared",
    "names given twice",
    "control characters",
    "a line without an end",
    "deep arrays",
    "deep objects",
    "lines of deep arrays",
    "one name very often",
)
CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 9, mtime=0),
    "zst": lambda data: zstandard.ZstdCompressor(19).compress(data),
}


def contents(name: str, codec: str) -> tuple[bytes, Kind]:
    """Return the longest content that is at most 8 KiB once it is packed."""
    pack = CODECS[codec]
    if name in CHANGING:
        pieces, kind = CHANGING[name]
        parts = [b"".join(itertools.islice(pieces(), count)) for count in (2000, 3000, 4500)]
        every = [pack(kind.head + part + kind.tail) for part in parts]
        return next(p for p in reversed(every) if len(p) <= PACKED_BYTES), kind
    kind = KINDS[name]
    most = _UNPACKED_BYTES // len(kind.repeated)
    # What packs this well packs to about its share.
    while len(packed := pack(kind.head + kind.repeated * most + kind.tail)) > PACKED_BYTES:
        most = most * PACKED_BYTES // len(packed) - 1
    return packed, kind


def cost_of(name: str, codec: str, fraction: str, folder: str) -> None:
    """Ingest one of them in this process, and print what that cost."""
    prepare_process()
    packed, kind = contents(name, codec)
    world = IngestJobHarness(
        Path(folder),
        fields=kind.fields,
        max_bad_fraction=float(fraction),
        rules=kind.rules,
        unexpected_fields=kind.unexpected,
    )
    good = b'{"id":1}\n' if kind.fields[0].name == "id" else b"{}\n"
    world.put("a.ndjson", good)
    world.put("z.ndjson", good)
    world.run_task()  # whatever is loaded with the first task
    world.put(f"b.ndjson.{codec}", packed)
    before, started = _peak(), time.process_time()
    report = world.run_task()
    found = by_path(report)
    cost = {
        "name": name,
        "mb": (_peak() - before) >> 10,
        "secs": round(time.process_time() - started, 1),
        "told": asdict(found[f"b.ndjson.{codec}"]),
        "packed": len(packed),
        "neighbours": [found[path].outcome for path in ("a.ndjson", "z.ndjson")],
        "staged": sum(p.stat().st_size for p in world.table.rglob("*") if p.is_file()),
    }
    sys.stdout.write(f"{json.dumps(cost)}\n")


def main(codec: str, fraction: str, folder: str) -> None:
    for number, name in enumerate((*KINDS, *CHANGING) if float(fraction) == 1 else BAD):
        place = Path(folder, str(number))
        place.mkdir()
        process = get_context("fork").Process(
            target=cost_of, args=(name, codec, fraction, str(place))
        )
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"{name}: {process.exitcode}")
        shutil.rmtree(place)


def _peak() -> int:
    """Return the peak in KiB. Not ru_maxrss: a process inherits that from its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
