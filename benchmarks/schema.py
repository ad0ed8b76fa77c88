"""What each kind of column costs a task, against the same data in plain columns.

``python -m benchmarks.schema``: CPU time of parsing one chunk of Wikipedia edits, the least
of some rounds in which all schemas take turns. Other work on the machine counts little.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

from blizzard_core.settings.schema import FieldSettings, UnexpectedFields
from blizzard_py.kernels.decode.columns import RecordSchema
from blizzard_py.kernels.decode.parse import LineParser
from blizzard_py.kernels.process import prepare_process
from blizzard_py.schema.types import field_spec

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
CASES: dict[str, tuple[dict[str, Any], UnexpectedFields]] = {
    "plain columns": ({}, "ignore"),
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


def parser(changes: dict[str, Any], unexpected: UnexpectedFields) -> LineParser:
    fields = [
        field_spec(
            FieldSettings.model_validate(
                {"name": name, **(kind if isinstance(kind, dict) else {"type": kind})}
            )
        )
        for name, kind in {**PLAIN, **changes}.items()
        if kind is not None
    ]
    return LineParser(RecordSchema(fields, unexpected))


def main() -> None:
    prepare_process()
    data = chunk()
    parsers = {name: parser(*case) for name, case in CASES.items()}
    best = dict.fromkeys(parsers, float("inf"))
    for _ in range(ROUNDS):
        for name, found in parsers.items():
            start = time.process_time()
            found.parse(data)
            best[name] = min(best[name], time.process_time() - start)
    print(f"{len(data):,} bytes, {ROWS:,} rows, {len(PLAIN)} columns")
    for name, secs in best.items():
        print(f"{name:32} {secs * 1000:6.1f} ms  {secs / best['plain columns']:.2f}")


if __name__ == "__main__":
    main()
