"""Cost of each kind of column in a task, against the same data in plain columns.

``python -m benchmarks.schema``: CPU time of parsing chunks of Wikipedia edits with the fast path
and without, the least of some rounds in which all schemas take turns. Other work on the machine
counts little.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

from blizzard_core.settings.schema import FieldSettings, UnexpectedFields
from blizzard_py.formats.child_process import prepare_process
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.lines.framing import Piece, framed
from blizzard_py.schema.field_specs import field_spec

SAMPLE = Path(__file__).parents[1] / "blizzard_py/demo/data/wikiticker-2015-09-12-sampled.json.gz"
ROWS = 6000
ROUNDS = 12

PLAIN: dict[str, Any] = {
    "time": {"type": "timestamp"},
    **dict.fromkeys(("channel", "cityName", "comment", "countryIsoCode", "countryName"), "string"),
    **dict.fromkeys(("isAnonymous", "isMinor", "isNew", "isRobot", "isUnpatrolled"), "boolean"),
    **dict.fromkeys(("namespace", "page", "regionIsoCode", "regionName", "user"), "string"),
    **dict.fromkeys(("metroCode", "delta", "added", "deleted", "epoch"), "int64"),
    **dict.fromkeys(("day", "base64"), "string"),
    **dict.fromkeys(("price", "ratio"), "float64"),
    "place": {
        "type": "struct",
        "fields": [{"name": "city", "type": "string"}, {"name": "code", "type": "int64"}],
    },
    "names": {"type": "list", "items": "string"},
    "counts": {
        "type": "struct",
        "fields": [{"name": "a", "type": "int64"}, {"name": "d", "type": "int64"}],
    },
}
ANY = {"type": "string", "coerce": True}
LEFT_OUT = dict.fromkeys(("place", "names", "counts"))
CASES: dict[str, tuple[dict[str, Any], UnexpectedFields]] = {
    "plain columns": (LEFT_OUT, "ignore"),
    "a list of strings": (LEFT_OUT | {"names": PLAIN["names"]}, "ignore"),
    "a struct": (LEFT_OUT | {"place": PLAIN["place"]}, "ignore"),
    "two structs and a list": ({}, "ignore"),
    "one date": ({"day": "date"}, "ignore"),
    "one binary": ({"base64": "binary"}, "ignore"),
    "one decimal": ({"price": "decimal(12,2)"}, "ignore"),
    "one float32": ({"ratio": "float32"}, "ignore"),
    "one epoch": ({"epoch": {"type": "timestamp", "unit": "ms"}}, "ignore"),
    "one json, of strings": ({"page": "json"}, "ignore"),
    "one json, of objects": ({"place": "json"}, "ignore"),
    "one coerced string": ({"page": ANY}, "ignore"),
    "four coerced strings": (dict.fromkeys(("page", "user", "comment", "channel"), ANY), "ignore"),
    "one map": ({"counts": {"type": "map", "values": "int64"}}, "ignore"),
    "one list of json": ({"names": {"type": "list", "items": "json"}}, "ignore"),
    "fail": ({}, "fail"),
    "capture, nothing unexpected": ({}, "capture"),
    "capture, a field in every line": ({"ratio": None}, "capture"),
}


def chunk() -> bytes:
    lines = []
    with gzip.open(SAMPLE) as sample:
        for _, line in zip(range(ROWS), sample, strict=False):
            row = json.loads(line)
            row["epoch"] = 1_442_016_000_000 + row["added"]
            row["day"], row["base64"] = "2015-09-12", "aGVsbG8="
            row["price"], row["ratio"] = row["added"] / 100, 0.5
            row["place"] = {"city": row["cityName"], "code": row["metroCode"]}
            row["names"] = [row["user"], row["channel"]]
            row["counts"] = {"a": row["added"], "d": row["delta"]}
            lines.append(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return b"".join(lines)


def parser(changes: dict[str, Any], unexpected: UnexpectedFields, *, fast: bool) -> LineParser:
    fields = [
        field_spec(
            FieldSettings.model_validate(
                {"name": name, **(kind if isinstance(kind, dict) else {"type": kind})}
            )
        )
        for name, kind in {**PLAIN, **changes}.items()
        if kind is not None
    ]
    return LineParser(RecordSchema(fields, unexpected), fast=fast)


def main() -> None:
    prepare_process()
    data = chunk()
    chunks = [
        item.data
        for item in framed(
            data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20)
        )
        if isinstance(item, Piece)
    ]
    parsers = {
        (name, fast): parser(*case, fast=fast)
        for name, case in CASES.items()
        for fast in (True, False)
    }
    best = dict.fromkeys(parsers, float("inf"))
    for _ in range(ROUNDS):
        for case, found in parsers.items():
            start = time.process_time()
            for one in chunks:
                found.parse(one)
            best[case] = min(best[case], time.process_time() - start)
    print(f"{len(data):,} bytes, {ROWS:,} rows, {len(PLAIN)} columns\n")
    print("| schema | fast path, ms | without, ms | times as fast |\n|---|---|---|---|")
    for name in CASES:
        fast, exact = best[name, True] * 1000, best[name, False] * 1000
        print(f"| {name} | {fast:.1f} | {exact:.1f} | {exact / fast:.1f} |")


if __name__ == "__main__":
    main()
